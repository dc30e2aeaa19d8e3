//! A whole broker on the simulated disk: what its users were told, and what they saw, holds.
#![expect(clippy::unwrap_used, reason = "a test")]

use fastrand::Rng;
use slipring::internals::{Fs, OpenHow};
use slipring::store::{DiskStore, SyncPolicy};
use slipring::{Broker, DeliveryMode, PublishError, RecvError, Start, Subscription, TryRecvError};
use slipring_sim::{Fault, Planned, SimFs, SimOptions, Until};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

const NAME: &str = "s";

fn open(fs: &SimFs, sync: SyncPolicy, boot: u128) -> Broker {
    let disk = DiskStore::builder().sync(sync).preallocate_bytes(0).reserve_bytes(0);
    Broker::builder().disk(disk).open_on(Arc::new(fs.clone()), boot).unwrap()
}

fn subscribe(broker: &Broker) -> Subscription {
    let mode = DeliveryMode::AtLeastOnce;
    broker.subscription("t").name(NAME).delivery(mode).open().unwrap()
}

/// Payloads by offset.
type Messages = BTreeMap<u64, Vec<u8>>;

fn drain(subscription: &mut Subscription, acks: bool) -> Messages {
    let mut seen = Messages::new();
    loop {
        match subscription.try_recv() {
            Ok(message) => {
                seen.insert(message.offset(), message.payload().to_vec());
                if acks {
                    message.ack().unwrap();
                }
            }
            Err(TryRecvError::Empty) => return seen,
            // Nothing expires here.
            Err(TryRecvError::Recv(RecvError::Lagged(lost))) => {
                panic!("{lost} are said to be lost")
            }
            // The disk is down.
            Err(TryRecvError::Recv(_)) => return seen,
            Err(error) => panic!("{error}"),
        }
    }
}

/// All that is stored.
fn stored(broker: &Broker) -> Messages {
    let mut all = broker.subscription("t").start(Start::Earliest);
    all = all.delivery(DeliveryMode::AtMostOnce);
    drain(&mut all.open().unwrap(), false)
}

/// One life of a machine, until `fault` ends it; what was seen, acknowledged by the broker to be
/// stored, and settled before the last flush.
fn live(fs: &SimFs, sync: SyncPolicy, boot: u128, rng: &mut Rng, fault: Fault) -> [Messages; 3] {
    let broker = open(fs, sync, boot);
    let mut consumer = subscribe(&broker);
    let [mut seen, mut durable, mut settled] = [const { Messages::new() }; 3];
    let at = fs.calls() + rng.u64(1..120);
    fs.plan(vec![Planned { at, fault, until: Until::Restart }]);
    for round in 0..200_u64 {
        let payload = (boot as u64 * 1000 + round).to_le_bytes();
        let published = broker.publish("t", &payload);
        let now = drain(&mut consumer, true);
        seen.extend(now.clone());
        match published {
            Ok(receipt) if receipt.durable => _ = durable.insert(receipt.offset, payload.to_vec()),
            Ok(_) => {}
            Err(_) => break,
        }
        if round % 8 == 7 && broker.flush().is_ok() {
            settled = seen.clone();
            durable = seen.clone();
        }
    }
    fs.power_cut();
    [seen, durable, settled]
}

fn holds(seed: u64, sync: SyncPolicy, fault: Fault) {
    let mut rng = Rng::with_seed(seed);
    let mut fs = SimFs::new(seed, SimOptions { can_ruin: false, ..SimOptions::default() });
    drop(subscribe(&open(&fs, sync, 1)));
    fs = fs.restart();
    let (mut all_seen, mut all_durable, mut all_settled) =
        (Messages::new(), Messages::new(), Messages::new());
    for boot in 2..5 {
        let [seen, durable, settled] = live(&fs, sync, boot, &mut rng, fault);
        for (offset, payload) in &seen {
            if let Some(before) = all_seen.insert(*offset, payload.clone()) {
                assert_eq!(&before, payload, "seed {seed}: offset {offset} was given out again");
            }
        }
        all_durable.extend(durable);
        all_settled.extend(settled);
        fs = fs.restart();
        let broker = open(&fs, sync, boot + 100);
        let stored = stored(&broker);
        for (offset, payload) in &all_durable {
            assert_eq!(stored.get(offset), Some(payload), "seed {seed}: {offset} is lost");
        }
        let again = drain(&mut subscribe(&broker), false);
        for (offset, payload) in &again {
            assert!(!all_settled.contains_key(offset), "seed {seed}: {offset} was settled");
            assert_eq!(stored.get(offset), Some(payload), "seed {seed}: {offset} is no message");
        }
        for offset in stored.keys().filter(|offset| !all_settled.contains_key(offset)) {
            // Perhaps it was settled after the last flush.
            let was_seen = all_seen.contains_key(offset);
            assert!(was_seen || again.contains_key(offset), "seed {seed}: {offset} never comes");
        }
        drop(broker);
        fs = fs.restart();
    }
}

