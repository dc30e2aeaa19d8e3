//! The contract of dead letters: what goes there, with what, and how it comes back.

mod watchdog;

use slipring::{
    AckError, Backoff, Broker, DEAD_LETTER_ATTEMPTS, DEAD_LETTER_OFFSET, DEAD_LETTER_PARTITION,
    DEAD_LETTER_REASON, DEAD_LETTER_SUBSCRIPTION, DEAD_LETTER_TOPIC, DeliveryMode, Filter, Handled,
    NewMessage, Overflow, PublishError, Start, SubscribeError, Subscription, SubscriptionBuilder,
    TestClock, TryRecvError,
};
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);

fn settled_later<'a>(broker: &Broker, pattern: &'a str) -> SubscriptionBuilder<'a> {
    broker.subscription(pattern)
}

fn with_clock() -> (TestClock, Broker) {
    let clock = TestClock::new();
    let broker = Broker::builder().clock(&clock).build().expect("valid settings");
    (clock, broker)
}

fn is_empty(subscription: &mut Subscription) -> bool {
    matches!(subscription.try_recv(), Err(TryRecvError::Empty))
}

#[test]
fn after_its_last_attempt_a_message_is_a_dead_letter_that_says_where_it_is_from() {
    let (clock, broker) = with_clock();
    let mut all = settled_later(&broker, "orders/*")
        .name("billing")
        .max_delivery_attempts(3)
        .visibility_timeout(100 * MS)
        .open()
        .unwrap();
    let topic = broker.create_topic("orders/in", 2).unwrap();
    let message = NewMessage::new(b"poison").key("k").id("own").attributes(&[("region", "IN")]);
    let receipt = topic.publish(message).unwrap();
    for attempt in 1..=3 {
        assert_eq!(all.try_recv().unwrap().attempt(), attempt);
        clock.advance(100 * MS);
    }
    assert!(is_empty(&mut all), "there is no fourth attempt");
    let letters = broker.dead_letters("$dlq/billing").list(9);
    assert_eq!(letters.len(), 1);
    let letter = letters[0].view();
    assert_eq!((letter.payload(), letter.key()), (&b"poison"[..], Some("k")));
    assert_eq!(letter.id().own(), Some("own"));
    let place = (receipt.partition.to_string(), receipt.offset.to_string());
    for (attribute, expected) in [
        ("region", "IN"),
        (DEAD_LETTER_SUBSCRIPTION, "billing"),
        (DEAD_LETTER_TOPIC, "orders/in"),
        (DEAD_LETTER_PARTITION, place.0.as_str()),
        (DEAD_LETTER_OFFSET, place.1.as_str()),
        (DEAD_LETTER_ATTEMPTS, "3"),
        (DEAD_LETTER_REASON, "not acknowledged in 3 attempts"),
    ] {
        assert_eq!(letter.attribute(attribute), Some(expected), "{attribute}");
    }
    let metrics = &broker.metrics().subscriptions[0];
    assert_eq!((metrics.dead_lettered, metrics.unsettled), (1, 0));
}

#[test]
fn giving_back_at_the_last_attempt_and_giving_up_make_dead_letters_at_once() {
    let (_clock, broker) = with_clock();
    let mut all = settled_later(&broker, "a").max_delivery_attempts(1).open().unwrap();
    let name = format!("$dlq/unnamed-{}", all.id());
    broker.publish("a", "back").unwrap();
    broker.publish("a", "up").unwrap();
    all.try_recv().unwrap().nack(None).unwrap();
    let message = all.try_recv().unwrap();
    message.dead_letter("no good").unwrap();
    assert_eq!(message.ack(), Ok(false));
    assert_eq!(message.dead_letter("again"), Err(AckError::Stale));
    let letters = broker.dead_letters(&name).list(9);
    let reasons: Vec<_> =
        letters.iter().map(|letter| letter.view().attribute(DEAD_LETTER_REASON).unwrap()).collect();
    assert_eq!(reasons, ["given back at the last attempt", "no good"]);
}

#[test]
fn what_an_unnamed_subscription_is_called_stays_when_it_seeks() {
    let broker = Broker::in_memory();
    let mut all = settled_later(&broker, "a").open().unwrap();
    let number = all.id();
    broker.publish("a", "x").unwrap();
    all.seek(Start::Earliest).unwrap();
    assert_eq!(all.id(), number);
    assert_eq!(broker.metrics().subscriptions[0].id, number);
    all.try_recv().unwrap().dead_letter("no good").unwrap();
    let letters = broker.dead_letters(&format!("$dlq/unnamed-{number}")).list(9);
    let named = letters[0].view().attribute(DEAD_LETTER_SUBSCRIPTION).map(str::to_owned);
    assert_eq!(named, Some(format!("unnamed-{number}")));
}

