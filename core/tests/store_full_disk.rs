//! A disk that is really full: a small tmpfs, which only root can mount.
#![expect(clippy::unwrap_used, reason = "a failed helper fails its test")]

use slipring::store::{
    DiskStore, Group, MessageStore, RecordPlace, Records, Retention, StoreError, StoredRecord,
};
use slipring::{Broker, NewMessage, PublishError, RecvError, TopicConfig, TryRecvError};
use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

struct Mounted(tempfile::TempDir);

impl Mounted {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=16m", "slipring-test"]).arg(dir.path());
        assert!(mount.status().unwrap().success(), "mounting a tmpfs needs root");
        Self(dir)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg(self.0.path()).status();
        assert!(unmounted.is_ok_and(|status| status.success()) || std::thread::panicking());
    }
}

fn append(store: &DiskStore, next: u64) -> Result<(), StoreError> {
    let place = RecordPlace { partition: 1, offset: next, sequence: next, published_us: next };
    let mut bytes = vec![];
    StoredRecord::encode(&NewMessage::new(&[7; 3000]), place, &mut bytes).unwrap();
    store.append(0, &Group { base_sequence: next, parts: &[&bytes] })?;
    store.commit(0, next + 1)
}

fn fill(store: &DiskStore, next: &mut u64) {
    loop {
        match append(store, *next) {
            Ok(()) => *next += 1,
            Err(StoreError::Full) => break,
            Err(error) => panic!("{error}"),
        }
    }
}

fn readable(store: &DiskStore) -> u64 {
    let bounds = store.bounds(0).unwrap();
    let mut records = Records::new();
    let (mut at, mut count) = (bounds.low, 0);
    while at < bounds.end {
        store.read(0, at..bounds.end, 1 << 20, &mut records).unwrap();
        count += records.len() as u64;
        at = records.next();
    }
    count
}

#[test]
#[ignore = "mounts a tmpfs: needs root; `cargo xtask full-disk` runs it"]
fn a_full_disk_is_told_and_survived_and_left_behind() {
    let mounted = Mounted::new();
    let dir = mounted.0.path().join("store");
    let open = |dir: &Path| {
        let builder = DiskStore::builder().segment_bytes(1 << 20).preallocate_bytes(256 << 10);
        builder.reserve_bytes(1 << 20).open(dir).unwrap()
    };
    let mut next = 0;
    let mut slowest = Duration::ZERO;
    for cycle in 0..20 {
        let store = open(&dir);
        assert_eq!(store.bounds(0).unwrap().end, next, "cycle {cycle}: nothing is lost");
        let other = mounted.0.path().join("other");
        // Every other time it is another program that takes the room, and gives it back.
        if cycle % 2 == 0 {
            std::fs::write(&other, vec![1; 4 << 20]).unwrap();
        }
        fill(&store, &mut next);
        assert!(matches!(append(&store, next), Err(StoreError::Full)), "it stays full");
        let bounds = store.bounds(0).unwrap();
        assert_eq!(readable(&store), bounds.end - bounds.low, "reading goes on");
        let freed = Instant::now();
        if cycle % 2 == 0 {
            std::fs::remove_file(&other).unwrap();
        } else {
            let keep = Retention { max_age_us: None, max_bytes: Some(4 << 20) };
            assert!(store.retain(0, 0, &|_| keep).unwrap().removed_bytes > 0, "retention goes on");
        }
        append(&store, next).unwrap();
        slowest = slowest.max(freed.elapsed());
        next += 1;
        if cycle % 2 == 0 {
            let keep = Retention { max_age_us: None, max_bytes: Some(2 << 20) };
            store.retain(0, 0, &|_| keep).unwrap();
        }
    }
    println!("20 cycles, {next} records, resumed after at most {slowest:?}");
    assert!(slowest < Duration::from_secs(1));
}

/// What another program writes until the disk has no byte left.
fn take_the_rest(of: &Path) -> std::path::PathBuf {
    let path = of.join("other");
    let mut file = std::fs::File::create(&path).unwrap();
    let piece = [1; 4096];
    while let Ok(1..) = file.write(&piece) {}
    path
}

#[test]
#[ignore = "mounts a tmpfs: needs root; `cargo xtask full-disk` runs it"]
fn a_broker_with_the_defaults_uses_a_small_disk_and_opens_when_that_is_full() {
    let mounted = Mounted::new();
    let dir = mounted.0.path().join("broker");
    let jobs = |broker: &Broker| broker.subscription("jobs").name("worker").open().unwrap();
    let broker = Broker::open(&dir).unwrap();
    drop(jobs(&broker));
    broker.create_topic("old", 1).unwrap();
    let mut published = 0_u64;
    let payload = [7; 3000];
    while broker.publish("jobs", &payload).is_ok() {
        published += 1;
    }
    assert!(published * 3000 > 8 << 20, "{published} messages on a disk of 16 MiB");
    assert_eq!(broker.publish("jobs", &payload), Err(PublishError::Full));
    drop(broker);

    // The reserve is held again, and then another program takes all that is left.
    for _ in 0..3 {
        let keep = TopicConfig::default().retention_bytes(Some(4 << 20));
        let small = DiskStore::builder().segment_bytes(1 << 20).preallocate_bytes(0);
        let open = || Broker::builder().disk(small.clone()).open(&dir).unwrap();
        let broker = open();
        let freed = Instant::now();
        broker.update_topic("jobs", keep).unwrap();
        while broker.publish("jobs", &payload).is_err() {
            assert!(freed.elapsed() < Duration::from_secs(60), "no room is made");
            std::thread::park_timeout(Duration::from_millis(20));
        }
        drop(broker);
        let other = take_the_rest(mounted.0.path());
        let broker = open();
        assert_eq!(broker.publish("jobs", &payload), Err(PublishError::Full));
        let mut worker = jobs(&broker);
        let mut acked = 0;
        while acked < 100 {
            match worker.try_recv() {
                Ok(message) => acked += u64::from(message.ack().unwrap()),
                // What retention took before it was delivered.
                Err(TryRecvError::Recv(RecvError::Lagged(_))) => {}
                Err(error) => panic!("{error}"),
            }
        }
        broker.flush().unwrap();
        let _ = broker.delete_topic("old");
        std::fs::remove_file(other).unwrap();
        let freed = Instant::now();
        broker.publish("jobs", &payload).unwrap();
        println!("{acked} acked on a full disk; published {:?} after it had room", freed.elapsed());
    }
}
