"""The exceptions: a class for each family of operations, and one for each kind of error in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._options import NameRule
    from ._slipring import BatchReceipt


class Error(Exception):
    """Everything that slipring raises by itself."""


class PublishError(Error):
    """Why a message was not published.

    >>> import slipring
    >>> with slipring.open(auto_create=False) as broker:
    ...     broker.publish("no/such", b"")
    Traceback (most recent call last):
    slipring._errors.UnknownTopic: no such topic
    """

    #: After ``publish_many``: what was published before.
    receipt: BatchReceipt | None = None


class SubscribeError(Error):
    """Why a subscription could not be made."""


class RecvError(Error):
    """Why there is no message."""


class ConfigError(Error):
    """Why a broker could not be made, or a topic not be managed."""


class AckError(Error):
    """Why a message could not be settled, given back or kept longer.

    >>> import slipring
    >>> broker = slipring.open()
    >>> jobs = broker.subscribe("jobs", delivery=slipring.DeliveryMode.AT_LEAST_ONCE)
    >>> receipt = broker.publish("jobs", b"mail")
    >>> message = jobs.get()
    >>> message.ack()
    True
    >>> message.nack()
    Traceback (most recent call last):
    slipring._errors.Stale: the lease is over
    """


class SeekError(Error):
    """Why a subscription could not be sought."""


class AtMostOnce(ConfigError, SeekError):
    """Only a subscription that delivers at least once can do that."""


class Closed(PublishError, SubscribeError, RecvError, ConfigError, AckError, SeekError):
    """The broker or the subscription is closed; when receiving, everything queued was delivered."""


class DeadLetterNotStored(AckError):
    """The dead letter could not be published, and so the message was not settled: it will be
    delivered again. ``__cause__`` is what publishing raised."""


class Disconnected(RecvError):
    """The subscription's queue stayed full for longer than it allows (see ``Disconnect``), and
    everything queued was delivered; or another consumer has taken its place, or it was deleted."""


class Forked(PublishError, SubscribeError, RecvError, ConfigError, AckError, SeekError):
    """The process has forked since the broker was opened, and this is the child."""


class Full(PublishError):
    """The memory budget is used up by messages that are still queued (see ``WhenFull``)."""


class InsideFilter(PublishError, SubscribeError, RecvError, ConfigError, AckError, SeekError):
    """The call came from inside a filter function of native code, during which a shard is held."""


class InvalidFilter(SubscribeError, ValueError):
    """A filter expression that cannot be read.

    >>> import slipring
    >>> try:
    ...     slipring.open().subscribe("a", filter="attributes.region = IN")
    ... except slipring.InvalidFilter as error:
    ...     error.position
    20
    """

    #: Byte position in the expression.
    position: int = 0
    #: What was found or missing there, in words.
    reason: str = ""


class InvalidMessage(PublishError, ValueError):
    """A message that breaks a limit.

    >>> import slipring
    >>> try:
    ...     slipring.open(payload_limit=4).publish("a", b"too large")
    ... except slipring.InvalidMessage as error:
    ...     error.size, error.limit
    (9, 4)
    """

    #: Which attribute, if it is one.
    index: int | None = None
    #: Bytes of what is too large.
    size: int | None = None
    #: The broker's limit, if it was the payload.
    limit: int | None = None


class InvalidName(PublishError, SubscribeError, ConfigError, ValueError):
    """A topic name or pattern that breaks the rules.

    >>> import slipring
    >>> broker = slipring.open()
    >>> try:
    ...     broker.subscribe("sports//cricket")
    ... except slipring.InvalidName as error:
    ...     error.position, error.reason
    (7, <NameRule.EMPTY_SEGMENT: "empty segment (leading, trailing or double '/')">)
    """

    #: Byte position at which the rule is broken.
    position: int = 0
    #: The rule.
    reason: NameRule | None = None


class InvalidSubscriptionName(SubscribeError, ValueError):
    """A subscription's name that is not 1 to 255 bytes of ``[A-Za-z0-9._~+%-]``.

    >>> import slipring
    >>> try:
    ...     slipring.open().subscribe("a", name="my jobs")
    ... except slipring.InvalidSubscriptionName as error:
    ...     error.position
    2
    """

    #: Byte position of the first character that is not allowed.
    position: int = 0


class Lagged(RecvError):
    """Messages were lost at this place of the stream. The next call goes on behind them.

    >>> import slipring
    >>> broker = slipring.open()
    >>> once = slipring.DeliveryMode.AT_MOST_ONCE
    >>> few = broker.subscribe("a", delivery=once, capacity=2, overflow=slipring.Overflow.DROP_OLDEST)
    >>> receipt = broker.publish_many("a", [b"1", b"2", b"3"])
    >>> try:
    ...     few.get()
    ... except slipring.Lagged as lagged:
    ...     lagged.count, bytes(few.get())
    (1, b'2')
    """

    #: How many.
    count: int = 0


class NameInUse(SubscribeError, ConfigError):
    """A subscription of this name exists, and has a consumer."""


class DifferentSubscription(NameInUse):
    """A subscription of this name exists, with other patterns, another delivery mode or setting."""


class NoMemory(PublishError, MemoryError):
    """The system has no memory left."""


class NoThread(SubscribeError, ConfigError):
    """A thread could not be started."""


class NotLeased(AckError):
    """There is no lease on the message: it came from a subscription that delivers at most once, or
    went to a handler, whose result settles it, or is a copy."""


class OutOfRange(SubscribeError, ConfigError, AckError, ValueError):
    """A setting or a time is out of its range.

    >>> import slipring
    >>> try:
    ...     slipring.open(shards=100)
    ... except slipring.OutOfRange as error:
    ...     error.setting, error.min, error.max
    ('shards', 1, 64)
    """

    #: Its name.
    setting: str = ""
    #: The least it can be; times in seconds.
    min: float = 0
    #: The most it can be.
    max: float = 0


class Stale(AckError):
    """The lease on the message is over: its time has passed, the message was settled or given back,
    or the subscription has ended."""


class Expired(Stale):
    """The message has expired from the log."""


class StoreError(PublishError, RecvError, SubscribeError, ConfigError):
    """The store did not do its part: the disk refused, or a write failed before."""


class Locked(StoreError):
    """The directory belongs to another broker, of this process or another."""


class Incompatible(StoreError):
    """The directory is no broker's, of a later version, or a part of it is missing."""


class Damaged(StoreError):
    """The directory has other bytes than were written."""


class Timeout(PublishError, RecvError, TimeoutError):
    """The time given is over."""


class TopicDeleted(PublishError):
    """The topic was deleted."""


class TopicExists(ConfigError):
    """The topic exists."""


class UnknownAckId(AckError, LookupError):
    """The ack id is of another subscription, or no ack id at all.

    >>> import slipring
    >>> try:
    ...     slipring.open().subscribe("a").acker().ack("none")
    ... except slipring.UnknownAckId as error:
    ...     error.position
    0
    """

    #: If it is none: the byte where it stops being one, or its end if it is damaged somewhere.
    position: int | None = None


class UnknownSubscription(ConfigError, LookupError):
    """There is no such subscription."""


class UnknownTopic(PublishError, ConfigError, LookupError):
    """There is no such topic."""


class WouldBlock(PublishError):
    """Publishing would have to wait."""
