"""Subscriptions that have a name: they outlive their consumers."""

from __future__ import annotations

import gc
import queue
import threading
from typing import Any

import pytest

import slipring
from slipring import Broker, DeliveryMode, Last, Message, Offset, Start, Subscription, TestClock, Time

ONCE, AGAIN = DeliveryMode.AT_MOST_ONCE, DeliveryMode.AT_LEAST_ONCE
PATIENCE = 60.0


def named(broker: Broker, name: str, **options: Any) -> Subscription:
    subscription = broker.subscribe("a/**", name=name, delivery=AGAIN, **options)
    assert isinstance(subscription, Subscription) and subscription.name == name
    return subscription


def publish(broker: Broker, numbers: range) -> None:
    broker.publish_many("a/b", [b"%d" % number for number in numbers])


def drain(subscription: Subscription) -> list[tuple[int, int]]:
    """All that is there, acknowledged, with the attempt of each."""
    got = []
    while (message := subscription.get_nowait()) is not None:
        got.append((int(bytes(message)), message.attempt))
        assert message.ack()
    return got


def firsts(numbers: range) -> list[tuple[int, int]]:
    return [(number, 1) for number in numbers]


def until_unsettled(broker: Broker, count: int) -> None:
    pause = threading.Event()
    while broker.metrics()["subscriptions"][0]["unsettled"] != count:
        pause.wait(0.001)


@pytest.mark.parametrize("how", ["closed", "forgotten", "at the end of its block"])
def test_it_comes_back_to_what_was_published_and_what_was_not_settled(
    broker: Broker, how: str
) -> None:
    everything = named(broker, "s", capacity=4)
    publish(broker, range(10))
    for _ in range(3):
        assert everything.get().ack()
    unsettled = everything.get()
    assert bytes(unsettled) == b"3"
    if how == "closed":
        everything.close()
    elif how == "at the end of its block":
        with everything:
            pass
    del everything
    gc.collect()
    assert unsettled.ack() is False, "its lease has ended"
    described = broker.describe_subscription("s")
    assert (described["is_online"], described["unsettled"]) == (False, 1)
    publish(broker, range(10, 20))
    back = named(broker, "s", start=Start.EARLIEST)
    assert drain(back) == [(3, 2), *firsts(range(4, 20))]
    publish(broker, range(20, 30))
    assert drain(back) == firsts(range(20, 30))
    assert len(broker.metrics()["subscriptions"]) == 1


def test_it_may_come_and_go_while_others_publish() -> None:
    count = 5_000
    with slipring.open(shards=2) as broker:
        named(broker, "s", capacity=16).close()
        publisher = threading.Thread(
            target=lambda: [broker.publish("a/b", b"%d" % n) for n in range(count)]
        )
        publisher.start()
        expected = 0
        while expected < count:
            with named(broker, "s") as everything:
                for message in everything.get_many(97, timeout=0.001):
                    assert (int(bytes(message)), message.ack()) == (expected, True)
                    expected += 1
        publisher.join()
        assert drain(named(broker, "s")) == []


def test_what_expires_meanwhile_is_told() -> None:
    with slipring.open(memory_budget=256 << 10) as broker:
        named(broker, "s").close()
        publish(broker, range(50))
        while broker.metrics()["shards"][0]["expired"] < 50:
            broker.publish("other", bytes(1024))
        publish(broker, range(50, 52))
        lost: list[int] = []
        assert drain(named(broker, "s", on_lagged=lost.append)) == firsts(range(50, 52))
        assert sum(lost) == 50


def test_a_second_consumer_is_refused_or_takes_over(broker: Broker) -> None:
    first = named(broker, "s")
    publish(broker, range(4))
    held = first.get()
    with pytest.raises(slipring.NameInUse) as error:
        named(broker, "s")
    assert not isinstance(error.value, slipring.DifferentSubscription)
    ended: list[type[BaseException]] = []

    def wait() -> None:
        for _ in range(3):
            assert first.get().ack()
        try:
            first.get()
        except slipring.Error as error:
            ended.append(type(error))

    waiting = threading.Thread(target=wait)
    waiting.start()
    until_unsettled(broker, 1)
    second = named(broker, "s", take_over=True)
    waiting.join()
    assert ended == [slipring.Disconnected]
    assert held.ack() is False
    with pytest.raises(slipring.Stale):
        held.nack()
    assert drain(second) == [(0, 2)]
    publish(broker, range(4, 6))
    assert drain(second) == firsts(range(4, 6))
    first.close()
    assert broker.describe_subscription("s")["is_online"], "the second is still there"


