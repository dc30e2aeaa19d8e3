"""What the tests share: brokers that are closed, and a watchdog over every test."""

from __future__ import annotations

import faulthandler
from collections.abc import Iterator

import pytest

import slipring

# A test that takes longer hangs: all threads are shown, and the run ends.
LIMIT = 120.0


@pytest.fixture(autouse=True)
def watchdog() -> Iterator[None]:
    faulthandler.dump_traceback_later(LIMIT, exit=True)
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
