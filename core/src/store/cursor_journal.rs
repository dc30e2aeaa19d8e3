//! The journal of the cursors of durable subscriptions: what is settled survives a crash.
//!
//! Changes are staged in memory and committed by the group: who needs its change durable first
//! writes and syncs for all that are staged, the others wait. After so many changes or bytes, all
//! cursors are written into a new file, which takes the place of the old one when it is durable.
//!
//! Opening always begins a new file, so a file is only ever written by the process that made it,
//! nothing is repaired in place, and a crash at any step of opening leaves what was there before. A
//! torn end is dropped: it was never acknowledged. Damage is never dropped unless that is asked for,
//! and then a copy of the file stays (`cursor_file` says how the two are told apart).
//!
//! A sync that fails once poisons the journal for good, see [`FsFile::sync_data`].

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::cursor::{self, Cursor, CursorChange, CursorKey};
use super::cursor_file::{
    BatchHeader, Decoded, FILE_HEADER, FileHeader, Kind, MAX_BODY, PAGE, Tail, Unusable, batch_len,
    decode, encode_batch, encode_mark,
};
use super::error::is_full;
use super::sabotage::sabotaged;
use super::sector::write_to_boundary;
use crate::fs::{Fs, FsFile, OpenHow, read_full_at, write_all_at};
use crate::sync::{Condvar, Mutex, MutexGuard};

/// The directory of the journal's files, in that of the store.
pub const CURSOR_DIR: &str = "cursors";
const EXTENSION: &str = ".cursors";
const TEMPORARY: &str = ".cursors.tmp";
const DAMAGED: &str = ".cursors.damaged";

/// How a journal works.
#[derive(Debug, Clone)]
#[expect(clippy::exhaustive_structs, reason = "internal; made with `..Default::default()`")]
pub struct JournalOptions {
    /// Changes after which all cursors are written anew.
    pub snapshot_changes: u64,
    /// Bytes of changes after which all cursors are written anew.
    pub snapshot_bytes: u64,
    /// Room that a file reserves at once, in bytes.
    pub reserve_bytes: u64,
    /// Bytes of changes that wait for a commit; who stages more commits first.
    pub max_staged_bytes: usize,
    /// What happens when there is no journal.
    pub if_missing: IfMissing,
    /// What happens when the journal is damaged.
    pub if_damaged: IfDamaged,
    /// For tests: makes the same file of the same changes.
    pub seed: Option<u64>,
}

impl Default for JournalOptions {
    fn default() -> Self {
        Self {
            snapshot_changes: 500,
            snapshot_bytes: 1 << 20,
            reserve_bytes: 256 << 10,
            max_staged_bytes: 1 << 20,
            if_missing: IfMissing::Refuse,
            if_damaged: IfDamaged::Refuse,
            seed: None,
        }
    }
}

/// What happens when there is no journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "internal")]
pub enum IfMissing {
    /// An error: the store has had one.
    Refuse,
    /// An empty one is made: the store is new.
    Create,
}

/// What happens when the journal is damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "internal")]
pub enum IfDamaged {
    /// An error that says what is damaged. Nothing is changed.
    Refuse,
    /// The changes before the damage are used, those behind it are lost: what they settled is
    /// delivered again. A copy of the damaged file stays.
    KeepValid,
}

/// Why the journal did not do what was asked.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum JournalError {
    /// The disk is full. The change is not durable; the same call succeeds when there is room.
    Full,
    /// The operating system refused. The change is not durable; the same call may succeed.
    Io(Arc<io::Error>),
    /// Writing failed in a way after which nobody knows what is on the disk: a change that was not
    /// acknowledged may be there or not. Nothing is taken until the journal is opened anew.
    Poisoned(Arc<str>),
    /// The file is not what was written. It is left as it is.
    Damaged {
        /// From the store's directory on.
        file: PathBuf,
        /// From which byte on nothing can be used.
        position: u64,
        /// Whether the bytes are known to have been acknowledged. If not, they either were, or were
        /// being written when the power went.
        was_durable: bool,
    },
    /// The file was written by a version that this one does not know, or for another store.
    Incompatible {
        /// From the store's directory on.
        file: PathBuf,
        /// What it is instead.
        what: String,
    },
    /// There is no journal where there must be one.
    Missing,
    /// The change cannot be made.
    Refused(&'static str),
    /// The journal was closed.
    Closed,
}

