"""slipring is the publish/subscribe broker that lives inside your program.

>>> import slipring
>>> with slipring.open() as broker:
...     scores = broker.subscribe("sports/**")
...     receipt = broker.publish("sports/cricket/live", b"four!", team="IN")
...     message = scores.get()
>>> message.topic, bytes(message), message.attributes["team"]
('sports/cricket/live', b'four!', 'IN')

Topics are ``a/b/c``; in patterns ``*`` is one segment and ``**`` any number, anywhere. Delivery is
at most once and in order per partition. Whatever is lost is counted, exactly, and told.
"""

from collections.abc import Mapping as _Mapping
from collections.abc import Sequence as _Sequence

from ._errors import (
    AckError,
    AtMostOnce,
    Closed,
    ConfigError,
    Damaged,
    Disconnected,
    Error,
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
from ._options import (
    Block,
    BreakerState,
    CircuitBreaker,
    Disconnect,
    Last,
    NameRule,
    Offset,
    Overflow,
    Pinned,
    Sequencer,
    Start,
    Time,
    WaitStrategy,
    WhenFull,
)
from ._slipring import (
    Attributes,
    Batch,
    BatchReceipt,
    Broker,
    CloseReport,
    HandlerSubscription,
    Loan,
    Message,
    Receipt,
    Subscription,
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
    "AtMostOnce",
    "Attributes",
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
    "Disconnect",
    "Disconnected",
    "Error",
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
    "OutOfRange",
    "Overflow",
    "Pinned",
    "PublishError",
    "Receipt",
    "RecvError",
    "Sequencer",
    "Stale",
    "Start",
    "StoreError",
    "SubscribeError",
    "Subscription",
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
