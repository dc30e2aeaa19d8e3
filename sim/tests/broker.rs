//! A whole broker on the simulated disk: what its users were told, and what they saw, holds.
#![expect(clippy::unwrap_used, reason = "a test")]

use fastrand::Rng;
use slipring::store::{DiskStore, SyncPolicy};
use slipring::{Broker, DeliveryMode, Start, Subscription, TryRecvError};
use slipring_sim::{Fault, Planned, SimFs, SimOptions, Until};
use std::collections::BTreeMap;
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