impl fmt::Display for JournalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => f.write_str("no room left for cursors"),
            Self::Io(error) => error.fmt(f),
            Self::Poisoned(why) => {
                write!(f, "writing cursors failed, and what is on the disk is unknown: {why}")
            }
            Self::Damaged { file, position, was_durable } => {
                write!(f, "{} is damaged from byte {position} on", file.display())?;
                f.write_str(if *was_durable {
                    ", where it was known to be durable"
                } else {
                    "; it is not known whether that was ever acknowledged"
                })
            }
            Self::Incompatible { file, what } => {
                write!(f, "{} cannot be used: {what}", file.display())
            }
            Self::Missing => write!(f, "there is no cursor journal in {CURSOR_DIR}"),
            Self::Refused(why) => f.write_str(why),
            Self::Closed => f.write_str("the cursor journal is closed"),
        }
    }
}

impl std::error::Error for JournalError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            _ => None,
        }
    }
}

impl From<io::Error> for JournalError {
    fn from(error: io::Error) -> Self {
        use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
        match error.kind() {
            StorageFull | QuotaExceeded | FileTooLarge => Self::Full,
            _ => Self::Io(Arc::new(error)),
        }
    }
}

/// What opening found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct JournalReport {
    /// Bytes of a torn batch that were dropped; they were never acknowledged.
    pub torn_bytes: u64,
    /// The copy of a damaged file, of which only the beginning was used.
    pub damaged: Option<PathBuf>,
    /// Whether the journal was closed, or marked and not used since; also if there was none.
    pub was_closed: bool,
}

/// A place in the order of all changes: how many were staged up to there since the journal was
/// opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Staged(u64);

/// The journal. All calls may come from any thread.
pub struct CursorJournal {
    fs: Arc<dyn Fs>,
    store: u128,
    options: JournalOptions,
    state: Mutex<State>,
    /// The writer came back, the marks moved, or the journal was poisoned.
    changed: Condvar,
}

struct State {
    cursors: BTreeMap<CursorKey, Cursor>,
    /// Changes that are not written yet, encoded.
    staged: Vec<u8>,
    staged_changes: u64,
    /// Everything staged, written, durable.
    last: Staged,
    written: Staged,
    durable: Staged,
    /// Gone while somebody writes.
    writer: Option<Writer>,
    poison: Option<Arc<str>>,
    is_closed: bool,
}

/// The file in use. Whoever has it, writes.
struct Writer {
    file: Box<dyn FsFile>,
    header: FileHeader,
    number: u64,
    /// Behind the last batch.
    end: u64,
    /// Length of the file.
    len: u64,
    /// What was so at the last sync.
    durable_pos: u64,
    durable_len: u64,
    /// Changes and bytes behind the snapshot.
    changes: u64,
    bytes: u64,
    /// A batch was written in part: nothing can follow it, another file must be begun.
    is_broken: bool,
}

/// How far a call must bring the changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Goal {
    Written,
    Durable,
}

/// Why a write failed, and whether the journal is lost with it.
enum Failure {
    Retryable(JournalError),
    Poison(String),
    /// It stopped inside a sector. If it went on there, a torn sector could look like a damaged one
    /// (see `sector`); so the file ends there, and the cursors go into another.
    Cut,
}

