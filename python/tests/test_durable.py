"""A broker with a directory: what is there again when it is opened the next time."""

import os
import pathlib
import select
import signal
import subprocess
import sys
import threading
from datetime import timedelta
from typing import Any

import pytest

import slipring
from slipring import DeliveryMode, Start


def worker(broker: slipring.Broker) -> slipring.Subscription:
    return broker.subscribe(
        "jobs/*", name="worker", delivery=DeliveryMode.AT_LEAST_ONCE, start=Start.EARLIEST
    )


def everything(broker: slipring.Broker) -> list[bytes]:
    sub = broker.subscribe("**", start=Start.EARLIEST, delivery=DeliveryMode.AT_MOST_ONCE)
    return [bytes(message) for message in sub.get_many(10_000, timeout=0)]


def test_what_was_published_and_not_settled_is_there_again(tmp_path: pathlib.Path) -> None:
    with slipring.open(tmp_path) as broker:
        assert broker.durable
        sub = worker(broker)
        receipt = broker.publish("jobs/mail", b"one", kind="x")
        assert receipt.durable and receipt.offset == 0
        assert broker.publish_many("jobs/mail", [b"two", b"three"]).durable
        first = sub.get()
        assert bytes(first) == b"one"
        first.ack()
        second = sub.get()
        assert (bytes(second), second.attempt) == (b"two", 1)
    with slipring.open(str(tmp_path)) as broker:
        sub = worker(broker)
        again = sub.get()
        assert (bytes(again), again.attempt, again.offset) == (b"two", 2, 1)
        again.ack()
        last = sub.get()
        assert bytes(last) == b"three"
        last.ack()
        assert broker.subscriptions() == ["worker"]
        assert everything(broker) == [b"one", b"two", b"three"]


def test_a_directory_belongs_to_one_broker(tmp_path: pathlib.Path) -> None:
    with slipring.open(tmp_path, shards=2) as broker:
        with pytest.raises(slipring.Locked):
            slipring.open(tmp_path)
        assert len(broker.metrics()["shards"]) == 2
    with pytest.raises(slipring.Incompatible):
        slipring.open(tmp_path, shards=3)
    with slipring.open(tmp_path) as broker:
        assert len(broker.metrics()["shards"]) == 2
    (tmp_path / "metadata.redb").unlink()
    with slipring.open(tmp_path) as broker:  # nothing was in it
        broker.publish("a", b"x")
    (tmp_path / "metadata.redb").unlink()
    with pytest.raises(slipring.Incompatible, match="metadata"):
        slipring.open(tmp_path)


def test_settings_of_a_directory_are_checked(tmp_path: pathlib.Path) -> None:
    for wrong in (
        {"sync": "always"},
        {"sync": -1.0},
        {"on_damage": slipring.Sync.OS},
        {"retention": "7 days"},
        {"segment_age": "21 hours"},
        {"segment_age": -1},
    ):
        with pytest.raises((TypeError, ValueError)):
            slipring.open(tmp_path, **wrong)
    with pytest.raises(TypeError, match="path"):
        slipring.open(sync=slipring.Sync.OS)
    with pytest.raises(TypeError, match="segment_age.* path"):
        slipring.open(segment_age=3600)
    for size in ("reserve_bytes", "segment_bytes", "preallocate_bytes"):
        good: dict[str, Any] = {size: 1 << 20}
        large: dict[str, Any] = {size: 1 << 50}
        negative: dict[str, Any] = {size: -1}
        with pytest.raises(TypeError, match="path"):
            slipring.open(**good)
        with pytest.raises(slipring.OutOfRange, match=size):
            slipring.open(tmp_path, **large)
        with pytest.raises((OverflowError, TypeError)):
            slipring.open(tmp_path, **negative)
    with pytest.raises(slipring.OutOfRange, match=r"segment_bytes must be in 65536\.\."):
        slipring.open(tmp_path, segment_bytes=1000)
    with pytest.raises(slipring.OutOfRange):
        slipring.open(tmp_path, shards=65)
    with pytest.raises(slipring.StoreError, match="/dev/null"):
        slipring.open("/dev/null")


def test_the_sizes_of_a_directory_can_be_set(tmp_path: pathlib.Path) -> None:
    sizes: dict[str, Any] = {"segment_bytes": 64 << 10, "preallocate_bytes": 16 << 10}
    with slipring.open(tmp_path, reserve_bytes=8192, **sizes) as broker:
        broker.publish("a", b"x")
        assert (tmp_path / "reserve").stat().st_size == 8192
        segment = tmp_path / "shard-000" / "00000000000000000000.log"
        assert segment.stat().st_size <= 64 << 10
        (shard,) = broker.metrics()["shards"]
        assert (shard["stored"], shard["unsynced"]) == (1, 0)
        assert shard["stored_bytes"] > 0
    with slipring.open(tmp_path, reserve_bytes=0, **sizes):
        assert (tmp_path / "reserve").stat().st_size == 0


@pytest.mark.parametrize("age", [60, timedelta(minutes=1)])
def test_an_old_file_is_followed_by_another(
    age: float | timedelta, tmp_path: pathlib.Path, clock: slipring.TestClock
) -> None:
    with slipring.open(tmp_path, segment_age=age, clock=clock) as broker:
        broker.publish("a", b"x")
        assert len(list(tmp_path.glob("shard-000/*.log"))) == 1
        clock.advance(61)
        while len(list(tmp_path.glob("shard-000/*.log"))) < 2:
            pass  # its thread makes it


