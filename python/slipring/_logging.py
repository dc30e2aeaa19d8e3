"""The logger ``slipring``, which gets what nobody else is told."""

from __future__ import annotations


def log(text: str, error: BaseException | None) -> None:
    """Writes an error; or what is over now, where there is none."""
    from logging import getLogger  # most programs never need it

    if error is None:
        getLogger("slipring").info("%s", text)
    else:
        getLogger("slipring").error("%s", text, exc_info=error)