impl CursorJournal {
    /// Opens or makes the journal of a store. Its cursors are durable when this returns. Reads the
    /// whole file into memory, and writes one of the same size or smaller.
    ///
    /// # Errors
    ///
    /// See [`JournalError`]; what was there before is there still.
    pub fn open(
        fs: Arc<dyn Fs>,
        store: u128,
        options: JournalOptions,
    ) -> Result<(Self, JournalReport), JournalError> {
        let dir = Path::new(CURSOR_DIR);
        let listed = match fs.list(dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => vec![],
            outcome => outcome?,
        };
        let names: Vec<String> =
            listed.into_iter().filter_map(|entry| entry.name.into_string().ok()).collect();
        let newest = names.iter().filter_map(|name| generation_of(name)).max();
        let mut report = JournalReport::default();
        let cursors = match newest {
            Some(generation) => read(&*fs, store, generation, &options, &mut report)?,
            None if options.if_missing == IfMissing::Refuse => return Err(JournalError::Missing),
            None => {
                make_dir(&*fs, dir)?;
                report.was_closed = true;
                BTreeMap::new()
            }
        };
        let generation = newest.unwrap_or(0) + 1;
        let file = begin_file(&*fs, store, generation, &options, &snapshot(&cursors));
        let writer = file.map_err(|failure| match failure {
            Failure::Retryable(error) => error,
            Failure::Poison(why) => JournalError::Poisoned(why.into()),
            Failure::Cut => io::Error::from(io::ErrorKind::WriteZero).into(),
        })?;
        for name in names {
            // Damage is kept, and what is not ours is not touched.
            if generation_of(&name).is_some() || is_temporary(&name) {
                remove(&*fs, &dir.join(name));
            }
        }
        let state = State {
            cursors,
            staged: vec![],
            staged_changes: 0,
            last: Staged(0),
            written: Staged(0),
            durable: Staged(0),
            writer: Some(writer),
            poison: None,
            is_closed: false,
        };
        let (state, changed) = (Mutex::new(state), Condvar::new());
        Ok((Self { fs, store, options, state, changed }, report))
    }

    /// Whose cursors there are.
    pub fn keys(&self) -> Vec<CursorKey> {
        self.lock().cursors.keys().copied().collect()
    }

    /// All cursors there are, with everything that is staged.
    pub fn cursors(&self) -> BTreeMap<CursorKey, Cursor> {
        self.lock().cursors.clone()
    }

    /// One cursor, with everything that is staged.
    pub fn cursor(&self, key: CursorKey) -> Option<Cursor> {
        self.lock().cursors.get(&key).cloned()
    }

    /// Lets `look` see one cursor, with everything that is staged, without a copy. Nobody stages
    /// anything meanwhile.
    pub fn look<R>(&self, key: CursorKey, look: impl FnOnce(Option<&Cursor>) -> R) -> R {
        look(self.lock().cursors.get(&key))
    }

    /// Everything that has been staged.
    pub fn last(&self) -> Staged {
        self.lock().last
    }

    /// Takes a change into the next commit. It is in memory only when this returns.
    ///
    /// Does not block, but where [`JournalOptions::max_staged_bytes`] are staged: then it commits.
    ///
    /// # Errors
    ///
    /// The change was not taken.
    pub fn stage(&self, key: CursorKey, change: &CursorChange) -> Result<Staged, JournalError> {
        let mut encoded = vec![];
        cursor::encode(&mut encoded, key, change);
        let limit = self.options.max_staged_bytes;
        let mut state = self.lock();
        state.check()?;
        while !state.staged.is_empty() && state.staged.len() + encoded.len() > limit {
            let last = state.last;
            drop(state);
            self.reach(last, Goal::Written)?;
            state = self.lock();
            state.check()?;
        }
        cursor::apply(&mut state.cursors, key, change).map_err(JournalError::Refused)?;
        state.staged.append(&mut encoded);
        state.staged_changes += 1;
        state.last.0 += 1;
        Ok(state.last)
    }

    /// Blocks until everything staged up to `upto` was given to the operating system, so that it
    /// survives the death of the process.
    ///
    /// # Errors
    ///
    /// See [`JournalError`].
    pub fn write(&self, upto: Staged) -> Result<(), JournalError> {
        self.reach(upto, Goal::Written)
    }

    /// Blocks until everything staged up to `upto` survives a power cut.
    ///
    /// # Errors
    ///
    /// See [`JournalError`].
    pub fn commit(&self, upto: Staged) -> Result<(), JournalError> {
        self.reach(upto, Goal::Durable)
    }

    /// Commits all, and writes down in a place of its own that all is durable, so that later damage
    /// to the end of the file is not taken for a torn write. Meant for when nothing else is to do,
    /// and before the end. Costs a page of the file and two syncs.
    ///
    /// # Errors
    ///
    /// See [`JournalError`].
    pub fn mark(&self) -> Result<(), JournalError> {
        let last = self.lock().last;
        self.reach(last, Goal::Durable)?;
        let mark = |writer: &mut Writer| if writer.is_broken { Ok(()) } else { writer.mark() };
        let mut writer = self.take_writer()?;
        let is_cut = Turn::run(self, || match mark(&mut writer) {
            Err(Failure::Cut) => self.renew(writer).map(|()| true),
            outcome => self.give_back(writer, outcome).map(|()| false),
        })?;
        if !is_cut {
            return Ok(());
        }
        let mut writer = self.take_writer()?;
        Turn::run(self, || match mark(&mut writer) {
            // All is durable, and that is not marked.
            Err(Failure::Cut) => self.give_back(writer, Ok(())),
            outcome => self.give_back(writer, outcome),
        })
    }

