//! A dedup window on the simulated disk: what was published again after a crash is stored once.
#![expect(clippy::unwrap_used, reason = "a test")]

use fastrand::Rng;
use slipring::store::{DiskStore, OnDamage, SyncPolicy};
use slipring::{Broker, DeliveryMode, NewMessage, Receipt, Start, TestClock, TopicConfig};
use slipring_sim::{Fault, Planned, SimFs, SimOptions, Until};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const WINDOW: Duration = Duration::from_secs(60);
const IDS: u32 = 40;

fn open(fs: &SimFs, clock: &TestClock, sync: SyncPolicy, boot: u128) -> Broker {
    let disk = DiskStore::builder().sync(sync).preallocate_bytes(0).reserve_bytes(0);
    let disk = disk.on_damage(OnDamage::Refuse);
    let builder = Broker::builder().shards(2).clock(clock).disk(disk);
    builder.open_on(Arc::new(fs.clone()), boot).unwrap()
}

/// How often each id is stored.
fn stored(broker: &Broker) -> BTreeMap<String, Vec<(u32, u64)>> {
    let all = broker.subscription("t").start(Start::Earliest).delivery(DeliveryMode::AtMostOnce);
    let mut all = all.open().unwrap();
    let mut places = BTreeMap::<_, Vec<_>>::new();
    while let Ok(message) = all.try_recv() {
        let id = message.id().own().unwrap().to_owned();
        places.entry(id).or_default().push((message.partition(), message.offset()));
    }
    places
}

/// Publishes all ids until that fails; the receipts.
fn publish(broker: &Broker, rng: &mut Rng) -> BTreeMap<String, Receipt> {
    let mut receipts = BTreeMap::new();
    for id in 0..IDS {
        let (id, key) = (id.to_string(), rng.u8(..).to_string());
        match broker.publish("t", NewMessage::new(&[7; 300]).id(&id).key(&key)) {
            Ok(receipt) => receipts.insert(id, receipt),
            Err(_) => break,
        };
        if rng.u8(..16) == 0 && broker.flush().is_err() {
            break;
        }
    }
    receipts
}

fn holds(seed: u64, sync: SyncPolicy, fault: Fault) {
    let mut rng = Rng::with_seed(seed);
    let clock = TestClock::new();
    let mut fs = SimFs::new(seed, SimOptions { can_ruin: false, ..SimOptions::default() });
    let broker = open(&fs, &clock, sync, 1);
    let config = TopicConfig::default().partitions(3).dedup_window(Some(WINDOW));
    broker.create_topic_with("t", config).unwrap();
    drop(broker);
    fs = fs.restart();
    let mut known = BTreeMap::<String, Receipt>::new();
    for boot in 2..5 {
        let broker = open(&fs, &clock, sync, boot);
        let before = stored(&broker);
        let at = fs.calls() + rng.u64(1..60);
        fs.plan(vec![Planned { at, fault, until: Until::Restart }]);
        for (id, receipt) in publish(&broker, &mut rng) {
            assert_eq!(receipt.duplicate, before.contains_key(&id), "seed {seed}: {id}");
            if receipt.duplicate {
                assert!(before[&id].contains(&(receipt.partition, receipt.offset)));
            }
            if receipt.durable {
                known.insert(id, receipt);
            }
        }
        fs.power_cut();
        drop(broker);
        fs = fs.restart();
        clock.advance(Duration::from_secs(1));
    }

    let broker = open(&fs, &clock, sync, 100);
    let again = publish(&broker, &mut rng);
    assert_eq!(again.len(), IDS as usize);
    for (id, receipt) in &known {
        let again = again[id];
        let place = (again.partition, again.offset);
        assert!(
            again.duplicate && place == (receipt.partition, receipt.offset),
            "seed {seed}: {id}"
        );
    }
    for (id, places) in stored(&broker) {
        assert_eq!(places.len(), 1, "seed {seed}: {id} is stored at {places:?}");
    }
    clock.advance(WINDOW);
    assert!(publish(&broker, &mut rng).values().all(|receipt| !receipt.duplicate));
}

#[test]
fn what_is_published_again_after_a_power_cut_is_stored_once() {
    for seed in 0..16 {
        holds(seed, SyncPolicy::Always, Fault::PowerCut);
        holds(seed, SyncPolicy::Os, Fault::PowerCut);
    }
}

#[test]
fn and_so_it_is_when_the_disk_fails_first() {
    for seed in 0..16 {
        let fault = [Fault::Io, Fault::NoSpace, Fault::Short][seed as usize % 3];
        holds(seed, SyncPolicy::Always, fault);
    }
}
