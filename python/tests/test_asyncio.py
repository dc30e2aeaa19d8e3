"""Subscriptions on an event loop: awaiting, iterating, cancelling, handling."""

from __future__ import annotations

import asyncio
import functools
import logging
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

import slipring
from conftest import unreadable
from slipring import Broker, DeliveryMode, Message

ONCE, AGAIN = DeliveryMode.AT_MOST_ONCE, DeliveryMode.AT_LEAST_ONCE
PATIENCE = 60.0


def run(main: Callable[[Broker], Coroutine[Any, Any, None]], **options: Any) -> None:
    """Runs ``main`` with a broker; what is still waiting after a minute hangs."""

    async def bounded() -> None:
        with slipring.open(**options) as broker:
            async with asyncio.timeout(PATIENCE):
                await main(broker)

    asyncio.run(bounded(), debug=True)


async def settle() -> None:
    """Lets everything run that can."""
    for _ in range(5):
        await asyncio.sleep(0)


def test_await_takes_what_is_there_and_waits_for_what_is_not() -> None:
    async def main(broker: Broker) -> None:
        subscription = broker.subscribe("a")
        broker.publish("a", b"1")
        assert bytes(await subscription.aget()) == b"1"
        waiting = asyncio.create_task(subscription.aget())
        await settle()
        assert not waiting.done()
        broker.publish("a", b"2")
        assert bytes(await waiting) == b"2"
        assert subscription._waiting == {}

    run(main)


def test_a_message_from_another_thread_wakes_the_loop() -> None:
    async def main(broker: Broker) -> None:
        subscription = broker.subscribe("a")
        for _ in range(200):
            publisher = threading.Thread(target=broker.publish, args=("a", b"x"))
            publisher.start()
            assert bytes(await subscription.aget()) == b"x"
            publisher.join()

    run(main)


def test_many_are_taken_at_once() -> None:
    async def main(broker: Broker) -> None:
        subscription = broker.subscribe("a")
        waiting = asyncio.create_task(subscription.aget_many(10))
        await settle()
        broker.publish_many("a", [b"1", b"2", b"3"])
        assert (await waiting).payloads() == [b"1", b"2", b"3"]
        assert len(await subscription.aget_many(0)) == 0

    run(main)


def test_async_for_goes_on_until_the_broker_closes() -> None:
    async def main(broker: Broker) -> None:
        subscription = broker.subscribe("a")
        got: list[bytes] = []

        async def consume() -> None:
            async for message in subscription:
                got.append(bytes(message))

        consumer = asyncio.create_task(consume())
        for n in range(100):
            broker.publish("a", b"%d" % n)
            if n % 7 == 0:
                await asyncio.sleep(0)
        broker.close()
        await consumer
        assert got == [b"%d" % n for n in range(100)]

    run(main)


def test_losses_are_raised_where_they_happened_and_the_stream_goes_on() -> None:
    async def main(broker: Broker) -> None:
        subscription = broker.subscribe(
            "a", delivery=ONCE, capacity=2, overflow=slipring.Overflow.DROP_OLDEST
        )
        broker.publish_many("a", [b"1", b"2", b"3"])
        with pytest.raises(slipring.Lagged):
            await subscription.aget()
        assert bytes(await subscription.aget()) == b"2"

    run(main)


def test_an_async_iterator_goes_on_behind_a_loss() -> None:
    async def main(broker: Broker) -> None:
        subscription = broker.subscribe(
            "a", delivery=ONCE, capacity=2, overflow=slipring.Overflow.DROP_OLDEST
        )
        broker.publish_many("a", [b"1", b"2", b"3"])
        messages = aiter(subscription)
        with pytest.raises(slipring.Lagged) as lagged:
            await anext(messages)
        assert lagged.value.count == 1
        broker.close()
        assert [bytes(message) async for message in messages] == [b"2", b"3"]
        with pytest.raises(StopAsyncIteration):
            await anext(messages)

    run(main)