    /// Marks, and takes nothing more.
    ///
    /// # Errors
    ///
    /// See [`JournalError`]; the journal is closed all the same.
    pub fn close(&self) -> Result<(), JournalError> {
        let outcome = self.mark();
        self.end();
        outcome
    }

    /// Commits all, and takes nothing more, but does not mark: to the next opening it was not closed.
    ///
    /// # Errors
    ///
    /// As [`close`](Self::close).
    pub fn stop(&self) -> Result<(), JournalError> {
        let outcome = self.commit(self.last());
        self.end();
        outcome
    }

    fn end(&self) {
        self.lock().is_closed = true;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn reach(&self, upto: Staged, goal: Goal) -> Result<(), JournalError> {
        let mut state = self.lock();
        loop {
            let reached = if goal == Goal::Written { state.written } else { state.durable };
            if reached >= upto {
                return Ok(());
            }
            state.check()?;
            if upto > state.last {
                return Err(JournalError::Refused("that was not staged here"));
            }
            let Some(writer) = state.writer.take() else {
                state = self.changed.wait(state).unwrap_or_else(|poisoned| poisoned.into_inner());
                continue;
            };
            return Turn::run(self, || self.lead(state, writer, goal));
        }
    }

    /// Writes everything that is staged, for all who wait.
    fn lead(
        &self,
        mut state: MutexGuard<'_, State>,
        mut writer: Writer,
        goal: Goal,
    ) -> Result<(), JournalError> {
        if writer.is_broken {
            drop(state);
            return self.renew(writer);
        }
        let mut body = std::mem::take(&mut state.staged);
        let changes = std::mem::take(&mut state.staged_changes);
        let upto = state.last;
        drop(state);
        let mut outcome = writer.append(&body, changes, &self.options);
        let is_written = outcome.is_ok();
        if is_written && goal == Goal::Durable {
            outcome = writer.sync();
        }
        let mut state = self.lock();
        match &outcome {
            Ok(()) if goal == Goal::Durable => (state.written, state.durable) = (upto, upto),
            Ok(()) => state.written = upto,
            Err(_) if !is_written => {
                body.append(&mut state.staged);
                state.staged = body;
                state.staged_changes += changes;
            }
            Err(_) => {}
        }
        // Not before as much has changed as is written then.
        let changes = self.options.snapshot_changes.max(state.cursors.len() as u64);
        let bytes = self.options.snapshot_bytes.max(writer.header.snapshot_end);
        let is_due = writer.changes >= changes || writer.bytes >= bytes;
        drop(state);
        if matches!(outcome, Err(Failure::Cut)) {
            return self.renew(writer);
        }
        if outcome.is_err() || !is_due {
            return self.give_back(writer, outcome);
        }
        self.changed.notify_all();
        // What was asked for is done; the snapshot is for later, and so is what it fails of.
        if let Err(JournalError::Poisoned(why)) = self.renew(writer) {
            tracing::warn!(%why, "the cursor journal is poisoned");
        }
        Ok(())
    }

    /// Writes all cursors into a new file, and goes on there. Everything staged before is durable
    /// then. Fails without harm until the file gets its name.
    fn renew(&self, mut writer: Writer) -> Result<(), JournalError> {
        let (bodies, upto) = {
            let state = self.lock();
            (snapshot(&state.cursors), state.last)
        };
        let old = writer.header.generation;
        match begin_file(&*self.fs, self.store, old + 1, &self.options, &bodies) {
            Ok(new) => {
                let mut state = self.lock();
                state.written = state.written.max(upto);
                state.durable = state.durable.max(upto);
                if state.last == upto {
                    // All of it is in the snapshot. Otherwise it comes again, and changes nothing.
                    state.staged.clear();
                    state.staged_changes = 0;
                }
                drop(state);
                // A crash before this is synced leaves both; the newer one is read.
                remove(&*self.fs, &path_of(old));
                self.give_back(new, Ok(()))
            }
            Err(failure) => {
                // Not again with every change.
                (writer.changes, writer.bytes) = (0, 0);
                self.give_back(writer, Err(failure))
            }
        }
    }

    fn take_writer(&self) -> Result<Writer, JournalError> {
        let mut state = self.lock();
        loop {
            state.check()?;
            if let Some(writer) = state.writer.take() {
                return Ok(writer);
            }
            state = self.changed.wait(state).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
    }

    fn give_back(&self, writer: Writer, outcome: Result<(), Failure>) -> Result<(), JournalError> {
        let mut state = self.lock();
        state.writer = Some(writer);
        let outcome = match outcome {
            Ok(()) => Ok(()),
            Err(Failure::Retryable(error)) => Err(error),
            Err(Failure::Poison(why)) => {
                let why: Arc<str> = why.into();
                if !sabotaged("cursor_poison") {
                    state.poison = Some(Arc::clone(&why));
                }
                Err(JournalError::Poisoned(why))
            }
            Err(Failure::Cut) => Err(io::Error::from(io::ErrorKind::WriteZero).into()),
        };
        drop(state);
        self.changed.notify_all();
        outcome
    }
}

/// The turn of the one who has the writer.
struct Turn<'a> {
    journal: &'a CursorJournal,
    is_over: bool,
}

impl<'a> Turn<'a> {
    fn run<T>(journal: &'a CursorJournal, work: impl FnOnce() -> T) -> T {
        let mut turn = Self { journal, is_over: false };
        let done = work();
        turn.is_over = true;
        done
    }
}

impl Drop for Turn<'_> {
    /// The writer is lost with who panicked: nobody may wait for it.
    fn drop(&mut self) {
        if !self.is_over {
            self.journal.lock().poison.get_or_insert_with(|| "whoever wrote it panicked".into());
            self.journal.changed.notify_all();
        }
    }
}

