"""Dead letters: what goes there, with what, and how it comes back."""

from __future__ import annotations

import pickle
import select
import threading

import pytest

import slipring
from slipring import Broker, DeliveryMode, Message, Overflow, Subscription, TestClock

ONCE, AGAIN = DeliveryMode.AT_MOST_ONCE, DeliveryMode.AT_LEAST_ONCE
PATIENCE = 60.0


def taken(subscription: Subscription) -> Message:
    message = subscription.get_nowait()
    assert message is not None
    return message


def received(subscription: Subscription) -> bytes:
    """All that is there, acknowledged."""
    payloads = b""
    while (message := subscription.get_nowait()) is not None:
        assert slipring.DEAD_LETTER_REASON not in message.attributes
        payloads += bytes(message)
        assert message.ack()
    return payloads


def test_after_its_last_attempt_a_message_is_a_dead_letter_that_says_where_it_is_from(
    timed: Broker, clock: TestClock
) -> None:
    everything = timed.subscribe(
        "orders/*",
        delivery=AGAIN,
        name="billing",
        max_delivery_attempts=3,
        visibility_timeout=0.1,
    )
    topic = timed.create_topic("orders/in", 2)
    receipt = topic.publish(b"poison", key="k", id="own", region="IN")
    for attempt in (1, 2, 3):
        assert taken(everything).attempt == attempt
        clock.advance(0.1)
    assert everything.get_nowait() is None, "there is no fourth attempt"
    letters = timed.dead_letters("$dlq/billing")
    assert letters.topic == "$dlq/billing" and "$dlq/billing" in repr(letters)
    (letter,) = letters.list()
    assert (bytes(letter), letter.key, letter.id) == (b"poison", "k", "own")
    assert letter.attributes == {
        "region": "IN",
        slipring.DEAD_LETTER_SUBSCRIPTION: "billing",
        slipring.DEAD_LETTER_TOPIC: "orders/in",
        slipring.DEAD_LETTER_PARTITION: str(receipt.partition),
        slipring.DEAD_LETTER_OFFSET: str(receipt.offset),
        slipring.DEAD_LETTER_ATTEMPTS: "3",
        slipring.DEAD_LETTER_REASON: "not acknowledged in 3 attempts",
    }
    (known,) = timed.metrics()["subscriptions"]
    assert (known["dead_lettered"], known["unsettled"]) == (1, 0)


def test_giving_back_at_the_last_attempt_and_giving_up_make_dead_letters_at_once(
    broker: Broker,
) -> None:
    everything = broker.subscribe("a", delivery=AGAIN, max_delivery_attempts=1)
    broker.publish_many("a", [b"back", b"up", b"without words"])
    taken(everything).nack()
    message = taken(everything)
    message.dead_letter(reason="no good")
    assert message.ack() is False
    with pytest.raises(slipring.Stale):
        message.dead_letter("again")
    taken(everything).dead_letter()
    letters = broker.dead_letters(f"$dlq/unnamed-{everything.id}").list()
    reasons = [letter.attributes[slipring.DEAD_LETTER_REASON] for letter in letters]
    assert reasons == ["given back at the last attempt", "no good", ""]


def test_letters_are_sent_back_one_by_one_by_filter_or_all_and_thrown_away(
    broker: Broker,
) -> None:
    everything = broker.subscribe("a", delivery=AGAIN, name="s")
    for number, kind in enumerate("xyxyx"):
        broker.publish("a", b"%d" % number, kind=kind)
        taken(everything).dead_letter("no")
    letters = broker.dead_letters("$dlq/s")
    assert letters.count() == 5
    first, second = letters.list(2)
    peeked = letters.peek(first.partition, first.offset)
    assert peeked is not None and bytes(peeked) == b"0"
    assert letters.redrive(first) is True
    assert letters.redrive(first) is False, "it is back already"
    assert letters.peek(first.partition, first.offset) is None
    assert received(everything) == b"0"
    y = 'attributes.kind = "y"'
    assert [bytes(letter) for letter in letters.list(filter=y)] == [b"1", b"3"]
    assert [bytes(letter) for letter in letters.list(1, filter=y)] == [b"1"]
    assert letters.redrive_all(filter=y) == 2
    assert received(everything) == b"13"
    assert letters.redrive_all() == 2
    assert received(everything) == b"24"
    assert (letters.count(), letters.purge()) == (0, 0)
    broker.publish("a", b"z")
    taken(everything).dead_letter("no")
    assert (letters.purge(), letters.count()) == (1, 0)
    assert received(everything) == b""
    for refused in (letters.list, letters.redrive_all):
        with pytest.raises(slipring.InvalidFilter) as error:
            refused(filter="attributes.kind ?")
        assert error.value.position == 16


def test_a_copy_of_a_letter_tells_which_to_send_back(broker: Broker) -> None:
    everything = broker.subscribe("a", delivery=AGAIN, name="s")
    broker.publish("a", b"x")
    message = taken(everything)
    message.dead_letter("no")
    letters = broker.dead_letters("$dlq/s")
    assert letters.redrive(message) is False, "it is no letter"
    copied: Message = pickle.loads(pickle.dumps(letters.list()[0]))
    assert letters.redrive(copied) is True
    assert letters.redrive(copied) is False
    assert received(everything) == b"x"
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(letters)


