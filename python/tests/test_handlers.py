"""Handlers: order, failures, and what may be done from inside one."""

from __future__ import annotations

import functools
import gc
import logging
import queue
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import slipring
from conftest import unreadable
from slipring import Broker, Message

ONCE = slipring.DeliveryMode.AT_MOST_ONCE
PATIENCE = 60.0


def wait(event: threading.Event) -> None:
    assert event.wait(PATIENCE), "it did not happen"


def test_a_handler_gets_its_messages_in_order(broker: Broker) -> None:
    got: list[int] = []
    done = threading.Event()

    @broker.on("a/*", capacity=1 << 14)
    def handle(message: Message) -> None:
        got.append(int(bytes(message)))
        if len(got) == 10_000:
            done.set()

    broker.publish_many("a/b", [b"%d" % n for n in range(10_000)])
    wait(done)
    assert got == list(range(10_000))
    assert callable(handle) and handle.__name__ == "handle"


def test_on_takes_patterns_filter_and_options(broker: Broker) -> None:
    got: list[bytes] = []
    done = threading.Event()

    def finish(message: Message) -> None:
        got.append(bytes(message))
        if got[-1] == b"last":
            done.set()

    broker.on("a", "b", filter="attributes:wanted", name="n", dedicated_thread=True)(finish)
    broker.publish("a", b"no")
    broker.publish("b", b"yes", wanted="")
    broker.publish("a", b"last", wanted="")
    wait(done)
    assert got == [b"yes", b"last"]
    with pytest.raises(TypeError, match="decorated"):
        broker.on("a", handler=finish)  # type: ignore[call-arg]
    wrong: Any = 7
    with pytest.raises(TypeError, match="handler is a function"):
        broker.subscribe("a", handler=wrong)
    with pytest.raises(TypeError, match="for handlers"):
        broker.subscribe("a", on_error=print)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="for handlers"):
        broker.subscribe("a", dedicated_thread=True)  # type: ignore[call-overload]


def test_a_forgotten_handler_goes_on_and_a_closed_one_stops(broker: Broker) -> None:
    got: list[bytes] = []
    done = threading.Event()
    subscription = broker.subscribe("a", handler=lambda message: got.append(bytes(message)))
    broker.subscribe("a", handler=lambda message: done.set())
    broker.publish("a", b"1")
    wait(done)
    subscription.close()
    subscription.close()
    before = list(got)
    done.clear()
    broker.publish("a", b"2")
    wait(done)
    assert got == before


