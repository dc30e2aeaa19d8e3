"""Delivery at least once: leases, acknowledgements, retries, and what a handler decides."""

from __future__ import annotations

import copy
import gc
import logging
import pickle
import queue
import threading
import weakref
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import slipring
from slipring import Backoff, Broker, DeliveryMode, Message, Overflow, Subscription, TestClock

ONCE, AGAIN = DeliveryMode.AT_MOST_ONCE, DeliveryMode.AT_LEAST_ONCE
PATIENCE = 60.0
DAY = 24 * 3600.0


def take(subscription: Subscription) -> tuple[bytes, int] | None:
    """The next message that is there, with its attempt."""
    message = subscription.get_nowait()
    return None if message is None else (bytes(message), message.attempt)


def taken(subscription: Subscription) -> Message:
    message = subscription.get_nowait()
    assert message is not None
    return message


def id_of(subscription: Subscription) -> str:
    id = taken(subscription).ack_id
    assert id is not None
    return id


def figures(broker: Broker, which: int = 0) -> dict[str, Any]:
    return dict(broker.metrics()["subscriptions"][which])


def until(condition: Callable[[], bool]) -> None:
    """The watchdog ends it, if it never holds."""
    pause = threading.Event()
    while not condition():
        pause.wait(0.001)


def test_a_message_comes_again_when_its_lease_ends_until_it_is_acknowledged(
    timed: Broker, clock: TestClock
) -> None:
    everything = timed.subscribe("a", delivery=AGAIN, visibility_timeout=0.1)
    timed.publish("a", b"one")
    for attempt in (1, 2, 3):
        assert take(everything) == (b"one", attempt)
        assert take(everything) is None
        clock.advance(0.099)
        assert take(everything) is None, "it has its time"
        clock.advance(timedelta(milliseconds=1))
    message = taken(everything)
    assert "attempt=4" in repr(message)
    assert message.ack() is True
    assert message.ack() is False, "acknowledging again does nothing"
    clock.advance(3600)
    assert take(everything) is None
    known = figures(timed)
    assert (known["acked"], known["redelivered"], known["unsettled"]) == (1, 3, 0)


def test_what_fails_waits_longer_each_time(timed: Broker, clock: TestClock) -> None:
    backoff = Backoff(min=0.1, max=timedelta(seconds=0.25))
    everything = timed.subscribe("a", delivery=AGAIN, backoff=backoff, max_delivery_attempts=9)
    timed.publish("a", b"one")
    for attempt, pause in ((1, 0.1), (2, 0.2), (3, 0.25), (4, 0.25)):
        message = taken(everything)
        assert message.attempt == attempt
        message.nack()
        clock.advance(pause - 0.001)
        assert take(everything) is None
        clock.advance(0.001)
    taken(everything).nack(delay=7)
    clock.advance(6.999)
    assert take(everything) is None
    clock.advance(0.001)
    assert take(everything) == (b"one", 6)


def test_a_backoff_with_jitter_is_shorter_by_half_at_most(timed: Broker, clock: TestClock) -> None:
    backoff = Backoff(1, 1, jitter=True)
    everything = timed.subscribe("a", delivery=AGAIN, backoff=backoff, max_delivery_attempts=100)
    timed.publish_many("a", [b"x"] * 50)
    for _ in range(50):
        taken(everything).nack()
    clock.advance(0.499)
    assert take(everything) is None
    clock.advance(0.501)
    assert len(everything.get_many(100, timeout=0)) == 50


def test_a_stale_lease_can_do_nothing(timed: Broker, clock: TestClock) -> None:
    everything = timed.subscribe("a", delivery=AGAIN, visibility_timeout=0.05)
    timed.publish("a", b"one")
    first = taken(everything)
    clock.advance(0.05)
    with pytest.raises(slipring.Stale, match="over"):
        first.nack()
    with pytest.raises(slipring.Stale, match="over"):
        first.extend(0.1)
    with pytest.raises(slipring.Stale, match="over"):
        first.dead_letter("late")
    second = taken(everything)
    assert first.ack_id != second.ack_id
    assert first.ack() is False, "somebody else has it now"
    second.extend(timedelta(seconds=0.06))
    clock.advance(0.059)
    assert take(everything) is None, "it was extended"
    second.nack(0)
    assert second.ack() is False, "it was given back"
    with pytest.raises(slipring.Stale):
        second.nack()
    third = taken(everything)
    assert third.ack() is True
    with pytest.raises(slipring.AckError):
        third.nack()


