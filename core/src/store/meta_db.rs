//! The metadata of a store in a redb file: every commit is atomic, and durable when it returns.
//!
//! Opening first opens the file as it would be, with what redb would repair kept in memory
//! ([`Overlay`]), has every page that counts verified there, and reads everything. Only then is the
//! file written to. So damage is an error that names the file, and the file stays what it is. Reads
//! after that come from memory.
//!
//! A full disk at a commit is harmless, the next one opens the file anew. A sync that fails is not:
//! see [`FsFile::sync_data`].

use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use redb::{Database, ReadableTable, TableDefinition};

use super::meta::{Change, Contents, NextIds, RecordError, SubscriptionRecord, TopicRecord, Undo};
use super::meta_file::{MetaFile, Overlay, SlotError};
use super::sabotage::sabotaged;
use super::wire::{Reader, put_number};
use crate::contain::drop_quietly;
use crate::fs::{Fs, FsFile, OpenHow};
use crate::sync::{Mutex, MutexGuard};

/// The file, in the store's directory.
pub const META_FILE: &str = "metadata.redb";
const TEMPORARY: &str = "metadata.redb.tmp";
/// Of the tables and what is in them.
const FORMAT: u64 = 1;
/// Everything is read once, so a cache is of little use.
const CACHE_BYTES: usize = 1 << 20;

const STORE: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("store");
const TOPICS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("topics");
const SUBSCRIPTIONS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("subscriptions");
const FRONTIERS: TableDefinition<'_, u32, u64> = TableDefinition::new("frontiers");
const LOW: TableDefinition<'_, u32, u64> = TableDefinition::new("low");

/// Why the metadata did not do what was asked.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum MetaError {
    /// The disk is full. Nothing was changed; the same call succeeds when there is room.
    Full,
    /// The operating system refused. Nothing was changed.
    Io(Arc<io::Error>),
    /// Writing failed in a way after which nobody knows what is on the disk. Nothing is taken until
    /// the store is opened anew.
    Poisoned(Arc<str>),
    /// The file is not what was written. It is left as it is.
    Damaged {
        /// From the store's directory on.
        file: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// The file was written by a version that this one does not know.
    Incompatible {
        /// From the store's directory on.
        file: PathBuf,
        /// What it is instead.
        what: String,
    },
    /// There is no store in the directory.
    Missing,
    /// The change cannot be made.
    Refused(&'static str),
}

impl fmt::Display for MetaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => f.write_str("no room left for metadata"),
            Self::Io(error) => error.fmt(f),
            Self::Poisoned(why) => {
                write!(f, "writing metadata failed, and what is on the disk is unknown: {why}")
            }
            Self::Damaged { file, what } => write!(f, "{} is damaged: {what}", file.display()),
            Self::Incompatible { file, what } => {
                write!(f, "{} cannot be used: {what}", file.display())
            }
            Self::Missing => write!(f, "there is no {META_FILE}"),
            Self::Refused(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for MetaError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            _ => None,
        }
    }
}

impl From<io::Error> for MetaError {
    fn from(error: io::Error) -> Self {
        use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
        match error.kind() {
            StorageFull | QuotaExceeded | FileTooLarge => Self::Full,
            _ => Self::Io(Arc::new(error)),
        }
    }
}

impl From<redb::Error> for MetaError {
    fn from(error: redb::Error) -> Self {
        match error {
            redb::Error::Io(error) => error.into(),
            redb::Error::UpgradeRequired(version) => {
                incompatible(format!("redb's file format {version}"))
            }
            error => damaged(error.to_string()),
        }
    }
}

fn damaged(what: impl Into<String>) -> MetaError {
    MetaError::Damaged { file: META_FILE.into(), what: what.into() }
}

fn incompatible(what: impl Into<String>) -> MetaError {
    MetaError::Incompatible { file: META_FILE.into(), what: what.into() }
}

/// The metadata of an open store.
pub struct Metadata {
    fs: Arc<dyn Fs>,
    state: Mutex<State>,
}

