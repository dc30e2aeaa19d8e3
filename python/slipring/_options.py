"""Policies and positions: what the options of a broker and of a subscription can be."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    _Seconds = float | timedelta


class DeliveryMode(enum.Enum):
    """When a message counts as delivered."""

    #: When the consumer has acknowledged it, given up on it, or it has expired from the log: until
    #: then it is delivered again, after a time or a failure. Nothing is dropped while a queue is full:
    #: the subscription reads the log until it has caught up.
    AT_LEAST_ONCE = "at_least_once"
    #: When it is handed over. What happens while a queue is full, its ``Overflow`` policy says.
    AT_MOST_ONCE = "at_most_once"


class Backoff(NamedTuple):
    """How long a message that failed waits for its next attempt: ``min`` after the first, then doubled
    each time, up to ``max``. With ``jitter`` each pause is shortened by a random part of up to a half,
    so that what failed together is not tried again all at once.

    At most a day; where ``max`` is less than ``min``, it counts as that.
    """

    min: _Seconds = 0.1
    max: _Seconds = 60.0
    jitter: bool = False


class Overflow(enum.Enum):
    """What happens to messages while a subscription's queue is full, where they are delivered at most
    once.

    The names are literal: what drops never blocks, what blocks never drops. Whatever is dropped is
    told as an exact number, in stream order. ``Block(timeout)`` and ``Disconnect(after)`` are two
    more policies.
    """

    #: The new message is dropped.
    DROP_NEWEST = "drop_newest"
    #: The oldest message that is queued is dropped.
    DROP_OLDEST = "drop_oldest"
    #: The publisher waits until there is room.
    BLOCK = "block"


class Block(NamedTuple):
    """The publisher waits until there is room; after ``timeout`` the message is dropped."""

    #: How long one publish waits for this subscription; ``None``: as long as it takes.
    timeout: _Seconds | None = None


class Disconnect(NamedTuple):
    """New messages are dropped, and a subscription whose queue has been full for longer than
    ``after`` is disconnected: it gets what is queued, then ``Disconnected``."""

    #: How long the queue may stay full.
    after: _Seconds


class Start(enum.Enum):
    """Where a new subscription begins; ``Last``, ``Offset`` and ``Time`` are three more places."""

    #: With the first message published after subscribing.
    NOW = "now"
    #: With the oldest message still retained.
    EARLIEST = "earliest"


class Last(NamedTuple):
    """With the last retained messages that match: at most so many."""

    # `count` is a method of tuples; as a field it is the number.
    count: int  # type: ignore[assignment]


class Offset(NamedTuple):
    """In every matching partition, with the message at this offset."""

    offset: int


class Time(NamedTuple):
    """With the first message published at or after this time."""

    #: An aware ``datetime``, or seconds since the Unix epoch.
    time: datetime | float


class WaitStrategy(enum.Enum):
    """How a handler with a thread of its own waits for the next message."""

    #: Spins as long as that has lately been worth it, then yields, then parks.
    ADAPTIVE = "adaptive"
    #: Spins and never gives the core away.
    BUSY_SPIN = "busy_spin"
    #: Spins a little, then yields to other threads again and again.
    YIELD = "yield"
    #: Parks at once.
    PARK = "park"


class WhenFull(enum.Enum):
    """What a publish does when the memory budget is used up."""

    #: The oldest messages expire; who had not read them is told how many were lost.
    EXPIRE = "expire"
    #: The publish is refused while the oldest messages are still queued for somebody.
    REFUSE = "refuse"


class Sync(enum.Enum):
    """When a message that was published counts as stored, in a broker with a directory; a duration is
    the other choice: when the operating system has it, and the disk follows so often."""

    #: When the disk has it. Whoever waits at the same time shares one sync.
    ALWAYS = "always"
    #: When the operating system has it; it decides when the disk follows.
    OS = "os"


class OnDamage(enum.Enum):
    """What to do where the end of a log has other bytes than were written."""

    #: Its shard can only be read.
    REFUSE = "refuse"
    #: It goes on behind that, which reading tells of as a loss.
    SKIP = "skip"


class Retention(enum.Enum):
    """How long messages are kept in a directory, where that is no duration."""

    #: For ever.
    FOREVER = "forever"


FOREVER = Retention.FOREVER


class Sequencer(enum.Enum):
    """Who puts a shard's messages in order; ``Pinned`` is the other choice."""

    #: The publishers themselves.
    PUBLISHERS = "publishers"


class Pinned(NamedTuple):
    """A thread per shard, pinned to the allowed CPUs from the index ``first`` on."""

    first: int = 0


class CircuitBreaker(NamedTuple):
    """When deliveries to a failing handler are paused."""

    #: Consecutive failures that open it.
    failures: int
    #: How long deliveries pause before one is tried.
    cool_down: _Seconds


class BreakerState(enum.Enum):
    """What a circuit breaker lets through."""

    #: Everything.
    CLOSED = "closed"
    #: Nothing, until the cool-down is over.
    OPEN = "open"
    #: One message, to see whether the handler has recovered.
    HALF_OPEN = "half_open"


class NameRule(enum.Enum):
    """The rules of topic names and patterns."""

    EMPTY = "must not be empty"
    TOO_LONG = "longer than 1024 bytes"
    TOO_MANY_SEGMENTS = "more than 32 segments"
    EMPTY_SEGMENT = "empty segment (leading, trailing or double '/')"
    CONTROL_CHARACTER = "control character"
    NOT_UTF8 = "not UTF-8"
    WILDCARD_IN_NAME = "'*' is not allowed in a topic name"
    PARTIAL_WILDCARD = "'*' must be a whole segment: '*' or '**'"
    RESERVED = "names that begin with '$' belong to the system"


_CO_COROUTINE = 0x80  # as inspect.CO_COROUTINE; importing inspect takes as long as all the rest


def is_async(function: object) -> bool:
    """Whether calling ``function`` makes a coroutine: as far as can be told without calling it."""
    while hasattr(function, "func") and not hasattr(function, "__code__"):
        function = function.func  # functools.partial
    if not hasattr(function, "__code__") and hasattr(type(function), "__call__"):
        function = type(function).__call__
    code = getattr(function, "__code__", None)
    return bool(getattr(code, "co_flags", 0) & _CO_COROUTINE)
