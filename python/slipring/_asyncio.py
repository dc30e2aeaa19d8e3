"""Subscriptions on an event loop: the loop watches the subscription's descriptor.

A message is taken only when nothing is awaited any more before it is handed over, so a wait that is
cancelled leaves it where it was.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ._errors import Closed, Disconnected, Lagged

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from ._slipring import Batch, Message, Subscription

    _AsyncHandler = Callable[[Message], Coroutine[object, object, object]]
    _OnError = Callable[[Message, BaseException], object]
    _OnLagged = Callable[[int], object]
    _Waiting = dict[asyncio.AbstractEventLoop, set[asyncio.Future[None]]]


async def readable(subscription: Subscription) -> None:
    """Waits until something can be received, or was received by somebody else."""
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


class Messages:
    """What ``async for`` iterates over. No generator: that would be over at the first loss."""

    def __init__(self, subscription: Subscription) -> None:
        self._subscription = subscription

    def __aiter__(self) -> Messages:
        return self

    async def __anext__(self) -> Message:
        try:
            return await get(self._subscription)
        except Closed:
            raise StopAsyncIteration from None


async def _handle(
    subscription: Subscription,
    handler: _AsyncHandler,
    on_error: _OnError | None,
    on_lagged: _OnLagged | None,
) -> None:
    while True:
        try:
            message = await get(subscription)
        except Lagged as lagged:
            if on_lagged is not None:
                _tell("an on_lagged function failed", on_lagged, lagged.count)
            continue
        except (Closed, Disconnected):
            return
        try:
            await handler(message)
        except Exception as error:
            if on_error is None:
                _log("the handler of %r failed on %r", subscription, message, error=error)
            else:
                _tell("an on_error function failed", on_error, message, error)


def _tell(failed: str, function: Callable[..., object], *arguments: object) -> None:
    try:
        function(*arguments)
    except Exception as error:
        _log(failed, error=error)


def _log(text: str, *arguments: object, error: Exception) -> None:
    from logging import getLogger

    getLogger("slipring").error(text, *arguments, exc_info=error)


def start_handler(
    subscription: Subscription,
    handler: _AsyncHandler,
    on_error: _OnError | None,
    on_lagged: _OnLagged | None,
) -> asyncio.Task[None]:
    """Handles messages on the running loop, one after the other."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        subscription.close()
        raise RuntimeError(
            "a handler that is a coroutine runs on the event loop it was given on: "
            "subscribe inside a coroutine"
        ) from None
    return loop.create_task(_handle(subscription, handler, on_error, on_lagged))
