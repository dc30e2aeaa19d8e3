"""The process around the broker: its end, its forks, its other interpreters."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

import slipring
from slipring import Broker


def python(program: str, status: int = 0) -> str:
    """Runs a program to its end and gives what it printed."""
    # -P: the installed package, not the sources in the directory that this is run in.
    command = [sys.executable, "-P", "-X", "faulthandler", "-c", textwrap.dedent(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == status, (done.returncode, done.stdout, done.stderr)
    assert "Fatal" not in done.stderr and "panicked" not in done.stderr, done.stderr
    return done.stdout


ENDINGS = {
    "with nothing closed": """
        keep = [broker.subscribe("a"), broker.subscribe("a", handler=print), broker.topic("a")]
    """,
    "with messages and buffers kept": """
        s = broker.subscribe("a")
        broker.publish("a", b"x")
        message = s.get()
        view = message.payload
        __builtins__.kept = (message, view, broker)
    """,
    "with a handler that waits in Python": """
        held = threading.Event()
        def wait(message):
            held.set()
            threading.Event().wait()
        broker.subscribe("a", handler=wait)
        broker.publish("a", b"x")
        held.wait()
    """,
    "with a handler that is busy in Python": """
        held = threading.Event()
        def busy(message):
            held.set()
            while True:
                pass
        broker.subscribe("a", handler=busy)
        broker.subscribe("a", handler=busy, dedicated_thread=True)
        broker.publish("a", b"x")
        held.wait()
    """,
    "with a filter that is busy in Python": """
        held = threading.Event()
        def busy(message):
            held.set()
            while True:
                pass
        broker.subscribe("a", handler=print, filter=busy)
        broker.publish("a", b"x")
        held.wait()
    """,
    "with handlers that have much to do": """
        @broker.on("a", capacity=1 << 16)
        def handle(message):
            bytes(message)
        broker.publish_many("a", [b"x"] * 60000)
    """,
    "with leases, ackers and dead letters kept": """
        again = slipring.DeliveryMode.AT_LEAST_ONCE
        s = broker.subscribe("a", name="s", delivery=again)
        broker.publish_many("a", [b"x", b"y"])
        s.get().dead_letter()
        __builtins__.kept = s.get(), s.acker(), broker.dead_letters("$dlq/s")
    """,
    "with a daemon that waits for a message": """
        s = broker.subscribe("a")
        threading.Thread(target=s.get, daemon=True).start()
    """,
    "with a daemon that waits for room": """
        once, wait = slipring.DeliveryMode.AT_MOST_ONCE, slipring.Overflow.BLOCK
        s = broker.subscribe("a", delivery=once, capacity=1, overflow=wait)
        broker.publish("a", b"")
        threading.Thread(target=broker.publish, args=("a", b""), daemon=True).start()
    """,
    "with a daemon that publishes": """
        s = broker.subscribe("a")
        broker.subscribe("a", handler=lambda message: None)
        def publish():
            while True:
                broker.publish("a", b"")
        threading.Thread(target=publish, daemon=True).start()
        s.get()
    """,
    "with a loop and a task that waits": """
        s = broker.subscribe("a")
        async def main():
            async def handle(message): await asyncio.Event().wait()
            for delivery in slipring.DeliveryMode:
                broker.subscribe("a", handler=handle, delivery=delivery)
            broker.publish("a", b"x")
            asyncio.create_task(s.aget())
            await asyncio.sleep(0)
        asyncio.run(main())
    """,
    "with a handler that is let go of by its worker and is busy then": """
        held = threading.Event()
        class Handler:
            def __call__(self, message):
                subscription.close()
            def __del__(self):
                held.set()
                while True:
                    pass
        subscription = broker.subscribe("a", handler=Handler())
        broker.publish("a", b"x")
        held.wait()
    """,
    "with a filter whose answer is busy when it is let go of": """
        held = threading.Event()
        class Answer:
            def __del__(self):
                held.set()
                while True:
                    pass
        broker.subscribe("a", handler=print, filter=lambda message: Answer())
        broker.publish("a", b"x")
        held.wait()
    """,
    "while it is told of an error that cannot be logged": """
        import slipring._logging, sys
        held = threading.Event()
        def log(*arguments):
            raise ValueError
        def busy(unraisable):
            held.set()
            while True:
                pass
        slipring._logging.log = log
        sys.unraisablehook = busy
        broker.subscribe("a", handler=lambda message: 1 / 0)
        broker.publish("a", b"x")
        held.wait()
    """,
    "with the broker in a cycle with its handler": """
        class Service:
            def __init__(self):
                self.broker = broker
                self.subscription = broker.subscribe("a", handler=self.handle)
            def handle(self, message): pass
        service = Service()
    """,
}


@pytest.mark.parametrize("ending", ENDINGS.values(), ids=ENDINGS.keys())
def test_the_interpreter_ends(ending: str) -> None:
    program = "import asyncio, threading, slipring\nbroker = slipring.open()\n"
    assert python(program + textwrap.dedent(ending) + "print('end')") == "end\n"


@pytest.mark.parametrize("delivery", slipring.DeliveryMode)
def test_the_interpreter_ends_while_handlers_fail_and_are_told_of_it(
    delivery: slipring.DeliveryMode,
) -> None:
    program = f"""
        import threading, slipring
        broker = slipring.open()
        held = threading.Event()
        def busy(message):
            held.set()
            while True:
                pass
        def fails(message):
            if message.offset % 2:
                raise slipring.DeadLetter("no")
            return slipring.Retry("later")
        for handler in (busy, fails, fails):
            for options in (dict(dedicated_thread=True), dict(on_error=lambda *_: None)):
                broker.subscribe("a", handler=handler, delivery=slipring.{delivery}, **options)
        broker.publish_many("a", [b"x"] * 5000)
        held.wait()
        print("end")
    """
    # Where a thread is when the interpreter ends is different each time.
    for _ in range(30):
        assert python(program) == "end\n"


def test_an_exception_ends_the_program_with_handlers_running() -> None:
    program = """
        import slipring
        broker = slipring.open()
        broker.subscribe("a", handler=lambda message: None)
        broker.publish("a", b"")
        raise SystemExit(3)
    """
    python(program, status=3)


def test_handlers_finish_what_was_published_before_a_with_block_ends() -> None:
    program = """
        import slipring
        got = []
        with slipring.open() as broker:
            broker.on("a", capacity=10000)(got.append)
            broker.publish_many("a", [b"x"] * 10000)
        print(len(got))
    """
    assert python(program) == "10000\n"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_is_told_and_the_parent_goes_on(broker: Broker) -> None:
    subscription = broker.subscribe("a")
    waiter = broker.subscribe("none")
    handler = broker.subscribe("a", handler=lambda message: None)
    again = broker.subscribe("a", name="again", delivery=slipring.DeliveryMode.AT_LEAST_ONCE)
    broker.publish("a", b"before")
    leased, acker = again.get(), again.acker()
    topic = broker.topic("a")
    import threading

    waits = threading.Thread(target=lambda: list(waiter))
    waits.start()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            for call in (
                lambda: topic.publish(b""),
                lambda: broker.publish("a", b""),
                lambda: topic.publish_many([b""]),
                lambda: subscription.get(),
                lambda: subscription.get_many(5),
                lambda: waiter.get(),
                lambda: broker.subscribe("a"),
                lambda: broker.create_topic("b"),
                lambda: topic.loan(5),
                lambda: leased.ack(),
                lambda: leased.nack(),
                lambda: leased.dead_letter(),
                lambda: leased.extend(1),
                lambda: acker.ack(leased.ack_id or ""),
                lambda: again.get(),
                lambda: again.seek(slipring.Start.EARLIEST),
                lambda: broker.subscriptions(),
                lambda: broker.dead_letters("a").redrive(leased),
                lambda: broker.dead_letters("a").redrive_all(),
                lambda: broker.dead_letters("a").redrive_all(filter="attributes:a"),
                lambda: broker.dead_letters("a").purge(),
                lambda: broker.dead_letters("a").list(),
                lambda: broker.dead_letters("a").peek(0, 0),
                lambda: broker.dead_letters("a").count(),
            ):
                try:
                    call()
                except slipring.Forked as error:
                    assert "forked" in str(error)
                else:
                    raise AssertionError("not refused")
            handler.close()
            subscription.close()
            again.close()
            broker.close()
            with slipring.open() as own:  # a broker of its own is fine
                mine = own.subscribe("a")
                own.publish("a", b"x")
                assert bytes(mine.get()) == b"x"
            del topic, handler, subscription, broker, waiter, again, leased, acker
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert bytes(subscription.get()) == b"before"
    assert leased.ack()
    broker.publish("a", b"after")
    assert bytes(subscription.get()) == b"after"
    waiter.close()
    waits.join()


def test_a_forked_child_ends_as_programs_do() -> None:
    program = """
        import os, sys, slipring
        broker = slipring.open()
        keep = [broker.subscribe("a", handler=print), broker.subscribe("a")]
        child = os.fork()
        if child == 0:
            sys.exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        print("end")
    """
    assert python(program) == "end\n"


@pytest.mark.parametrize("delivery", slipring.DeliveryMode)
def test_a_forked_child_ends_also_where_handlers_were_busy(
    delivery: slipring.DeliveryMode,
) -> None:
    program = f"""
        import os, sys, slipring
        broker = slipring.open()
        topic = broker.topic("a")
        for _ in range(4):
            broker.subscribe("a", handler=bytes, delivery=slipring.{delivery})
        for _ in range(50):
            topic.publish_many([b"x"] * 500)
            child = os.fork()
            if child == 0:
                sys.exit(7)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        print("end")
    """
    assert python(program) == "end\n"


def test_messages_cross_to_spawned_processes() -> None:
    program = """
        import copy, multiprocessing, operator, slipring
        with slipring.open() as broker:
            s = broker.subscribe("a/*")
            broker.publish("a/b", b"four!", key="k", team="IN")
            message = s.get()
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            print(pool.apply(bytes, (message,)))
            back = pool.apply(copy.copy, (message,))
        same = operator.attrgetter(
            "payload", "topic", "key", "attributes", "id", "partition", "offset", "published_at"
        )
        print(back is not message, same(back) == same(message))
    """
    assert python(program) == "b'four!'\nTrue True\n"


def test_another_interpreter_of_the_process_is_refused_clearly() -> None:
    program = """
        import _xxsubinterpreters as interpreters, slipring
        other = interpreters.create()
        try:
            interpreters.run_string(other, "import slipring")
        except interpreters.RunFailedError as error:
            print(error)
    """
    if sys.version_info >= (3, 13):
        program = """
            import _interpreters as interpreters, slipring
            other = interpreters.create()
            print(interpreters.run_string(other, "import slipring").formatted)
        """
    assert "subinterpreter" in python(program)


def test_importing_takes_little_with_it() -> None:
    program = """
        import sys
        before = set(sys.modules)
        import slipring
        print(sorted({name.partition(".")[0] for name in set(sys.modules) - before}))
    """
    loaded = python(program)
    for dear in ("asyncio", "inspect", "logging", "dataclasses", "numpy", "threading"):
        assert f"'{dear}'" not in loaded, loaded
