"""slipring beside what a Python programmer would take instead: section H, in one run.

    python bench/compare.py [--only H1,H4] [--quick] [--check] [--cpu]

Every case is run once to warm up and then measured several times, in turn with its peer, so that
both see the same machine, each of them first in every other round; the table has medians, and the
ratio of those. `--check` ends with status 1 when a bar fails. Peers: pyee (an event emitter),
queue.SimpleQueue, asyncio.Queue.

What is timed is from the first publish until the last message was received. Both sides publish the
same object of 64 bytes, and lose nothing. In H6 both call functions that count their messages: pyee
in the publishing thread, slipring on delivery workers of a broker with its defaults, which take turns
with the publisher; theirs also compare the count with the last one, for there is no other end to wait
for. Making the broker, the emitter and the subscriptions is not timed, nor is closing them.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import queue
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy
import slipring
from pyee.base import EventEmitter
from slipring import Overflow

PAYLOAD = bytes(range(64))
BATCH = 64
ONCE = slipring.DeliveryMode.AT_MOST_ONCE
#: A load above this before we have started comes from others.
QUIET_LOAD = 0.5
#: Messages that a subscription queues: enough that threads change over as seldom as with a queue
#: that has no bound.
CAPACITY = 1 << 16


def now() -> float:
    """The time that is measured: the clock's, or with `--cpu` that of this process."""
    return time.process_time() if CPU else time.perf_counter()


CPU = False


