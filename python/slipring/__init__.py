"""slipring is the publish/subscribe broker that lives inside your program.

>>> import slipring
>>> with slipring.open() as broker:
...     scores = broker.subscribe("sports/**")
...     receipt = broker.publish("sports/cricket/live", b"four!", team="IN")
...     message = scores.get()
>>> message.topic, bytes(message), message.attributes["team"]
('sports/cricket/live', b'four!', 'IN')

Topics are ``a/b/c``; in patterns ``*`` is one segment and ``**`` any number, anywhere. Delivery is in
order per partition; at most once or at least once, as a subscription asks for (``DeliveryMode``).
Whatever is lost is counted, exactly, and told.
"""

from collections.abc import Mapping as _Mapping
from collections.abc import Sequence as _Sequence

from ._errors import (
    AckError,
    AtMostOnce,
    Closed,
    ConfigError,
    Damaged,
    DeadLetterNotStored,
    DifferentSubscription,
    Disconnected,
    Error,
    Expired,
    Forked,
    Full,
    Incompatible,
    InsideFilter,
    InvalidFilter,
    InvalidMessage,
    InvalidName,
    InvalidSubscriptionName,
    Lagged,
    Locked,
    NameInUse,
    NoMemory,
    NoThread,
    NotLeased,
    OutOfRange,
    PublishError,
    RecvError,
    SeekError,
    Stale,
    StoreError,
    SubscribeError,
    Timeout,
    TopicDeleted,
    TopicExists,
    UnknownAckId,
    UnknownSubscription,
    UnknownTopic,
    WouldBlock,
)
from ._handled import DeadLetter, Retry
from ._options import (
    Backoff,
    Block,
    BreakerState,
    CircuitBreaker,
    DeliveryMode,
    Disconnect,
    FOREVER,
    Last,
    NameRule,
    Offset,
    OnDamage,
    Overflow,
    Pinned,
    Retention,
    Sequencer,
    Start,
    Sync,
    Time,
    WaitStrategy,
    WhenFull,
)
from ._slipring import (
    DEAD_LETTER_ATTEMPTS,
    DEAD_LETTER_OFFSET,
    DEAD_LETTER_PARTITION,
    DEAD_LETTER_REASON,
    DEAD_LETTER_SUBSCRIPTION,
    DEAD_LETTER_TOPIC,
    Acker,
    Attributes,
    Batch,
    BatchReceipt,
    Broker,
    CloseReport,
    DeadLetters,
    Deduplicator,
    HandlerSubscription,
    Loan,
    Message,
    Receipt,
    Subscription,
    TestClock,
    Ticket,
    Topic,
    __version__,
    open,
)


def get_include() -> str:
    """The folder with the headers ``slipring.h`` and ``slipring_python.h``, for native code that
    uses a broker of this process: see ``Broker.capsule``.

    >>> import os.path, slipring
    >>> os.path.exists(slipring.get_include() + "/slipring.h")
    True
    """
    return __file__.removesuffix("__init__.py") + "include"


_Mapping.register(Attributes)
_Sequence.register(Batch)

__all__ = [
    "AckError",
    "Acker",
    "AtMostOnce",
    "Attributes",
    "Backoff",
    "Batch",
    "BatchReceipt",
    "Block",
    "BreakerState",
    "Broker",
    "CircuitBreaker",
    "CloseReport",
    "Closed",
    "ConfigError",
    "Damaged",
    "DEAD_LETTER_ATTEMPTS",
    "DEAD_LETTER_OFFSET",
    "DEAD_LETTER_PARTITION",
    "DEAD_LETTER_REASON",
    "DEAD_LETTER_SUBSCRIPTION",
    "DEAD_LETTER_TOPIC",
    "DeadLetter",
    "DeadLetterNotStored",
    "DeadLetters",
    "Deduplicator",
    "DeliveryMode",
    "DifferentSubscription",
    "Disconnect",
    "Disconnected",
    "Error",
    "Expired",
    "FOREVER",
    "Forked",
    "Full",
    "HandlerSubscription",
    "Incompatible",
    "InsideFilter",
    "InvalidFilter",
    "InvalidMessage",
    "InvalidName",
    "InvalidSubscriptionName",
    "Lagged",
    "Last",
    "Loan",
    "Locked",
    "Message",
    "NameInUse",
    "NameRule",
    "NoMemory",
    "NoThread",
    "NotLeased",
    "Offset",
    "OnDamage",
    "OutOfRange",
    "Overflow",
    "Pinned",
    "PublishError",
    "Receipt",
    "RecvError",
    "Retention",
    "Retry",
    "SeekError",
    "Sequencer",
    "Stale",
    "Start",
    "StoreError",
    "SubscribeError",
    "Subscription",
    "Sync",
    "TestClock",
    "Ticket",
    "Time",
    "Timeout",
    "Topic",
    "TopicDeleted",
    "TopicExists",
    "UnknownAckId",
    "UnknownSubscription",
    "UnknownTopic",
    "WaitStrategy",
    "WhenFull",
    "WouldBlock",
    "__version__",
    "get_include",
    "open",
]
