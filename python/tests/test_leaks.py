"""Nothing is left behind by many operations."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import sys
import weakref
from collections.abc import Callable

import pytest

import slipring
from slipring import Broker, Message

OPERATIONS = 100_000
LIMIT = 900.0  # the dearest takes some ten seconds, and on a debug build much longer
ONCE, AGAIN = slipring.DeliveryMode.AT_MOST_ONCE, slipring.DeliveryMode.AT_LEAST_ONCE


def resident() -> int:
    """Bytes of memory of this process."""
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGESIZE")


class Operations:
    """What is done over and over; each returns to where it began."""

    def __init__(self) -> None:
        self.broker = slipring.open(memory_budget=1 << 20)
        self.topic = self.broker.topic("a")
        self.subscription = self.broker.subscribe("a", delivery=ONCE, capacity=256)
        self.payload = bytes(64)
        self.jobs = self.broker.topic("jobs")
        self.leased = self.broker.subscribe("jobs", name="jobs", delivery=AGAIN)
        self.acker = self.leased.acker()
        self.other = slipring.open(memory_budget=256 << 10)
        self.handlers = 0
        self.frame = bytes(8 << 10)
        self.small = slipring.open(memory_budget=256 << 10)
        self.large = self.small.topic("jobs")
        self.failing = self.small.subscribe("jobs", name="jobs", delivery=AGAIN)
        self.letters = self.small.dead_letters("$dlq/jobs")

    def publish_and_get(self) -> None:
        receipt = self.topic.publish(self.payload, team="IN", key="k")
        message = self.subscription.get()
        assert message.offset == receipt.offset
        message.payload, message.attributes["team"], message.id, repr(message), message.topic

    def publish_many_and_get_many(self) -> None:
        self.topic.publish_many([self.payload] * 10)
        batch = self.subscription.get_many(10)
        [bytes(message) for message in batch], batch.join(), batch.payloads(), batch[2:4]

    def loan(self) -> None:
        with self.topic.loan(64) as view:
            view[:] = self.payload
        self.subscription.get()

    def publish_ticket(self) -> None:
        ticket = self.topic.publish_ticket(self.payload, team="IN")
        assert ticket.wait().offset == self.subscription.get().offset
        self.topic.publish_ticket(self.payload)
        self.subscription.get()

    def know_again(self) -> None:
        self.topic.publish_sync(self.payload)
        seen = slipring.Deduplicator(9)
        message = self.subscription.get()
        assert seen.is_new(message)
        seen.forget(message)

    def abort_a_loan(self) -> None:
        try:
            with self.topic.loan(64):
                raise ZeroDivisionError
        except ZeroDivisionError:
            pass

    def buffers(self) -> None:
        self.topic.publish(bytearray(64))
        self.topic.publish_many((memoryview(self.payload),))
        self.subscription.get_many(2)

    def a_bad_name(self) -> None:
        with contextlib.suppress(slipring.InvalidName):
            self.broker.topic("a//b")

    def a_bad_filter(self) -> None:
        with contextlib.suppress(slipring.InvalidFilter):
            self.broker.subscribe("a", filter="?")

    def a_bad_payload(self) -> None:
        with contextlib.suppress(TypeError):
            self.topic.publish(7)  # type: ignore[arg-type]

    def a_bad_ack_id(self) -> None:
        with contextlib.suppress(slipring.UnknownAckId):
            self.acker.ack("?")

    def wait_in_vain(self) -> None:
        with contextlib.suppress(slipring.Timeout):
            self.subscription.get(timeout=0)

    def subscribe(self) -> None:
        with self.broker.subscribe("b", filter=lambda message: True) as subscription:
            subscription.fileno()

    def handler(self) -> None:
        self.broker.subscribe("b", handler=lambda message: None).close()

    def on(self) -> None:
        # It goes on until the broker is closed, which costs as much as a hundred of them.
        self.handlers += 1
        if self.handlers % 100 == 0:
            self.other.close()
            self.other = slipring.open(memory_budget=256 << 10)
        self.other.on("a", on_error=print)(lambda message: None)

    def settle(self) -> None:
        self.jobs.publish_many([self.payload] * 4)
        self.leased.get().ack()
        self.leased.get().nack(0)
        messages = self.leased.get_many(10)
        assert [message.attempt for message in messages] == [2, 1, 1]
        outcomes = self.acker.ack_all([message.ack_id or "" for message in messages])
        assert outcomes == [True] * 3

    def give_up(self) -> None:
        # Dead letters are looked for in the whole log: few have room there.
        self.large.publish(self.frame)
        self.failing.get().dead_letter("no")
        (letter,) = self.letters.list()
        assert self.letters.redrive(letter)
        self.failing.get().dead_letter("no")
        assert self.letters.purge() == 1
        assert self.letters.peek(letter.partition, letter.offset) is None

    def come_and_go(self) -> None:
        for _ in range(2):
            with self.broker.subscribe("b", name="n", delivery=AGAIN) as subscription:
                subscription.seek(slipring.Start.EARLIEST)
        self.broker.describe_subscription("n"), self.broker.acker("n")
        self.broker.delete_subscription("n")

    def metrics(self) -> None:
        self.broker.metrics()

    def prometheus(self) -> None:
        self.broker.prometheus()

    def describe(self) -> None:
        self.broker.topics(), self.broker.describe_topic("a"), self.broker.subscriptions()


@pytest.mark.parametrize("name", [n for n in vars(Operations) if not n.startswith("_")])
def test_an_operation_leaves_no_object_and_no_memory_behind(name: str) -> None:
    operations = Operations()
    operation: Callable[[], None] = getattr(operations, name)

    def many(count: int) -> tuple[int, int]:
        for _ in range(count):
            operation()
        gc.collect()
        return sys.getallocatedblocks(), resident()

    many(OPERATIONS // 10)
    blocks, memory = many(OPERATIONS // 10)
    blocks_after, memory_after = many(OPERATIONS)
    # A leak leaves at least one object for each operation.
    assert blocks_after - blocks < OPERATIONS // 20, "objects are left behind"
    assert memory_after - memory < max(OPERATIONS * 20, 4 << 20), "memory is left behind"
    assert sys.getrefcount(operations.payload) < 50
    for broker in (operations.broker, operations.other, operations.small):
        broker.close()


def test_awaiting_leaves_nothing_behind() -> None:
    async def main(broker: Broker) -> None:
        subscription = broker.subscribe("a")

        async def many(count: int) -> int:
            for _ in range(count):
                waiting = asyncio.ensure_future(subscription.aget())
                await asyncio.sleep(0)
                broker.publish("a", b"x")
                await waiting
            gc.collect()
            return sys.getallocatedblocks()

        await many(5_000)
        blocks = await many(5_000)
        assert await many(OPERATIONS) - blocks < 1000

    with slipring.open() as broker:
        asyncio.run(main(broker))


@pytest.mark.parametrize("delivery", [ONCE, AGAIN])
def test_handlers_leave_nothing_behind(delivery: slipring.DeliveryMode) -> None:
    with slipring.open() as broker:
        overflow = slipring.Overflow.BLOCK if delivery == ONCE else None
        broker.on("a", delivery=delivery, overflow=overflow)(lambda message: None)
        topic = broker.topic("a")

        def many(count: int) -> int:
            for _ in range(count):
                topic.publish(b"x")
            while broker.metrics()["subscriptions"][0]["queued"]:
                pass
            gc.collect()
            return sys.getallocatedblocks()

        many(OPERATIONS // 4)
        blocks = many(OPERATIONS // 4)
        assert many(OPERATIONS) - blocks < 1000


def test_brokers_that_come_and_go_leave_no_threads_or_descriptors_behind() -> None:
    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    def threads() -> int:
        return len(os.listdir("/proc/self/task"))

    def once() -> None:
        with slipring.open(memory_budget=1 << 20) as broker:
            broker.subscribe("a", handler=lambda message: None)
            with broker.subscribe("a") as subscription:
                subscription.fileno()
                broker.publish("a", b"")
                subscription.get()

    # A broker is memory that the system gives and threads that it starts: half a millisecond, which
    # would be a minute for as many as of the other operations.
    once()
    gc.collect()
    before = descriptors(), threads()
    for _ in range(OPERATIONS // 100):
        once()
    gc.collect()
    while threads() > before[1]:
        pass  # a thread that has ended is listed for a moment
    assert descriptors() == before[0]


def a_handler_that_publishes(broker: Broker) -> object:
    return broker.on("a")(lambda message: broker.publish("b", message.payload))


def a_handler_with_a_topic(broker: Broker) -> object:
    topic = broker.topic("b")
    return broker.subscribe("a", handler=lambda message: topic.publish(message.payload))


def a_method_of_who_has_the_broker(broker: Broker) -> object:
    class Service:
        def __init__(self) -> None:
            self.subscription = broker.subscribe("a", handler=self.handle, dedicated_thread=True)

        def handle(self, message: Message) -> None: ...

    return Service()


def a_method_of_the_broker(broker: Broker) -> object:
    return broker.subscribe("a", handler=broker.topic("b").publish)


def all_that_a_handler_can_have(broker: Broker) -> object:
    def function(*arguments: object) -> bool:
        return broker is None

    return broker.subscribe(
        "a", handler=function, filter=function, on_error=function, on_lagged=function
    )


def functions_of_a_subscription(broker: Broker) -> object:
    box: list[object] = []
    box += [
        broker.subscribe("a", filter=box.count, on_lagged=box.append),
        broker.subscribe("a", filter=lambda message: bool(box)),
    ]
    return box


def a_method_of_the_subscription(broker: Broker) -> object:
    box: list[slipring.Subscription] = []
    subscription = broker.subscribe("a", on_lagged=lambda count: box[0].close())
    box.append(subscription)
    return subscription


def a_handler_with_an_acker_and_dead_letters(broker: Broker) -> object:
    everything = broker.subscribe("a", delivery=AGAIN)
    known = everything, everything.acker(), broker.dead_letters("a")
    return broker.subscribe("a", delivery=AGAIN, handler=lambda message: len(known))


def a_loan_that_nobody_ended(broker: Broker) -> object:
    loan = broker.topic("a").loan(8)
    loan.__enter__()
    return loan


@pytest.mark.parametrize(
    "make",
    [
        a_handler_that_publishes,
        a_handler_with_a_topic,
        a_method_of_who_has_the_broker,
        a_method_of_the_broker,
        all_that_a_handler_can_have,
        functions_of_a_subscription,
        a_method_of_the_subscription,
        a_handler_with_an_acker_and_dead_letters,
        a_loan_that_nobody_ended,
    ],
)
def test_a_broker_that_only_its_own_functions_know_is_collected(
    make: Callable[[Broker], object],
) -> None:
    broker = slipring.open(memory_budget=1 << 20)
    made = make(broker)
    broker.publish("a", b"x")
    alive = weakref.ref(broker)
    del broker
    gc.collect()
    assert alive() is not None, "it is in use"
    del made
    # A handler that runs at the moment keeps it.
    while alive() is not None:
        gc.collect()


def test_a_broker_whose_handler_runs_on_a_loop_is_collected_with_the_loop() -> None:
    async def main() -> weakref.ref[Broker]:
        broker = slipring.open(memory_budget=1 << 20)

        async def handle(message: Message) -> None:
            broker.publish("b", message.payload)

        broker.subscribe("a", handler=handle)
        broker.publish("a", b"x")
        await asyncio.sleep(0)
        return weakref.ref(broker)

    alive = asyncio.run(main())
    gc.collect()
    assert alive() is None


def test_brokers_may_be_collected_while_their_handlers_are_busy() -> None:
    class Service:
        def __init__(self) -> None:
            self.broker = slipring.open(memory_budget=1 << 20)
            self.count = 0
            for pattern in ("a", "*", "**"):
                self.broker.subscribe(pattern, handler=self.handle, filter=self.wants)

        def wants(self, message: Message) -> bool:
            return self.broker is not None

        def handle(self, message: Message) -> None:
            self.count += 1

    alive = []
    for _ in range(100):
        service = Service()
        service.broker.publish_many("a", [b"x"] * 500)
        alive.append(weakref.ref(service))
        del service
    while any(reference() is not None for reference in alive):
        gc.collect()
