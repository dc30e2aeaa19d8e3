"""Policies and positions: what the options of a broker and of a subscription can be."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    _Seconds = float | timedelta


class DeliveryMode(enum.Enum):
    """When a message counts as delivered.

    >>> import slipring
    >>> broker = slipring.open()
    >>> once = broker.subscribe("a", delivery=slipring.DeliveryMode.AT_MOST_ONCE)
    >>> again = broker.subscribe("a", delivery=slipring.DeliveryMode.AT_LEAST_ONCE)
    >>> receipt = broker.publish("a", b"x")
    >>> once.get().ack_id is None, again.get().ack()
    (True, True)
    """

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

    >>> import slipring
    >>> clock = slipring.TestClock()
    >>> broker = slipring.open(clock=clock)
    >>> jobs = broker.subscribe("jobs", backoff=slipring.Backoff(min=5, max=60))
    >>> receipt = broker.publish("jobs", b"mail")
    >>> jobs.get().nack()
    >>> jobs.get_nowait() is None
    True
    >>> clock.advance(5)
    >>> jobs.get().attempt
    2
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

    >>> import slipring
    >>> broker = slipring.open()
    >>> once = slipring.DeliveryMode.AT_MOST_ONCE
    >>> first = broker.subscribe("a", delivery=once, capacity=1)
    >>> oldest = slipring.Overflow.DROP_OLDEST
    >>> last = broker.subscribe("a", delivery=once, capacity=1, overflow=oldest, on_lagged=print)
    >>> receipt = broker.publish_many("a", [b"1", b"2", b"3"])
    >>> bytes(first.get())
    b'1'
    >>> bytes(last.get())
    2
    b'3'
    """

    #: The new message is dropped.
    DROP_NEWEST = "drop_newest"
    #: The oldest message that is queued is dropped.
    DROP_OLDEST = "drop_oldest"
    #: The publisher waits until there is room.
    BLOCK = "block"


class Block(NamedTuple):
    """The publisher waits until there is room; after ``timeout`` the message is dropped.

    >>> import slipring
    >>> broker = slipring.open()
    >>> slow = broker.subscribe(
    ...     "a",
    ...     delivery=slipring.DeliveryMode.AT_MOST_ONCE,
    ...     capacity=1,
    ...     overflow=slipring.Block(timeout=0.01),
    ... )
    >>> broker.publish("a", b"1").dropped, broker.publish("a", b"2").dropped
    (0, 1)
    """

    #: How long one publish waits for this subscription; ``None``: as long as it takes.
    timeout: _Seconds | None = None


class Disconnect(NamedTuple):
    """New messages are dropped, and a subscription whose queue has been full for longer than
    ``after`` is disconnected: it gets what is queued, then ``Disconnected``.

    >>> import slipring
    >>> clock = slipring.TestClock()
    >>> broker = slipring.open(clock=clock)
    >>> slow = broker.subscribe(
    ...     "a",
    ...     delivery=slipring.DeliveryMode.AT_MOST_ONCE,
    ...     capacity=1,
    ...     overflow=slipring.Disconnect(after=5),
    ... )
    >>> receipt = broker.publish_many("a", [b"1", b"2"])
    >>> clock.advance(6)
    >>> receipt = broker.publish("a", b"3")
    >>> bytes(slow.get())
    b'1'
    >>> slow.get()
    Traceback (most recent call last):
    slipring._errors.Lagged: 2 messages were lost
    >>> slow.get()
    Traceback (most recent call last):
    slipring._errors.Disconnected: disconnected: the queue stayed full for too long
    """

    #: How long the queue may stay full.
    after: _Seconds


class Start(enum.Enum):
    """Where a new subscription begins; ``Last``, ``Offset`` and ``Time`` are three more places.

    >>> import slipring
    >>> broker = slipring.open()
    >>> receipt = broker.publish("a", b"early")
    >>> broker.subscribe("a").get_nowait() is None
    True
    >>> bytes(broker.subscribe("a", start=slipring.Start.EARLIEST).get())
    b'early'
    """

    #: With the first message published after subscribing.
    NOW = "now"
    #: With the oldest message still retained.
    EARLIEST = "earliest"


class Last(NamedTuple):
    """With the last retained messages that match: at most so many.

    >>> import slipring
    >>> broker = slipring.open()
    >>> receipt = broker.publish_many("a", [b"1", b"2", b"3"])
    >>> broker.subscribe("a", start=slipring.Last(2)).get_many(10).payloads()
    [b'2', b'3']
    """

    # `count` is a method of tuples; as a field it is the number.
    count: int  # type: ignore[assignment]


class Offset(NamedTuple):
    """In every matching partition, with the message at this offset.

    >>> import slipring
    >>> broker = slipring.open()
    >>> receipt = broker.publish_many("a", [b"1", b"2", b"3"])
    >>> broker.subscribe("a", start=slipring.Offset(1)).get_many(10).payloads()
    [b'2', b'3']
    """

    offset: int


class Time(NamedTuple):
    """With the first message published at or after this time.

    >>> import slipring
    >>> clock = slipring.TestClock()
    >>> broker = slipring.open(clock=clock)
    >>> receipt = broker.publish("a", b"early")
    >>> clock.advance(60)
    >>> receipt = broker.publish("a", b"late")
    >>> late = broker.subscribe("a", start=slipring.Last(1)).get()
    >>> bytes(broker.subscribe("a", start=slipring.Time(late.published_at)).get())
    b'late'
    """

    #: An aware ``datetime``, or seconds since the Unix epoch.
    time: datetime | float