impl fmt::Debug for CursorJournal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.lock();
        f.debug_struct("CursorJournal")
            .field("cursors", &state.cursors.len())
            .field("staged", &state.last)
            .field("durable", &state.durable)
            .field("poison", &state.poison)
            .finish_non_exhaustive()
    }
}

impl State {
    fn check(&self) -> Result<(), JournalError> {
        match &self.poison {
            Some(why) => Err(JournalError::Poisoned(Arc::clone(why))),
            None if self.is_closed => Err(JournalError::Closed),
            None => Ok(()),
        }
    }
}

impl Writer {
    fn append(
        &mut self,
        body: &[u8],
        changes: u64,
        options: &JournalOptions,
    ) -> Result<(), Failure> {
        if body.is_empty() {
            return Ok(());
        }
        let len = batch_len(body.len());
        self.reserve(self.end + len, options.reserve_bytes)?;
        let batch = encode_batch(self.header.salt, self.end, &self.next(Kind::Changes), body);
        self.write(&batch, self.end)?;
        self.changes += changes;
        self.bytes += len;
        Ok(())
    }

    fn next(&self, kind: Kind) -> BatchHeader {
        let Self { number, durable_pos, durable_len, .. } = *self;
        BatchHeader { kind, number, durable_pos, durable_len }
    }

    /// Makes the file long enough, a step at a time, so that the disk is found full here and not at
    /// a sync, and a commit need not write the file's length.
    fn reserve(&mut self, upto: u64, step: u64) -> Result<(), Failure> {
        if upto <= self.len {
            return Ok(());
        }
        let outcome = or_without_room(step, |step| {
            let len = (upto + step).next_multiple_of(PAGE);
            self.file.allocate(self.len, len - self.len).map(|()| len)
        });
        self.len = outcome.map_err(|error| Failure::Retryable(error.into()))?;
        Ok(())
    }

    fn write(&mut self, batch: &[u8], at: u64) -> Result<(), Failure> {
        let bufs = &mut [IoSlice::new(batch)];
        let written = if sabotaged("cursor_whole_sectors") {
            write_all_at(&*self.file, bufs, at).map(|()| batch.len())
        } else {
            write_to_boundary(&*self.file, bufs, at, batch.len())
        };
        match written {
            Ok(written) if written == batch.len() => {
                self.end = at + batch.len() as u64;
                self.number += 1;
                Ok(())
            }
            Ok(_) => {
                self.is_broken = true;
                Err(Failure::Cut)
            }
            Err(error) => {
                self.is_broken = true;
                match JournalError::from(error) {
                    JournalError::Full => Err(Failure::Retryable(JournalError::Full)),
                    error => Err(Failure::Poison(format!("a write failed: {error}"))),
                }
            }
        }
    }

