"""What the tests share: brokers that are closed, and a watchdog over every test."""

from __future__ import annotations

import contextlib
import faulthandler
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import slipring

# A test that takes longer hangs, unless its module has another limit: all threads are shown, and the
# run ends.
LIMIT = 120.0


@pytest.fixture(autouse=True)
def watchdog(request: pytest.FixtureRequest) -> Iterator[None]:
    faulthandler.dump_traceback_later(getattr(request.module, "LIMIT", LIMIT), exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture
def broker() -> Iterator[slipring.Broker]:
    with slipring.open() as broker:
        yield broker


@pytest.fixture
def clock() -> slipring.TestClock:
    return slipring.TestClock()


@pytest.fixture
def timed(clock: slipring.TestClock) -> Iterator[slipring.Broker]:
    """A broker whose time is moved by ``clock`` alone."""
    with slipring.open(clock=clock) as broker:
        yield broker


@contextlib.contextmanager
def unreadable(folder: Path) -> Iterator[None]:
    """Meanwhile, the log's descriptors are of a folder, from which no bytes can be read."""
    links = ((int(link.name), link) for link in Path("/proc/self/fd").iterdir())
    logs = [fd for fd, link in links if str(link.resolve()).startswith(str(folder / "shard-"))]
    assert logs
    kept, other = {fd: os.dup(fd) for fd in logs}, os.open(folder, os.O_RDONLY)
    for fd in logs:
        os.dup2(other, fd, inheritable=False)
    os.close(other)
    yield
    for fd, was in kept.items():
        os.dup2(was, fd, inheritable=False)
        os.close(was)
