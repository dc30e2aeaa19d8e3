"""Every way to publish, and what is refused."""

from __future__ import annotations

import array
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy
import pytest

import slipring
from slipring import Broker, Overflow

ONCE = slipring.DeliveryMode.AT_MOST_ONCE


def test_every_way_to_publish_brings_the_message_and_a_receipt(broker: Broker) -> None:
    subscription = broker.subscribe("a/*")
    topic = broker.topic("a/b")
    assert broker.publish("a/b", b"0").offset == 0
    assert topic.publish(b"1").offset == 1
    assert topic.try_publish(b"2").offset == 2
    assert topic.publish(b"3", timeout=1).offset == 3
    loan = topic.loan(1)
    with loan as view:
        view[:] = b"4"
    assert loan.receipt is not None and loan.receipt.offset == 4
    batch = topic.publish_many([b"5", b"6"])
    assert (batch.published, batch.first, batch.matched, batch.enqueued) == (2, (0, 5), 2, 2)
    batch = broker.publish_many("a/b", iter([b"7"]))
    assert (batch.published, batch.dropped) == (1, 0)
    got = [bytes(subscription.get()) for _ in range(8)]
    assert got == [b"%d" % n for n in range(8)]


def test_what_is_published_again_with_its_id_is_stored_once() -> None:
    with slipring.open(dedup_window=60) as broker:
        subscription = broker.subscribe("a")
        topic = broker.topic("a")
        first = topic.publish(b"first", id="x")
        assert not first.duplicate
        loan = topic.loan(1, id="x")
        with loan as view:
            view[:] = b"4"
        assert loan.receipt is not None
        for again in (
            broker.publish("a", b"again", id="x"),
            topic.publish(b"again", id="x", key="k"),
            topic.publish(b"again", id="x", timeout=1),
            topic.try_publish(b"again", id="x"),
            loan.receipt,
        ):
            assert again.duplicate and again.id == first.id
            assert (again.matched, again.enqueued, again.dropped) == (0, 0, 0)
            assert "duplicate=True" in repr(again)
        batch = topic.publish_many([b"without", b"an id"])
        assert (batch.published, batch.duplicates) == (2, 0)
        assert [bytes(message) for message in subscription.get_many(9)] == [
            b"first",
            b"without",
            b"an id",
        ]
        (figures,) = broker.metrics()["topics"]
        assert (figures["published"], figures["duplicates"]) == (3, 5)
        assert 'slipring_topic_duplicates_total{topic="a"} 5' in broker.prometheus()


@pytest.mark.parametrize("wrong", [0, 0.0001, 8 * 24 * 3600])
def test_a_window_that_cannot_hold_is_refused(wrong: float, broker: Broker) -> None:
    with pytest.raises(slipring.OutOfRange, match="dedup_window"):
        broker.create_topic("a", dedup_window=wrong)
    broker.create_topic("b")
    with pytest.raises(slipring.OutOfRange, match="dedup_window"):
        broker.update_topic("b", dedup_window=wrong)
    with pytest.raises(slipring.OutOfRange, match="dedup_ids"):
        broker.update_topic("b", dedup_window=60, dedup_ids=0)
    with pytest.raises(TypeError):
        broker.create_topic("c", dedup_window="a minute")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "payload",
    [
        b"12345678",
        bytearray(b"12345678"),
        memoryview(b"12345678"),
        memoryview(b"x12345678y")[1:9],
        array.array("B", b"12345678"),
        numpy.frombuffer(b"12345678", dtype=numpy.int64),
        numpy.frombuffer(b"12345678", dtype=numpy.uint8).reshape(2, 4),
    ],
    ids=lambda payload: type(payload).__name__,
)
def test_anything_with_bytes_in_one_piece_is_a_payload(broker: Broker, payload: Any) -> None:
    subscription = broker.subscribe("a")
    broker.publish("a", payload)
    broker.publish_many("a", [payload])
    broker.publish_many("a", (payload,))
    for _ in range(3):
        assert bytes(subscription.get()) == b"12345678"