#[test]
fn a_message_with_all_the_attributes_it_may_have_keeps_them() {
    let broker = Broker::in_memory();
    let mut all = settled_later(&broker, "a").dead_letter_topic("graves").open().unwrap();
    let keys: Vec<_> = (0..100).map(|number| format!("key-{number}")).collect();
    let attributes: Vec<_> = keys.iter().map(|key| (key.as_str(), "value")).collect();
    broker.publish("a", NewMessage::new(b"x").attributes(&attributes)).unwrap();
    all.recv().unwrap().dead_letter("full").unwrap();
    let letters = broker.dead_letters("graves").list(9);
    assert_eq!(letters[0].view().attributes().count(), 106);
    assert!(broker.dead_letters("graves").redrive(&letters[0].view()).unwrap());
    let back = all.recv().unwrap();
    assert_eq!(back.attributes().collect::<Vec<_>>(), attributes, "as it was");
    let too_many = [attributes, vec![("one more", "")]].concat();
    let refused = broker.publish("a", NewMessage::new(b"x").attributes(&too_many));
    assert!(matches!(refused, Err(PublishError::InvalidMessage(_))), "{refused:?}");
}

#[test]
fn handlers_give_up_by_result_or_after_their_attempts_and_delay_nobody() {
    let watchdog = watchdog::watch(60);
    let (clock, broker) = with_clock();
    let handler = settled_later(&broker, "a")
        .name("h")
        .backoff(Backoff::new(100 * MS, 100 * MS))
        .max_delivery_attempts(2)
        .handler(|message| match message.payload() {
            b"up" => Handled::dead_letter("never"),
            b"bad" => panic!("always"),
            _ => Handled::Success,
        })
        .unwrap();
    for payload in ["bad", "up", "good"] {
        broker.publish("a", payload).unwrap();
    }
    // `good` is the last one: by then `up` is buried and `bad` waits for its second attempt.
    watchdog.until("each has been tried", || handler.metrics().unwrap().acked == 1);
    clock.advance(100 * MS);
    watchdog.until("all are settled", || handler.metrics().unwrap().unsettled == 0);
    let letters = broker.dead_letters("$dlq/h").list(9);
    let told = letters.iter().map(|letter| {
        let letter = letter.view();
        let attribute = |name| letter.attribute(name).unwrap();
        (letter.payload(), attribute(DEAD_LETTER_REASON), attribute(DEAD_LETTER_ATTEMPTS))
    });
    let expected = [(&b"up"[..], "never", "1"), (&b"bad"[..], "always", "2")];
    assert_eq!(told.collect::<Vec<_>>(), expected);
    handler.unsubscribe().unwrap();
}