    fn sync(&mut self) -> Result<(), Failure> {
        if !sabotaged("cursor_batch_sync") {
            let outcome = self.file.sync_data();
            outcome.map_err(|error| Failure::Poison(format!("a sync failed: {error}")))?;
        }
        (self.durable_pos, self.durable_len) = (self.end, self.len);
        Ok(())
    }

    fn mark(&mut self) -> Result<(), Failure> {
        let at = self.end.next_multiple_of(PAGE);
        self.reserve(at + PAGE, 0)?;
        let mark = encode_mark(self.header.salt, at, &self.next(Kind::Mark));
        self.write(&mark, at)?;
        self.bytes += PAGE;
        self.sync()
    }
}

fn path_of(generation: u64) -> PathBuf {
    Path::new(CURSOR_DIR).join(format!("{generation:020}{EXTENSION}"))
}

fn generation_of(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(EXTENSION)?;
    let is_number = digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| is_number)
}

fn is_temporary(name: &str) -> bool {
    name.strip_suffix(TEMPORARY).is_some_and(|digits| digits.bytes().all(|b| b.is_ascii_digit()))
}

/// A file that is of no use any more, with its room. If it stays, the next opening tries again.
fn remove(fs: &dyn Fs, path: &Path) {
    // Synced, because some file systems have the room again only then.
    let removed = fs.remove(path).and_then(|()| fs.sync_dir(Path::new(CURSOR_DIR)));
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(%error, file = %path.display(), "an old cursor journal stays");
        }
        _ => {}
    }
}

fn make_dir(fs: &dyn Fs, dir: &Path) -> Result<(), JournalError> {
    match fs.create_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        outcome => outcome?,
    }
    if !sabotaged("cursor_parent_sync") {
        fs.sync_dir(Path::new(""))?;
    }
    Ok(())
}

/// All cursors as the bodies of batches of about a MiB.
fn snapshot(cursors: &BTreeMap<CursorKey, Cursor>) -> Vec<Vec<u8>> {
    const ABOUT: usize = 1 << 20;
    let mut bodies = vec![vec![]];
    for (key, cursor) in cursors {
        if bodies.last().is_some_and(|body| body.len() >= ABOUT) {
            bodies.push(vec![]);
        }
        let body = bodies.last_mut().expect("it begins with one");
        cursor::encode_cursor(body, *key, cursor);
        debug_assert!(body.len() <= MAX_BODY, "a cursor's limits bound its bytes");
    }
    bodies.retain(|body| !body.is_empty());
    bodies
}

/// Does with room ahead what is done without where the disk has no such room.
fn or_without_room<T>(bytes: u64, work: impl Fn(u64) -> io::Result<T>) -> io::Result<T> {
    match work(bytes) {
        Err(error) if is_full(&error) && bytes > 0 => work(0),
        outcome => outcome,
    }
}

