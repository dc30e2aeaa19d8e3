//! Files of every released format open for ever: `golden/v<major>` is a directory as a store of that
//! format left it when it was killed.
#![expect(clippy::unwrap_used, reason = "a failed helper fails its test")]

use slipring::internals::{
    Change, Contents, Cursor, CursorChange, CursorDelta, CursorJournal, CursorKey, Fs, IfMissing,
    JournalOptions, Metadata, OpenHow, PartitionRecord, RealFs, SubscriptionRecord, TopicRecord,
    read_full_at,
};
use slipring::store::{
    DiskStore, Group, MessageStore, PartitionBounds, RecordPlace, Records, Retention, StoredRecord,
    SyncPolicy,
};
use slipring::{NewMessage, TestClock};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

const STORE: u128 = 0x5eed;
const SHARDS: usize = 2;

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/v1")
}

fn open_store(dir: &Path, clock: &TestClock) -> DiskStore {
    let builder = DiskStore::builder().shards(SHARDS).sync(SyncPolicy::Always).clock(clock);
    let builder = builder.preallocate_bytes(0).reserve_bytes(0).seed(7).background(false);
    builder.open(dir).unwrap()
}

/// The record of a sequence: with and without all that a record can have.
fn record(shard: usize, sequence: u64) -> Vec<u8> {
    let place = RecordPlace {
        partition: shard as u32 * 10 + (sequence % 3) as u32,
        offset: sequence / 3,
        sequence,
        published_us: 1_700_000_000_000_000 + sequence,
    };
    let payload = vec![sequence as u8; sequence as usize * 3];
    let mut message = NewMessage::new(&payload);
    if sequence.is_multiple_of(2) {
        message =
            message.key("a key").id("an id").attributes(&[("place", "Zürich"), ("empty", "")]);
    }
    let mut bytes = vec![];
    StoredRecord::encode(&message, place, &mut bytes).unwrap();
    bytes
}

fn append(store: &DiskStore, shard: usize, count: u64) {
    let base_sequence = store.bounds(shard).unwrap().end;
    let records: Vec<_> =
        (base_sequence..base_sequence + count).map(|sequence| record(shard, sequence)).collect();
    let parts: Vec<&[u8]> = records.iter().map(Vec::as_slice).collect();
    store.append(shard, &Group { base_sequence, parts: &parts }).unwrap();
    store.commit(shard, base_sequence + count).unwrap();
}

fn metadata_changes() -> Vec<Change> {
    let partitions = vec![PartitionRecord { id: 0, shard: 0 }, PartitionRecord { id: 1, shard: 1 }];
    let topic = TopicRecord {
        partitions,
        retention_ms: Some(3_600_000),
        retention_bytes: Some(1 << 30),
        priority: 2,
        ..TopicRecord::default()
    };
    let subscription = SubscriptionRecord {
        patterns: vec!["sports/**".to_owned(), "news/*".to_owned()],
        filter: Some("attributes.region = \"IN\"".to_owned()),
        start: slipring::Start::Last(9),
        ..SubscriptionRecord::default()
    };
    vec![
        Change::PutTopic("sports/cricket".to_owned(), topic),
        Change::PutSubscription("scores".to_owned(), subscription),
        Change::Frontier(0, 65_536),
        Change::Low(1, 17),
        Change::Ready,
    ]
}

fn cursors() -> BTreeMap<CursorKey, Cursor> {
    let mut cursor = Cursor::new(5);
    let delta = CursorDelta {
        floor: 0,
        settled: [7, 8, 9, 70_000].into_iter().collect(),
        attempts: BTreeMap::from([(6, 3)]),
    };
    cursor.advance(&delta).unwrap();
    BTreeMap::from([
        (CursorKey { subscription: 0, shard: 0 }, cursor),
        (CursorKey { subscription: 0, shard: 1 }, Cursor::new(12)),
    ])
}