def test_an_ack_after_the_deadline_counts_as_long_as_nobody_else_has_the_message(
    timed: Broker, clock: TestClock
) -> None:
    everything = timed.subscribe("a", delivery=AGAIN, visibility_timeout=0.05)
    timed.publish("a", b"one")
    late = taken(everything)
    clock.advance(1)
    assert late.ack() is True
    assert take(everything) is None


def test_messages_are_settled_by_id_from_anywhere(broker: Broker) -> None:
    one = broker.subscribe("a", delivery=AGAIN, name="one")
    other = broker.subscribe("a", delivery=AGAIN)
    broker.publish_many("a", [b"1", b"2", b"3", b"4"])
    ids = [id_of(one) for _ in range(4)]
    id_of_other = id_of(other)
    assert all(len(id) == 48 for id in ids)
    acker = one.acker()
    for refused in (acker.ack, acker.nack, acker.dead_letter, lambda id: acker.extend(id, 1)):
        with pytest.raises(slipring.UnknownAckId) as error:
            refused("no id")
        assert error.value.position == 0
        with pytest.raises(slipring.UnknownAckId) as error:
            refused(id_of_other)
        assert error.value.position is None
    done: list[bool] = []
    thread = threading.Thread(target=lambda: done.append(acker.ack(ids[0])))
    thread.start()
    thread.join()
    assert done == [True] and acker.ack(ids[0]) is False
    acker.extend(ids[1], 5)
    acker.nack(ids[1], delay=0)
    assert take(one) == (b"2", 2)
    by_name = broker.acker("one")
    by_name.dead_letter(ids[2], reason="no good")
    assert [bytes(letter) for letter in broker.dead_letters("$dlq/one").list()] == [b"3"]
    outcomes = by_name.ack_all([ids[3], ids[3], ids[1]])
    assert outcomes == [True, False, False]
    nothing, stale = by_name.nack_all([id_of_other, ids[3]])
    assert isinstance(nothing, slipring.UnknownAckId) and isinstance(stale, slipring.Stale)
    (out_of_range,) = by_name.extend_all([ids[1]], 601)
    assert isinstance(out_of_range, slipring.OutOfRange) and out_of_range.max == 600
    with pytest.raises(slipring.UnknownAckId):
        by_name.ack_all([ids[0], "no id"])
    with pytest.raises(slipring.UnknownSubscription):
        broker.acker("two")
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(acker)


def test_a_subscription_of_another_broker_has_other_ids(broker: Broker) -> None:
    with slipring.open() as elsewhere:
        there = elsewhere.subscribe("a", delivery=AGAIN)
        elsewhere.publish("a", b"x")
        with pytest.raises(slipring.UnknownAckId):
            broker.subscribe("a", delivery=AGAIN).acker().ack(id_of(there))


def test_what_is_delivered_at_most_once_or_to_a_handler_has_no_lease(broker: Broker) -> None:
    results: queue.SimpleQueue[tuple[object, ...]] = queue.SimpleQueue()

    def settle(message: Message) -> list[type[BaseException] | None]:
        raised: list[type[BaseException] | None] = []
        for work in (
            message.ack,
            message.nack,
            message.dead_letter,
            lambda: message.extend(1),
        ):
            try:
                work()
                raised.append(None)
            except slipring.Error as error:
                raised.append(type(error))
        return raised

    def handle(message: Message) -> None:
        results.put((message.ack_id, message.attempt, *settle(message)))

    once = broker.subscribe("a", delivery=ONCE)
    with pytest.raises(slipring.AtMostOnce):
        once.acker()
    with pytest.raises(slipring.AtMostOnce):
        once.seek(slipring.Start.EARLIEST)
    with broker.subscribe("a", delivery=AGAIN, handler=handle):
        broker.publish("a", b"x")
        nothing = [slipring.NotLeased] * 4
        message = once.get()
        assert (message.ack_id, message.attempt, *settle(message)) == (None, 1, *nothing)
        assert results.get(timeout=PATIENCE) == (None, 1, *nothing)