/// Makes a file that holds a snapshot; it is durable, with its name, when this returns.
fn begin_file(
    fs: &dyn Fs,
    store: u128,
    generation: u64,
    options: &JournalOptions,
    bodies: &[Vec<u8>],
) -> Result<Writer, Failure> {
    let path = path_of(generation);
    let temporary = Path::new(CURSOR_DIR).join(format!("{generation:020}{TEMPORARY}"));
    let snapshot_bytes: u64 = bodies.iter().map(|body| batch_len(body.len())).sum();
    let snapshot_end = FILE_HEADER as u64 + snapshot_bytes;
    let seed = options.seed.unwrap_or_else(|| RandomState::new().hash_one(generation));
    let salt = seed.wrapping_add(generation.wrapping_mul(0xd129_8e2f_0b1c_4a69));
    let write = |room: u64| -> io::Result<Writer> {
        let len = (snapshot_end + room).next_multiple_of(PAGE);
        let header = FileHeader { store, generation, salt, snapshot_end, len };
        let file = match fs.open(&temporary, OpenHow::CreateNew) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                fs.remove(&temporary)?;
                fs.open(&temporary, OpenHow::CreateNew)?
            }
            outcome => outcome?,
        };
        file.allocate(0, len)?;
        write_all_at(&*file, &mut [IoSlice::new(&header.encode())], 0)?;
        let mut end = FILE_HEADER as u64;
        let mut number = 0;
        for body in bodies {
            let batch =
                BatchHeader { kind: Kind::Changes, number, durable_pos: 0, durable_len: len };
            let batch = encode_batch(salt, end, &batch, body);
            write_all_at(&*file, &mut [IoSlice::new(&batch)], end)?;
            end += batch.len() as u64;
            number += 1;
        }
        if !sabotaged("cursor_snapshot_sync") {
            file.sync_data()?;
        }
        let (durable_pos, durable_len) = (end, len);
        let (changes, bytes, is_broken) = (0, 0, false);
        let writer = Writer {
            file,
            header,
            number,
            end,
            len,
            durable_pos,
            durable_len,
            changes,
            bytes,
            is_broken,
        };
        Ok(writer)
    };
    let writer = or_without_room(options.reserve_bytes, write).map_err(|error| {
        remove(fs, &temporary);
        Failure::Retryable(error.into())
    })?;
    // From here on nobody knows under which name a crash would leave it, or whether at all.
    let poison = |what: &str, error| Failure::Poison(format!("{what} {}: {error}", path.display()));
    fs.rename(&temporary, &path).map_err(|error| poison("could not name", error))?;
    if !sabotaged("cursor_dir_sync") {
        let synced = fs.sync_dir(Path::new(CURSOR_DIR));
        synced.map_err(|error| poison("could not sync the name of", error))?;
    }
    Ok(writer)
}

/// The cursors of a file, as far as the options let it be used.
fn read(
    fs: &dyn Fs,
    store: u128,
    generation: u64,
    options: &JournalOptions,
    report: &mut JournalReport,
) -> Result<BTreeMap<CursorKey, Cursor>, JournalError> {
    let path = path_of(generation);
    let file = fs.open(&path, OpenHow::Read)?;
    let len = file.len()?;
    let mut bytes = vec![0; len as usize];
    let count = read_full_at(&*file, &mut bytes, 0)?;
    bytes.truncate(count);
    let damaged =
        |position, was_durable| JournalError::Damaged { file: path.clone(), position, was_durable };
    let incompatible = |what| JournalError::Incompatible { file: path.clone(), what };
    let (cursors, damage) = match decode(&bytes) {
        Ok(Decoded { header, .. }) if header.store != store => {
            return Err(incompatible("it belongs to another store".to_owned()));
        }
        Ok(Decoded { header, .. }) if header.generation != generation => {
            return Err(incompatible(format!("it is generation {}", header.generation)));
        }
        Err(Unusable::Version(what)) => return Err(incompatible(what)),
        Err(Unusable::Damaged) => (BTreeMap::new(), Some(damaged(0, true))),
        Ok(Decoded { cursors, end, tail, is_marked, .. }) => {
            report.was_closed = is_marked && tail == Tail::Clean;
            let damage = match tail {
                Tail::Clean => None,
                Tail::Torn => {
                    let last = bytes.iter().rposition(|byte| *byte != 0).unwrap_or(0) as u64;
                    report.torn_bytes = (last + 1).saturating_sub(end);
                    None
                }
                Tail::Damaged => Some(damaged(end, true)),
                Tail::Doubtful => Some(damaged(end, false)),
            };
            (cursors, damage)
        }
    };
    let Some(damage) = damage else { return Ok(cursors) };
    if options.if_damaged == IfDamaged::Refuse {
        return Err(damage);
    }
    report.damaged = Some(keep_copy(fs, generation, &bytes)?);
    Ok(cursors)
}

fn keep_copy(fs: &dyn Fs, generation: u64, bytes: &[u8]) -> io::Result<PathBuf> {
    let dir = Path::new(CURSOR_DIR);
    let path = dir.join(format!("{generation:020}{DAMAGED}"));
    match fs.remove(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        outcome => outcome?,
    }
    let file = fs.open(&path, OpenHow::CreateNew)?;
    write_all_at(&*file, &mut [IoSlice::new(bytes)], 0)?;
    file.sync_data()?;
    fs.sync_dir(dir)?;
    Ok(path)
}
