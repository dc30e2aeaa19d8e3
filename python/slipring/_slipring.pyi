import asyncio
import os
from collections.abc import (
    AsyncIterator,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from datetime import datetime, timedelta
from typing import Any, Final, Never, Protocol, Self, TypedDict, TypeVar, final, overload, type_check_only

from typing_extensions import Buffer, CapsuleType

from ._errors import AckError
from ._options import (
    Backoff,
    Block,
    BreakerState,
    CircuitBreaker,
    DeliveryMode,
    Disconnect,
    Last,
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

__all__ = [
    "Acker",
    "Attributes",
    "Batch",
    "BatchIterator",
    "BatchReceipt",
    "Broker",
    "CloseReport",
    "DEAD_LETTER_ATTEMPTS",
    "DEAD_LETTER_OFFSET",
    "DEAD_LETTER_PARTITION",
    "DEAD_LETTER_REASON",
    "DEAD_LETTER_SUBSCRIPTION",
    "DEAD_LETTER_TOPIC",
    "DeadLetters",
    "Deduplicator",
    "HandlerSubscription",
    "Loan",
    "Message",
    "Receipt",
    "Subscription",
    "TestClock",
    "Ticket",
    "Topic",
    "_rebuild_message",
    "_settle",
    "open",
    "__version__",
]

__version__: Final[str]
DEAD_LETTER_ATTEMPTS: Final[str]
DEAD_LETTER_OFFSET: Final[str]
DEAD_LETTER_PARTITION: Final[str]
DEAD_LETTER_REASON: Final[str]
DEAD_LETTER_SUBSCRIPTION: Final[str]
DEAD_LETTER_TOPIC: Final[str]

_Seconds = float | timedelta
_Handler = Callable[[Message], object]
_AsyncHandler = Callable[[Message], Coroutine[Any, Any, object]]
_Filter = str | Callable[[Message], object]
_OnError = Callable[[Message, BaseException], object]
_OnLagged = Callable[[int], object]
_HandlerT = TypeVar("_HandlerT", bound=_Handler)

@type_check_only
class _Array(Protocol):
    """An array of numpy, whose type tells of its buffer from Python 3.12 on."""

    @property
    def __array_interface__(self) -> dict[str, Any]: ...

_Payload = Buffer | _Array

@type_check_only
class _PartitionDict(TypedDict):
    id: int
    shard: int
    next_offset: int

@type_check_only
class _TopicDict(TypedDict):
    name: str
    retention: float | None
    retention_bytes: int | None
    dedup_window: float | None
    dedup_ids: int | None
    partitions: list[_PartitionDict]

@type_check_only
class _ShardMetrics(TypedDict):
    published: int
    retained: int
    retained_bytes: int
    expired: int
    index_bytes: int
    stored_bytes: int
    stored: int
    unsynced: int

@type_check_only
class _TopicMetrics(TypedDict):
    name: str
    published: int
    duplicates: int

@type_check_only
class _SubscriptionMetrics(TypedDict):
    id: int
    name: str | None
    patterns: list[str]
    matched: int
    replayed: int
    delivered: int
    dropped_newest: int
    dropped_oldest: int
    dropped_timeout: int
    expired: int
    discarded: int
    queued: int
    lag: int
    oldest_age_us: int | None
    unsettled: int
    acked: int
    redelivered: int
    dead_lettered: int
    expired_unsettled: int
    handler_failures: int
    handler_panics: int
    filter_panics: int
    breaker: BreakerState

@type_check_only
class _SubscriptionDict(TypedDict):
    name: str
    patterns: list[str]
    delivery: DeliveryMode
    is_online: bool
    queued: int
    unsettled: int

@type_check_only
class _Metrics(TypedDict):
    chunk_bytes: int
    budget_bytes: int
    shards: list[_ShardMetrics]
    topics: list[_TopicMetrics]
    subscriptions: list[_SubscriptionMetrics]

def open(
    path: str | os.PathLike[str] | None = None,
    *,
    sync: Sync | _Seconds | None = None,
    on_damage: OnDamage | None = None,
    retention: Retention | _Seconds | None = None,
    retention_bytes: int | None = None,
    dedup_window: _Seconds | None = None,
    dedup_ids: int | None = None,
    reserve_bytes: int | None = None,
    segment_bytes: int | None = None,
    segment_age: _Seconds | None = None,
    preallocate_bytes: int | None = None,
    shards: int | None = None,
    memory_budget: int | None = None,
    when_full: WhenFull | None = None,
    payload_limit: int | None = None,
    auto_create: bool | None = None,
    default_partitions: int | None = None,
    workers: int | None = None,
    pin_workers: int | None = None,
    sequencer: Sequencer | Pinned | None = None,
    clock: TestClock | None = None,
) -> Broker: ...

@final
class TestClock:
    __test__: Final = False
    def __new__(cls) -> Self: ...
    def advance(self, seconds: _Seconds) -> None: ...

@final
class Broker:
    def topic(self, name: str) -> Topic: ...
    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        *,
        retention: Retention | _Seconds | None = None,
        retention_bytes: int | None = None,
        dedup_window: _Seconds | None = None,
        dedup_ids: int | None = None,
    ) -> Topic: ...
    def update_topic(
        self,
        name: str,
        *,
        retention: Retention | _Seconds | None = None,
        retention_bytes: int | None = None,
        dedup_window: _Seconds | None = None,
        dedup_ids: int | None = None,
    ) -> None: ...
    @property
    def durable(self) -> bool: ...
    def flush(self) -> None: ...
    def delete_topic(self, name: str) -> None: ...
    def topics(
        self, pattern: str = "**", *, after: str | None = None, most: int = ...
    ) -> list[str]: ...
    def describe_topic(self, name: str) -> _TopicDict: ...
    def publish(
        self,
        topic: str,
        payload: _Payload,
        /,
        *,
        attributes: Mapping[str, str] | None = None,
        key: str | None = None,
        id: str | None = None,
        timeout: _Seconds | None = None,
        **more: str,
    ) -> Receipt: ...
    def publish_many(
        self,
        topic: str,
        payloads: Iterable[_Payload],
        /,
        *,
        attributes: Mapping[str, str] | None = None,
        key: str | None = None,
        timeout: _Seconds | None = None,
        **more: str,
    ) -> BatchReceipt: ...
    @overload
    def subscribe(
        self,
        pattern: str,
        /,
        *patterns: str,
        handler: None = None,
        name: str | None = None,
        filter: _Filter | None = None,
        capacity: int | None = None,
        overflow: Overflow | Block | Disconnect | None = None,
        start: Start | Last | Offset | Time | None = None,
        delivery: DeliveryMode | None = None,
        visibility_timeout: _Seconds | None = None,
        max_delivery_attempts: int | None = None,
        backoff: Backoff | None = None,
        max_outstanding: int | None = None,
        keys_overtake: bool = False,
        dead_letter_topic: str | None = None,
        take_over: bool = False,
        on_lagged: _OnLagged | None = None,
    ) -> Subscription: ...
    @overload
    def subscribe(
        self,
        pattern: str,
        /,
        *patterns: str,
        handler: _Handler | _AsyncHandler,
        name: str | None = None,
        filter: _Filter | None = None,
        capacity: int | None = None,
        overflow: Overflow | Block | Disconnect | None = None,
        start: Start | Last | Offset | Time | None = None,
        delivery: DeliveryMode | None = None,
        visibility_timeout: _Seconds | None = None,
        max_delivery_attempts: int | None = None,
        backoff: Backoff | None = None,
        max_outstanding: int | None = None,
        keys_overtake: bool = False,
        dead_letter_topic: str | None = None,
        take_over: bool = False,
        wait: WaitStrategy | None = None,
        dedicated_thread: bool = False,
        circuit_breaker: CircuitBreaker | None = None,
        on_error: _OnError | None = None,
        on_lagged: _OnLagged | None = None,
    ) -> HandlerSubscription: ...
    def on(
        self,
        pattern: str,
        /,
        *patterns: str,
        name: str | None = None,
        filter: _Filter | None = None,
        capacity: int | None = None,
        overflow: Overflow | Block | Disconnect | None = None,
        start: Start | Last | Offset | Time | None = None,
        delivery: DeliveryMode | None = None,
        visibility_timeout: _Seconds | None = None,
        max_delivery_attempts: int | None = None,
        backoff: Backoff | None = None,
        max_outstanding: int | None = None,
        keys_overtake: bool = False,
        dead_letter_topic: str | None = None,
        take_over: bool = False,
        wait: WaitStrategy | None = None,
        dedicated_thread: bool = False,
        circuit_breaker: CircuitBreaker | None = None,
        on_error: _OnError | None = None,
        on_lagged: _OnLagged | None = None,
    ) -> Callable[[_HandlerT], _HandlerT]: ...
    def subscriptions(self) -> list[str]: ...
    def describe_subscription(self, name: str) -> _SubscriptionDict: ...
    def delete_subscription(self, name: str) -> None: ...
    def seek_subscription(self, name: str, start: Start | Last | Offset | Time) -> None: ...
    def acker(self, name: str) -> Acker: ...
    def dead_letters(self, topic: str) -> DeadLetters: ...
    def metrics(self) -> _Metrics: ...
    def topic_metrics(self, name: str) -> _TopicMetrics: ...
    def subscription_metrics(self, id: int) -> _SubscriptionMetrics: ...
    def prometheus(self) -> str: ...
    def capsule(self) -> CapsuleType: ...
    def close(self, deadline: _Seconds = ...) -> CloseReport: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *_exception: object) -> None: ...
    def __reduce__(self) -> Never: ...

