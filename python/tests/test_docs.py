"""The examples of the documentation."""

from __future__ import annotations

import doctest
import runpy
from pathlib import Path

import pytest

import slipring
from slipring import _asyncio, _errors, _handled, _options


def test_the_examples_of_the_modules_hold() -> None:
    modules = (slipring, _errors, _handled, _options, _asyncio)
    results = [doctest.testmod(module) for module in modules]
    assert sum(result.attempted for result in results) > 60
    assert not any(result.failed for result in results)


def test_the_examples_of_the_guide_hold() -> None:
    guide = Path(__file__).parents[1] / "README.md"
    result = doctest.testfile(str(guide), module_relative=False)
    assert result.attempted > 15 and not result.failed


def test_everything_public_is_documented() -> None:
    for name in slipring.__all__:
        thing = getattr(slipring, name)
        assert name == "__version__" or thing.__doc__, name
        if isinstance(thing, type) and thing.__module__ == "slipring":
            for member, value in vars(thing).items():
                assert member.startswith("_") or value.__doc__, f"{name}.{member}"


def test_every_class_has_an_example() -> None:
    classes = [getattr(slipring, name) for name in slipring.__all__]
    lacking = [
        thing.__name__
        for thing in classes
        if isinstance(thing, type) and ">>>" not in (thing.__doc__ or "")
        # Most exceptions only have a name: the families, and those that know more, say how they are used.
        and not (issubclass(thing, slipring.Error) and not thing.__dict__.get("__annotations__"))
    ]
    assert lacking == []


EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.stem)
def test_an_example_runs(example: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(example), run_name="__main__")
    assert capsys.readouterr().out