def test_awaited_by_hand_each_message_is_given_once() -> None:
    async def main(broker: Broker) -> None:
        subscription = broker.subscribe("a")
        broker.publish_many("a", [b"1", b"2", b"3"])
        messages = aiter(subscription)
        first, second = iter(anext(messages).__await__()), iter(anext(messages).__await__())
        for awaited, payload in ((second, b"2"), (first, b"1")):
            with pytest.raises(StopIteration) as given:
                next(awaited)
            assert bytes(given.value.value) == payload
            with pytest.raises(RuntimeError, match="before"):
                next(awaited)
        third = await anext(messages)
        broker.publish("a", b"4")
        assert bytes(await anext(messages)) == b"4"
        assert bytes(third) == b"3"

    run(main)


def test_a_cancelled_wait_loses_no_message() -> None:
    async def main(broker: Broker) -> None:
        subscription = broker.subscribe("a")
        aget: Callable[[], Coroutine[Any, Any, object]] = subscription.aget
        waits: list[Callable[[], Coroutine[Any, Any, object]]] = [
            aget,
            functools.partial(subscription.aget_many, 5),
            lambda: anext(_iterator(subscription)),
        ]
        for wait in waits:
            # Cancelled while it waits, and cancelled after it was woken and before it ran.
            for publish_first in (False, True):
                waiting = asyncio.create_task(wait())
                await settle()
                if publish_first:
                    broker.publish("a", b"kept")
                    while subscription._waiting:
                        await asyncio.sleep(0)
                    waiting.cancel()
                else:
                    waiting.cancel()
                    broker.publish("a", b"kept")
                with pytest.raises(asyncio.CancelledError):
                    await waiting
                assert bytes(await subscription.aget()) == b"kept"
                assert subscription._waiting == {}

    async def _iterator_step(subscription: slipring.Subscription) -> Message:
        return await anext(aiter(subscription))

    class _iterator:
        def __init__(self, subscription: slipring.Subscription) -> None:
            self.subscription = subscription

        def __anext__(self) -> Coroutine[Any, Any, Message]:
            return _iterator_step(self.subscription)

    run(main)


def test_a_wait_that_times_out_loses_no_message() -> None:
    async def main(broker: Broker) -> None:
        subscription = broker.subscribe("a")
        got = 0
        for n in range(50):
            publisher = threading.Thread(target=broker.publish, args=("a", b"x"))
            publisher.start()
            try:
                async with asyncio.timeout(0.0001 * (n % 10)):
                    await subscription.aget()
                    got += 1
            except TimeoutError:
                pass
            publisher.join()
        got += len(subscription.get_many(100, timeout=0))
        assert got == 50

    run(main)


def test_a_broken_off_iteration_leaves_the_rest() -> None:
    async def main(broker: Broker) -> None:
        subscription = broker.subscribe("a")
        broker.publish_many("a", [b"1", b"2", b"3"])
        async for message in subscription:
            assert bytes(message) == b"1"
            break
        assert subscription.get_many(5).payloads() == [b"2", b"3"]

    run(main)


def test_many_tasks_share_a_subscription() -> None:
    async def main(broker: Broker) -> None:
        subscription = broker.subscribe("a")
        tasks = [asyncio.create_task(subscription.aget()) for _ in range(20)]
        await settle()
        tasks[3].cancel()
        broker.publish_many("a", [b"%d" % n for n in range(19)])
        await asyncio.gather(*tasks, return_exceptions=True)
        got = [int(bytes(task.result())) for task in tasks if not task.cancelled()]
        assert sorted(got) == list(range(19))

    run(main)


def test_closing_wakes_who_waits() -> None:
    async def main(broker: Broker) -> None:
        for close_broker in (False, True):
            subscription = broker.subscribe("a")
            waiting = asyncio.create_task(subscription.aget())
            await settle()
            closer = threading.Thread(target=broker.close if close_broker else subscription.close)
            closer.start()
            with pytest.raises(slipring.Closed):
                await waiting
            closer.join()

    run(main)


def test_two_loops_share_a_subscription(broker: Broker) -> None:
    subscription = broker.subscribe("a", capacity=4096)
    got: list[int] = []

    async def consume() -> None:
        async for message in subscription:
            got.append(int(bytes(message)))

    loops = [threading.Thread(target=asyncio.run, args=(consume(),)) for _ in range(2)]
    for loop in loops:
        loop.start()
    for n in range(1000):
        broker.publish("a", b"%d" % n)
    broker.close()
    for loop in loops:
        loop.join()
    assert sorted(got) == list(range(1000))