/// Makes the files of the format of today, as a store that is killed leaves them.
#[test]
#[ignore = "makes the golden files of a new format"]
fn make() {
    let dir = tempfile::tempdir().unwrap();
    let clock = TestClock::new();
    let store = open_store(dir.path(), &clock);
    for shard in 0..SHARDS {
        // Two segments that are sealed, of which the first expires, and one that is being written.
        for _ in 0..2 {
            append(&store, shard, 12);
            append(&store, shard, 6);
            clock.advance(Duration::from_secs(22 * 3600));
            store.maintain().unwrap();
        }
        append(&store, shard, 5);
    }
    let keep = Retention { max_age_us: Some(100), max_bytes: None };
    store.retain(1, 1_700_000_000_000_000 + 118, &|_| keep).unwrap();
    let fs = Arc::new(RealFs::open(dir.path()).unwrap());
    let metadata = Metadata::create(Arc::clone(&fs) as Arc<_>, STORE).unwrap();
    metadata.commit(&metadata_changes()).unwrap();
    let options = JournalOptions {
        if_missing: IfMissing::Create,
        reserve_bytes: 0,
        seed: Some(7),
        ..JournalOptions::default()
    };
    let (journal, _) = CursorJournal::open(fs, STORE, options).unwrap();
    for (key, cursor) in cursors() {
        let staged = journal.stage(key, &CursorChange::Replace(cursor)).unwrap();
        journal.commit(staged).unwrap();
    }
    copy(dir.path(), &golden());
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to);
        } else if entry.file_name() != "LOCK" {
            std::fs::copy(entry.path(), to).unwrap();
        }
    }
}

#[test]
fn a_directory_of_the_first_format_opens_with_everything_in_it() {
    let dir = tempfile::tempdir().unwrap();
    copy(&golden(), dir.path());
    let store = open_store(dir.path(), &TestClock::new());
    for (shard, low) in [(0, 0), (1, 18)] {
        let bounds = store.bounds(shard).unwrap();
        assert_eq!((bounds.low, bounds.end, bounds.first_offset), (low, 41, 0), "shard {shard}");
        assert_eq!(store.recovery()[shard].damage, None);
        let mut records = Records::new();
        let mut at = low;
        while at < 41 {
            store.read(shard, at..41, 1 << 20, &mut records).unwrap();
            for (sequence, found) in records.iter() {
                assert_eq!(sequence, at);
                assert_eq!(found.bytes(), record(shard, sequence), "{sequence} of shard {shard}");
                at += 1;
            }
            assert_eq!(records.next(), at);
        }
        let mut partitions = store.partitions(shard).unwrap();
        partitions.sort_unstable_by_key(|of| of.partition);
        let expected = [(0, 14), (1, 14), (2, 13)].map(|(of, next)| PartitionBounds {
            partition: shard as u32 * 10 + of,
            low: low / 3,
            next,
        });
        assert_eq!(partitions, expected);
        append(&store, shard, 3);
    }
    let fs = Arc::new(RealFs::open(dir.path()).unwrap());
    let contents = Metadata::open(Arc::clone(&fs) as Arc<_>).unwrap().contents();
    let expected = {
        let dir = tempfile::tempdir().unwrap();
        let fs = Arc::new(RealFs::open(dir.path()).unwrap());
        let metadata = Metadata::create(fs, STORE).unwrap();
        metadata.commit(&metadata_changes()).unwrap();
        metadata.contents()
    };
    let is_whole = |contents: &Contents| contents.is_ready && contents.topics.len() == 1;
    assert!(is_whole(&contents) && contents == expected, "{contents:?}");
    let (journal, report) = CursorJournal::open(fs, STORE, JournalOptions::default()).unwrap();
    assert_eq!(journal.cursors(), cursors());
    assert_eq!((report.torn_bytes, report.damaged), (0, None));
}

#[test]
fn a_directory_of_a_later_format_is_refused_and_left_alone() {
    // In each file the byte that says which format it is of, and where its check is.
    let shard = "shard-000/00000000000000000036.log";
    for (path, version, check) in [("store", 8, 60), (shard, 8, 4092), (shard, 12, 4092)] {
        let dir = tempfile::tempdir().unwrap();
        copy(&golden(), dir.path());
        let path = dir.path().join(path);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[version] = 9;
        let crc = crc32c::crc32c(&bytes[..check]);
        bytes[check..check + 4].copy_from_slice(&crc.to_le_bytes());
        std::fs::write(&path, &bytes).unwrap();
        let builder = DiskStore::builder().shards(SHARDS).reserve_bytes(0).background(false);
        let error = builder.open(dir.path()).unwrap_err().to_string();
        assert!(error.contains("not a store that can be opened"), "{error}");
        let fs = RealFs::open(dir.path()).unwrap();
        let file = fs.open(path.strip_prefix(dir.path()).unwrap(), OpenHow::Read).unwrap();
        let mut found = vec![0; bytes.len() + 1];
        assert_eq!(read_full_at(&*file, &mut found, 0).unwrap(), bytes.len());
        assert_eq!(found[..bytes.len()], bytes);
    }
}