struct State {
    contents: Contents,
    /// Gone after a failure that opening anew heals.
    open: Option<Open>,
    poison: Option<Arc<str>>,
}

struct Open {
    /// Before `file`: it writes when it is dropped.
    db: Database,
    file: MetaFile,
}

impl Metadata {
    /// Makes the metadata of a new store. It is durable when this returns, and not
    /// [`Contents::is_ready`].
    ///
    /// # Errors
    ///
    /// See [`MetaError`]; a file that is there already is refused.
    pub fn create(fs: Arc<dyn Fs>, store: u128) -> Result<Self, MetaError> {
        if fs.list(Path::new(""))?.iter().any(|entry| entry.name == META_FILE) {
            return Err(MetaError::Refused("there is metadata already"));
        }
        let path = Path::new(TEMPORARY);
        let file = match fs.open(path, OpenHow::CreateNew) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                fs.remove(path)?;
                fs.open(path, OpenHow::CreateNew)?
            }
            outcome => outcome?,
        };
        let contents = Contents { store, revision: 1, ..Contents::default() };
        let file = MetaFile::create(file);
        // The file has no room for the slots until redb gives it a length.
        let db = contained(|| builder(false).create_with_backend(file.clone()))?;
        let open = Open { db, file };
        open.commit(&contents, &[])?;
        fs.rename(path, Path::new(META_FILE))?;
        if !sabotaged("meta_dir_sync") {
            fs.sync_dir(Path::new(""))?;
        }
        Ok(Self { fs, state: Mutex::new(State { contents, open: Some(open), poison: None }) })
    }

    /// Opens the metadata of a store.
    ///
    /// # Errors
    ///
    /// See [`MetaError`]. Where the file is damaged, or of another version, it was not written to.
    pub fn open(fs: Arc<dyn Fs>) -> Result<Self, MetaError> {
        // The name may have been given by a process that died before it could make it durable.
        if !sabotaged("meta_open_dir_sync") {
            fs.sync_dir(Path::new(""))?;
        }
        let (open, contents) = open(&*fs)?;
        Ok(Self { fs, state: Mutex::new(State { contents, open: Some(open), poison: None }) })
    }

    /// Everything there is, as of the last commit.
    pub fn contents(&self) -> Contents {
        self.lock().contents.clone()
    }

    /// The topic `name`.
    pub fn topic(&self, name: &str) -> Option<TopicRecord> {
        self.lock().contents.topics.get(name).cloned()
    }

    /// The subscription `name`.
    pub fn subscription(&self, name: &str) -> Option<SubscriptionRecord> {
        self.lock().contents.subscriptions.get(name).cloned()
    }

    /// Numbers that were never given away.
    pub fn next_ids(&self) -> NextIds {
        self.lock().contents.next
    }

    /// Makes all changes or none. They are durable when this returns; that takes some five syncs.
    ///
    /// # Errors
    ///
    /// See [`MetaError`].
    pub fn commit(&self, changes: &[Change]) -> Result<(), MetaError> {
        let mut guard = self.lock();
        let state = &mut *guard;
        if let Some(why) = &state.poison {
            return Err(MetaError::Poisoned(Arc::clone(why)));
        }
        let mut undos = vec![];
        for change in changes {
            match state.contents.apply(change) {
                Ok(undo) => undos.push(undo),
                Err(why) => {
                    state.undo(undos);
                    return Err(MetaError::Refused(why));
                }
            }
        }
        state.contents.revision += 1;
        let outcome = match state.open.take() {
            Some(open) => Ok(open),
            None => reopen(&*self.fs, state.contents.revision - 1),
        }
        .and_then(|open| match open.commit(&state.contents, changes) {
            Ok(()) => {
                state.open = Some(open);
                Ok(())
            }
            Err(error) if open.file.sync_failed() => Err(poison(&error)),
            Err(error) => Err(error),
        });
        if let Err(error) = &outcome {
            state.contents.revision -= 1;
            state.undo(undos);
            if let MetaError::Poisoned(why) = error
                && !sabotaged("meta_poison")
            {
                state.poison = Some(Arc::clone(why));
            }
        }
        outcome
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl fmt::Debug for Metadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.lock();
        f.debug_struct("Metadata")
            .field("revision", &state.contents.revision)
            .field("poison", &state.poison)
            .finish_non_exhaustive()
    }
}