@final
class Topic:
    @property
    def name(self) -> str: ...
    @property
    def durable(self) -> bool: ...
    def publish(
        self,
        payload: _Payload,
        /,
        *,
        attributes: Mapping[str, str] | None = None,
        key: str | None = None,
        id: str | None = None,
        timeout: _Seconds | None = None,
        **more: str,
    ) -> Receipt: ...
    def try_publish(
        self,
        payload: _Payload,
        /,
        *,
        attributes: Mapping[str, str] | None = None,
        key: str | None = None,
        id: str | None = None,
        **more: str,
    ) -> Receipt: ...
    def publish_sync(
        self,
        payload: _Payload,
        /,
        *,
        attributes: Mapping[str, str] | None = None,
        key: str | None = None,
        id: str | None = None,
        timeout: _Seconds | None = None,
        **more: str,
    ) -> Receipt: ...
    def publish_ticket(
        self,
        payload: _Payload,
        /,
        *,
        attributes: Mapping[str, str] | None = None,
        key: str | None = None,
        id: str | None = None,
        **more: str,
    ) -> Ticket: ...
    def publish_many(
        self,
        payloads: Iterable[_Payload],
        /,
        *,
        attributes: Mapping[str, str] | None = None,
        key: str | None = None,
        timeout: _Seconds | None = None,
        **more: str,
    ) -> BatchReceipt: ...
    def try_publish_many(
        self,
        payloads: Iterable[_Payload],
        /,
        *,
        attributes: Mapping[str, str] | None = None,
        key: str | None = None,
        **more: str,
    ) -> BatchReceipt: ...
    def loan(
        self,
        size: int,
        /,
        *,
        attributes: Mapping[str, str] | None = None,
        key: str | None = None,
        id: str | None = None,
        timeout: _Seconds | None = None,
        **more: str,
    ) -> Loan: ...
    def __reduce__(self) -> Never: ...

