"""Subscriptions on an event loop, asyncio's or trio's: the loop watches the subscription's descriptor.

A message is taken only when nothing is awaited any more before it is handed over, so a wait that is
cancelled leaves it where it was.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import TYPE_CHECKING, Any

from ._errors import AckError, Closed, Disconnected, Lagged, StoreError
from ._logging import log
from ._slipring import _settle

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from ._slipring import Acker, Batch, Message, Subscription

    _AsyncHandler = Callable[[Message], Coroutine[object, object, object]]
    _OnError = Callable[[Message, BaseException], object]
    _OnLagged = Callable[[int], object]
    _Waiting = dict[asyncio.AbstractEventLoop, set[asyncio.Future[None]]]


#: Seconds that a handler rests when the store cannot be read, like one on a worker.
_UNREADABLE = 1.0


async def readable(subscription: Subscription) -> None:
    """Waits until something can be received, or was received by somebody else."""
    if (trio := _running_trio()) is not None:
        # Of one descriptor, only one task may wait for it.
        fd = os.dup(subscription.fileno())
        try:
            await trio.lowlevel.wait_readable(fd)
        finally:
            os.close(fd)
        return
    loop = asyncio.get_running_loop()
    fd = subscription.fileno()
    waiting = subscription._waiting
    mine: asyncio.Future[None] = loop.create_future()
    futures = waiting.get(loop)
    if futures is None:
        futures = waiting[loop] = set()
        loop.add_reader(fd, _wake, waiting, loop, fd)
    futures.add(mine)
    try:
        await mine
    finally:
        futures.discard(mine)
        if not futures and waiting.get(loop) is futures:
            del waiting[loop]
            loop.remove_reader(fd)


def _running_trio() -> Any:
    """trio, if this is run by it; then the program has imported it."""
    trio = sys.modules.get("trio")
    return trio if trio is not None and trio.lowlevel.in_trio_run() else None


def _wake(waiting: _Waiting, loop: asyncio.AbstractEventLoop, fd: int) -> None:
    """Wakes all that wait on this loop; who finds nothing waits again."""
    loop.remove_reader(fd)
    for future in waiting.pop(loop, ()):
        if not future.done():
            future.set_result(None)


async def get(subscription: Subscription) -> Message:
    while (message := subscription.get_nowait()) is None:
        await readable(subscription)
    return message


async def get_many(subscription: Subscription, n: int) -> Batch:
    while not (batch := subscription.get_many(n, timeout=0)) and n > 0:
        await readable(subscription)
    return batch


async def next_message(subscription: Subscription) -> Message:
    """The next one for ``async for``, where none was there."""
    try:
        return await get(subscription)
    except Closed:
        raise StopAsyncIteration from None


def running_loop() -> asyncio.AbstractEventLoop:
    """The loop for a handler that is a coroutine."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise RuntimeError(
            "a handler that is a coroutine runs on the event loop of asyncio that it was given on: "
            "subscribe inside a coroutine"
        ) from None


def start_handler(
    loop: asyncio.AbstractEventLoop,
    subscription: Subscription,
    handler: _AsyncHandler,
    on_error: _OnError | None,
    on_lagged: _OnLagged | None,
    lease: float | None,
) -> asyncio.Task[None]:
    """Handles messages on ``loop``, one after the other. ``lease``: seconds that the handler has each
    for, before that is renewed; ``None`` where they are delivered at most once."""
    acker = None if lease is None else subscription.acker()
    return loop.create_task(_handle(subscription, handler, on_error, on_lagged, lease, acker))


async def _handle(
    subscription: Subscription,
    handler: _AsyncHandler,
    on_error: _OnError | None,
    on_lagged: _OnLagged | None,
    lease: float | None,
    acker: Acker | None,
) -> None:
    loop = asyncio.get_running_loop()
    # With the task ends the subscription: nobody else would take its messages.
    messages, is_unreadable = f"messages for the handler of {subscription!r}", False
    with subscription:
        while True:
            try:
                message = await get(subscription)
            except Lagged as lagged:
                if on_lagged is not None:
                    _tell("an on_lagged function failed", on_lagged, lagged.count)
                continue
            except StoreError as error:
                # Nothing is lost: what comes next is asked for again.
                if not is_unreadable:
                    is_unreadable = True
                    log(f"{messages} cannot be read, which is tried again", error)
                await asyncio.sleep(_UNREADABLE)
                continue
            except (Closed, Disconnected):
                return
            if is_unreadable and not subscription.queued:
                is_unreadable = False
                log(f"{messages} can be read again", None)
            returned, raised = await _call(handler, message, lease)
            if acker is None or (returned is None and raised is None):
                failure = _settle(acker, message, returned, raised)
            else:
                # A dead letter may have to wait for room, which this loop perhaps makes.
                settling = loop.run_in_executor(None, _settle, acker, message, returned, raised)
                failure = await asyncio.shield(settling)
            if failure is None:
                continue
            if on_error is None:
                log(f"the handler of {subscription!r} failed on {message!r}", failure)
            else:
                _tell("an on_error function failed", on_error, message, failure)


async def _call(
    handler: _AsyncHandler, message: Message, lease: float | None
) -> tuple[object, BaseException | None]:
    """What the handler returns, or raises. Meanwhile the message is leased."""
    renewal = None if lease is None else _Renewal(message, lease)
    try:
        return await handler(message), None
    except Exception as error:
        return None, error
    except asyncio.CancelledError as error:
        # Either this task is cancelled, or something that the handler has awaited was.
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        return None, error
    finally:
        if renewal is not None:
            renewal.end()


class _Renewal:
    """Keeps a message leased."""

    def __init__(self, message: Message, seconds: float) -> None:
        self._message = message
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._wait()

    def _wait(self) -> None:
        self._timer = self._loop.call_later(self._seconds / 2, self._renew)

    def _renew(self) -> None:
        try:
            self._message.extend(self._seconds)
        except AckError:
            return  # it is somebody else's
        self._wait()

    def end(self) -> None:
        self._timer.cancel()


def _tell(failed: str, function: Callable[..., object], *arguments: object) -> None:
    try:
        function(*arguments)
    except Exception as error:
        log(failed, error)
