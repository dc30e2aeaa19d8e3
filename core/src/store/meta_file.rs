//! The file under redb: its header in two copies that check themselves, its pages as they are.
//!
//! redb finds everything from its header, of which it checks only parts: one flipped bit would give
//! an older state without a word. So the header is not written in place but into two slots in turn,
//! each with a generation and a check, before the sync that is to make it durable; once more when a
//! commit is complete, so that then both say the same. A slot that does not verify was torn before
//! the commit was acknowledged, or is damage that the other makes good. The pages are under checks
//! that redb verifies from the header down, which opening asks for.
//!
//! ```text
//! 0 slot | 4096 slot | 8192 redb's pages from the second on
//! slot: 0 magic "SLIPMET1" | 8 major u16, minor u16, zero u32 | 16 generation u64
//!       24 acknowledged u64 | 32 redb's header | 508 crc u32
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, IoSlice};
use std::sync::Arc;

use super::sabotage::sabotaged;
use crate::fs::{FsFile, read_full_at, write_all_at};
use crate::sync::{Mutex, MutexGuard};

const MAGIC: &[u8; 8] = b"SLIPMET1";
const MAJOR: u16 = 1;
/// Where redb's pages begin, for redb; and what a slot stands in.
const PAGE: u64 = 4096;
const SLOT: usize = 512;
const REDB_HEADER: std::ops::Range<usize> = 32..SLOT - 4;

/// Why a file cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SlotError {
    /// Neither slot verifies.
    Damaged,
    /// Another major version.
    Version(u16),
}

/// redb's view of a file. Clones are the same file.
#[derive(Clone)]
pub(super) struct MetaFile {
    file: Arc<dyn FsFile>,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Clone)]
struct State {
    /// Of the slot that counts.
    generation: u64,
    /// How many commits were acknowledged when it was written.
    acknowledged: u64,
    /// redb's first page, as redb wrote it.
    header: Box<[u8; PAGE as usize]>,
    /// Whether that is newer than the slot.
    is_dirty: bool,
    /// A sync failed, or wrote a slot in part: nobody knows what is on the disk.
    sync_failed: bool,
    /// Of redb's file, as redb has set it: redb asks also when a commit is durable already, and
    /// nothing may fail then.
    len: u64,
}

impl MetaFile {
    /// A file that is empty.
    pub(super) fn create(file: Box<dyn FsFile>) -> Self {
        Self::with(file, 0, 0, 0, Box::new([0; PAGE as usize]))
    }

    fn with(
        file: Box<dyn FsFile>,
        len: u64,
        generation: u64,
        acknowledged: u64,
        header: Box<[u8; PAGE as usize]>,
    ) -> Self {
        let (is_dirty, sync_failed) = (false, false);
        let state = State { generation, acknowledged, header, is_dirty, sync_failed, len };
        Self { file: file.into(), state: Arc::new(Mutex::new(state)) }
    }

    /// A file that was made.
    pub(super) fn open(file: Box<dyn FsFile>) -> io::Result<Result<Self, SlotError>> {
        let mut newest: Result<Slot, SlotError> = Err(SlotError::Damaged);
        for at in [0, PAGE] {
            let mut bytes = [0; SLOT];
            read_full_at(&*file, &mut bytes, at)?;
            match (decode(&bytes), &newest) {
                (Ok(slot), Ok((generation, ..))) if slot.0 < *generation => {}
                (Err(SlotError::Damaged), _) => {}
                (slot, _) => newest = slot,
            }
        }
        let len = file.len()?.saturating_sub(PAGE);
        Ok(newest.map(|(generation, acknowledged, header)| {
            Self::with(file, len, generation, acknowledged, header)
        }))
    }

    /// Commits that were acknowledged when the slot that counts was written.
    pub(super) fn acknowledged(&self) -> u64 {
        self.lock().acknowledged
    }

    /// Whether a sync failed.
    pub(super) fn sync_failed(&self) -> bool {
        self.lock().sync_failed
    }