class WaitStrategy(enum.Enum):
    """How a handler with a thread of its own waits for the next message.

    >>> import slipring
    >>> broker = slipring.open()
    >>> parked = broker.subscribe(
    ...     "a", handler=print, dedicated_thread=True, wait=slipring.WaitStrategy.PARK
    ... )
    >>> parked.close()
    """

    #: Spins as long as that has lately been worth it, then yields, then parks.
    ADAPTIVE = "adaptive"
    #: Spins and never gives the core away.
    BUSY_SPIN = "busy_spin"
    #: Spins a little, then yields to other threads again and again.
    YIELD = "yield"
    #: Parks at once.
    PARK = "park"


class WhenFull(enum.Enum):
    """What a publish does when the memory budget is used up.

    >>> import slipring
    >>> broker = slipring.open(memory_budget=256 << 10, when_full=slipring.WhenFull.REFUSE)
    >>> slow = broker.subscribe("a")
    >>> for _ in range(100):
    ...     receipt = broker.publish("a", bytes(10_000))
    Traceback (most recent call last):
    slipring._errors.Full: no room: the memory budget or the disk is used up
    """

    #: The oldest messages expire; who had not read them is told how many were lost.
    EXPIRE = "expire"
    #: The publish is refused while the oldest messages are still queued for somebody.
    REFUSE = "refuse"


class Sync(enum.Enum):
    """When a message that was published counts as stored, in a broker with a directory; a duration is
    the other choice: when the operating system has it, and the disk follows so often.

    >>> import slipring, tempfile
    >>> with tempfile.TemporaryDirectory() as path:
    ...     with slipring.open(path, sync=slipring.Sync.OS) as broker:
    ...         broker.publish("a", b"x").durable
    ...         broker.flush()  # now it is
    False
    """

    #: When the disk has it. Whoever waits at the same time shares one sync.
    ALWAYS = "always"
    #: When the operating system has it; it decides when the disk follows.
    OS = "os"


class OnDamage(enum.Enum):
    """What to do where the end of a log has other bytes than were written.

    >>> import slipring, tempfile
    >>> with tempfile.TemporaryDirectory() as path:
    ...     with slipring.open(path, on_damage=slipring.OnDamage.SKIP) as broker:
    ...         broker.publish("a", b"x").durable
    True
    """

    #: Its shard can only be read.
    REFUSE = "refuse"
    #: It goes on behind that, which reading tells of as a loss.
    SKIP = "skip"


class Retention(enum.Enum):
    """How long messages are kept in a directory, where that is no duration.

    >>> import slipring, tempfile
    >>> with tempfile.TemporaryDirectory() as path:
    ...     with slipring.open(path) as broker:
    ...         topic = broker.create_topic("ledger", retention=slipring.FOREVER)
    ...         broker.describe_topic("ledger")["retention"] is None
    True
    """

    #: For ever.
    FOREVER = "forever"


FOREVER = Retention.FOREVER


class Sequencer(enum.Enum):
    """Who puts a shard's messages in order; ``Pinned`` is the other choice.

    >>> import slipring
    >>> broker = slipring.open(sequencer=slipring.Sequencer.PUBLISHERS)
    """

    #: The publishers themselves.
    PUBLISHERS = "publishers"


class Pinned(NamedTuple):
    """A thread per shard puts messages in order, pinned to the allowed CPUs from the index ``first`` on.

    >>> import slipring
    >>> with slipring.open(shards=2, sequencer=slipring.Pinned(first=0)) as broker:
    ...     broker.publish("a", b"x").offset
    0
    """

    first: int = 0


class CircuitBreaker(NamedTuple):
    """When deliveries to a failing handler are paused.

    >>> import slipring
    >>> broker = slipring.open()
    >>> failed = []
    >>> failing = broker.subscribe(
    ...     "a",
    ...     handler=lambda message: 1 / 0,
    ...     on_error=lambda message, error: failed.append(error),
    ...     circuit_breaker=slipring.CircuitBreaker(failures=3, cool_down=60),
    ... )
    >>> receipt = broker.publish_many("a", [b"x"] * 10)
    >>> while broker.metrics()["subscriptions"][0]["breaker"] is not slipring.BreakerState.OPEN:
    ...     pass
    >>> len(failed)
    3
    """

    #: Consecutive failures that open it.
    failures: int
    #: How long deliveries pause before one is tried.
    cool_down: _Seconds


class BreakerState(enum.Enum):
    """What a circuit breaker lets through.

    >>> import slipring
    >>> broker = slipring.open()
    >>> handling = broker.subscribe("a", handler=print)
    >>> broker.metrics()["subscriptions"][0]["breaker"]
    <BreakerState.CLOSED: 'closed'>
    """

    #: Everything.
    CLOSED = "closed"
    #: Nothing, until the cool-down is over.
    OPEN = "open"
    #: One message, to see whether the handler has recovered.
    HALF_OPEN = "half_open"


class NameRule(enum.Enum):
    """The rules of topic names and patterns: what ``InvalidName.reason`` is.

    >>> import slipring
    >>> try:
    ...     slipring.open().topic("sports/*")
    ... except slipring.InvalidName as error:
    ...     error.reason is slipring.NameRule.WILDCARD_IN_NAME
    True
    """

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