def test_settings_out_of_range_are_refused(broker: Broker) -> None:
    wrong: list[tuple[str, Any, float, float]] = [
        ("visibility_timeout", 0.009, 0.01, 600),
        ("visibility_timeout", 600.001, 0.01, 600),
        ("max_delivery_attempts", 0, 1, 65535),
        ("max_outstanding", 0, 1, 1 << 24),
        ("capacity", 0, 1, 1 << 24),
    ]
    for setting, value, least, most in wrong:
        options: dict[str, Any] = {setting: value}
        with pytest.raises(slipring.OutOfRange, match=setting) as error:
            broker.subscribe("a", delivery=AGAIN, **options)
        assert (error.value.setting, error.value.min, error.value.max) == (setting, least, most)
    with pytest.raises(slipring.InvalidName) as invalid:
        broker.subscribe("a", delivery=AGAIN, dead_letter_topic="a//b")
    assert invalid.value.position == 2
    assert invalid.value.reason is slipring.NameRule.EMPTY_SEGMENT
    everything = broker.subscribe("a", delivery=AGAIN, visibility_timeout=600)
    broker.publish("a", b"x")
    message = taken(everything)
    for seconds in (0.009, 600.001):
        with pytest.raises(slipring.OutOfRange) as error:
            message.extend(seconds)
        assert (error.value.setting, error.value.min, error.value.max) == ("seconds", 0.01, 600)
    with pytest.raises(slipring.OutOfRange) as error:
        message.nack(DAY + 0.001)
    assert (error.value.setting, error.value.min, error.value.max) == ("delay", 0, DAY)
    with pytest.raises(ValueError, match="negative"):
        message.nack(-1)
    assert message.ack() is True


def test_options_of_the_wrong_kind_are_refused_in_words(broker: Broker) -> None:
    anything: Any = "at least once"
    with pytest.raises(TypeError, match="delivery is a DeliveryMode, not 'at least once'"):
        broker.subscribe("a", delivery=anything)
    with pytest.raises(TypeError, match="backoff is a Backoff"):
        broker.subscribe("a", backoff=anything)
    with pytest.raises(TypeError, match="a duration is"):
        broker.subscribe("a", visibility_timeout=anything)
    with pytest.raises(TypeError, match="a duration is"):
        broker.subscribe("a", backoff=Backoff(min=anything))
    with pytest.raises(TypeError):
        slipring.open(clock=anything)
    assert broker.metrics()["subscriptions"] == []


def test_at_the_limit_of_outstanding_messages_delivery_stops_until_one_is_settled(
    broker: Broker,
) -> None:
    everything = broker.subscribe("a", delivery=AGAIN, max_outstanding=3)
    broker.publish_many("a", [b"%d" % n for n in range(5)])
    messages = [taken(everything) for _ in range(3)]
    assert take(everything) is None
    got: list[bytes] = []
    waiting = threading.Thread(target=lambda: got.append(bytes(everything.get())))
    waiting.start()
    # Who waits is woken by whoever settles a message.
    assert messages[1].ack()
    waiting.join()
    assert got == [b"3"] and take(everything) is None
    assert [message.ack() for message in messages] == [True, False, True]
    assert take(everything) == (b"4", 1)


def test_later_messages_of_a_key_wait_for_one_that_failed_and_others_do_not(
    timed: Broker, clock: TestClock
) -> None:
    everything = timed.subscribe("a", delivery=AGAIN)
    overtaking = timed.subscribe("a", delivery=AGAIN, keys_overtake=True)
    timed.publish("a", b"k1", key="k")
    for subscription in (everything, overtaking):
        taken(subscription).nack(delay=1)
    for payload in (b"k2", b"j1", b"k3"):
        timed.publish("a", payload, key=payload[:1].decode())
    assert take(everything) == (b"j1", 1)
    assert take(everything) is None
    assert [take(overtaking) for _ in range(3)] == [(b"k2", 1), (b"j1", 1), (b"k3", 1)]
    clock.advance(1)
    first = taken(everything)
    assert (bytes(first), first.attempt) == (b"k1", 2)
    assert take(everything) is None, "it is not settled yet"
    assert first.ack()
    assert [take(everything) for _ in range(2)] == [(b"k2", 1), (b"k3", 1)]