#[test]
fn letters_are_sent_back_one_by_one_by_filter_or_all_and_thrown_away() {
    let broker = Broker::in_memory();
    let mut all = settled_later(&broker, "a").name("s").open().unwrap();
    for (number, kind) in ["x", "y", "x", "y", "x"].into_iter().enumerate() {
        let payload = number.to_string();
        let attributes = [("kind", kind)];
        broker.publish("a", NewMessage::new(payload.as_bytes()).attributes(&attributes)).unwrap();
        all.recv().unwrap().dead_letter("no").unwrap();
    }
    let letters = broker.dead_letters("$dlq/s");
    assert_eq!(letters.count(), 5);
    let listed = letters.list(2);
    assert_eq!(listed.len(), 2);
    let first = listed[0].view();
    let peeked = letters.peek(first.partition(), first.offset()).unwrap();
    assert_eq!(peeked.payload(), b"0");
    let received = |all: &mut Subscription| {
        let mut received = Vec::new();
        while let Ok(message) = all.try_recv() {
            assert_eq!(message.attribute(DEAD_LETTER_REASON), None);
            received.push(message.payload()[0] as char);
            message.ack().unwrap();
        }
        received.into_iter().collect::<String>()
    };
    assert_eq!(letters.redrive(&first), Ok(true));
    assert_eq!(letters.redrive(&first), Ok(false), "it is back already");
    assert!(letters.peek(first.partition(), first.offset()).is_none());
    assert_eq!(received(&mut all), "0");
    let y = Filter::parse(r#"attributes.kind = "y""#).unwrap();
    assert_eq!(letters.list_by(&y, 9).len(), 2);
    assert_eq!(letters.redrive_by(&y), Ok(2));
    assert_eq!(received(&mut all), "13");
    assert_eq!(letters.redrive_all(), Ok(2));
    assert_eq!(received(&mut all), "24");
    assert_eq!((letters.count(), letters.purge()), (0, Ok(0)));
    broker.publish("a", "z").unwrap();
    all.recv().unwrap().dead_letter("no").unwrap();
    assert_eq!((letters.purge(), letters.count()), (Ok(1), 0));
    assert_eq!(received(&mut all), "");
}

#[test]
fn a_letter_that_cannot_be_stored_leaves_its_message_unsettled() {
    let (clock, broker) = with_clock();
    let mut all = settled_later(&broker, "a")
        .dead_letter_topic("graves")
        .max_delivery_attempts(1)
        .visibility_timeout(100 * MS)
        .open()
        .unwrap();
    broker.publish("a", "x").unwrap();
    let message = all.try_recv().unwrap().keep();
    broker.close(Duration::ZERO);
    let refused = message.view().dead_letter("late");
    assert_eq!(refused, Err(AckError::DeadLetter(PublishError::Closed)));
    assert_eq!(broker.metrics().subscriptions[0].unsettled, 1);
    clock.advance(100 * MS);
    assert!(all.try_recv().is_err(), "there is no attempt left, and still no room for it");
    assert_eq!(broker.metrics().subscriptions[0].unsettled, 1);
}

/// Goal: an event loop that receives is not held up by subscribers to dead letters.
#[test]
fn receiving_does_not_wait_for_room_for_a_dead_letter_which_is_stored_when_there_is_some() {
    let _watchdog = watchdog::watch(60);
    // Time stands still here, so whoever waited would wait for ever.
    let (clock, broker) = with_clock();
    let mut letters = broker
        .subscription("$dlq/*")
        .delivery(DeliveryMode::AtMostOnce)
        .capacity(1)
        .overflow(Overflow::Block { timeout: None })
        .open()
        .unwrap();
    let mut all = settled_later(&broker, "a")
        .max_delivery_attempts(1)
        .visibility_timeout(1000 * MS)
        .backoff(Backoff::new(100 * MS, 100 * MS))
        .open()
        .unwrap();
    for payload in ["first", "second", "third"] {
        broker.publish("a", payload).unwrap();
    }
    all.try_recv().unwrap().dead_letter("no").unwrap();
    assert_eq!(all.try_recv().unwrap().payload(), b"second");
    clock.advance(1000 * MS);
    let third = all.try_recv().unwrap();
    assert_eq!(third.payload(), b"third", "the second had its only attempt");
    third.ack().unwrap();
    assert!(is_empty(&mut all));
    clock.advance(100 * MS);
    assert!(is_empty(&mut all), "tried in vain again");
    assert_eq!(letters.try_recv().unwrap().payload(), b"first");
    assert!(is_empty(&mut all) && is_empty(&mut letters), "not before its time");
    clock.advance(100 * MS);
    assert!(is_empty(&mut all));
    let letter = letters.try_recv().unwrap();
    assert_eq!(letter.payload(), b"second");
    assert_eq!(letter.attribute(DEAD_LETTER_ATTEMPTS), Some("1"));
    let figures = &broker.metrics().subscriptions[1];
    assert_eq!((figures.unsettled, figures.redelivered, figures.dead_lettered), (0, 0, 2));
}

#[test]
fn a_topic_for_dead_letters_has_a_valid_name() {
    let broker = Broker::in_memory();
    let refused = settled_later(&broker, "a").dead_letter_topic("a//b").open().unwrap_err();
    assert!(matches!(refused, SubscribeError::InvalidDeadLetterTopic(_)), "{refused}");
    let mut letters = settled_later(&broker, "$dlq/*").open().unwrap();
    let mut all = settled_later(&broker, "a").open().unwrap();
    broker.publish("a", "x").unwrap();
    all.recv().unwrap().dead_letter("no").unwrap();
    assert_eq!(letters.recv().unwrap().attribute(DEAD_LETTER_TOPIC), Some("a"));
    assert!(broker.publish("$dlq/mine", "x").is_err(), "users cannot make such topics");
}