def test_a_loop_that_ends_while_a_task_waits_leaves_nothing_behind(broker: Broker) -> None:
    subscription = broker.subscribe("a")

    async def main() -> None:
        asyncio.create_task(subscription.aget())
        await settle()

    asyncio.run(main())
    assert subscription._waiting == {}
    broker.publish("a", b"x")
    assert bytes(asyncio.run(_aget(subscription))) == b"x"


async def _aget(subscription: slipring.Subscription) -> Message:
    return await subscription.aget()


def test_coroutine_handlers_run_on_the_loop_one_message_at_a_time() -> None:
    async def main(broker: Broker) -> None:
        got: list[tuple[bytes, int]] = []
        done = asyncio.Event()
        running = 0

        @broker.on("a")
        async def handle(message: Message) -> None:
            nonlocal running
            running += 1
            assert running == 1
            await asyncio.sleep(0)
            running -= 1
            got.append((bytes(message), threading.get_ident()))
            if len(got) == 50:
                done.set()

        publisher = threading.Thread(
            target=broker.publish_many, args=("a", [b"%d" % n for n in range(50)])
        )
        publisher.start()
        await done.wait()
        publisher.join()
        assert got == [(b"%d" % n, threading.get_ident()) for n in range(50)]

    run(main)


def test_a_coroutine_handler_that_fails_is_logged_and_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main(broker: Broker) -> None:
        told: list[tuple[bytes, BaseException]] = []
        done = asyncio.Semaphore(0)

        async def fails(message: Message) -> None:
            if bytes(message) == b"last":
                done.release()
            else:
                raise LookupError("on purpose")

        broker.subscribe("a", handler=fails)
        broker.subscribe("a", handler=fails, on_error=lambda m, e: told.append((bytes(m), e)))
        with caplog.at_level(logging.ERROR, "slipring"):
            broker.publish_many("a", [b"first", b"last"])
            for _ in range(2):
                await done.acquire()
        (record,) = [record for record in caplog.records if record.name == "slipring"]
        assert record.exc_info and record.exc_info[0] is LookupError
        ((payload, error),) = told
        assert payload == b"first" and isinstance(error, LookupError)

    run(main)


