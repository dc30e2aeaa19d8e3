//! The deduplicator knows the last messages again, and no more than it was made for.

use slipring::{Broker, Deduplicator, NewMessage};

#[test]
fn it_knows_the_last_ones_again_and_forgets_the_oldest() {
    let broker = Broker::in_memory();
    let mut all = broker.subscribe("a").unwrap();
    let mut seen = Deduplicator::new(2);
    let mut is_new = |seen: &mut Deduplicator, id| {
        broker.publish("a", NewMessage::new(b"").id(id)).unwrap();
        seen.is_new(&all.recv().unwrap())
    };
    assert!(is_new(&mut seen, "1") && is_new(&mut seen, "2"));
    assert!(!is_new(&mut seen, "1") && !is_new(&mut seen, "2"));
    assert!(is_new(&mut seen, "3"), "and so 1 is forgotten");
    assert_eq!(seen.len(), 2);
    assert!(!is_new(&mut seen, "2"));
    assert!(is_new(&mut seen, "1"));
}

#[test]
fn what_is_forgotten_is_new_again_and_derived_ids_differ() {
    let broker = Broker::in_memory();
    let mut all = broker.subscribe("*").unwrap();
    let mut seen = Deduplicator::new(100);
    for topic in ["a", "b", "a"] {
        broker.publish(topic, "same payload").unwrap();
        let message = all.recv().unwrap();
        assert!(seen.is_new(&message));
        assert!(!seen.is_new(&message));
        seen.forget(&message);
        assert!(seen.is_new(&message));
    }
    assert_eq!(seen.len(), 3);
}
