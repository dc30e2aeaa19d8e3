//! What a shard must know beside its records, in one page of two slots that are written in turn.
//!
//! A slot holds a generation and a check; the newest that verifies counts. A write that is torn
//! leaves the other slot, which was synced before. Where one slot does not verify, nobody can tell
//! a torn write from damage to the newest, so the frontier is then taken one step further.

use super::batch::{agree, checksum};
use super::record::{long, word};
use super::sabotage::sabotaged;
use super::segment::StoreId;
use crate::fs::{Fs, FsFile, OpenHow, read_full_at, write_all_at};
use crate::sync::Mutex;
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const MAGIC: &[u8; 8] = b"SLIPSUP1";
/// A slot is one sector; they are a page apart, so that no write touches both.
pub(super) const SLOT: usize = 512;
const SLOT_EVERY: u64 = 4096;

/// Sequences that are reserved at once where acknowledgements do not wait for the disk. Whoever
/// appends waits for a sync then, which is to be rare: it takes milliseconds on a busy disk, and there
/// may be millions of records a second. After a power cut as many are left unused at most, which is to
/// be little beside the window that a subscription's cursor has.
pub(crate) const FRONTIER_STEP: u64 = 1 << 18;

/// What it says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct State {
    /// Counts the times the shard was opened.
    pub(crate) epoch: u32,
    /// Whether the shard was closed in order, so that `checkpoint` is its end.
    pub(crate) clean: bool,
    /// The boot of the machine in which the shard was open; 0 if unknown. In the same boot, what
    /// was given to the operating system is still there.
    pub(crate) boot: u128,
    /// No sequence from here on was ever given away. 0 where that is the end of the log, because
    /// nothing is acknowledged or delivered before it is durable.
    pub(crate) frontier: u64,
    /// Segments that begin below were removed, or are about to be.
    pub(crate) low: u64,
    /// Base of a segment, and the position in it below which everything was durable.
    pub(crate) checkpoint: (u64, u64),
}

/// The file.
pub(crate) struct Superblock {
    file: Box<dyn FsFile>,
    id: StoreId,
    shard: u32,
    generation: u64,
    state: State,
    /// Whether a slot did not verify when it was opened: the other may not be the newest.
    doubtful: bool,
}

impl Superblock {
    fn path(dir: &Path) -> PathBuf {
        dir.join("superblock")
    }

    /// Makes one for a shard that has never been; it is durable with its name when this returns.
    pub(crate) fn create(fs: &dyn Fs, dir: &Path, id: StoreId, shard: u32) -> io::Result<Self> {
        let temporary = dir.join("superblock.tmp");
        let file = match fs.open(&temporary, OpenHow::CreateNew) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                fs.remove(&temporary)?;
                fs.open(&temporary, OpenHow::CreateNew)?
            }
            outcome => outcome?,
        };
        file.set_len(2 * SLOT_EVERY)?;
        let mut made =
            Self { file, id, shard, generation: 0, state: State::default(), doubtful: false };
        // Both slots, so that one that does not verify always means something.
        made.store(made.state)?;
        made.store(made.state)?;
        fs.rename(&temporary, &Self::path(dir))?;
        fs.sync_dir(dir)?;
        Ok(made)
    }

    /// The superblock of a shard; `None` if there is no such file. `Err(InvalidData)` if there is,
    /// and neither slot verifies.
    pub(crate) fn open(
        fs: &dyn Fs,
        dir: &Path,
        id: StoreId,
        shard: u32,
    ) -> io::Result<Option<Self>> {
        let file = match fs.open(&Self::path(dir), OpenHow::ReadWrite) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            outcome => outcome?,
        };
        // What a dead process left in memory alone is not decided upon.
        file.sync_data()?;
        file.drop_cache()?;
        let slots = [0, 1].map(|slot| {
            let mut bytes = [0; SLOT];
            read_full_at(&*file, &mut bytes, slot * SLOT_EVERY).map(|_| decode(&bytes, id, shard))
        });
        let [first, second] = slots;
        let slots = [first?, second?];
        let Some((generation, mut state)) = slots.into_iter().flatten().max_by_key(|slot| slot.0)
        else {
            let why = "neither slot of the superblock verifies";
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        };
        let doubtful = slots.contains(&None);
        if doubtful {
            state.clean = false;
            state.boot = 0;
            if state.frontier > 0 {
                state.frontier += FRONTIER_STEP;
            }
        }
        Ok(Some(Self { file, id, shard, generation, state, doubtful }))
    }

    /// Whether there may have been a newer state than the one that was read.
    pub(crate) fn is_doubtful(&self) -> bool {
        self.doubtful
    }

    pub(crate) fn state(&self) -> State {
        self.state
    }

    /// Replaces what it says; durable when this returns.
    pub(crate) fn store(&mut self, state: State) -> io::Result<()> {
        let generation = self.generation + 1;
        let bytes = encode(generation, &state, self.id, self.shard);
        let at = generation % 2 * SLOT_EVERY;
        write_all_at(&*self.file, &mut [IoSlice::new(&bytes)], at)?;
        if !sabotaged("superblock_sync") {
            self.file.sync_data()?;
        }
        (self.generation, self.state) = (generation, state);
        Ok(())
    }
}