    /// Makes the header durable in both slots: a commit is complete.
    pub(super) fn settle(&self, acknowledged: u64) -> io::Result<()> {
        if sabotaged("meta_settle") {
            return Ok(());
        }
        for _ in 0..2 {
            let mut state = self.lock();
            state.acknowledged = acknowledged;
            state.is_dirty = true;
            state.sync(&*self.file)?;
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl State {
    fn sync(&mut self, file: &dyn FsFile) -> io::Result<()> {
        let outcome = self
            .write_slot(file)
            .and_then(|()| if sabotaged("meta_sync") { Ok(()) } else { file.sync_data() });
        self.sync_failed |= outcome.is_err();
        outcome
    }

    /// Into the slot that does not count.
    fn write_slot(&mut self, file: &dyn FsFile) -> io::Result<()> {
        if !self.is_dirty {
            return Ok(());
        }
        let generation = self.generation + 1;
        let (kept, rest) = self.header.split_at(REDB_HEADER.len());
        if rest.iter().any(|byte| *byte != 0) {
            return Err(io::Error::other("redb's header is longer than is known"));
        }
        let mut bytes = [0; SLOT];
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        put(0, MAGIC);
        put(8, &MAJOR.to_le_bytes());
        put(16, &generation.to_le_bytes());
        put(24, &self.acknowledged.to_le_bytes());
        put(REDB_HEADER.start, kept);
        let crc = crc32c::crc32c(&bytes[..SLOT - 4]);
        bytes[SLOT - 4..].copy_from_slice(&crc.to_le_bytes());
        let at = if sabotaged("meta_one_slot") { 0 } else { generation % 2 * PAGE };
        write_all_at(file, &mut [IoSlice::new(&bytes)], at)?;
        self.generation = generation;
        self.is_dirty = false;
        Ok(())
    }
}

type Slot = (u64, u64, Box<[u8; PAGE as usize]>);

fn decode(bytes: &[u8; SLOT]) -> Result<Slot, SlotError> {
    let long =
        |at: usize| u64::from_le_bytes(*bytes[at..].first_chunk().expect("it is inside the slot"));
    let crc = crc32c::crc32c(&bytes[..SLOT - 4]).to_le_bytes();
    let verifies = sabotaged("meta_slot_crc") || bytes[SLOT - 4..] == crc;
    if !verifies || !bytes.starts_with(MAGIC) {
        return Err(SlotError::Damaged);
    }
    let major = long(8) as u16;
    if major != MAJOR {
        return Err(SlotError::Version(major));
    }
    let mut header = Box::new([0; PAGE as usize]);
    header[..REDB_HEADER.len()].copy_from_slice(&bytes[REDB_HEADER]);
    Ok((long(16), long(24), header))
}

impl redb::StorageBackend for MetaFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.lock().len)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        if offset < PAGE {
            let state = self.lock();
            let rest = &state.header[offset as usize..];
            let from_header = rest.len().min(out.len());
            out[..from_header].copy_from_slice(&rest[..from_header]);
            drop(state);
            let out = &mut out[from_header..];
            return if out.is_empty() { Ok(()) } else { self.read(PAGE, out) };
        }
        match read_full_at(&*self.file, out, offset + PAGE)? {
            count if count == out.len() => Ok(()),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let then = len + PAGE;
        if len <= self.lock().len {
            // redb does this when a commit is durable already, which must not be told as one that
            // failed. A crash can leave the file as long as this does.
            if let Err(error) = self.file.set_len(then) {
                tracing::warn!(target: "slipring", %error, "the metadata takes more room than it needs");
            }
        } else {
            let now = self.file.len()?;
            // So that a full disk is found here, not at a sync.
            if then > now { self.file.allocate(now, then - now) } else { self.file.set_len(then) }?;
        }
        self.lock().len = len;
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.lock().sync(&*self.file)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut data = data;
        let mut offset = offset;
        if offset < PAGE {
            let mut state = self.lock();
            let place = &mut state.header[offset as usize..];
            let count = place.len().min(data.len());
            place[..count].copy_from_slice(&data[..count]);
            state.is_dirty = true;
            data = &data[count..];
            offset = PAGE;
        }
        if data.is_empty() {
            return Ok(());
        }
        write_all_at(&*self.file, &mut [IoSlice::new(data)], offset + PAGE)
    }
}

impl fmt::Debug for MetaFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MetaFile")
            .field("generation", &self.lock().generation)
            .finish_non_exhaustive()
    }
}

/// A file as it would be if it were written to: what is written stays in memory.
pub(super) struct Overlay {
    file: Box<dyn FsFile>,
    written: Mutex<Written>,
}

struct Written {
    pages: BTreeMap<u64, Box<[u8; PAGE as usize]>>,
    len: u64,
}

impl Overlay {
    pub(super) fn new(file: Box<dyn FsFile>) -> io::Result<Self> {
        let len = file.len()?;
        Ok(Self { file, written: Mutex::new(Written { pages: BTreeMap::new(), len }) })
    }

    fn lock(&self) -> MutexGuard<'_, Written> {
        self.written.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl FsFile for Overlay {
    fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<usize> {
        let written = self.lock();
        let inside = (at % PAGE) as usize;
        let count = buf.len().min(PAGE as usize - inside);
        let count = written.len.saturating_sub(at).min(count as u64) as usize;
        let buf = &mut buf[..count];
        if let Some(page) = written.pages.get(&(at / PAGE)) {
            buf.copy_from_slice(&page[inside..inside + count]);
            return Ok(count);
        }
        let there = read_full_at(&*self.file, buf, at)?;
        buf[there..].fill(0);
        Ok(count)
    }

    fn write_at(&self, bufs: &[IoSlice<'_>], at: u64) -> io::Result<usize> {
        let Some(buf) = bufs.iter().find(|buf| !buf.is_empty()) else { return Ok(0) };
        let inside = (at % PAGE) as usize;
        let count = buf.len().min(PAGE as usize - inside);
        let mut page = Box::new([0; PAGE as usize]);
        read_full_at(self, &mut page[..], at - inside as u64)?;
        page[inside..inside + count].copy_from_slice(&buf[..count]);
        let mut written = self.lock();
        written.pages.insert(at / PAGE, page);
        written.len = written.len.max(at + count as u64);
        Ok(count)
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut written = self.lock();
        for at in (len / PAGE)..written.len.div_ceil(PAGE) {
            // Zeros, should the file become longer again; the cut page is only ever the last.
            let mut page = Box::new([0; PAGE as usize]);
            if at == len / PAGE {
                let kept = (len % PAGE) as usize;
                match written.pages.get(&at) {
                    Some(old) => page[..kept].copy_from_slice(&old[..kept]),
                    None => drop(read_full_at(&*self.file, &mut page[..kept], at * PAGE)?),
                }
            }
            written.pages.insert(at, page);
        }
        written.len = len;
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.lock().len)
    }

    fn allocate(&self, at: u64, len: u64) -> io::Result<()> {
        let mut written = self.lock();
        written.len = written.len.max(at + len);
        Ok(())
    }

    fn drop_cache(&self) -> io::Result<()> {
        Ok(())
    }
}