@pytest.mark.parametrize("dedicated_thread", [False, True], ids=["workers", "a thread of its own"])
def test_what_a_handler_returns_or_raises_settles_its_message(
    timed: Broker, clock: TestClock, dedicated_thread: bool
) -> None:
    calls: queue.SimpleQueue[tuple[bytes, int]] = queue.SimpleQueue()
    told: list[tuple[bytes, str]] = []

    def handle(message: Message) -> object:
        calls.put((bytes(message), message.attempt))
        match bytes(message), message.attempt:
            case b"returns retry", 1:
                return slipring.Retry("not yet")
            case b"raises retry", 1:
                raise slipring.Retry("not yet")
            case b"fails", 1:
                raise LookupError("on purpose")
            case b"returns dead", _:
                return slipring.DeadLetter("never")
            case b"raises dead", _:
                raise slipring.DeadLetter("never ever")
        return message.attempt  # whatever else it returns is success

    def on_error(message: Message, error: BaseException) -> None:
        told.append((bytes(message), repr(error)))

    with timed.subscribe(
        "a",
        delivery=AGAIN,
        handler=handle,
        name="h",
        backoff=Backoff(0.1, 0.1),
        on_error=on_error,
        dedicated_thread=dedicated_thread,
    ):
        payloads = [b"good", b"returns retry", b"raises retry", b"fails", b"returns dead"]
        payloads += [b"raises dead", b"better"]
        timed.publish_many("a", payloads)
        assert [calls.get(timeout=PATIENCE) for _ in payloads] == [(p, 1) for p in payloads]
        until(lambda: figures(timed)["unsettled"] == 3)
        assert calls.empty(), "time stands still, so nothing is tried again"
        clock.advance(0.1)
        again = {calls.get(timeout=PATIENCE) for _ in range(3)}
        assert again == {(b"returns retry", 2), (b"raises retry", 2), (b"fails", 2)}
        until(lambda: figures(timed)["unsettled"] == 0)
        known = figures(timed)
        assert (known["acked"], known["redelivered"], known["dead_lettered"]) == (5, 3, 2)
        assert known["handler_failures"] == 5
    assert told == [
        (b"returns retry", "Retry('not yet')"),
        (b"raises retry", "Retry('not yet')"),
        (b"fails", "LookupError('on purpose')"),
        (b"returns dead", "DeadLetter('never')"),
        (b"raises dead", "DeadLetter('never ever')"),
    ]
    letters = timed.dead_letters("$dlq/h").list()
    reasons = [letter.attributes[slipring.DEAD_LETTER_REASON] for letter in letters]
    assert reasons == ["never", "never ever"]


def test_a_dead_letter_says_what_the_handler_raised_last(timed: Broker, clock: TestClock) -> None:
    def fails(message: Message) -> None:
        raise LookupError(f"attempt {message.attempt}")

    letters = timed.subscribe("$dlq/*", delivery=ONCE)
    with timed.subscribe(
        "a", delivery=AGAIN, handler=fails, max_delivery_attempts=2, on_error=lambda *_: None
    ):
        timed.publish("a", b"x")
        until(lambda: figures(timed, 1)["handler_failures"] == 1)
        clock.advance(1)
        letter = letters.get(timeout=PATIENCE)
    assert letter.attributes[slipring.DEAD_LETTER_REASON] == "LookupError: attempt 2"
    assert letter.attributes[slipring.DEAD_LETTER_ATTEMPTS] == "2"


def test_where_it_is_delivered_at_most_once_giving_up_is_a_failure_and_no_more(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR, "slipring"):
        broker.subscribe("a", delivery=ONCE, handler=lambda message: slipring.DeadLetter("no"))
        broker.publish("a", b"x")
        broker.close()
    (record,) = caplog.records
    assert record.exc_info and isinstance(record.exc_info[1], slipring.DeadLetter)
    assert broker.dead_letters("$dlq/unnamed-1").list() == []


def test_a_handler_that_gives_up_does_not_hold_the_interpreter_while_that_waits(
    timed: Broker, clock: TestClock
) -> None:
    # Who subscribes to dead letters blocks, needs the interpreter to make room, and has it to move
    # the time that storing a letter waits for.
    letters = timed.subscribe("$dlq/*", delivery=ONCE, capacity=1, overflow=Overflow.BLOCK)
    count = 8
    got: list[bytes] = []

    def give_up(message: Message) -> object:
        return slipring.DeadLetter("always")

    with timed.subscribe("a", delivery=AGAIN, handler=give_up, on_error=lambda *_: None):
        timed.publish_many("a", [b"%d" % n for n in range(count)])
        until(lambda: letters.queued == 1)
        # For the next letter there is no room in time: it is tried again later.
        while figures(timed, 1)["handler_failures"] < 3:
            clock.advance(0.01)
        while len(got) < count:
            clock.advance(0.1)
            if (letter := letters.get_nowait()) is not None:
                got.append(bytes(letter))
    assert sorted(got, key=int) == [b"%d" % n for n in range(count)]