fn encode(generation: u64, state: &State, id: StoreId, shard: u32) -> [u8; SLOT] {
    let mut bytes = [0; SLOT];
    let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
    put(0, MAGIC);
    put(8, &generation.to_le_bytes());
    put(16, &id.0.to_le_bytes());
    put(32, &state.boot.to_le_bytes());
    put(48, &shard.to_le_bytes());
    put(52, &state.epoch.to_le_bytes());
    put(56, &state.frontier.to_le_bytes());
    put(64, &state.low.to_le_bytes());
    put(72, &state.checkpoint.0.to_le_bytes());
    put(80, &state.checkpoint.1.to_le_bytes());
    put(88, &u32::from(state.clean).to_le_bytes());
    let crc = checksum(0, &bytes[..SLOT - 4]);
    bytes[SLOT - 4..].copy_from_slice(&crc.to_le_bytes());
    bytes
}

pub(super) fn decode(bytes: &[u8; SLOT], id: StoreId, shard: u32) -> Option<(u64, State)> {
    let wide = |at: usize| u128::from(long(bytes, at)) | u128::from(long(bytes, at + 8)) << 64;
    let verifies = bytes.starts_with(MAGIC)
        && (sabotaged("superblock_crc")
            || agree(word(bytes, SLOT - 4), checksum(0, &bytes[..SLOT - 4])))
        && wide(16) == id.0
        && word(bytes, 48) == shard;
    verifies.then(|| {
        let state = State {
            epoch: word(bytes, 52),
            clean: word(bytes, 88) == 1,
            boot: wide(32),
            frontier: long(bytes, 56),
            low: long(bytes, 64),
            checkpoint: (long(bytes, 72), long(bytes, 80)),
        };
        (long(bytes, 8), state)
    })
}

/// The superblock of an open shard: whoever has something to note syncs it while others append.
#[derive(Debug, Clone)]
pub(crate) struct SharedSuperblock(Arc<Mutex<Superblock>>);

impl SharedSuperblock {
    pub(crate) fn new(superblock: Superblock) -> Self {
        Self(Arc::new(Mutex::new(superblock)))
    }

    /// Replaces what it says by what `change` makes of it; durable when this returns.
    pub(crate) fn update(&self, change: impl FnOnce(State) -> State) -> io::Result<()> {
        let mut superblock = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let state = change(superblock.state);
        if state == superblock.state { Ok(()) } else { superblock.store(state) }
    }
}

impl std::fmt::Debug for Superblock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Superblock").field("state", &self.state).finish_non_exhaustive()
    }
}
