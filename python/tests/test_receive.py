"""Every way to receive, overflow policies, start positions and filters."""

from __future__ import annotations

import logging
import select
import threading
import time
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

import slipring
from slipring import Broker, Overflow, Start

ONCE = slipring.DeliveryMode.AT_MOST_ONCE


def numbers(subscription: slipring.Subscription) -> list[int]:
    """What is queued, as the numbers that were published."""
    return [int(payload) for payload in subscription.get_many(1 << 20, timeout=0).payloads()]


def publish_numbers(broker: Broker, count: int, topic: str = "a") -> slipring.BatchReceipt:
    return broker.publish_many(topic, [b"%d" % n for n in range(count)])


def test_every_way_to_receive_takes_from_the_same_stream(broker: Broker) -> None:
    subscription = broker.subscribe("a")
    publish_numbers(broker, 8)
    assert bytes(subscription.get()) == b"0"
    assert bytes(subscription.get(timeout=1)) == b"1"
    assert bytes(next(subscription)) == b"2"
    assert subscription.get_many(2).payloads() == [b"3", b"4"]
    nowait = subscription.get_nowait()
    assert nowait is not None and bytes(nowait) == b"5"
    broker.close()
    assert [bytes(message) for message in subscription] == [b"6", b"7"]
    assert list(subscription) == []
    with pytest.raises(slipring.Closed):
        subscription.get()


def test_asking_for_no_message_takes_none(broker: Broker) -> None:
    subscription = broker.subscribe("a")
    assert len(subscription.get_many(0)) == 0
    publish_numbers(broker, 1)
    assert len(subscription.get_many(0)) == 0
    assert numbers(subscription) == [0]
    assert len(subscription.get_many(5, timeout=0)) == 0


def test_several_patterns_deliver_a_message_once(broker: Broker) -> None:
    subscription = broker.subscribe("a/*", "a/**", "b")
    broker.publish("a/x", b"1")
    broker.publish("b", b"2")
    assert numbers(subscription) == [1, 2]


def test_names_are_unique_and_told(broker: Broker) -> None:
    subscription = broker.subscribe("a", name="audit")
    assert subscription.name == "audit"
    with pytest.raises(slipring.NameInUse):
        broker.subscribe("a", name="audit")
    with pytest.raises(slipring.InvalidSubscriptionName) as refused:
        broker.subscribe("a", name="au dit")
    assert refused.value.position == 2
    subscription.close()
    broker.subscribe("a", name="audit").close()


def test_the_descriptor_is_readable_exactly_while_something_can_be_received(
    broker: Broker,
) -> None:
    subscription = broker.subscribe("a")

    def is_readable() -> bool:
        return bool(select.select([subscription], [], [], 0)[0])

    assert not is_readable()
    publish_numbers(broker, 2)
    assert is_readable()
    subscription.get()
    assert is_readable()
    subscription.get()
    assert not is_readable()
    subscription.close()
    assert is_readable()
    with pytest.raises(slipring.Closed):
        subscription.get()


def test_drop_newest_keeps_the_first_and_tells_the_loss_behind_them(broker: Broker) -> None:
    with broker.subscribe("a", delivery=ONCE, capacity=4) as subscription:
        assert publish_numbers(broker, 10).dropped == 6
        assert numbers(subscription) == [0, 1, 2, 3]
        with pytest.raises(slipring.Lagged) as lagged:
            subscription.get()
        assert lagged.value.count == 6
        assert subscription.get_nowait() is None


def test_drop_oldest_keeps_the_last_and_tells_the_loss_before_them(broker: Broker) -> None:
    with broker.subscribe(
        "a", delivery=ONCE, capacity=4, overflow=Overflow.DROP_OLDEST
    ) as subscription:
        assert publish_numbers(broker, 10).dropped == 6
        with pytest.raises(slipring.Lagged) as lagged:
            next(subscription)
        assert lagged.value.count == 6
        assert numbers(subscription) == [6, 7, 8, 9]


def test_who_asks_to_be_told_of_losses_gets_no_exceptions(broker: Broker) -> None:
    lost: list[int] = []
    subscription = broker.subscribe(
        "a", delivery=ONCE, capacity=4, overflow=Overflow.DROP_OLDEST, on_lagged=lost.append
    )
    publish_numbers(broker, 10)
    broker.close()
    assert [int(bytes(message)) for message in subscription] == [6, 7, 8, 9]
    assert lost == [6]


def test_block_drops_after_its_timeout_and_not_before(broker: Broker) -> None:
    with broker.subscribe("a", delivery=ONCE, capacity=1, overflow=slipring.Block(timeout=0.2)):
        publish_numbers(broker, 1)
        began = time.monotonic()
        receipt = broker.publish("a", b"late")
        assert (receipt.enqueued, receipt.dropped) == (0, 1)
        assert time.monotonic() - began >= 0.2


def test_disconnect_ends_a_subscription_that_stays_full(broker: Broker) -> None:
    with broker.subscribe(
        "a", delivery=ONCE, capacity=1, overflow=slipring.Disconnect(0)
    ) as subscription:
        publish_numbers(broker, 1)
        while broker.publish("a", b"").matched:
            pass
        assert bytes(subscription.get()) == b"0"
        with pytest.raises(slipring.Lagged):
            subscription.get()
        with pytest.raises(slipring.Disconnected):
            subscription.get()