def test_a_full_queue_falls_back_to_the_log_and_loses_nothing_while_others_publish() -> None:
    each, publishers = 5_000, 2
    with slipring.open(shards=2) as broker:
        everything = broker.subscribe("t/*", delivery=AGAIN, capacity=8)

        def publish(topic: slipring.Topic) -> None:
            for number in range(each):
                topic.publish(b"%d" % number)

        threads = [
            threading.Thread(target=publish, args=(broker.topic(f"t/{n}"),))
            for n in range(publishers)
        ]
        for thread in threads:
            thread.start()
        expected = {f"t/{n}": 0 for n in range(publishers)}
        for turn in range(each * publishers):
            message = everything.get()
            assert int(bytes(message)) == expected[message.topic], "without gap or duplicate"
            expected[message.topic] += 1
            if turn % 3:
                assert message.ack()
        for thread in threads:
            thread.join()
        known = figures(broker)
        assert known["delivered"] == known["matched"] == each * publishers
        unsettled = -(-each * publishers // 3)
        assert (known["unsettled"], known["acked"]) == (unsettled, each * publishers - unsettled)


def test_expired_messages_end_their_leases_and_are_told_as_lost() -> None:
    with slipring.open(memory_budget=256 << 10) as broker:
        everything = broker.subscribe("a", delivery=AGAIN, capacity=16)
        broker.publish_many("a", [b"%d" % n for n in range(10)])
        messages = [taken(everything) for _ in range(4)]
        assert messages[1].ack()
        while broker.metrics()["shards"][0]["expired"] < 10:
            broker.publish("b", bytes(1024))
        lost = 0
        while True:
            try:
                assert take(everything) is None
                break
            except slipring.Lagged as lagged:
                lost += lagged.count
        assert lost == 9, "three that were leased and six that were not received"
        assert messages[0].ack() is False
        with pytest.raises(slipring.Stale):
            messages[2].nack()
        assert bytes(messages[3]) == b"3", "what is kept is still there to be read"
        assert (figures(broker)["unsettled"], figures(broker)["expired_unsettled"]) == (0, 3)


def test_who_waits_is_woken_by_time_alone(timed: Broker, clock: TestClock) -> None:
    everything = timed.subscribe("a", delivery=AGAIN, visibility_timeout=0.1)
    timed.publish("a", b"one")
    assert take(everything) == (b"one", 1)
    got: list[int] = []
    waiting = threading.Thread(target=lambda: got.append(everything.get().attempt))
    waiting.start()
    while waiting.is_alive():
        clock.advance(0.001)
        waiting.join(0.001)
    assert got == [2]


def test_kept_messages_and_batches_are_settled_like_others(broker: Broker) -> None:
    everything = broker.subscribe("a", delivery=AGAIN)
    broker.publish_many("a", [b"0", b"1", b"2", b"3"])
    batch = everything.get_many(3)
    assert batch.payloads() == [b"0", b"1", b"2"] and batch.join() == b"012"
    assert [message.attempt for message in batch] == [1, 1, 1]
    assert batch[0].ack() and not batch[0].ack()
    batch[-1].nack(delay=0)
    second = batch[1]
    del batch
    thread = threading.Thread(target=second.ack)
    thread.start()
    thread.join()
    rest = everything.get_many(10)
    assert [(bytes(message), message.attempt) for message in rest] == [(b"2", 2), (b"3", 1)]
    assert all(message.ack() for message in rest)
    assert figures(broker)["unsettled"] == 0


def test_a_copy_knows_its_attempt_and_its_ack_id_and_settles_nothing(broker: Broker) -> None:
    everything = broker.subscribe("a", delivery=AGAIN)
    broker.publish("a", b"x")
    taken(everything).nack(0)
    message = taken(everything)
    copied: Message = pickle.loads(pickle.dumps(message))
    assert (copied.attempt, copied.ack_id) == (2, message.ack_id)
    assert copied.ack_id is not None
    for settle in (copied.ack, copied.nack, copied.dead_letter, lambda: copied.extend(1)):
        with pytest.raises(slipring.NotLeased):
            settle()
    assert copy.copy(copied).ack_id == message.ack_id
    assert everything.acker().ack(copied.ack_id) is True


def test_seeking_delivers_anew_what_was_settled_and_makes_old_ids_stale(broker: Broker) -> None:
    everything = broker.subscribe("a", delivery=AGAIN)
    fileno = everything.fileno()
    broker.publish_many("a", [b"0", b"1", b"2"])
    acker = everything.acker()
    old = taken(everything)
    assert taken(everything).ack()
    everything.seek(slipring.Start.EARLIEST)
    assert everything.fileno() == fileno
    assert [take(everything) for _ in range(4)] == [(b"0", 1), (b"1", 1), (b"2", 1), None]
    assert old.ack() is False
    assert old.ack_id is not None
    assert acker.ack(old.ack_id) is False and everything.acker().ack(old.ack_id) is False
    with pytest.raises(slipring.Stale):
        everything.acker().nack(old.ack_id)
    everything.seek(slipring.Offset(2))
    assert take(everything) == (b"2", 1)
    everything.seek(slipring.Last(2))
    assert take(everything) == (b"1", 1)
    everything.seek(slipring.Start.NOW)
    assert take(everything) is None
    broker.publish("a", b"3")
    assert take(everything) == (b"3", 1)
    anywhere: Any = 7
    with pytest.raises(TypeError, match="start is"):
        everything.seek(anywhere)
    everything.close()
    with pytest.raises(slipring.SeekError):
        everything.seek(slipring.Start.EARLIEST)


def test_what_a_filter_function_does_not_want_is_settled(broker: Broker) -> None:
    def even(message: Message) -> bool:
        return int(bytes(message)) % 2 == 0

    handled: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    pulled = broker.subscribe("a", delivery=AGAIN, filter=even)
    batches = broker.subscribe("a", delivery=AGAIN, filter=even)
    broker.subscribe(
        "a", delivery=AGAIN, filter=even, handler=lambda message: handled.put(bytes(message))
    )
    broker.publish_many("a", [b"%d" % n for n in range(10)])
    wanted = [b"0", b"2", b"4", b"6", b"8"]
    for expected in wanted:
        message = pulled.get()
        assert bytes(message) == expected and message.ack()
    messages = batches.get_many(100)
    assert messages.payloads() == wanted and all(message.ack() for message in messages)
    assert [handled.get(timeout=PATIENCE) for _ in wanted] == wanted
    assert pulled.get_nowait() is None
    until(lambda: all(known["unsettled"] == 0 for known in broker.metrics()["subscriptions"]))


def test_a_message_can_be_settled_when_its_subscription_or_its_broker_is_gone() -> None:
    broker = slipring.open()
    alive = weakref.ref(broker)
    everything = broker.subscribe("a", delivery=AGAIN)
    broker.publish_many("a", [b"x", b"y"])
    message, other = taken(everything), taken(everything)
    acker = everything.acker()
    everything.close()
    with pytest.raises(slipring.Closed):
        everything.acker()
    assert message.ack() is False
    with pytest.raises(slipring.Stale, match="ended"):
        message.nack()
    del broker, everything, acker
    gc.collect()
    assert alive() is None
    assert (bytes(other), other.ack()) == (b"y", False)


def test_a_handler_may_settle_messages_of_others_and_close_the_broker(broker: Broker) -> None:
    everything = broker.subscribe("a", delivery=AGAIN)
    broker.publish_many("a", [b"1", b"2"])
    first, second = taken(everything), taken(everything)
    done: list[object] = []
    called = threading.Event()

    @broker.on("b", delivery=AGAIN)
    def settle(message: Message) -> None:
        done.append(first.ack())
        second.nack(0)
        done.append(take(everything))
        done.append(broker.close(deadline=0).handler_running)
        called.set()

    broker.publish("b", b"")
    assert called.wait(PATIENCE)
    assert done[:2] == [True, (b"2", 2)]


def test_the_default_mode_is_that_of_the_core(broker: Broker) -> None:
    unsaid = broker.subscribe("a", name="unsaid")
    once = broker.subscribe("a", name="once", delivery=ONCE)
    again = broker.subscribe("a", name="again", delivery=AGAIN)
    modes = {name: broker.describe_subscription(name)["delivery"] for name in broker.subscriptions()}
    assert modes["once"] is ONCE and modes["again"] is AGAIN
    broker.publish("a", b"x")
    leased = [taken(subscription).ack_id is not None for subscription in (once, again, unsaid)]
    assert leased == [False, True, modes["unsaid"] is AGAIN]