def test_what_need_not_wait_for_the_disk_says_so_until_it_is_flushed(
    tmp_path: pathlib.Path,
) -> None:
    for sync in (slipring.Sync.OS, 3600.0, timedelta(hours=1)):
        with slipring.open(tmp_path, sync=sync, on_damage=slipring.OnDamage.SKIP) as broker:
            topic = broker.topic("a/b")
            assert not topic.publish(b"x").durable
            assert not topic.try_publish(b"x").durable
            broker.flush()
    with slipring.open() as memory:
        assert not memory.durable
        memory.flush()


def test_topics_keep_their_retention(tmp_path: pathlib.Path) -> None:
    with slipring.open(tmp_path, retention=timedelta(days=1), retention_bytes=1 << 30) as broker:
        broker.publish("by/default", b"x")
        broker.create_topic("for/ever", 2, retention=slipring.FOREVER)
        broker.create_topic("short", retention=60)
        broker.update_topic("short", retention=30, retention_bytes=1000)
    with slipring.open(tmp_path) as broker:
        kept = {name: broker.describe_topic(name) for name in broker.topics()}
    assert (kept["by/default"]["retention"], kept["by/default"]["retention_bytes"]) == (
        86400.0,
        1 << 30,
    )
    assert kept["for/ever"]["retention"] is None and len(kept["for/ever"]["partitions"]) == 2
    assert (kept["short"]["retention"], kept["short"]["retention_bytes"]) == (30.0, 1000)


def test_waiting_for_the_disk_lets_other_threads_run(tmp_path: pathlib.Path) -> None:
    beats = 0
    stop = threading.Event()

    def beat() -> None:
        nonlocal beats
        while not stop.is_set():
            beats += 1

    with slipring.open(tmp_path) as broker:
        thread = threading.Thread(target=beat)
        thread.start()
        before = beats
        for _ in range(20):
            broker.publish("a/b", b"x")
        stop.set()
        thread.join()
    assert beats > before


CHILD = """
import os, signal, slipring, sys
broker = slipring.open(sys.argv[1], sync=slipring.Sync.OS)
for number in range(1000):
    broker.publish("jobs/kill", str(number).encode())
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_process_loses_nothing(tmp_path: pathlib.Path) -> None:
    command = [sys.executable, "-c", CHILD, os.fspath(tmp_path)]
    # Elsewhere than here, where the package's folder hides what is installed.
    killed = subprocess.run(command, cwd=tmp_path.parent, check=False)
    assert killed.returncode == -signal.SIGKILL
    with slipring.open(tmp_path) as broker:
        assert everything(broker) == [str(number).encode() for number in range(1000)]
        assert broker.publish("jobs/kill", b"next").offset == 1000


def test_what_is_published_again_within_the_window_is_stored_once(tmp_path: pathlib.Path) -> None:
    clock = slipring.TestClock()
    with slipring.open(tmp_path, clock=clock) as broker:
        topic = broker.create_topic("a", 3, dedup_window=timedelta(minutes=1), dedup_ids=100)
        described = broker.describe_topic("a")
        assert (described["dedup_window"], described["dedup_ids"]) == (60.0, 100)
        first = topic.publish(b"x", id="x")
        assert first.durable and not first.duplicate
        again = topic.publish(b"x", id="x", key="another")
        assert again.durable and again.duplicate and again.id == first.id
        clock.advance(30)
    with slipring.open(tmp_path, clock=clock) as broker:
        again = broker.publish("a", b"x", id="x")
        assert again.duplicate and again.id == first.id
        clock.advance(30)
        assert not broker.publish("a", b"x", id="x").duplicate
        broker.update_topic("a")
        assert broker.describe_topic("a")["dedup_window"] is None
        assert not broker.publish("a", b"x", id="x").duplicate
        assert everything(broker) == [b"x"] * 3


def test_a_handler_goes_on_where_it_was(tmp_path: pathlib.Path) -> None:
    def run(expected: list[bytes]) -> None:
        seen: list[bytes] = []
        done = threading.Event()
        if not expected:
            done.set()

        def handle(message: slipring.Message) -> None:
            seen.append(bytes(message))
            if seen == expected:
                done.set()

        with slipring.open(tmp_path) as broker:
            handler = broker.subscribe(
                "jobs/*",
                handler=handle,
                name="h",
                delivery=DeliveryMode.AT_LEAST_ONCE,
                start=Start.EARLIEST,
            )
            assert done.wait(60)
            handler.close()
            for number in range(len(expected), len(expected) + 2):
                broker.publish("jobs/x", str(number).encode())
        assert seen == expected

    run([])
    run([b"0", b"1"])
    run([b"2", b"3"])


def test_other_threads_run_while_one_reads_from_the_disk(tmp_path: pathlib.Path) -> None:
    beats, over = 0, threading.Event()

    def beat() -> None:
        nonlocal beats
        while not over.is_set():
            beats += 1
            select.select([], [], [], 0)  # others run meanwhile

    with slipring.open(tmp_path, sync=slipring.Sync.OS, memory_budget=256 << 10) as broker:
        broker.publish_many("a", [bytes(16 << 10)] * 256)
        heart = threading.Thread(target=beat)
        # Nobody is made to let go of the interpreter.
        interval = sys.getswitchinterval()
        sys.setswitchinterval(3600)
        try:
            heart.start()
            for _ in range(100):
                behind = broker.subscribe(
                    "a", start=Start.EARLIEST, delivery=DeliveryMode.AT_MOST_ONCE
                )
                before, received = beats, 0
                while received < 256:
                    received += behind.get_nowait() is not None
                if beats > before:
                    break
            else:
                pytest.fail("no other thread ran")
        finally:
            over.set()
            sys.setswitchinterval(interval)
            heart.join()