#[test]
fn nothing_is_lost_nor_seen_twice_under_one_offset_whenever_the_power_is_cut() {
    for seed in 0..150 {
        holds(seed, SyncPolicy::Always, Fault::PowerCut);
        holds(seed, SyncPolicy::Os, Fault::PowerCut);
    }
}

#[test]
fn nor_when_the_disk_fails_first() {
    for seed in 0..100 {
        let fault = [Fault::Io, Fault::NoSpace, Fault::Short][seed as usize % 3];
        holds(seed, SyncPolicy::Always, fault);
    }
}

fn open_with_reserve(fs: &SimFs, boot: u128) -> Broker {
    let disk = DiskStore::builder().preallocate_bytes(0).reserve_bytes(4 << 20);
    Broker::builder().disk(disk).open_on(Arc::new(fs.clone()), boot).unwrap()
}

/// A disk that others use as well, without any room left.
fn fill(fs: &SimFs) {
    if fs.contents(Path::new("other")).is_none() {
        let other = fs.open(Path::new("other"), OpenHow::CreateNew).unwrap();
        other.set_len(64 << 20).unwrap();
        other.sync_data().unwrap();
        fs.sync_dir(Path::new("")).unwrap();
    }
    fs.set_capacity(Some(fs.used()));
}

#[test]
fn a_full_disk_is_opened_read_acked_and_cleared_and_takes_messages_when_it_has_room() {
    let mut fs = SimFs::new(7, SimOptions { can_ruin: false, ..SimOptions::default() });
    let broker = open_with_reserve(&fs, 1);
    let _ = subscribe(&broker);
    for number in 0..50_u64 {
        broker.publish("t", &number.to_le_bytes()).unwrap();
        broker.create_topic(&format!("of/{number}"), 1).unwrap();
    }
    drop(broker);
    for boot in 2..12 {
        fs = fs.restart();
        fill(&fs);
        let broker = open_with_reserve(&fs, boot);
        fs.set_capacity(Some(fs.used()));
        assert_eq!(broker.publish("t", "x"), Err(PublishError::Full));
        // Less than the reserve.
        fs.set_capacity(Some(fs.used() + (1 << 20)));
        assert_eq!(broker.publish("t", "x"), Err(PublishError::Full));
        let mut consumer = subscribe(&broker);
        for _ in 0..5 {
            consumer.try_recv().unwrap().ack().unwrap();
        }
        broker.flush().unwrap();
        broker.delete_topic(&format!("of/{boot}")).unwrap();
        fs.set_capacity(None);
        broker.publish("t", "x").unwrap();
        if boot % 2 == 0 {
            fs.kill();
        }
    }
    let broker = open_with_reserve(&fs.restart(), 12);
    assert_eq!(drain(&mut subscribe(&broker), true).len(), 10, "what is new and unsettled");
}

#[test]
fn what_is_settled_is_noted_on_a_disk_that_others_have_filled() {
    let fs = SimFs::new(7, SimOptions { can_ruin: false, ..SimOptions::default() });
    let broker = open_with_reserve(&fs, 1);
    let mut consumer = subscribe(&broker);
    for number in 0..2000_u64 {
        broker.publish("t", &number.to_le_bytes()).unwrap();
    }
    fill(&fs);
    for _ in 0..4 {
        for _ in 0..500 {
            consumer.try_recv().unwrap().ack().unwrap();
        }
        broker.flush().unwrap();
        broker.create_topic(&format!("of/{}", fs.calls()), 1).unwrap();
    }
    drop((consumer, broker));
    let fs = fs.restart();
    assert_eq!(drain(&mut subscribe(&open_with_reserve(&fs, 2)), true).len(), 0);
}

#[test]
fn a_disk_smaller_than_the_reserve_takes_messages_in_most_of_it() {
    const DISK: u64 = 2 << 20;
    let options = SimOptions { can_ruin: false, capacity: Some(DISK), ..SimOptions::default() };
    let fs = SimFs::new(7, options);
    let disk = DiskStore::builder().sync(SyncPolicy::Os).segment_bytes(64 << 10);
    let broker = Broker::builder().disk(disk).open_on(Arc::new(fs.clone()), 1).unwrap();
    let payload = [7; 4 << 10];
    let mut published = 0;
    while broker.publish("t", &payload).is_ok() {
        published += payload.len() as u64;
    }
    assert!(published > DISK / 2, "{published} of {DISK}");
    // The reserve of who opens it with less is given back.
    drop(broker);
    let disk = DiskStore::builder().reserve_bytes(0);
    let broker = Broker::builder().disk(disk).open_on(Arc::new(fs.clone()), 1).unwrap();
    let mut more = 0;
    while broker.publish("t", &payload).is_ok() {
        more += payload.len() as u64;
    }
    assert!(more > DISK / 16, "{more} of {DISK}");
}