class Tally:
    """What a handler counts with."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


def opened(subscribers: int) -> tuple[slipring.Broker, list[slipring.Subscription]]:
    """A broker with subscriptions of which none loses anything."""
    broker = slipring.open()
    subscriptions = [
        broker.subscribe("bench/*", delivery=ONCE, capacity=CAPACITY, overflow=Overflow.BLOCK)
        for _ in range(subscribers)
    ]
    return broker, subscriptions


def drain(subscriptions: list[slipring.Subscription], count: int, touch: bool) -> None:
    """Takes `count` messages from each; `touch` makes a Message of each."""
    left = [count] * len(subscriptions)
    while any(left):
        for index, subscription in enumerate(subscriptions):
            if left[index]:
                batch = subscription.get_many(4096)
                left[index] -= len(batch)
                if touch:
                    for _ in batch:
                        pass


def ours(
    count: int, subscribers: int, publish: Callable[[slipring.Topic, int], None], touch: bool
) -> float:
    broker, subscriptions = opened(subscribers)
    topic = broker.topic("bench/t")
    consumer = threading.Thread(target=drain, args=(subscriptions, count, touch))
    consumer.start()
    began = now()
    publish(topic, count)
    consumer.join()
    took = now() - began
    broker.close()
    return took


def one_by_one(topic: slipring.Topic, count: int) -> None:
    publish = topic.publish
    for _ in range(count):
        publish(PAYLOAD)


def in_batches(topic: slipring.Topic, count: int) -> None:
    publish_many = topic.publish_many
    payloads = [PAYLOAD] * BATCH
    for _ in range(count // BATCH):
        publish_many(payloads)


def handlers(count: int, subscribers: int) -> float:
    broker = slipring.open()
    tallies = [Tally() for _ in range(subscribers)]
    done = threading.Semaphore(0)

    def handler(tally: Tally) -> Callable[[slipring.Message], None]:
        def handle(message: slipring.Message) -> None:
            tally.count += 1
            if tally.count == count:
                done.release()

        return handle

    for tally in tallies:
        broker.subscribe(
            "bench/*",
            handler=handler(tally),
            delivery=ONCE,
            capacity=CAPACITY,
            overflow=Overflow.BLOCK,
        )
    topic = broker.topic("bench/t")
    began = now()
    one_by_one(topic, count)
    for _ in tallies:
        done.acquire()
    took = now() - began
    broker.close()
    return took


def pyee(count: int, subscribers: int) -> float:
    emitter = EventEmitter()
    tallies = [Tally() for _ in range(subscribers)]

    def handler(tally: Tally) -> Callable[[bytes], None]:
        def handle(message: bytes) -> None:
            tally.count += 1

        return handle

    for tally in tallies:
        emitter.on("t", handler(tally))
    began = now()
    for _ in range(count):
        emitter.emit("t", PAYLOAD)
    took = now() - began
    assert all(tally.count == count for tally in tallies)
    return took


def simple_queue(count: int, subscribers: int) -> float:
    queues: list[queue.SimpleQueue[bytes]] = [queue.SimpleQueue() for _ in range(subscribers)]

    def consume() -> None:
        for _ in range(count):
            for one in queues:
                one.get()

    consumer = threading.Thread(target=consume)
    consumer.start()
    began = now()
    for _ in range(count):
        for one in queues:
            one.put(PAYLOAD)
    consumer.join()
    return now() - began


def asyncio_queue(count: int) -> float:
    async def main() -> float:
        one: asyncio.Queue[bytes] = asyncio.Queue(1024)

        async def consume() -> None:
            for _ in range(count):
                await one.get()

        consumer = asyncio.create_task(consume())
        began = now()
        for _ in range(count):
            await one.put(PAYLOAD)
        await consumer
        return now() - began

    return asyncio.run(main())


def async_for(count: int) -> float:
    async def main() -> float:
        with slipring.open() as broker:
            subscription = broker.subscribe(
                "bench/*", delivery=ONCE, capacity=1024, overflow=Overflow.BLOCK
            )
            topic = broker.topic("bench/t")

            async def consume() -> None:
                left = count
                async for _ in subscription:
                    left -= 1
                    if not left:
                        return

            consumer = asyncio.create_task(consume())
            publish = topic.try_publish
            began = now()
            for _ in range(count):
                while True:
                    try:
                        publish(PAYLOAD)
                        break
                    except slipring.WouldBlock:
                        # Full: as with the queue, the consumer's turn.
                        await asyncio.sleep(0)
            await consumer
            return now() - began

    return asyncio.run(main())


@dataclass
class Bar:
    """One bar: our case, its peer, what both count, and the least ratio."""

    name: str
    what: str
    ours: Callable[[int], float]
    peer_name: str
    peer: Callable[[int], float]
    least: float
    count: int
    peer_count: int
    deliveries: int = 1

    def measure(self, rounds: int, quick: bool) -> bool:
        scale = 5 if quick else 1
        count, peer_count = self.count // scale, self.peer_count // scale
        count -= count % BATCH
        self.ours(count // 10 // BATCH * BATCH)
        self.peer(peer_count // 10)
        mine: list[float] = []
        theirs: list[float] = []
        sides = [(mine, self.ours, count), (theirs, self.peer, peer_count)]
        for _ in range(rounds):
            for rates, run, messages in sides:
                gc.collect()
                rates.append(messages / run(messages))
            sides.reverse()
        ratio = statistics.median(mine) / statistics.median(theirs)
        print(
            f"| {self.name} {self.what} | {self.rates(mine)} | {self.peer_name} "
            f"| {self.rates(theirs)} | {ratio:.2f}x |",
            flush=True,
        )
        return bar(self.name, f"{ratio:.2f}x >={self.least:.2f}x", ratio >= self.least)

    def rates(self, rates: list[float]) -> str:
        """Median, least and most."""
        values = [rate * self.deliveries / 1e6 for rate in rates]
        return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


#: Printed at the end.
LINES: list[str] = []


def bar(name: str, figures: str, passed: bool) -> bool:
    if not name.endswith("m"):
        LINES.append(f"BAR {name} {figures} {'PASS' if passed else 'FAIL'}")
    return passed


BARS = [
    Bar("H1", "publish, get_many", lambda n: ours(n, 1, one_by_one, False),
        "pyee", lambda n: pyee(n, 1), 2.5, 1_000_000, 300_000),
    Bar("H1m", "the same, a Message made of each", lambda n: ours(n, 1, one_by_one, True),
        "pyee", lambda n: pyee(n, 1), 2.5, 1_000_000, 300_000),
    Bar("H2", "publish, get_many, 10 subscribers", lambda n: ours(n, 10, one_by_one, False),
        "pyee", lambda n: pyee(n, 10), 4, 500_000, 60_000),
    Bar("H3", "publish_many of 64, get_many", lambda n: ours(n, 1, in_batches, False),
        "pyee", lambda n: pyee(n, 1), 6, 3_000_000, 300_000),
    Bar("H3m", "the same, a Message made of each", lambda n: ours(n, 1, in_batches, True),
        "pyee", lambda n: pyee(n, 1), 6, 3_000_000, 300_000),
    Bar("H4", "publish_many of 64, 10 subscribers, deliveries",
        lambda n: ours(n, 10, in_batches, False),
        "SimpleQueue", lambda n: simple_queue(n, 10), 3, 2_000_000, 100_000, 10),
    Bar("H5", "publish, async for", async_for,
        "asyncio.Queue", asyncio_queue, 1.5, 300_000, 200_000),
    Bar("H6", "publish, 10 handlers", lambda n: handlers(n, 10),
        "pyee", lambda n: pyee(n, 10), 1.5, 100_000, 60_000),
]  # fmt: skip


def import_time(rounds: int) -> bool:
    """H7: what importing adds to the start of an interpreter."""

    def start(program: str) -> float:
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", program], check=True)
        return time.perf_counter() - began

    bare, with_us = [], []
    for _ in range(rounds * 4):
        bare.append(start("pass"))
        with_us.append(start("import slipring"))
    added = (statistics.median(with_us) - statistics.median(bare)) * 1e3
    print(f"\nImporting adds {added:.1f} ms to the start of an interpreter.", flush=True)
    return bar("H7", f"{added:.1f}ms <60.0ms", added < 60)


def copies() -> bool:
    """H8: how often 1 MiB is copied, told by the addresses that both sides see."""
    source = numpy.arange(1 << 17, dtype=numpy.int64)
    with slipring.open() as broker:
        one, two = broker.subscribe("frames"), broker.subscribe("frames")
        broker.publish("frames", source)
        arrays = [numpy.frombuffer(sub.get().payload, numpy.int64) for sub in (one, two)]
        in_place = arrays[0].ctypes.data == arrays[1].ctypes.data
        copied_once = in_place and arrays[0].ctypes.data != source.ctypes.data
        with broker.topic("frames").loan(source.nbytes) as view:
            written = numpy.frombuffer(view, numpy.int64).ctypes.data
            numpy.frombuffer(view, numpy.int64)[:] = source
        read = numpy.frombuffer(one.get().payload, numpy.int64)
        not_copied = read.ctypes.data == written and numpy.array_equal(read, source)
    copies = [1 - in_place, 1 + (not copied_once), 1 - not_copied]
    print(
        "\nAn array of 1 MiB is copied {} times by consumers, {} by publishing, {} through a "
        "loan.".format(*copies)
    )
    return bar("H8", "{},{},{} =0,1,0".format(*copies), copies == [0, 1, 0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", help="bars, separated by commas")
    parser.add_argument("--quick", action="store_true", help="a fifth of the messages, 3 rounds")
    parser.add_argument("--check", action="store_true", help="status 1 when a bar fails")
    parser.add_argument(
        "--cpu", action="store_true", help="processor time, for a machine that others use as well"
    )
    options = parser.parse_args()
    global CPU
    CPU = options.cpu
    only = set(options.only.split(",")) if options.only else None
    rounds = 3 if options.quick else 9
    print(
        f"Python {sys.version.split()[0]}, medians of {rounds} rounds"
        + (", processor time." if CPU else ".")
    )
    load = os.getloadavg()[0]
    if load > QUIET_LOAD:
        print(f"**The machine is busy (load {load:.2f}): every figure below may be wrong.**")
    print(f"\n## H. Python, {len(PAYLOAD)} bytes\n")
    print("| what | M/s (least to most) | peer | M/s (least to most) | ratio |")
    print("|---|---:|---|---:|---:|")
    passed = [
        bar.measure(rounds, options.quick) for bar in BARS if only is None or bar.name in only
    ]
    if only is None or "H7" in only:
        passed.append(import_time(rounds))
    if only is None or "H8" in only:
        passed.append(copies())
    print()
    print(*LINES, sep="\n")
    if options.check and not all(passed):
        sys.exit(1)


if __name__ == "__main__":
    main()