@final
class Ticket:
    def try_receipt(self) -> Receipt | None: ...
    def wait(self) -> Receipt: ...

@final
class Deduplicator:
    def __new__(cls, capacity: int) -> Self: ...
    def is_new(self, message: Message) -> bool: ...
    def forget(self, message: Message) -> None: ...
    def __len__(self) -> int: ...

@final
class Loan:
    @property
    def receipt(self) -> Receipt | None: ...
    def __enter__(self) -> memoryview: ...
    def __exit__(self, class_: object, _error: object, _traceback: object, /) -> None: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

@final
class Receipt:
    @property
    def id(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def durable(self) -> bool: ...
    @property
    def duplicate(self) -> bool: ...
    @property
    def matched(self) -> int: ...
    @property
    def enqueued(self) -> int: ...
    @property
    def dropped(self) -> int: ...

@final
class BatchReceipt:
    @property
    def published(self) -> int: ...
    @property
    def duplicates(self) -> int: ...
    @property
    def first(self) -> tuple[int, int] | None: ...
    @property
    def matched(self) -> int: ...
    @property
    def enqueued(self) -> int: ...
    @property
    def dropped(self) -> int: ...
    @property
    def durable(self) -> bool: ...

@final
class CloseReport:
    @property
    def unhandled(self) -> int: ...
    @property
    def unreceived(self) -> int: ...
    @property
    def unsettled(self) -> int: ...
    @property
    def handler_running(self) -> bool: ...
    @property
    def store_failure(self) -> str | None: ...

@final
class Message:
    @property
    def payload(self) -> memoryview: ...
    @property
    def topic(self) -> str: ...
    @property
    def key(self) -> str | None: ...
    @property
    def attributes(self) -> Attributes: ...
    @property
    def id(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def attempt(self) -> int: ...
    @property
    def ack_id(self) -> str | None: ...
    def ack(self) -> bool: ...
    def nack(self, delay: _Seconds | None = None) -> None: ...
    def dead_letter(self, reason: str = "") -> None: ...
    def extend(self, seconds: _Seconds) -> None: ...
    @property
    def published_at(self) -> datetime: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def __reduce__(self) -> tuple[Callable[..., Message], tuple[Any, ...]]: ...

def _rebuild_message(
    topic: str,
    payload: bytes,
    key: str | None,
    id: str,
    attributes: Sequence[tuple[str, str]],
    place: tuple[int, int, int],
    lease: tuple[int, str | None],
) -> Message: ...
def _settle(
    acker: Acker | None, message: Message, returned: object, raised: BaseException | None
) -> BaseException | None: ...

@final
class Acker:
    def ack(self, id: str) -> bool: ...
    def nack(self, id: str, delay: _Seconds | None = None) -> None: ...
    def dead_letter(self, id: str, reason: str = "") -> None: ...
    def extend(self, id: str, seconds: _Seconds) -> None: ...
    def ack_all(self, ids: Sequence[str]) -> list[bool | AckError]: ...
    def nack_all(
        self, ids: Sequence[str], delay: _Seconds | None = None
    ) -> list[AckError | None]: ...
    def extend_all(self, ids: Sequence[str], seconds: _Seconds) -> list[AckError | None]: ...
    def __reduce__(self) -> Never: ...

@final
class DeadLetters:
    @property
    def topic(self) -> str: ...
    def list(self, most: int = ..., *, filter: str | None = None) -> list[Message]: ...
    def peek(self, partition: int, offset: int) -> Message | None: ...
    def count(self) -> int: ...
    def redrive(self, letter: Message) -> bool: ...
    def redrive_all(self, *, filter: str | None = None) -> int: ...
    def purge(self) -> int: ...
    def __reduce__(self) -> Never: ...

@final
class Attributes:
    def __len__(self) -> int: ...
    def __contains__(self, key: object, /) -> bool: ...
    def __getitem__(self, key: str, /) -> str: ...
    def __iter__(self) -> Iterator[str]: ...
    @overload
    def get(self, key: str, default: None = None, /) -> str | None: ...
    @overload
    def get(self, key: str, default: str, /) -> str: ...
    def keys(self) -> list[str]: ...
    def values(self) -> list[str]: ...
    def items(self) -> list[tuple[str, str]]: ...
    def __eq__(self, other: object, /) -> bool: ...

@final
class Batch:
    def __len__(self) -> int: ...
    @overload
    def __getitem__(self, index: int, /) -> Message: ...
    @overload
    def __getitem__(self, index: slice, /) -> list[Message]: ...
    def __iter__(self) -> BatchIterator: ...
    def payloads(self) -> list[bytes]: ...
    def join(self) -> bytes: ...

@final
class BatchIterator:
    def __iter__(self) -> Self: ...
    def __next__(self) -> Message: ...

@final
class Subscription:
    @property
    def id(self) -> int: ...
    @property
    def name(self) -> str | None: ...
    @property
    def queued(self) -> int: ...
    @property
    def closed(self) -> bool: ...
    def get(self, timeout: _Seconds | None = None) -> Message: ...
    def get_many(self, n: int, timeout: _Seconds | None = None) -> Batch: ...
    def get_nowait(self) -> Message | None: ...
    def aget(self) -> Coroutine[Any, Any, Message]: ...
    def aget_many(self, n: int) -> Coroutine[Any, Any, Batch]: ...
    def fileno(self) -> int: ...
    def acker(self) -> Acker: ...
    def seek(self, start: Start | Last | Offset | Time) -> None: ...
    def close(self) -> None: ...
    @property
    def _waiting(self) -> dict[asyncio.AbstractEventLoop, set[asyncio.Future[None]]]: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> Message: ...
    def __aiter__(self) -> AsyncIterator[Message]: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *_exception: object) -> None: ...
    def __reduce__(self) -> Never: ...

@final
class HandlerSubscription:
    @property
    def id(self) -> int: ...
    @property
    def name(self) -> str | None: ...
    @property
    def queued(self) -> int: ...
    def close(self, timeout: _Seconds | None = None) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *_exception: object) -> None: ...
    def __reduce__(self) -> Never: ...