def test_overflow_and_start_are_checked(broker: Broker) -> None:
    wrong: Any = "block"
    with pytest.raises(TypeError, match="overflow is an Overflow"):
        broker.subscribe("a", overflow=wrong)
    with pytest.raises(TypeError, match="start is a Start"):
        broker.subscribe("a", start=wrong)
    assert broker.metrics()["subscriptions"] == []


def test_every_start_begins_exactly_where_it_says(broker: Broker) -> None:
    publish_numbers(broker, 10)
    first = broker.subscribe("a", start=Start.EARLIEST).get()
    starts: list[tuple[Start | slipring.Last | slipring.Offset | slipring.Time, list[int]]] = [
        (Start.NOW, []),
        (Start.EARLIEST, list(range(10))),
        (slipring.Last(3), [7, 8, 9]),
        (slipring.Offset(8), [8, 9]),
        (slipring.Time(first.published_at), list(range(10))),
        (slipring.Time(first.published_at + timedelta(hours=1)), []),
        (slipring.Time(time.time() - 3600), list(range(10))),
        (slipring.Time(datetime(2020, 1, 1, tzinfo=timezone.utc)), list(range(10))),
    ]
    for start, expected in starts:
        with broker.subscribe("a", start=start) as subscription:
            assert numbers(subscription) == expected, start


def test_expressions_filter_before_the_queue(broker: Broker) -> None:
    with broker.subscribe("a", filter='attributes.team = "IN" AND NOT attributes:test') as wanted:
        assert broker.publish("a", b"1", team="IN").matched == 1
        assert broker.publish("a", b"2", team="IN", test="").matched == 0
        assert numbers(wanted) == [1]
    with pytest.raises(slipring.InvalidFilter) as refused:
        broker.subscribe("a", filter="attributes.x >")
    assert refused.value.position == 13 and refused.value.reason


def test_functions_filter_where_the_message_is_received(broker: Broker) -> None:
    threads: set[int] = set()

    def is_even(message: slipring.Message) -> bool:
        threads.add(threading.get_ident())
        broker.publish("seen", b"")  # allowed: no shard is held
        return int(bytes(message)) % 2 == 0

    with broker.subscribe("a", filter=is_even) as subscription:
        publisher = threading.Thread(target=publish_numbers, args=(broker, 10))
        publisher.start()
        publisher.join()
        assert threads == set()
        assert bytes(subscription.get()) == b"0"
        assert bytes(next(subscription)) == b"2"
        assert numbers(subscription) == [4, 6, 8]
        assert subscription.get_nowait() is None
        assert threads == {threading.get_ident()}


def test_a_filter_that_raises_counts_as_no_match_and_is_logged(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    def fussy(message: slipring.Message) -> bool:
        return 10 // int(bytes(message)) == 10

    with broker.subscribe("a", filter=fussy) as subscription:
        with caplog.at_level(logging.ERROR, "slipring"):
            publish_numbers(broker, 3)
            assert numbers(subscription) == [1]
    (record,) = caplog.records
    assert record.exc_info and record.exc_info[0] is ZeroDivisionError


def test_a_filter_is_an_expression_or_a_function(broker: Broker) -> None:
    wrong: Any = 7
    with pytest.raises(TypeError, match="a filter is"):
        broker.subscribe("a", filter=wrong)


def test_threads_share_a_subscription(broker: Broker) -> None:
    subscription = broker.subscribe("a", capacity=1 << 14)
    got: list[int] = []

    def consume() -> None:
        for message in subscription:
            got.append(int(bytes(message)))

    consumers = [threading.Thread(target=consume) for _ in range(4)]
    for consumer in consumers:
        consumer.start()
    publish_numbers(broker, 5000)
    broker.close()
    for consumer in consumers:
        consumer.join()
    assert sorted(got) == list(range(5000))


def test_a_forgotten_subscription_is_matched_no_more(broker: Broker) -> None:
    subscription = broker.subscribe("a")
    assert broker.publish("a", b"").matched == 1
    del subscription
    assert broker.publish("a", b"").matched == 0
    assert broker.metrics()["subscriptions"] == []


def test_metrics_are_plain_dicts_that_add_up(broker: Broker) -> None:
    with broker.subscribe("a", delivery=ONCE, capacity=4, name="s") as subscription:
        publish_numbers(broker, 10)
        subscription.get()
        metrics = broker.metrics()
        (known,) = metrics["subscriptions"]
        assert type(metrics) is dict and type(known) is dict
        assert known["name"] == "s" and known["matched"] == 10 and known["dropped_newest"] == 6
        assert known["delivered"] == 1 and known["queued"] == 3
        assert known["breaker"] is slipring.BreakerState.CLOSED
        assert metrics["topics"] == [{"name": "a", "published": 10, "duplicates": 0}]
        assert "slipring" in broker.prometheus()


def test_reprs_read_well(broker: Broker) -> None:
    subscription = broker.subscribe("a/*", "b")
    broker.publish("a/b", b"four!")
    message = subscription.get()
    assert repr(message) == "<slipring.Message 'a/b' offset=0 5 bytes b'four!'>"
    assert repr(broker.topic("a/b")) == "<slipring.Topic 'a/b'>"
    assert "'a/*', 'b'" in repr(subscription)
    subscription.close()
    assert "closed" in repr(subscription)
    assert repr(broker).startswith("<slipring.Broker object at 0x")


def test_handles_outlive_their_broker_object() -> None:
    topic = slipring.open().topic("a")
    assert topic.publish(b"").matched == 0
    subscription = slipring.open().subscribe("a")
    with pytest.raises(slipring.Timeout):
        subscription.get(timeout=0)