def test_a_handler_takes_its_turn_with_consumers_that_pull(
    timed: Broker, clock: TestClock
) -> None:
    handled: queue.SimpleQueue[int] = queue.SimpleQueue()

    def handle(message: Message) -> object:
        handled.put(int(bytes(message)))
        return slipring.Retry("later") if bytes(message) == b"2" else None

    handler = timed.subscribe(
        "a/**", name="s", delivery=AGAIN, handler=handle, on_error=lambda *_: None
    )
    assert handler.name == "s"
    publish(timed, range(3))
    assert [handled.get(timeout=PATIENCE) for _ in range(3)] == [0, 1, 2]
    until_unsettled(timed, 1)
    handler.close()
    publish(timed, range(3, 5))
    pulled = named(timed, "s")
    assert drain(pulled) == firsts(range(3, 5))
    assert handled.empty(), "it has unsubscribed"
    clock.advance(0.1)
    assert drain(pulled) == [(2, 2)]
    again = timed.subscribe(
        "a/**", name="s", delivery=AGAIN, handler=handle, take_over=True, dedicated_thread=True
    )
    with pytest.raises(slipring.Disconnected):
        pulled.get_nowait()
    publish(timed, range(5, 9))
    assert [handled.get(timeout=PATIENCE) for _ in range(4)] == [5, 6, 7, 8]
    until_unsettled(timed, 0)
    back = named(timed, "s", take_over=True)
    publish(timed, range(9, 10))
    assert drain(back) == firsts(range(9, 10))
    again.close()
    assert timed.describe_subscription("s")["is_online"]


def test_another_pattern_or_mode_is_refused(broker: Broker) -> None:
    named(broker, "s").close()
    with pytest.raises(slipring.DifferentSubscription):
        broker.subscribe("b", name="s", delivery=AGAIN)
    with pytest.raises(slipring.NameInUse):
        broker.subscribe("a/**", name="s", delivery=ONCE)
    named(broker, "s").close()


def test_they_are_listed_described_and_deleted(broker: Broker) -> None:
    one = named(broker, "one")
    named(broker, "two").close()
    publish(broker, range(3))
    assert broker.subscriptions() == ["one", "two"]
    assert broker.describe_subscription("two") == {
        "name": "two",
        "patterns": ["a/**"],
        "delivery": AGAIN,
        "is_online": False,
        "queued": 3,
        "unsettled": 0,
    }
    assert broker.describe_subscription("one")["is_online"]
    for unknown in (broker.describe_subscription, broker.delete_subscription):
        with pytest.raises(slipring.UnknownSubscription):
            unknown("three")
    broker.delete_subscription("two")
    assert broker.subscriptions() == ["one"]
    broker.delete_subscription("one")
    with pytest.raises(slipring.Disconnected):
        one.get_nowait()
    one.close()
    assert broker.subscriptions() == [] and broker.metrics()["subscriptions"] == []
    assert drain(named(broker, "two")) == [], "it is another subscription"


def test_deleting_wakes_who_waits_and_ends_a_handler(broker: Broker) -> None:
    waits = named(broker, "waits")
    ended: list[type[BaseException]] = []

    def wait() -> None:
        try:
            waits.get()
        except slipring.Error as error:
            ended.append(type(error))

    waiting = threading.Thread(target=wait)
    waiting.start()
    broker.delete_subscription("waits")
    waiting.join()
    assert ended == [slipring.Disconnected]
    handler = broker.subscribe("a/**", name="h", delivery=AGAIN, handler=lambda message: None)
    broker.delete_subscription("h")
    assert broker.publish("a/b", b"").matched == 0
    handler.close()


def test_one_without_a_consumer_can_be_sought(clock: TestClock) -> None:
    with slipring.open(clock=clock, shards=3) as broker:
        everything = named(broker, "s")
        publish(broker, range(5))
        clock.advance(10)
        publish(broker, range(5, 10))
        assert len(drain(everything)) == 10
        with pytest.raises(slipring.NameInUse):
            broker.seek_subscription("s", Start.EARLIEST)
        everything.close()

        def sought(start: Start | Last | Offset | Time) -> list[tuple[int, int]]:
            broker.seek_subscription("s", start)
            with named(broker, "s") as subscription:
                return drain(subscription)

        assert sought(Start.EARLIEST) == firsts(range(10))
        assert sought(Offset(7)) == firsts(range(7, 10))
        assert sought(Last(2)) == firsts(range(8, 10))
        assert sought(Start.NOW) == []
        with named(broker, "s") as oldest:
            oldest.seek(Start.EARLIEST)
            times = [oldest.get().published_at for _ in range(10)]
        assert sought(Time(times[5])) == firsts(range(5, 10))
        with pytest.raises(slipring.UnknownSubscription):
            broker.seek_subscription("t", Start.NOW)
        once = broker.subscribe("a/**", name="once", delivery=ONCE)
        with pytest.raises(slipring.AtMostOnce):
            broker.seek_subscription("once", Start.NOW)
        with pytest.raises(slipring.AtMostOnce):
            broker.acker("once")
        once.close()
