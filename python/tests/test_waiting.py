"""What waits lets other threads run, ends when the thing it waits for goes away, and when Ctrl-C is
pressed."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator

import pytest

import slipring
from slipring import Broker, Message, Overflow

ONCE = slipring.DeliveryMode.AT_MOST_ONCE
PATIENCE = 60.0


class Scene:
    """A broker with something that waits in every way there is."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.subscription = broker.subscribe("empty")
        self.full = broker.subscribe("full", delivery=ONCE, capacity=1, overflow=Overflow.BLOCK)
        self.topic = broker.topic("full")
        self.topic.publish(b"")
        self.held, self.go_on = threading.Event(), threading.Event()
        self.handler = broker.subscribe("slow", handler=self.slow)

    def slow(self, message: Message) -> None:
        self.held.set()
        assert self.go_on.wait(PATIENCE)

    def hold(self) -> None:
        """Gets the handler to run until ``go_on``."""
        self.broker.publish("slow", b"")
        assert self.held.wait(PATIENCE)

    def commit(self) -> None:
        with self.topic.loan(1):
            pass

    def close_handler(self) -> None:
        self.hold()
        self.handler.close()

    def close_broker(self) -> None:
        self.hold()
        self.broker.close(deadline=PATIENCE)


WAITS: dict[str, Callable[[Scene], object]] = {
    "get": lambda scene: scene.subscription.get(),
    "get with a timeout": lambda scene: scene.subscription.get(timeout=PATIENCE),
    "get_many": lambda scene: scene.subscription.get_many(5),
    "next": lambda scene: next(scene.subscription, None),
    "publish": lambda scene: scene.topic.publish(b""),
    "publish with a timeout": lambda scene: scene.topic.publish(b"", timeout=PATIENCE),
    "publish of much": lambda scene: scene.topic.publish(bytes(1 << 20)),
    "broker.publish": lambda scene: scene.broker.publish("full", b""),
    "publish_many": lambda scene: scene.topic.publish_many([b"", b""]),
    "a loan's end": Scene.commit,
    "closing a handler": Scene.close_handler,
    "closing the broker": Scene.close_broker,
}
waits = pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS.keys())


@pytest.fixture
def scene(broker: Broker) -> Scene:
    return Scene(broker)


@waits
def test_other_threads_run_while_one_waits(
    scene: Scene, wait: Callable[[Scene], object]
) -> None:
    ended = threading.Event()

    def waits() -> None:
        try:
            wait(scene)
        except slipring.Error:
            pass
        ended.set()

    waiter = threading.Thread(target=waits)
    waiter.start()
    # If it held the interpreter, no beat would come while it waits.
    beats = 0
    until = time.monotonic() + 0.2
    while time.monotonic() < until:
        beats += 1
    assert beats > 1000
    assert not ended.is_set(), "it did not wait"
    scene.go_on.set()
    scene.broker.close()
    assert ended.wait(PATIENCE)
    waiter.join()


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Ctrl-C as a terminal has it: what a shell starts in the background ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@waits
@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_ends_every_wait(scene: Scene, wait: Callable[[Scene], object]) -> None:
    waiting = threading.Event()

    def press() -> None:
        # Pressed again, because the first may come before the wait begins.
        assert waiting.wait(PATIENCE)
        while not ended.wait(0.1):
            os.kill(os.getpid(), signal.SIGINT)

    ended = threading.Event()
    presser = threading.Thread(target=press)
    presser.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            try:
                waiting.set()
                wait(scene)
            finally:
                ended.set()
    finally:
        presser.join()
        scene.go_on.set()
    if wait not in (WAITS["closing the broker"], WAITS["closing a handler"]):
        # Nothing was published by what was interrupted, and everything goes on.
        assert len(scene.full.get_many(10)) == 1
        scene.topic.publish(b"next")
        assert bytes(scene.full.get()) == b"next"


def test_a_signal_that_raises_nothing_does_not_end_a_wait(scene: Scene) -> None:
    seen = threading.Event()
    before = signal.signal(signal.SIGUSR1, lambda number, frame: seen.set())
    try:

        def press() -> None:
            for _ in range(5):
                os.kill(os.getpid(), signal.SIGUSR1)
                assert seen.wait(PATIENCE)
                seen.clear()
            scene.broker.publish("empty", b"x")

        presser = threading.Thread(target=press)
        presser.start()
        assert bytes(scene.subscription.get()) == b"x"
        presser.join()
    finally:
        signal.signal(signal.SIGUSR1, before)


RECEIVES = [name for name in WAITS if name.startswith(("get", "next"))]


@pytest.mark.parametrize("name", RECEIVES)
@pytest.mark.parametrize("what", ["broker", "subscription"])
def test_closing_wakes_a_thread_that_receives(scene: Scene, name: str, what: str) -> None:
    outcome: list[object] = []
    began = threading.Event()

    def waits() -> None:
        began.set()
        try:
            outcome.append(WAITS[name](scene))
        except slipring.Closed as error:
            outcome.append(error)

    waiter = threading.Thread(target=waits)
    waiter.start()
    assert began.wait(PATIENCE)
    if what == "broker":
        scene.go_on.set()
        scene.broker.close()
    else:
        scene.subscription.close()
    waiter.join(PATIENCE)
    assert not waiter.is_alive()
    (ended,) = outcome
    assert ended is None if name == "next" else isinstance(ended, slipring.Closed)


@pytest.mark.parametrize("name", [name for name in WAITS if "publish" in name or "loan" in name])
def test_closing_wakes_a_thread_that_publishes(scene: Scene, name: str) -> None:
    outcome: list[BaseException] = []

    def waits() -> None:
        try:
            WAITS[name](scene)
        except slipring.Closed as error:
            outcome.append(error)

    waiter = threading.Thread(target=waits)
    waiter.start()
    scene.broker.close()
    waiter.join(PATIENCE)
    assert not waiter.is_alive() and len(outcome) == 1


def test_room_wakes_a_publisher_that_waits(scene: Scene) -> None:
    receipts: list[slipring.Receipt] = []
    publisher = threading.Thread(target=lambda: receipts.append(scene.topic.publish(b"2")))
    publisher.start()
    assert bytes(scene.full.get()) == b""
    assert bytes(scene.full.get()) == b"2"
    publisher.join()
    assert receipts[0].enqueued == 1


def test_a_timeout_is_kept(scene: Scene) -> None:
    for wait in (
        lambda: scene.subscription.get(timeout=0.05),
        lambda: scene.topic.publish(b"", timeout=0.05),
    ):
        began = time.monotonic()
        with pytest.raises(slipring.Timeout):
            wait()
        assert 0.05 <= time.monotonic() - began < PATIENCE
    began = time.monotonic()
    assert len(scene.subscription.get_many(5, timeout=0.05)) == 0
    assert time.monotonic() - began >= 0.05


def test_a_subscription_dropped_by_a_thread_that_publishes_frees_the_publisher(
    scene: Scene,
) -> None:
    publisher = threading.Thread(target=scene.topic.publish, args=(b"",))
    publisher.start()
    scene.full.close()
    publisher.join(PATIENCE)
    assert not publisher.is_alive()