def test_what_has_no_bytes_in_one_piece_is_refused(broker: Broker) -> None:
    topic = broker.topic("a")
    strange: Any
    for strange in ("text", 7, None, [b"x"]):
        with pytest.raises(TypeError):
            topic.publish(strange)
        with pytest.raises(TypeError):
            topic.publish_many([b"fine", strange])
    with pytest.raises((BufferError, ValueError)):
        topic.publish(numpy.zeros((4, 4))[:, 0])
    with pytest.raises(TypeError, match="encode it"):
        topic.publish("text")  # type: ignore[arg-type]
    assert broker.metrics()["topics"][0]["published"] == 0


def test_a_payload_that_is_being_read_from_can_be_used_again(broker: Broker) -> None:
    payload = bytearray(b"once")
    broker.publish("a", payload)
    payload.extend(b" more")  # would raise BufferError if the buffer were still held
    assert broker.publish("a", payload).offset == 1


def test_key_id_and_attributes_arrive_as_they_were_sent(broker: Broker) -> None:
    subscription = broker.subscribe("a")
    broker.publish("a", b"", team="IN", key="k", id="own", attributes={"ключ": "значение", "key": "v"})
    message = subscription.get()
    assert (message.key, message.id) == ("k", "own")
    assert dict(message.attributes) == {"ключ": "значение", "key": "v", "team": "IN"}
    broker.publish_many("a", [b"x", b"y"], team="AU", key="k")
    assert [m.attributes["team"] for m in subscription.get_many(9)] == ["AU", "AU"]
    plain = broker.publish("a", b"")
    assert subscription.get().id == plain.id


def test_attributes_that_are_not_text_are_refused(broker: Broker) -> None:
    number: Any = 7
    with pytest.raises(TypeError, match="attributes are str"):
        broker.publish("a", b"", team=number)
    with pytest.raises(TypeError, match="attributes are str"):
        broker.publish("a", b"", attributes={number: "x"})
    with pytest.raises(slipring.InvalidMessage):
        broker.publish("a", b"", attributes={"team": "x"}, team="y")


def test_limits_are_refused_with_what_and_how_much() -> None:
    with slipring.open(payload_limit=100) as broker:
        with pytest.raises(slipring.InvalidMessage) as refused:
            broker.publish("a", bytes(101))
        assert (refused.value.size, refused.value.limit) == (101, 100)
        with pytest.raises(slipring.InvalidMessage) as refused:
            broker.publish("a", b"", attributes={"fine": "", "k" * 257: ""})
        assert (refused.value.index, refused.value.size, refused.value.limit) == (1, 257, None)
        with pytest.raises(slipring.PublishError) as batch:
            broker.publish_many("a", [b"", bytes(101)])
        assert batch.value.receipt is not None and batch.value.receipt.published == 0


def test_errors_are_what_a_python_programmer_catches(broker: Broker) -> None:
    for wrong in (
        lambda: broker.publish("a//b", b""),
        lambda: broker.subscribe("a", filter="attributes."),
        lambda: broker.subscribe("a", name="no spaces"),
        lambda: broker.subscribe("a", capacity=0),
        lambda: slipring.open(shards=0),
    ):
        with pytest.raises(ValueError) as refused:
            wrong()
        assert isinstance(refused.value, slipring.Error)
        assert hasattr(refused.value, "position") or hasattr(refused.value, "setting")
    with pytest.raises(LookupError):
        broker.delete_topic("unknown")
    with pytest.raises(TimeoutError):
        broker.subscribe("a").get(timeout=0)


def test_a_bad_name_tells_where_and_why(broker: Broker) -> None:
    with pytest.raises(slipring.InvalidName) as refused:
        broker.topic("a/b*")
    assert refused.value.position == 3
    assert refused.value.reason is slipring.NameRule.WILDCARD_IN_NAME
    with pytest.raises(slipring.InvalidName) as refused:
        broker.topic("$sys/x")
    assert refused.value.reason is slipring.NameRule.RESERVED


def test_every_rule_of_names_has_a_member() -> None:
    source = Path(__file__).parents[2] / "core/src/error.rs"
    rules = source.read_text().split("pub fn as_str(self)")[1].split("}\n    }")[0]
    words = [line.split('"', 1)[1].rsplit('"', 1)[0] for line in rules.splitlines() if '"' in line]
    assert sorted(words) == sorted(rule.value for rule in slipring.NameRule)


