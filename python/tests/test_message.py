"""Messages: buffers over the record where it lies."""

from __future__ import annotations

import collections.abc
import copy
import gc
import io
import pickle
from datetime import datetime, timedelta, timezone
from typing import Any

import numpy
import pytest

import slipring
from slipring import Broker


def address(buffer: object) -> int:
    array = numpy.frombuffer(buffer, dtype=numpy.uint8)  # type: ignore[call-overload]
    return int(array.ctypes.data)


def test_the_payload_is_a_read_only_view_of_the_record(broker: Broker) -> None:
    subscription = broker.subscribe("a")
    broker.publish("a", b"four!")
    message = subscription.get()
    assert bytes(message.payload) == b"four!" and message.payload.readonly
    assert bytes(message) == b"four!"
    assert address(message) == address(message.payload)
    with pytest.raises(TypeError):
        message.payload[0] = 1
    with pytest.raises(ValueError):
        numpy.frombuffer(message.payload, dtype=numpy.uint8)[0] = 1
    unwritable: Any = message
    with pytest.raises(TypeError):
        io.BytesIO(b"other").readinto(unwritable)


def test_two_subscribers_read_the_same_memory(broker: Broker) -> None:
    one, two = broker.subscribe("a"), broker.subscribe("a")
    broker.publish("a", numpy.arange(1000))
    first, second = one.get(), two.get()
    assert address(first) == address(second)
    assert numpy.array_equal(numpy.frombuffer(first.payload, dtype=int), numpy.arange(1000))


def test_what_is_written_into_a_loan_is_read_where_it_was_written(broker: Broker) -> None:
    subscription = broker.subscribe("a")
    with broker.topic("a").loan(1 << 20) as view:
        view[:4] = b"data"
        written = address(view)
    assert address(subscription.get()) == written


def test_a_message_outlives_its_subscription_and_its_broker() -> None:
    broker = slipring.open(memory_budget=1 << 20)
    subscription = broker.subscribe("a")
    broker.publish("a", b"kept", team="IN")
    message, view = subscription.get(), None
    view = message.payload
    for _ in range(100):
        broker.publish_many("a", [bytes(1000)] * 100)  # far more than the budget
    broker.close()
    del broker, subscription
    gc.collect()
    assert bytes(message) == b"kept" and message.topic == "a"
    array = numpy.frombuffer(message.payload, dtype=numpy.uint8)
    del message
    gc.collect()
    assert bytes(view) == b"kept" and bytes(array) == b"kept"


def test_attributes_are_a_mapping(broker: Broker) -> None:
    subscription = broker.subscribe("a")
    broker.publish("a", b"", attributes={"b": "2", "a": "1"})
    attributes = subscription.get().attributes
    assert isinstance(attributes, collections.abc.Mapping)
    assert list(attributes) == ["b", "a"] == attributes.keys()
    assert attributes.values() == ["2", "1"] and attributes.items() == [("b", "2"), ("a", "1")]
    assert attributes == {"a": "1", "b": "2"} and attributes != {"a": "1"}
    assert "a" in attributes and "c" not in attributes and 7 not in attributes
    assert attributes.get("a") == "1" and attributes.get("c") is None
    assert attributes.get("c", "-") == "-"
    assert len(attributes) == 2 and attributes["a"] == "1"
    assert {**attributes} == {"a": "1", "b": "2"}
    assert repr(attributes) == "Attributes({'b': '2', 'a': '1'})"
    with pytest.raises(KeyError, match="'c'"):
        attributes["c"]
    match attributes:
        case {"a": one}:
            assert one == "1"
        case _:
            raise AssertionError


def test_the_time_of_publication_is_aware_and_exact(broker: Broker) -> None:
    subscription = broker.subscribe("a")
    before = datetime.now(timezone.utc) - timedelta(milliseconds=20)
    broker.publish("a", b"")
    published = subscription.get().published_at
    assert published.tzinfo is not None
    assert before <= published <= datetime.now(timezone.utc) + timedelta(milliseconds=20)


def test_a_pickled_message_is_a_copy(broker: Broker) -> None:
    subscription = broker.subscribe("a")
    broker.publish("a", b"four!", key="k", attributes={"team": "IN"})
    message = subscription.get()
    for twin in (pickle.loads(pickle.dumps(message)), copy.deepcopy(message)):
        assert address(twin) != address(message)
        assert bytes(twin) == b"four!" and twin.attributes == {"team": "IN"}
        for part in ("topic", "key", "id", "partition", "offset", "published_at"):
            assert getattr(twin, part) == getattr(message, part), part
        assert bytes(pickle.loads(pickle.dumps(twin))) == b"four!"


def test_a_batch_is_a_sequence_of_messages(broker: Broker) -> None:
    subscription = broker.subscribe("a")
    broker.publish_many("a", [b"%d" % n for n in range(10)])
    batch = subscription.get_many(10)
    assert isinstance(batch, collections.abc.Sequence) and len(batch) == 10
    assert [bytes(message) for message in batch] == [b"%d" % n for n in range(10)]
    assert bytes(batch[-1]) == b"9" and bytes(batch[3]) == b"3"
    assert [bytes(message) for message in batch[8:2:-3]] == [b"8", b"5"]
    assert batch.payloads() == [b"%d" % n for n in range(10)]
    assert batch.join() == b"0123456789"
    for index in (10, -11):
        with pytest.raises(IndexError):
            batch[index]
    message = batch[0]
    broker.close()
    del batch, subscription
    gc.collect()
    assert bytes(message) == b"0"


def test_records_of_one_size_become_one_array(broker: Broker) -> None:
    tick = numpy.dtype([("price", "<f8"), ("size", "<i8")])
    ticks = numpy.array([(1.5, n) for n in range(100)], dtype=tick)
    subscription = broker.subscribe("ticks")
    broker.publish_many("ticks", [ticks[n : n + 1] for n in range(100)])
    received = numpy.frombuffer(subscription.get_many(100).join(), dtype=tick)
    assert numpy.array_equal(received, ticks)


def test_messages_are_known_again(broker: Broker) -> None:
    subscription = broker.subscribe("a")
    for id in ("x", "y", "x", "z", "y"):
        broker.publish("a", b"", id=id)
    seen = slipring.Deduplicator(2)
    messages = list(subscription.get_many(5))
    assert [seen.is_new(message) for message in messages] == [True, True, False, True, False]
    assert len(seen) == 2 and "2 messages" in repr(seen)
    seen.forget(messages[4])
    assert len(seen) == 1 and seen.is_new(messages[1]) and not seen.is_new(messages[4])
    with pytest.raises(TypeError, match="out of a pickle"):
        seen.is_new(pickle.loads(pickle.dumps(messages[0])))
    with pytest.raises(OverflowError):
        slipring.Deduplicator(-1)