def test_letters_are_messages_of_a_topic_and_a_handler_may_send_them_back(broker: Broker) -> None:
    everything = broker.subscribe("a", delivery=AGAIN, dead_letter_topic="graves/a")
    letters = broker.dead_letters("graves/a")
    sent: list[bool] = []
    broker.subscribe(
        "graves/*", delivery=AGAIN, handler=lambda letter: sent.append(letters.redrive(letter))
    )
    broker.publish("a", b"x", team="IN")
    taken(everything).dead_letter("once")
    back = everything.get(timeout=PATIENCE)
    assert (bytes(back), back.attempt) == (b"x", 1)
    assert back.attributes == {"team": "IN"}
    assert back.ack()
    broker.close(deadline=PATIENCE)
    assert sent == [True]


def test_users_cannot_make_topics_of_the_system(broker: Broker) -> None:
    with pytest.raises(slipring.InvalidName) as error:
        broker.publish("$dlq/mine", b"")
    assert error.value.reason is slipring.NameRule.RESERVED
    assert broker.dead_letters("$dlq/none").list() == []
    assert broker.dead_letters("no//name").count() == 0


def test_a_letter_that_cannot_be_stored_leaves_its_message_unsettled(
    timed: Broker, clock: TestClock
) -> None:
    everything = timed.subscribe(
        "a",
        delivery=AGAIN,
        dead_letter_topic="graves",
        max_delivery_attempts=1,
        visibility_timeout=0.1,
    )
    timed.publish("a", b"x")
    message = taken(everything)
    timed.close(deadline=0)
    with pytest.raises(slipring.DeadLetterNotStored, match="closed") as error:
        message.dead_letter("late")
    assert isinstance(error.value.__cause__, slipring.Closed)
    assert isinstance(error.value, slipring.AckError)
    (known,) = timed.metrics()["subscriptions"]
    assert known["unsettled"] == 1


def test_a_letter_whose_topic_is_gone_stays_in_the_list(broker: Broker) -> None:
    everything = broker.subscribe("a", delivery=AGAIN, name="s")
    broker.publish("a", b"x")
    taken(everything).dead_letter("no")
    broker.delete_topic("a")
    letters = broker.dead_letters("$dlq/s")
    for redrive in (lambda: letters.redrive(letters.list()[0]), letters.redrive_all):
        with pytest.raises(slipring.UnknownTopic):
            redrive()
    assert letters.count() == 1
    broker.close()
    assert letters.count() == 1, "what is in memory can still be read"


@pytest.mark.parametrize("how", ["dead_letter", "nack", "by id", "receiving"])
def test_other_threads_run_while_a_letter_waits_for_room(
    timed: Broker, clock: TestClock, how: str
) -> None:
    blocks = timed.subscribe("$dlq/*", delivery=ONCE, capacity=1, overflow=Overflow.BLOCK)
    everything = timed.subscribe("a", delivery=AGAIN, max_delivery_attempts=1)
    timed.publish_many("a", [b"first", b"second"])
    taken(everything).dead_letter()
    message = taken(everything)
    outcome: list[object] = []

    def wait() -> None:
        try:
            match how:
                case "dead_letter":
                    message.dead_letter()
                case "nack":
                    message.nack()
                case "by id":
                    assert message.ack_id is not None
                    everything.acker().dead_letter(message.ack_id)
                case "receiving":
                    clock.advance(3600)
                    outcome.append(everything.get_nowait())
        except slipring.Error as error:
            outcome.append(error)

    waiter = threading.Thread(target=wait)
    waiter.start()
    # It waits for some time to pass, and time is moved by this thread: only if that can run.
    while waiter.is_alive():
        clock.advance(0.001)
        waiter.join(0.0001)
    if how == "receiving":
        assert outcome == [None]
    else:
        (error,) = outcome
        assert isinstance(error, slipring.DeadLetterNotStored)
        assert isinstance(error.__cause__, slipring.Timeout)
    assert bytes(blocks.get()) == b"first"


def test_other_threads_run_while_a_handler_gives_up_on_what_its_predecessor_had(
    timed: Broker, clock: TestClock
) -> None:
    blocks = timed.subscribe("$dlq/*", delivery=ONCE, capacity=1, overflow=Overflow.BLOCK)
    everything = timed.subscribe("a", name="s", delivery=AGAIN, max_delivery_attempts=1)
    timed.publish_many("a", [b"first", b"second"])
    taken(everything).dead_letter()
    taken(everything)
    everything.close()
    clock.advance(3600)
    timed.subscribe("a", name="s", delivery=AGAIN, handler=print)
    # The worker waits for some time to pass, and time is moved by this thread: only if that can run.
    for _ in range(10_000):
        clock.advance(0.001)
        select.select([], [], [], 0)  # others run meanwhile
    clock.advance(3600)
    assert [bytes(blocks.get()) for _ in range(2)] == [b"first", b"second"]


def test_sending_back_waits_for_room_and_lets_other_threads_run(broker: Broker) -> None:
    everything = broker.subscribe("a", delivery=AGAIN, name="s")
    broker.publish_many("a", [b"1", b"2"])
    for _ in range(2):
        taken(everything).dead_letter()
    blocks = broker.subscribe("a", delivery=ONCE, capacity=1, overflow=Overflow.BLOCK)
    sent: list[int] = []
    sender = threading.Thread(
        target=lambda: sent.append(broker.dead_letters("$dlq/s").redrive_all())
    )
    sender.start()
    # Only if this thread runs can it make room.
    assert [bytes(blocks.get()) for _ in range(2)] == [b"1", b"2"]
    sender.join()
    assert sent == [2]