def test_durations_are_seconds_or_timedeltas(broker: Broker) -> None:
    subscription = broker.subscribe("a")
    for timeout in (0, 0.0, timedelta(0)):
        with pytest.raises(slipring.Timeout):
            subscription.get(timeout=timeout)
    wrong: Any
    for wrong in ("1", True, [1]):
        with pytest.raises(TypeError, match="a duration is"):
            subscription.get(timeout=wrong)
    for wrong in (-1, float("nan"), 1e40, timedelta(-1)):
        with pytest.raises(ValueError, match="is no duration"):
            subscription.get(timeout=wrong)


def test_try_publish_refuses_instead_of_waiting(broker: Broker) -> None:
    with broker.subscribe("a", delivery=ONCE, capacity=1, overflow=Overflow.BLOCK) as subscription:
        topic = broker.topic("a")
        topic.try_publish(b"fits")
        with pytest.raises(slipring.WouldBlock):
            topic.try_publish(b"does not")
        with pytest.raises(slipring.Timeout):
            topic.publish(b"does not", timeout=0.01)
        with pytest.raises(slipring.Timeout) as early:
            topic.publish_many([b"does not"], timeout=timedelta(milliseconds=10))
        assert early.value.receipt is not None and early.value.receipt.published == 0
        assert subscription.queued == 1


def test_a_batch_that_stops_early_says_how_far_it_came(broker: Broker) -> None:
    with broker.subscribe("a", delivery=ONCE, capacity=4, overflow=Overflow.BLOCK):
        with pytest.raises(slipring.Timeout) as early:
            broker.publish_many("a", [b"%d" % n for n in range(9)], timeout=0.01)
        assert early.value.receipt is not None
        assert (early.value.receipt.published, early.value.receipt.first) == (4, (0, 0))


def test_a_batch_that_waits_has_one_receipt(broker: Broker) -> None:
    with broker.subscribe("a", delivery=ONCE, capacity=4, overflow=Overflow.BLOCK) as subscription:
        got: list[bytes] = []

        def consume() -> None:
            while len(got) < 100:
                got.extend(subscription.get_many(3).payloads())

        consumer = threading.Thread(target=consume)
        consumer.start()
        receipt = broker.publish_many("a", [b"%d" % n for n in range(100)])
        consumer.join()
        assert (receipt.published, receipt.first, receipt.enqueued) == (100, (0, 0), 100)
        assert got == [b"%d" % n for n in range(100)]


def test_a_loan_publishes_nothing_if_its_block_raises(broker: Broker) -> None:
    subscription = broker.subscribe("a")
    with pytest.raises(ZeroDivisionError):
        with broker.topic("a").loan(4) as view:
            view[:2] = b"ab"
            raise ZeroDivisionError
    assert subscription.get_nowait() is None
    with pytest.raises(ValueError):
        view[0]  # released


def test_a_loan_that_is_still_used_is_refused(broker: Broker) -> None:
    subscription = broker.subscribe("a")
    loan = broker.topic("a").loan(8)
    with pytest.raises(BufferError, match="still in use"):
        with loan as view:
            array_of_it = numpy.frombuffer(view, dtype=numpy.uint8)
            array_of_it[:] = 7
    assert subscription.get_nowait() is None and loan.receipt is None
    array_of_it[:] = 8  # memory that is still there
    with pytest.raises(BufferError, match="still in use"):
        with broker.topic("a").loan(8) as view:
            part = view[2:4]
    assert subscription.get_nowait() is None
    part.release()


def test_a_loan_carries_key_and_attributes_and_is_written_once(broker: Broker) -> None:
    subscription = broker.subscribe("a")
    loan = broker.topic("a").loan(3, key="k", team="IN")
    with pytest.raises(BufferError, match="with"):
        memoryview(loan)
    with loan as view:
        view[:] = b"abc"
    message = subscription.get()
    assert (bytes(message), message.key, message.attributes["team"]) == (b"abc", "k", "IN")
    with pytest.raises(RuntimeError, match="take another"):
        loan.__enter__()
    with pytest.raises(BufferError, match="used up"):
        memoryview(loan)
    with broker.topic("a").loan(0) as view:
        assert len(view) == 0
    assert bytes(subscription.get()) == b""