@pytest.mark.parametrize("who", ["nobody", "a function", "a function that raises"])
def test_a_coroutine_handler_goes_on_behind_a_loss(
    who: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main(broker: Broker) -> None:
        events: list[object] = []
        done = asyncio.Event()

        async def handle(message: Message) -> None:
            events.append(bytes(message))
            if bytes(message) == b"last":
                done.set()

        def tell(count: int) -> None:
            events.append(count)
            if who == "a function that raises":
                raise LookupError("on purpose")

        on_lagged = None if who == "nobody" else tell
        with broker.subscribe(
            "a", handler=handle, delivery=ONCE, capacity=2, on_lagged=on_lagged
        ) as subscription:
            broker.publish_many("a", [b"1", b"2", b"3", b"4"])
            while subscription.queued:
                await asyncio.sleep(0)
            broker.publish("a", b"last")
            await done.wait()
        assert events == [b"1", b"2", *([] if who == "nobody" else [2]), b"last"]

    with caplog.at_level(logging.ERROR, "slipring"):
        run(main)
    failed = [record.getMessage() for record in caplog.records if record.name == "slipring"]
    raises = who == "a function that raises"
    assert failed == (["an on_lagged function failed"] if raises else [])


def test_a_coroutine_handler_goes_on_when_the_store_can_be_read_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slipring._asyncio._UNREADABLE", 0)
    caplog.set_level(logging.INFO, logger="slipring")

    def told() -> list[logging.LogRecord]:
        # The event loop tells as well what took long.
        return [record for record in caplog.records if record.name == "slipring"]

    async def main(broker: Broker) -> None:
        broker.publish_many("a", [bytes(16 << 10)] * 64)
        got: list[int] = []
        got_all = asyncio.Event()

        async def handle(message: Message) -> None:
            got.append(message.offset)
            if len(got) == 64:
                got_all.set()

        with unreadable(tmp_path):
            broker.subscribe("a", handler=handle, start=slipring.Start.EARLIEST)
            for _ in range(5):
                await settle()
        assert got == []
        (record,) = told()
        assert "cannot be read" in record.getMessage()
        assert record.exc_info and isinstance(record.exc_info[1], slipring.StoreError)
        await got_all.wait()
        assert got == list(range(64))
        assert [record.levelname for record in told()] == ["ERROR", "INFO"]
        assert "can be read again" in told()[1].getMessage()

    run(main, path=tmp_path, sync=slipring.Sync.OS, memory_budget=256 << 10)


def test_a_coroutine_handler_ends_when_its_subscription_is_disconnected() -> None:
    async def main(broker: Broker) -> None:
        got: list[bytes] = []

        async def handle(message: Message) -> None:
            got.append(bytes(message))

        overflow = slipring.Disconnect(0)
        broker.subscribe("a", handler=handle, delivery=ONCE, capacity=1, overflow=overflow)
        broker.publish("a", b"1")
        while broker.publish("a", b"").matched:
            pass
        (task,) = asyncio.all_tasks() - {asyncio.current_task()}
        await task
        assert got == [b"1"]

    run(main)


@pytest.mark.parametrize("where", ["on the loop", "on a thread"])
@pytest.mark.parametrize("when", ["while it awaits", "while there is nothing"])
def test_a_coroutine_handler_that_is_closed_ends_and_is_not_called_again(
    where: str, when: str
) -> None:
    async def main(broker: Broker) -> None:
        calls: list[str] = []
        called, go_on = asyncio.Event(), asyncio.Event()

        async def handle(message: Message) -> None:
            calls.append("begun")
            called.set()
            await go_on.wait()
            calls.append("ended")

        subscription = broker.subscribe("a", handler=handle)
        if when == "while it awaits":
            broker.publish_many("a", [b"1", b"2"])
            await called.wait()
        else:
            await settle()
        if where == "on a thread":
            closer = threading.Thread(target=subscription.close)
            closer.start()
            while closer.is_alive():
                await asyncio.sleep(0)
        else:
            subscription.close()
        assert broker.publish("a", b"").matched == 0
        go_on.set()
        while len(asyncio.all_tasks()) > 1:
            await asyncio.sleep(0)
        assert calls == (["begun", "ended"] if when == "while it awaits" else [])

    run(main)


def test_a_coroutine_handler_may_close_itself() -> None:
    async def main(broker: Broker) -> None:
        calls: list[bytes] = []

        async def once(message: Message) -> None:
            subscription.close()
            await asyncio.sleep(0)
            calls.append(bytes(message))

        subscription = broker.subscribe("a", handler=once)
        broker.publish_many("a", [b"1", b"2"])
        while len(asyncio.all_tasks()) > 1:
            await asyncio.sleep(0)
        assert calls == [b"1"]

    run(main)


def test_a_coroutine_handler_needs_a_running_loop(broker: Broker) -> None:
    async def handle(message: Message) -> None:
        raise AssertionError

    with pytest.raises(RuntimeError, match="inside a coroutine"):
        broker.subscribe("a", handler=handle)
    assert broker.metrics()["subscriptions"] == []


def test_coroutine_handlers_are_recognised_in_every_form() -> None:
    from slipring._options import is_async

    async def function(message: Message) -> None: ...

    class Handler:
        async def method(self, message: Message) -> None: ...

    class Callable_:
        async def __call__(self, message: Message) -> None: ...

    class Plain:
        def __call__(self, message: Message) -> None: ...

    for handler in (function, Handler().method, Callable_(), functools.partial(function)):
        assert is_async(handler), handler
    for plain in (print, Plain(), lambda message: None, functools.partial(print, 1), list.append):
        assert not is_async(plain), plain


def taken(subscription: slipring.Subscription) -> Message:
    message = subscription.get_nowait()
    assert message is not None
    return message


def known_of(broker: Broker, which: int = 0) -> dict[str, Any]:
    return dict(broker.metrics()["subscriptions"][which])


def test_a_lease_that_ends_wakes_the_loop() -> None:
    clock = slipring.TestClock()

    async def main(broker: Broker) -> None:
        subscription = broker.subscribe("a", delivery=AGAIN, visibility_timeout=0.1)
        broker.publish("a", b"x")
        assert (await subscription.aget()).attempt == 1
        waiting = asyncio.ensure_future(subscription.aget())
        await settle()
        assert not waiting.done()
        clock.advance(0.1)
        assert (await waiting).attempt == 2
        waiting = asyncio.ensure_future(anext(aiter(subscription)))
        await settle()
        assert not waiting.done()
        clock.advance(0.1)
        message = await waiting
        assert message.attempt == 3 and message.ack()

    run(main, clock=clock)


def test_settling_makes_room_for_who_awaits() -> None:
    async def main(broker: Broker) -> None:
        subscription = broker.subscribe("a", delivery=AGAIN, max_outstanding=1)
        broker.publish_many("a", [b"1", b"2", b"3"])
        message = await subscription.aget()
        waiting = asyncio.create_task(subscription.aget_many(5))
        await settle()
        assert not waiting.done()
        assert message.ack()
        (second,) = await waiting
        assert bytes(second) == b"2"
        second.nack(0)
        assert [(bytes(again), again.attempt) for again in await subscription.aget_many(5)] == [
            (b"2", 2)
        ]

    run(main)


def test_a_cancelled_wait_leases_no_message() -> None:
    async def main(broker: Broker) -> None:
        subscription = broker.subscribe("a", delivery=AGAIN)

        async def iterate() -> None:
            async for message in subscription:
                raise AssertionError(message)

        async def get_many() -> None:
            raise AssertionError(await subscription.aget_many(5))

        async def get() -> None:
            raise AssertionError(await subscription.aget())

        for turn, wait in enumerate((get, get_many, iterate)):
            waiting = asyncio.create_task(wait())
            await settle()
            broker.publish("a", b"%d" % turn)
            while subscription._waiting:
                await asyncio.sleep(0)
            waiting.cancel()  # it was woken, and has not run
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert known_of(broker)["unsettled"] == 0
            message = taken(subscription)
            assert (bytes(message), message.attempt, message.ack()) == (b"%d" % turn, 1, True)

    run(main)


def test_what_a_coroutine_handler_returns_or_raises_settles_its_message() -> None:
    clock = slipring.TestClock()

    async def main(broker: Broker) -> None:
        calls: list[tuple[bytes, int]] = []
        told: list[tuple[bytes, str]] = []

        async def handle(message: Message) -> object:
            calls.append((bytes(message), message.attempt))
            await asyncio.sleep(0)
            match bytes(message), message.attempt:
                case b"returns retry", 1:
                    return slipring.Retry("not yet")
                case b"raises retry", 1:
                    raise slipring.Retry("not yet")
                case b"fails", _:
                    raise LookupError(f"attempt {message.attempt}")
                case b"cancels", 1:
                    raise asyncio.CancelledError  # something that it has awaited
                case b"returns dead", _:
                    return slipring.DeadLetter("never")
                case b"raises dead", _:
                    raise slipring.DeadLetter("never ever")
            return message

        async def until(condition: Callable[[], bool]) -> None:
            while not condition():
                await asyncio.sleep(0)

        def on_error(message: Message, error: BaseException) -> None:
            told.append((bytes(message), repr(error)))

        subscription = broker.subscribe(
            "a",
            delivery=AGAIN,
            name="h",
            handler=handle,
            on_error=on_error,
            max_delivery_attempts=2,
        )
        assert subscription.name == "h"
        payloads = [b"good", b"returns retry", b"raises retry", b"fails", b"cancels"]
        payloads += [b"returns dead", b"raises dead", b"better"]
        broker.publish_many("a", payloads)
        await until(lambda: len(calls) == len(payloads) and known_of(broker)["unsettled"] == 4)
        assert calls == [(payload, 1) for payload in payloads]
        clock.advance(0.1)
        await until(lambda: known_of(broker)["unsettled"] == 0)
        again = {b"returns retry", b"raises retry", b"fails", b"cancels"}
        assert sorted(calls[len(payloads) :]) == sorted((payload, 2) for payload in again)
        known = known_of(broker)
        assert (known["acked"], known["redelivered"], known["dead_lettered"]) == (5, 4, 3)
        letters = broker.dead_letters("$dlq/h").list()
        reasons = {bytes(le): le.attributes[slipring.DEAD_LETTER_REASON] for le in letters}
        assert reasons == {
            b"returns dead": "never",
            b"raises dead": "never ever",
            b"fails": "LookupError: attempt 2",
        }
        assert [payload for payload, _ in told] == [*payloads[1:-1], b"fails"]
        assert told[0][1] == "Retry('not yet')" and told[-1][1] == "LookupError('attempt 2')"

    run(main, clock=clock)


def test_a_coroutine_handler_has_its_message_for_as_long_as_it_runs() -> None:
    clock = slipring.TestClock()
    lease = 0.02

    async def main(broker: Broker) -> None:
        async def handle(message: Message) -> object:
            loop = asyncio.get_running_loop()
            for _ in range(20):
                clock.advance(lease * 0.75)
                # Timers come in order, and that of the lease's renewal is before this one.
                renewed = asyncio.Event()
                loop.call_later(lease, renewed.set)
                await renewed.wait()
            return slipring.DeadLetter(f"attempt {message.attempt}")

        letters = broker.subscribe("$dlq/*", delivery=ONCE)
        with broker.subscribe(
            "a", delivery=AGAIN, handler=handle, visibility_timeout=lease, on_error=lambda *_: None
        ):
            broker.publish("a", b"x")
            # Refused, if the lease had ended: then it would be the next attempt.
            letter = await letters.aget()
            assert letter.attributes[slipring.DEAD_LETTER_REASON] == "attempt 1"

    run(main, clock=clock)


@pytest.mark.parametrize("end", ["the task is cancelled", "it is closed", "it is taken over"])
def test_what_a_coroutine_handler_leaves_goes_to_the_next_consumer(end: str) -> None:
    async def main(broker: Broker) -> None:
        begun, go_on = asyncio.Event(), asyncio.Event()

        async def handle(message: Message) -> None:
            begun.set()
            await go_on.wait()

        subscription = broker.subscribe("a", name="s", delivery=AGAIN, handler=handle)
        (task,) = asyncio.all_tasks() - {asyncio.current_task()}
        broker.publish_many("a", [b"1", b"2"])
        await begun.wait()
        if end == "the task is cancelled":
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        elif end == "it is closed":
            subscription.close()
        take_over = end == "it is taken over"
        assert broker.describe_subscription("s")["is_online"] is take_over
        with broker.subscribe("a", name="s", delivery=AGAIN, take_over=take_over) as pulled:
            go_on.set()
            got = [(bytes(message), message.attempt) for message in await pulled.aget_many(5)]
            while not task.done():
                await asyncio.sleep(0)
            # What the handler has done in the end counts for nothing: it was somebody else's.
            assert known_of(broker)["acked"] == 0
            assert got == [(b"1", 2), (b"2", 1)]

    run(main)


def test_a_coroutine_handler_whose_letter_cannot_be_stored_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main(broker: Broker) -> None:
        blocks = broker.subscribe(
            "$dlq/*", delivery=ONCE, capacity=1, overflow=slipring.Overflow.BLOCK
        )
        done = asyncio.Event()

        async def handle(message: Message) -> object:
            if bytes(message) == b"last":
                done.set()
                return None
            return slipring.DeadLetter("no")

        with broker.subscribe("a", delivery=AGAIN, handler=handle, on_error=lambda *_: None):
            broker.publish_many("a", [b"1", b"2", b"last"])
            await done.wait()
            await settle()
            assert bytes(taken(blocks)) == b"1" and blocks.get_nowait() is None
            assert known_of(broker, 1)["unsettled"] == 1, "it is tried again later"

    with caplog.at_level(logging.ERROR, "slipring"):
        run(main)
    (record,) = [record for record in caplog.records if record.name == "slipring"]
    assert record.exc_info and isinstance(record.exc_info[1], slipring.DeadLetterNotStored)


def test_a_filter_function_of_a_coroutine_handler_settles_what_it_does_not_want() -> None:
    async def main(broker: Broker) -> None:
        got: list[bytes] = []

        async def handle(message: Message) -> None:
            got.append(bytes(message))

        with broker.subscribe(
            "a", delivery=AGAIN, handler=handle, filter=lambda message: bytes(message) > b"1"
        ):
            broker.publish_many("a", [b"0", b"1", b"2"])
            while known_of(broker)["acked"] < 3:
                await asyncio.sleep(0)
        assert got == [b"2"]

    run(main)


def test_a_dead_letter_waits_for_room_that_is_made_on_the_same_loop(
    timed: Broker, clock: slipring.TestClock
) -> None:
    async def main() -> None:
        once, block = DeliveryMode.AT_MOST_ONCE, slipring.Overflow.BLOCK
        letters = timed.subscribe("$dlq/s", delivery=once, capacity=1, overflow=block)

        async def handle(message: Message) -> object:
            if message.offset % 2:
                return slipring.DeadLetter("no")
            raise slipring.DeadLetter("no")

        timed.subscribe("a", name="s", handler=handle, delivery=AGAIN)
        timed.publish_many("a", [b"1", b"2", b"3"])
        # Time does not pass, so who waits does so until there is room.
        assert [bytes(await letters.aget()) for _ in range(3)] == [b"1", b"2", b"3"]

    asyncio.run(asyncio.wait_for(main(), PATIENCE), debug=True)


@pytest.mark.parametrize("many", [False, True])
def test_awaiting_a_message_does_not_wait_for_room_for_a_dead_letter(
    timed: Broker, clock: slipring.TestClock, many: bool
) -> None:
    async def main() -> None:
        once, block = DeliveryMode.AT_MOST_ONCE, slipring.Overflow.BLOCK
        letters = timed.subscribe("$dlq/s", delivery=once, capacity=1, overflow=block)
        everything = timed.subscribe("a", name="s", delivery=AGAIN, max_delivery_attempts=1)
        timed.publish_many("a", [b"1", b"2", b"3"])
        taken(everything).dead_letter()
        taken(everything)
        clock.advance(3600)
        # Time does not pass, so who waited for room would hold the loop up for ever.
        third = (await everything.aget_many(5))[0] if many else await everything.aget()
        assert bytes(third) == b"3" and third.ack()
        receiving = asyncio.create_task(everything.aget())
        await settle()
        assert bytes(await letters.aget()) == b"1"
        clock.advance(60)
        # Whoever waits for a message gives up on it when that is due again.
        assert bytes(await letters.aget()) == b"2"
        receiving.cancel()

    asyncio.run(asyncio.wait_for(main(), PATIENCE), debug=True)


@pytest.mark.parametrize("cancelled", [False, True])
def test_trio_awaits_and_iterates_as_well(broker: Broker, cancelled: bool) -> None:
    ticks = broker.subscribe("ticks", delivery=ONCE)
    topic = broker.topic("ticks")
    got: list[bytes] = []

    async def take(scope: trio.CancelScope) -> None:
        with scope:
            got.append(bytes(await ticks.aget()))

    async def main() -> None:
        scopes = [trio.CancelScope() for _ in range(3)]
        async with trio.open_nursery() as nursery:
            for scope in scopes:
                nursery.start_soon(take, scope)
            await trio.testing.wait_all_tasks_blocked()
            assert got == []
            if cancelled:
                scopes[0].cancel()
            await trio.to_thread.run_sync(topic.publish_many, [b"1", b"2", b"3"])
        rest = [bytes(message) for message in await ticks.aget_many(1)] if cancelled else []
        assert sorted([*got, *rest]) == [b"1", b"2", b"3"]
        topic.publish(b"4")
        async for message in ticks:
            assert bytes(message) == b"4"
            broker.close()

        async def handle(message: Message) -> None: ...

        with pytest.raises(RuntimeError, match="asyncio"):
            broker.subscribe("ticks", handler=handle)

    async def bounded() -> None:
        with trio.fail_after(PATIENCE):
            await main()

    trio.run(bounded)


def test_a_message_is_taken_by_an_iterator_only_where_it_is_awaited() -> None:
    async def main(broker: Broker) -> None:
        ticks = broker.subscribe("ticks", delivery=ONCE, capacity=2)
        broker.publish_many("ticks", [b"1", b"2", b"3"])
        iterator = aiter(ticks)
        forgotten = anext(iterator)
        cancelled = asyncio.ensure_future(anext(iterator))
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        assert bytes(await asyncio.wait_for(anext(iterator), PATIENCE)) == b"1"
        assert bytes(await forgotten) == b"2"
        with pytest.raises(slipring.Lagged):
            await anext(iterator)
        later = asyncio.ensure_future(anext(iterator))
        await settle()
        broker.publish("ticks", b"4")
        assert bytes(await later) == b"4"
        ticks.close()
        with pytest.raises(StopAsyncIteration):
            await anext(iterator)
        assert [message async for message in ticks] == []

    run(main)
