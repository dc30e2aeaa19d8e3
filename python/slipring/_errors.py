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
    """Why a message could not be settled."""


class AtMostOnce(ConfigError):
    """Only a subscription that delivers at least once can do that."""


class Closed(PublishError, SubscribeError, RecvError, ConfigError):
    """The broker or the subscription is closed; when receiving, everything queued was delivered."""


class Disconnected(RecvError):
    """The subscription's queue stayed full for longer than it allows (see ``Disconnect``), and
    everything queued was delivered."""


class Forked(PublishError, SubscribeError, RecvError, ConfigError):
    """The process has forked since the broker was opened, and this is the child."""


class Full(PublishError):
    """The memory budget is used up by messages that are still queued (see ``WhenFull``)."""


class InsideFilter(PublishError, SubscribeError, RecvError, ConfigError):
    """The call came from inside a filter function of native code, during which a shard is held."""


class InvalidFilter(SubscribeError, ValueError):
    """A filter expression that cannot be read."""

    #: Byte position in the expression.
    position: int = 0
    #: What was found or missing there, in words.
    reason: str = ""


class InvalidMessage(PublishError, ValueError):
    """A message that breaks a limit."""

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
    """A subscription's name that is not 1 to 255 bytes of ``[A-Za-z0-9._~+%-]``."""

    #: Byte position of the first character that is not allowed.
    position: int = 0


class Lagged(RecvError):
    """Messages were lost at this place of the stream. The next call goes on behind them."""

    #: How many.
    count: int = 0


class NameInUse(SubscribeError, ConfigError):
    """A subscription of this name exists."""


class NoMemory(PublishError, MemoryError):
    """The system has no memory left."""


class NoThread(SubscribeError, ConfigError):
    """A thread could not be started."""


class NotLeased(AckError):
    """There is no lease on the message."""


class OutOfRange(SubscribeError, ConfigError, ValueError):
    """A setting is out of its range."""

    #: Its name.
    setting: str = ""
    #: The least it can be.
    min: int = 0
    #: The most it can be.
    max: int = 0


class Stale(AckError):
    """The lease on the message is over."""


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
    """No ack id, or none of this subscription."""


class UnknownSubscription(ConfigError, LookupError):
    """There is no such subscription."""


class UnknownTopic(PublishError, ConfigError, LookupError):
    """There is no such topic."""


class WouldBlock(PublishError):
    """Publishing would have to wait."""