def test_topics_are_created_described_listed_and_deleted(broker: Broker) -> None:
    topic = broker.create_topic("a/b", partitions=3)
    broker.publish("a/c", b"")
    with pytest.raises(slipring.TopicExists):
        broker.create_topic("a/b")
    described = broker.describe_topic("a/b")
    assert described["name"] == "a/b" and len(described["partitions"]) == 3
    assert broker.topics() == ["a/b", "a/c"]
    assert broker.topics("*/c") == ["a/c"]
    assert broker.topics(after="a/b", most=1) == ["a/c"]
    broker.delete_topic("a/b")
    with pytest.raises(slipring.TopicDeleted):
        topic.publish(b"")
    with slipring.open(auto_create=False) as strict, pytest.raises(slipring.UnknownTopic):
        strict.topic("a")


def test_settings_out_of_range_are_refused_with_their_name() -> None:
    with pytest.raises(slipring.OutOfRange) as refused:
        slipring.open(workers=1000)
    assert (refused.value.setting, refused.value.min, refused.value.max) == ("workers", 1, 256)
    wrong: Any = "expire"
    with pytest.raises(TypeError, match="when_full is a WhenFull"):
        slipring.open(when_full=wrong)
    by_position: Any = slipring.open
    with pytest.raises(TypeError, match="positional"):
        by_position(None, 4)


def test_all_settings_are_taken() -> None:
    with slipring.open(
        shards=2,
        memory_budget=4 << 20,
        when_full=slipring.WhenFull.REFUSE,
        payload_limit=1000,
        auto_create=True,
        default_partitions=2,
        workers=1,
        pin_workers=0,
        sequencer=slipring.Sequencer.PUBLISHERS,
    ) as broker:
        assert broker.metrics()["budget_bytes"] == 4 << 20
        assert len(broker.metrics()["shards"]) == 2
        broker.publish("a", b"")
        assert len(broker.describe_topic("a")["partitions"]) == 2
    with slipring.open(sequencer=slipring.Pinned(0)) as broker:
        with broker.subscribe("a") as subscription:
            broker.publish("a", b"x")
            assert bytes(subscription.get(timeout=10)) == b"x"


def test_objects_of_a_broker_cannot_be_pickled(broker: Broker) -> None:
    import pickle

    for thing in (broker, broker.topic("a"), broker.subscribe("a")):
        with pytest.raises(TypeError, match="cannot be pickled"):
            pickle.dumps(thing)


def test_a_publish_that_finds_no_memory_for_its_receipt_has_published_once(broker: Broker) -> None:
    testcapi = pytest.importorskip("_testcapi")
    topic = broker.topic("a")
    kept = [topic.publish(b"") for _ in range(100)]  # so that no receipt's memory is left over
    subscription = broker.subscribe("a")
    failed = False
    testcapi.set_nomemory(0, 1)  # the next allocation fails, and that alone
    try:
        topic.publish(b"x")
    except MemoryError:
        failed = True
    finally:
        testcapi.remove_mem_hooks()
    assert failed and subscription.queued == 1 and len(kept) == 100


def test_receipts_read_well(broker: Broker) -> None:
    figures = "durable=False, matched=0, enqueued=0, dropped=0)"
    assert repr(broker.publish("a", b"")) == f"Receipt(partition=0, offset=0, {figures}"
    assert repr(broker.publish_many("a", [b"", b""])) == f"BatchReceipt(published=2, {figures}"
    assert repr(broker.close()) == (
        "CloseReport(unhandled=0, unreceived=0, unsettled=0, handler_running=False, "
        "store_failure=None)"
    )