impl State {
    fn undo(&mut self, undos: Vec<Undo>) {
        undos.into_iter().rev().for_each(|undo| self.contents.undo(undo));
    }
}

impl Open {
    fn commit(&self, contents: &Contents, changes: &[Change]) -> Result<(), MetaError> {
        contained(|| write(&self.db, contents, changes))?;
        Ok(self.file.settle(contents.revision)?)
    }
}

fn poison(error: &MetaError) -> MetaError {
    MetaError::Poisoned(error.to_string().into())
}

/// redb reports damage where it looks for it; elsewhere damage can make it panic.
fn contained<T, E: Into<redb::Error>>(run: impl FnOnce() -> Result<T, E>) -> Result<T, MetaError> {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(outcome) => outcome.map_err(|error| error.into().into()),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("redb panicked");
            let error = damaged(text);
            drop_quietly(panic);
            Err(error)
        }
    }
}

fn builder(check: bool) -> redb::Builder {
    let mut builder = redb::Builder::new();
    let check = check && !sabotaged("meta_check");
    builder.set_cache_size(CACHE_BYTES).set_check_integrity_on_open(check);
    builder
}

/// Verifies the file, reads it, and opens it for writing.
fn open(fs: &dyn Fs) -> Result<(Open, Contents), MetaError> {
    let path = Path::new(META_FILE);
    let file = |how| match fs.open(path, how) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(MetaError::Missing),
        outcome => Ok(outcome?),
    };
    let as_it_is = file(OpenHow::ReadWrite)?;
    // Nothing is believed that a dead process, or a sync that failed, left in memory alone.
    if !sabotaged("meta_open_sync") {
        as_it_is.sync_data()?;
        as_it_is.drop_cache()?;
    }
    let (_, contents) = open_with(Box::new(Overlay::new(as_it_is)?), true)?;
    let (open, _) = open_with(file(OpenHow::ReadWrite)?, false)?;
    // Both slots, whatever state a crash or damage has left one of them in.
    open.file.settle(contents.revision)?;
    Ok((open, contents))
}

fn open_with(file: Box<dyn FsFile>, check: bool) -> Result<(Open, Contents), MetaError> {
    let file = MetaFile::open(file)?.map_err(|error| match error {
        SlotError::Damaged => damaged("no copy of its header verifies"),
        SlotError::Version(major) => incompatible(format!("format {major}")),
    })?;
    if redb::StorageBackend::len(&file)? == 0 {
        return Err(damaged("it is empty"));
    }
    let acknowledged = file.acknowledged();
    let db = contained(|| builder(check).create_with_backend(file.clone()))?;
    let contents = contained(|| Ok::<_, redb::Error>(read(&db)))??;
    if contents.revision < acknowledged {
        return Err(damaged("it has lost commits that were acknowledged"));
    }
    Ok((Open { db, file }, contents))
}

/// After a failure that changed nothing: the file must say what it said before.
fn reopen(fs: &dyn Fs, revision: u64) -> Result<Open, MetaError> {
    let (open, found) = open(fs)?;
    if found.revision != revision {
        return Err(poison(&damaged("a commit that failed is there")));
    }
    Ok(open)
}