def test_a_failure_is_logged_and_harms_nobody(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    got: list[bytes] = []
    done = threading.Event()

    def fails(message: Message) -> None:
        raise LookupError("on purpose")

    with caplog.at_level(logging.ERROR, "slipring"):
        broker.subscribe("a", handler=fails)
        broker.publish_many("a", [b"1", b"2"])

        def handle(message: Message) -> None:
            got.append(bytes(message))
            done.set()

        broker.subscribe("b", handler=handle)
        broker.publish("b", b"3")
        wait(done)
        broker.close()
    assert got == [b"3"]
    assert len(caplog.records) == 2
    assert all(record.exc_info and record.exc_info[0] is LookupError for record in caplog.records)
    assert "b'1'" in caplog.records[0].getMessage()


def test_who_asks_to_be_told_of_failures_is_told(broker: Broker) -> None:
    told: list[tuple[bytes, BaseException]] = []
    done = threading.Event()
    error = LookupError("on purpose")

    def fails(message: Message) -> None:
        raise error

    def on_error(message: Message, error: BaseException) -> None:
        told.append((bytes(message), error))
        done.set()

    with broker.subscribe("a", handler=fails, on_error=on_error):
        broker.publish("a", b"1")
        wait(done)
        assert told == [(b"1", error)]
        (known,) = broker.metrics()["subscriptions"]
        assert known["handler_failures"] == 1


def test_an_on_error_that_raises_is_logged(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*arguments: object) -> None:
        raise LookupError("on purpose")

    with caplog.at_level(logging.ERROR, "slipring"):
        broker.subscribe("a", handler=fails, on_error=fails)
        broker.publish("a", b"1")
        broker.close()
    assert [record.getMessage() for record in caplog.records] == ["an on_error function failed"]


def test_losses_are_told_between_the_messages(broker: Broker) -> None:
    events: list[object] = []
    held, go_on, done = threading.Event(), threading.Event(), threading.Event()

    def handle(message: Message) -> None:
        events.append(bytes(message))
        held.set()
        wait(go_on)
        if bytes(message) == b"last":
            done.set()

    with broker.subscribe("a", handler=handle, delivery=ONCE, capacity=2, on_lagged=events.append):
        broker.publish("a", b"first")
        wait(held)
        broker.publish_many("a", [b"1", b"2", b"3", b"4"])
        go_on.set()
        while b"2" not in events or broker.metrics()["subscriptions"][0]["queued"]:
            broker.publish("none", b"")
        broker.publish("a", b"last")
        wait(done)
    assert events == [b"first", b"1", b"2", 2, b"last"]


def test_a_callable_filter_runs_before_the_handler(broker: Broker) -> None:
    got: list[bytes] = []
    done = threading.Event()

    def handle(message: Message) -> None:
        got.append(bytes(message))
        if bytes(message) == b"xlast":
            done.set()

    def wanted(message: Message) -> bool:
        return bytes(message).startswith(b"x")

    with broker.subscribe("a", handler=handle, filter=wanted):
        broker.publish_many("a", [b"1", b"x2", b"3", b"xlast"])
        wait(done)
    assert got == [b"x2", b"xlast"]


def test_the_circuit_breaker_opens(broker: Broker) -> None:
    failed = threading.Event()

    def fails(message: Message) -> None:
        raise LookupError

    breaker = slipring.CircuitBreaker(failures=2, cool_down=3600)
    with broker.subscribe(
        "a", handler=fails, on_error=lambda *_: failed.set(), circuit_breaker=breaker
    ):
        broker.publish_many("a", [b""] * 5)
        wait(failed)
        while broker.metrics()["subscriptions"][0]["breaker"] is not slipring.BreakerState.OPEN:
            broker.publish("none", b"")
        assert broker.metrics()["subscriptions"][0]["handler_failures"] == 2
    with pytest.raises(ValueError, match="at least 1"):
        broker.subscribe("a", handler=fails, circuit_breaker=slipring.CircuitBreaker(0, 1))


def inside(broker: Broker, work: Callable[[Message], object]) -> None:
    """Does ``work`` inside a handler."""
    problems: list[BaseException] = []
    done = threading.Event()

    def handle(message: Message) -> None:
        try:
            work(message)
        except BaseException as error:
            problems.append(error)
        finally:
            done.set()

    broker.subscribe("trigger", handler=handle)
    broker.publish("trigger", b"")
    wait(done)
    if problems:
        raise problems[0]


def test_a_handler_may_publish_also_to_itself(broker: Broker) -> None:
    rounds: list[int] = []
    done = threading.Event()

    @broker.on("a")
    def again(message: Message) -> None:
        rounds.append(int(bytes(message)))
        if len(rounds) == 100:
            done.set()
        else:
            broker.publish("a", b"%d" % (rounds[-1] + 1))

    broker.publish("a", b"0")
    wait(done)
    assert rounds == list(range(100))


def test_a_handler_may_subscribe_and_receive(broker: Broker) -> None:
    def work(message: Message) -> None:
        with broker.subscribe("other") as subscription:
            broker.publish("other", b"x")
            assert bytes(subscription.get(timeout=PATIENCE)) == b"x"

    inside(broker, work)


def test_a_handler_may_subscribe_another(broker: Broker) -> None:
    done = threading.Event()
    inside(broker, lambda _: broker.subscribe("other", handler=lambda _: done.set()))
    broker.publish("other", b"")
    wait(done)


def test_a_handler_may_unsubscribe_itself(broker: Broker) -> None:
    subscription: list[slipring.HandlerSubscription] = []
    calls: list[bytes] = []
    done = threading.Event()

    def once(message: Message) -> None:
        calls.append(bytes(message))
        subscription[0].close()
        done.set()

    subscription.append(broker.subscribe("a", handler=once))
    broker.publish_many("a", [b"1", b"2"])
    wait(done)
    broker.close()
    assert calls == [b"1"]


def test_a_handler_may_unsubscribe_another_that_is_running(broker: Broker) -> None:
    held, go_on = threading.Event(), threading.Event()

    def slow(message: Message) -> None:
        held.set()
        wait(go_on)

    other = broker.subscribe("other", handler=slow)
    broker.publish("other", b"")
    wait(held)

    def work(message: Message) -> None:
        with pytest.raises(slipring.Timeout):
            other.close(timeout=0.01)

    inside(broker, work)
    go_on.set()


def test_a_handler_may_close_the_broker(broker: Broker) -> None:
    inside(broker, lambda _: broker.close())
    with pytest.raises(slipring.Closed):
        broker.publish("a", b"")


def test_a_handler_may_drop_the_last_reference_to_the_broker() -> None:
    brokers = [slipring.open()]
    done = threading.Event()

    def drop(message: Message) -> None:
        brokers.clear()
        done.set()

    brokers[0].subscribe("a", handler=drop)
    brokers[0].publish("a", b"")
    wait(done)


def test_close_lets_handlers_drain_and_reports(broker: Broker) -> None:
    got: list[bytes] = []
    broker.subscribe("a", handler=lambda message: got.append(bytes(message)), capacity=2000)
    broker.subscribe("b", handler=print)
    pulled = broker.subscribe("a")
    broker.publish_many("a", [b""] * 1000)
    report = broker.close(deadline=PATIENCE)
    assert len(got) == 1000
    assert (report.unhandled, report.unreceived, report.handler_running) == (0, 1000, False)
    assert len(pulled.get_many(2000)) == 1000
    assert "unreceived=1000" in repr(report)


def test_close_reports_a_handler_that_is_running(broker: Broker) -> None:
    held, go_on = threading.Event(), threading.Event()

    @broker.on("a")
    def slow(message: Message) -> None:
        held.set()
        wait(go_on)

    broker.publish_many("a", [b"", b""])
    wait(held)
    report = broker.close(deadline=0)
    assert report.handler_running and report.unhandled == 1
    go_on.set()


def test_unsubscribe_waits_for_a_running_handler(broker: Broker) -> None:
    held, go_on = threading.Event(), threading.Event()
    events: list[str] = []

    def slow(message: Message) -> None:
        held.set()
        wait(go_on)
        events.append("the handler left")

    subscription = broker.subscribe("a", handler=slow, delivery=ONCE)
    broker.publish("a", b"")
    wait(held)

    def close() -> None:
        subscription.close()
        events.append("it is closed")

    closer = threading.Thread(target=close)
    closer.start()
    while broker.publish("a", b"").matched:
        pass  # until it closes
    go_on.set()
    closer.join()
    assert events == ["the handler left", "it is closed"]


def test_methods_partials_and_callable_objects_are_handlers(broker: Broker) -> None:
    got: list[object] = []
    done = threading.Event()

    class Tally:
        def method(self, message: Message) -> None:
            got.append("method")

        def __call__(self, message: Message) -> None:
            got.append("object")

    def with_more(mark: str, message: Message) -> None:
        got.append(mark)
        done.set()

    tally = Tally()
    for handler in (tally.method, tally, functools.partial(with_more, "partial")):
        with broker.subscribe("a", handler=handler):
            done.clear()
            known = len(got)
            broker.publish("a", b"")
            while len(got) == known:
                done.wait(0.01)
    assert got == ["method", "object", "partial"]


def test_what_a_handler_keeps_stays(broker: Broker) -> None:
    messages: list[Message] = []
    parts: list[tuple[int, object]] = []
    arguments: list[tuple[Message, ...]] = []
    done = threading.Event()

    def keep(message: Message) -> None:
        number = int(bytes(message)[:4])
        if number % 3 == 0:
            messages.append(message)
        elif number % 3 == 1:
            parts.append((number, (message.payload, message.attributes)[number % 2]))
        if number == 4999:
            done.set()

    def keep_arguments(*given: Message) -> None:
        arguments.append(given)

    with broker.subscribe("a", handler=keep, delivery=ONCE, overflow=slipring.Overflow.BLOCK):
        broker.subscribe("a", handler=keep_arguments, capacity=8192)
        for n in range(5000):
            broker.publish("a", b"%04d" % n + bytes(100), n=str(n))
        wait(done)
    for _ in range(30):
        broker.publish_many("b", [bytes(60_000)] * 50)  # more than the budget: all that is old goes
    broker.close()
    assert [int(bytes(message)[:4]) for message in messages] == list(range(0, 5000, 3))
    assert [message.attributes["n"] for message in messages[:5]] == ["0", "3", "6", "9", "12"]
    for number, part in parts:
        if isinstance(part, memoryview):
            assert int(bytes(part)[:4]) == number
        else:
            assert part == {"n": str(number)}
    assert [int(bytes(given[0])[:4]) for given in arguments] == list(range(5000))


def test_a_handler_may_hand_its_message_to_another_thread(broker: Broker) -> None:
    handed: queue.SimpleQueue[Message] = queue.SimpleQueue()
    broker.subscribe("a", handler=handed.put, delivery=ONCE, overflow=slipring.Overflow.BLOCK)
    publisher = threading.Thread(
        target=broker.publish_many, args=("a", [b"%d" % n for n in range(20_000)])
    )
    publisher.start()
    assert [int(bytes(handed.get())) for _ in range(20_000)] == list(range(20_000))
    publisher.join()


def test_what_is_lent_to_a_handler_cannot_be_found_by_others(broker: Broker) -> None:
    called = threading.Event()
    broker.subscribe("a", handler=lambda message: called.set())
    broker.publish("a", b"x")
    wait(called)
    found = [thing for thing in gc.get_objects() if type(thing) is tuple and len(thing) == 1]
    assert not any(type(thing[0]) is Message for thing in found)


def test_what_handlers_keep_for_a_thread_is_kept_as_long_as_the_thread() -> None:
    class Kept:
        pass

    local = threading.local()
    made: list[tuple[int, weakref.ref[Kept]]] = []
    handled = threading.Semaphore(0)

    def handle(message: Message) -> None:
        if not hasattr(local, "kept"):
            local.kept = Kept()
            made.append((threading.get_native_id(), weakref.ref(local.kept)))
        handled.release()

    with slipring.open(workers=1) as broker:
        for topic in ("a", "b"):
            broker.subscribe(topic, handler=handle)
        for topic in ("a", "b") * 20:
            broker.publish(topic, b"")
            assert handled.acquire(timeout=PATIENCE)
    threads = [thread for thread, _ in made]
    assert len(threads) == len(set(threads)) > 0
    assert [kept() for _, kept in made] == [None] * len(made)


@pytest.mark.parametrize("dedicated", [False, True])
def test_a_handler_that_cannot_read_is_told_of_and_goes_on_when_it_can(
    dedicated: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture, clock: slipring.TestClock
) -> None:
    caplog.set_level(logging.INFO, "slipring")
    got: list[int] = []
    options: dict[str, Any] = {"sync": slipring.Sync.OS, "memory_budget": 256 << 10}
    with slipring.open(tmp_path, clock=clock, **options) as broker:
        broker.publish_many("a", [bytes(16 << 10)] * 64)
        with unreadable(tmp_path):
            broker.subscribe(
                "a",
                handler=lambda message: got.append(message.offset),
                start=slipring.Start.EARLIEST,
                dedicated_thread=dedicated,
            )
            while not caplog.records:
                clock.advance(1)
            for _ in range(100):
                clock.advance(1)
        assert got == []
        (record,) = caplog.records
        assert (record.name, record.levelname) == ("slipring", "ERROR")
        assert "handler of 'a' cannot be read" in record.getMessage()
        assert record.exc_info and isinstance(record.exc_info[1], slipring.StoreError)
        while len(caplog.records) < 2:
            clock.advance(1)
        assert got == list(range(64))
        assert caplog.records[1].levelname == "INFO"
        assert "can be read again" in caplog.records[1].getMessage()