def test_a_publish_can_wait_until_it_survives(tmp_path: Path) -> None:
    with slipring.open(tmp_path / "data", sync=slipring.Sync.OS) as broker:
        topic = broker.topic("jobs")
        assert broker.durable and topic.durable
        assert not topic.publish(b"one").durable
        assert [shard["unsynced"] for shard in broker.metrics()["shards"]] == [1]
        receipt = topic.publish_sync(b"two", key="k", id="own", attributes={"a": "b"}, c="d")
        assert receipt.durable and receipt.offset == 1
        assert [shard["unsynced"] for shard in broker.metrics()["shards"]] == [0]
        subscription = broker.subscribe("jobs", start=slipring.Last(1))
        message = subscription.get()
        assert (message.key, message.id, dict(message.attributes.items())) == (
            "k",
            "own",
            {"a": "b", "c": "d"},
        )
        message.ack()
    with slipring.open() as broker:
        topic = broker.topic("jobs")
        assert not topic.durable and not topic.publish_sync(b"one").durable
    with pytest.raises(slipring.Closed):
        topic.publish_sync(b"two")


def test_a_publish_that_is_to_survive_waits_for_room_for_so_long(broker: Broker) -> None:
    subscription = broker.subscribe("a", delivery=ONCE, capacity=1, overflow=Overflow.BLOCK)
    topic = broker.topic("a")
    topic.publish_sync(b"1")
    with pytest.raises(slipring.Timeout):
        topic.publish_sync(b"2", timeout=0.01)
    assert bytes(subscription.get()) == b"1"


def test_many_are_published_without_waiting(broker: Broker) -> None:
    subscription = broker.subscribe("a", delivery=ONCE, capacity=2, overflow=Overflow.BLOCK)
    topic = broker.topic("a")
    with pytest.raises(slipring.WouldBlock) as caught:
        topic.try_publish_many([b"1", b"2", bytearray(b"3")], key="k", team="IN")
    receipt = caught.value.receipt
    assert receipt is not None and (receipt.published, receipt.enqueued) == (2, 2)
    first, second = subscription.get_many(9)
    assert (bytes(first), bytes(second)) == (b"1", b"2")
    assert first.key == "k" and first.attributes["team"] == "IN"
    assert topic.try_publish_many(iter([b"3"])).published == 1
    assert topic.try_publish_many([]).published == 0


@pytest.mark.parametrize("sequencer", [None, slipring.Pinned(0)])
def test_a_ticket_has_the_receipt_when_its_turn_has_come(
    sequencer: slipring.Pinned | None, tmp_path: Path
) -> None:
    with slipring.open(sequencer=sequencer) as broker:
        subscription = broker.subscribe("a")
        topic = broker.topic("a")
        tickets = [topic.publish_ticket(b"%d" % n, key="k", id=str(n), n="x") for n in range(9)]
        receipts = [ticket.wait() for ticket in tickets]
        assert [receipt.offset for receipt in receipts] == list(range(9))
        assert [message.id for message in subscription.get_many(9)] == list("012345678")
        again = tickets[0].try_receipt()
        assert again is not None and again.id == receipts[0].id == tickets[0].wait().id
        assert not receipts[0].durable and "done" in repr(tickets[0])
        with pytest.raises(slipring.InvalidMessage):
            topic.publish_ticket(b"x", key="k" * 2000)
    with pytest.raises(slipring.Closed):
        topic.publish_ticket(b"x")
    with slipring.open(tmp_path / "data", sequencer=sequencer) as broker:
        ticket = broker.topic("a").publish_ticket(b"x")
        assert ticket.wait().durable


def test_a_ticket_tells_why_its_message_was_not_published(broker: Broker) -> None:
    subscription = broker.subscribe("a", delivery=ONCE, capacity=1, overflow=Overflow.BLOCK)
    topic = broker.topic("a")
    assert topic.publish_ticket(b"1").wait().enqueued == 1
    refused = topic.publish_ticket(b"2")
    with pytest.raises(slipring.WouldBlock):
        refused.try_receipt()
    with pytest.raises(slipring.WouldBlock):
        refused.wait()
    with pytest.raises(RuntimeError, match="used up"):
        refused.wait()
    assert refused.try_receipt() is None and "taken" in repr(refused)
    assert bytes(subscription.get()) == b"1"