fn write(db: &Database, contents: &Contents, changes: &[Change]) -> Result<(), redb::Error> {
    let mut transaction = db.begin_write()?;
    transaction.set_two_phase_commit(true);
    {
        let mut store = transaction.open_table(STORE)?;
        store.insert("contents", encode_store(contents).as_slice())?;
        let mut topics = transaction.open_table(TOPICS)?;
        let mut subscriptions = transaction.open_table(SUBSCRIPTIONS)?;
        let mut frontiers = transaction.open_table(FRONTIERS)?;
        let mut low = transaction.open_table(LOW)?;
        for change in changes {
            match change {
                Change::PutTopic(name, record) => {
                    topics.insert(name.as_str(), record.encode().as_slice())?;
                }
                Change::RemoveTopic(name) => drop(topics.remove(name.as_str())?),
                Change::PutSubscription(name, record) => {
                    subscriptions.insert(name.as_str(), record.encode().as_slice())?;
                }
                Change::RemoveSubscription(name) => drop(subscriptions.remove(name.as_str())?),
                Change::Frontier(shard, upto) => drop(frontiers.insert(shard, upto)?),
                Change::Low(shard, upto) => drop(low.insert(shard, upto)?),
                Change::Ready => {}
            }
        }
    }
    Ok(transaction.commit()?)
}

fn encode_store(contents: &Contents) -> Vec<u8> {
    let Contents { store, is_ready, next, revision, .. } = contents;
    let mut bytes = vec![];
    put_number(&mut bytes, FORMAT);
    bytes.extend_from_slice(&store.to_le_bytes());
    let ids = [next.topic, next.partition.into(), next.subscription];
    let numbers = [*revision, u64::from(*is_ready)].into_iter().chain(ids);
    numbers.for_each(|number| put_number(&mut bytes, number));
    bytes
}

fn decode_store(bytes: &[u8]) -> Result<Contents, MetaError> {
    let malformed = || damaged("the description of the store cannot be read");
    let mut reader = Reader::new(bytes);
    let format = reader.number().ok_or_else(malformed)?;
    if format != FORMAT {
        return Err(incompatible(format!("tables of format {format}")));
    }
    let decode = |reader: &mut Reader<'_>| {
        let mut store = [0; 16];
        for byte in &mut store {
            *byte = reader.byte()?;
        }
        let (revision, is_ready) = (reader.number()?, reader.number()? == 1);
        let (topic, partition) = (reader.number()?, reader.small()?);
        let next = NextIds { topic, partition, subscription: reader.number()? };
        let store = u128::from_le_bytes(store);
        Some(Contents { store, is_ready, next, revision, ..Contents::default() })
    };
    decode(&mut reader).filter(|_| reader.len() == 0).ok_or_else(malformed)
}

/// Everything in the tables.
fn read(db: &Database) -> Result<Contents, MetaError> {
    use redb::ReadableDatabase;
    fn failed(error: impl Into<redb::Error>) -> MetaError {
        error.into().into()
    }
    let transaction = db.begin_read().map_err(failed)?;
    let store = transaction.open_table(STORE).map_err(failed)?;
    let description = store.get("contents").map_err(failed)?;
    let description = description.ok_or_else(|| damaged("it does not describe a store"))?;
    let mut contents = decode_store(description.value())?;
    let record_error = |name: &str, error| match error {
        RecordError::Malformed => damaged(format!("the record of {name} cannot be read")),
        RecordError::Newer => incompatible(format!("a later version wrote the record of {name}")),
    };
    for entry in transaction.open_table(TOPICS).map_err(failed)?.iter().map_err(failed)? {
        let (name, record) = entry.map_err(failed)?;
        let record = TopicRecord::decode(record.value());
        let record = record.map_err(|error| record_error(name.value(), error))?;
        contents.topics.insert(name.value().to_owned(), record);
    }
    for entry in transaction.open_table(SUBSCRIPTIONS).map_err(failed)?.iter().map_err(failed)? {
        let (name, record) = entry.map_err(failed)?;
        let record = SubscriptionRecord::decode(record.value());
        let record = record.map_err(|error| record_error(name.value(), error))?;
        contents.subscriptions.insert(name.value().to_owned(), record);
    }
    for (table, map) in [(FRONTIERS, &mut contents.frontiers), (LOW, &mut contents.low)] {
        for entry in transaction.open_table(table).map_err(failed)?.iter().map_err(failed)? {
            let (shard, upto) = entry.map_err(failed)?;
            map.insert(shard.value(), upto.value());
        }
    }
    Ok(contents)
}
