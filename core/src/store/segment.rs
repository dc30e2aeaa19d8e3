//! A segment: one file of a shard's log. It begins with a page that says what it is, then batches.
//!
//! ```text
//!  0 magic "SLIPSEG1" | 8 major u16, minor u16 | 12 incompat u32 | 16 compat u32 | 20 shard u32
//! 24 store u128 | 40 base u64 | 48 previous_end u64 | 56 created_us u64 | 64 epoch u32
//! 68 salt u32 | 72 given_up u64 | 80 after_damage u32 | 84 gaps | zeros | 4092 crc u32
//! ```
//!
//! A file gets its name when this page is durable, so a half-made segment cannot exist. A reader
//! refuses a major version or an incompatible flag that it does not know; compatible flags and
//! minor versions it need not know.

use super::batch::{agree, checksum};
use super::error::StoreError;
use super::gaps::{GAPS, Gaps};
use super::index::{IndexOf, PartitionRow, SegmentIndex};
use super::record::{long, word};
use super::sabotage::sabotaged;
use super::scan;
use super::spare::SpareFile;
use crate::fs::{Fs, FsFile, OpenHow, read_full_at, write_all_at};
use crate::sync::Mutex;
use std::fmt;
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const MAGIC: &[u8; 8] = b"SLIPSEG1";
const MAJOR: u16 = 1;
/// 1: the gaps are listed.
const MINOR: u16 = 1;
const GAPS_AT: usize = 84;
/// Bytes before the first batch: a whole page.
pub(crate) const SEGMENT_HEADER: usize = 4096;
/// Position of the first batch.
pub(crate) const FIRST_BATCH: u64 = SEGMENT_HEADER as u64;

/// The random number that tells a store, and every file of it, from all others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StoreId(pub(crate) u128);

/// The first page of a segment in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub(crate) id: StoreId,
    pub(crate) shard: u32,
    /// Sequence of the first record.
    pub(crate) base: u64,
    /// Where the segment before ended. Sequences from there to `base` were given up: they may have
    /// been seen before a crash that took the records.
    pub(crate) previous_end: u64,
    /// What was given up in the life of the log, also directly before `base`.
    pub(crate) gaps: Gaps,
    /// Whether the segment before is damaged from `previous_end` on, and may have more behind.
    pub(crate) after_damage: bool,
    pub(crate) created_us: u64,
    pub(crate) epoch: u32,
    /// Random; begins every check in the file.
    pub(crate) salt: u32,
}

/// Why a first page is not one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum BadHeader {
    Damaged,
    Unknown(String),
}

impl SegmentHeader {
    pub(crate) fn encode(&self) -> Box<[u8; SEGMENT_HEADER]> {
        let mut bytes = Box::new([0; SEGMENT_HEADER]);
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        put(0, MAGIC);
        put(8, &MAJOR.to_le_bytes());
        put(10, &MINOR.to_le_bytes());
        put(20, &self.shard.to_le_bytes());
        put(24, &self.id.0.to_le_bytes());
        put(40, &self.base.to_le_bytes());
        put(48, &self.previous_end.to_le_bytes());
        put(56, &self.created_us.to_le_bytes());
        put(64, &self.epoch.to_le_bytes());
        put(68, &self.salt.to_le_bytes());
        put(72, &self.gaps.total().to_le_bytes());
        put(80, &u32::from(self.after_damage).to_le_bytes());
        self.gaps.encode(&mut bytes[GAPS_AT..][..GAPS]);
        let crc = checksum(0, &bytes[..SEGMENT_HEADER - 4]);
        bytes[SEGMENT_HEADER - 4..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, BadHeader> {
        let bytes = bytes.first_chunk::<SEGMENT_HEADER>().ok_or(BadHeader::Damaged)?;
        let verifies = sabotaged("segment_crc")
            || agree(word(bytes, SEGMENT_HEADER - 4), checksum(0, &bytes[..SEGMENT_HEADER - 4]));
        if !bytes.starts_with(MAGIC) || !verifies {
            return Err(BadHeader::Damaged);
        }
        let major = u16::from_le_bytes([bytes[8], bytes[9]]);
        let incompat = word(bytes, 12);
        if major != MAJOR {
            return Err(BadHeader::Unknown(format!("segment format {major}, known is {MAJOR}")));
        }
        if incompat != 0 {
            return Err(BadHeader::Unknown(format!("segment needs features {incompat:#x}")));
        }
        Ok(Self {
            shard: word(bytes, 20),
            id: StoreId(u128::from(long(bytes, 24)) | u128::from(long(bytes, 32)) << 64),
            base: long(bytes, 40),
            previous_end: long(bytes, 48),
            created_us: long(bytes, 56),
            epoch: word(bytes, 64),
            salt: word(bytes, 68),
            gaps: Gaps::decode(long(bytes, 72), &bytes[GAPS_AT..][..GAPS]),
            after_damage: word(bytes, 80) != 0,
        })
    }
}

/// How far a segment is written, with whole batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) position: u64,
    /// Behind the last record.
    pub(crate) sequence: u64,
    pub(crate) sealed: bool,
    /// Whether something in it was found not to verify: then `sequence` is where that begins, if
    /// nothing follows the segment, and `position` is the end of the file.
    pub(crate) damaged: bool,
}

/// A segment, shared by the writer and the readers.
pub(crate) struct Segment {
    pub(crate) header: SegmentHeader,
    /// From the store's directory on.
    pub(crate) path: PathBuf,
    inside: Mutex<Inside>,
}

struct Inside {
    extent: Extent,
    /// Of sealed segments, file and index are there while they are in use.
    file: Option<Arc<dyn FsFile>>,
    index: Option<SegmentIndex>,
}

impl Segment {
    pub(crate) fn new(
        header: SegmentHeader,
        path: PathBuf,
        extent: Extent,
        open: Option<(Arc<dyn FsFile>, SegmentIndex)>,
    ) -> Self {
        let (file, index) = open.unzip();
        Self { header, path, inside: Mutex::new(Inside { extent, file, index }) }
    }

    /// Makes the file of a segment that begins at `header.base`. When this returns, it is durable
    /// with its name. It is the `spare` one, if there is one. Also says how long it is.
    pub(crate) fn create(
        fs: &dyn Fs,
        dir: &Path,
        header: SegmentHeader,
        spare: Option<SpareFile>,
    ) -> io::Result<(Self, u64)> {
        let path = log_path(dir, header.base);
        let (temporary, file) = match spare {
            Some(SpareFile { path, file }) => (path, file),
            None => {
                let temporary = path.with_extension("log.tmp");
                let file = create_new(fs, &temporary)?;
                (temporary, file)
            }
        };
        let page = header.encode();
        let written = write_all_at(&*file, &mut [IoSlice::new(&page[..])], 0)
            .and_then(|()| if sabotaged("segment_sync") { Ok(()) } else { file.sync_data() })
            .and_then(|()| file.len());
        let len = match written {
            Ok(len) => len,
            Err(error) => {
                // It has no name that counts; what stays of it is removed at the next try.
                let _ = fs.remove(&temporary);
                return Err(error);
            }
        };
        if let Err(error) = fs.rename(&temporary, &path) {
            let _ = fs.remove(&temporary);
            return Err(error);
        }
        if !sabotaged("segment_dir_sync") {
            fs.sync_dir(dir)?;
        }
        let extent =
            Extent { position: FIRST_BATCH, sequence: header.base, sealed: false, damaged: false };
        let open = Some((Arc::from(file), SegmentIndex::new(header.base)));
        Ok((Self::new(header, path, extent, open), len))
    }

    pub(crate) fn base(&self) -> u64 {
        self.header.base
    }

    pub(crate) fn extent(&self) -> Extent {
        self.lock().extent
    }

    /// Its file; opens it if it is closed at the moment.
    pub(crate) fn file(&self, fs: &dyn Fs) -> io::Result<Arc<dyn FsFile>> {
        let mut inside = self.lock();
        if let Some(file) = &inside.file {
            return Ok(Arc::clone(file));
        }
        let file: Arc<dyn FsFile> = Arc::from(fs.open(&self.path, OpenHow::Read)?);
        inside.file = Some(Arc::clone(&file));
        Ok(file)
    }

    /// Tells readers of new batches, which `add` puts into the index.
    pub(crate) fn grow(&self, extent: Extent, add: impl FnOnce(&mut SegmentIndex)) {
        let mut inside = self.lock();
        inside.extent = extent;
        if let Some(index) = &mut inside.index {
            add(index);
        }
    }

    /// Asks the index; loads it, or makes it anew, if it is not in memory.
    pub(crate) fn with_index<R>(
        &self,
        fs: &dyn Fs,
        ask: impl FnOnce(&SegmentIndex) -> R,
    ) -> Result<R, StoreError> {
        loop {
            if let Some(index) = &self.lock().index {
                return Ok(ask(index));
            }
            // Two threads may do this at once; the first one's stays.
            let (index, _) = self.make_index(fs)?;
            self.lock().index.get_or_insert(index);
        }
    }

    /// The index, and whether the file beside the segment has it.
    fn make_index(&self, fs: &dyn Fs) -> Result<(SegmentIndex, bool), StoreError> {
        if let Some(index) = self.load_index(fs)? {
            return Ok((index, true));
        }
        let file = self.file(fs)?;
        let (index, is_whole) = scan::index(&*file, &self.header, self.extent().position)?;
        let is_saved = is_whole && self.save_index(fs, &index);
        Ok((index, is_saved))
    }

    fn index_of(&self) -> IndexOf {
        let Extent { position, sequence, .. } = self.extent();
        IndexOf { end: sequence, position, salt: self.header.salt }
    }

    fn load_index(&self, fs: &dyn Fs) -> io::Result<Option<SegmentIndex>> {
        let Ok(file) = fs.open(&self.index_path(), OpenHow::Read) else { return Ok(None) };
        let len = file.len()?;
        if len > self.index_of().most_bytes() {
            return Ok(None);
        }
        let mut bytes = vec![0; len as usize];
        let read = read_full_at(&*file, &mut bytes, 0)?;
        Ok(SegmentIndex::decode(&bytes[..read], self.base(), self.index_of()))
    }

    /// What it holds of each partition, with as little reading as can be.
    pub(crate) fn read_table(&self, fs: &dyn Fs) -> Result<Vec<PartitionRow>, StoreError> {
        if let Some(index) = &self.lock().index {
            return Ok(index.partitions().collect());
        }
        if let Ok(file) = fs.open(&self.index_path(), OpenHow::Read)
            && let Some(rows) = SegmentIndex::read_table(&*file, self.base(), self.index_of())?
        {
            return Ok(rows);
        }
        let (index, is_saved) = self.make_index(fs)?;
        let rows = index.partitions().collect();
        if is_saved {
            // All segments are asked for their tables: they cannot all stay open.
            self.close();
        } else {
            self.lock().index.get_or_insert(index);
        }
        Ok(rows)
    }

    /// Writes the index of a sealed segment beside it, and says whether it could. Nobody needs to be
    /// told: it is a cache.
    pub(crate) fn save_index(&self, fs: &dyn Fs, index: &SegmentIndex) -> bool {
        let path = self.index_path();
        let bytes = index.encode(self.index_of());
        let write = || {
            let _ = fs.remove(&path);
            let file = fs.open(&path, OpenHow::CreateNew)?;
            write_all_at(&*file, &mut [IoSlice::new(&bytes)], 0)
        };
        let written: io::Result<()> = write();
        if written.is_err() {
            let _ = fs.remove(&path);
        }
        written.is_ok()
    }

    /// The same with the index in memory.
    pub(crate) fn save_own_index(&self, fs: &dyn Fs) {
        let index = self.lock().index.clone();
        if let Some(index) = index {
            self.save_index(fs, &index);
        }
    }

    /// Lets go of file and index; they come back when they are asked for.
    pub(crate) fn close(&self) {
        let mut inside = self.lock();
        (inside.file, inside.index) = (None, None);
    }

    pub(crate) fn index_path(&self) -> PathBuf {
        self.path.with_extension("idx")
    }

    fn lock(&self) -> impl std::ops::DerefMut<Target = Inside> + use<'_> {
        self.inside.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl fmt::Debug for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Segment")
            .field("base", &self.base())
            .field("extent", &self.extent())
            .finish_non_exhaustive()
    }
}

/// A new file at `path`; one of an attempt that failed goes.
fn create_new(fs: &dyn Fs, path: &Path) -> io::Result<Box<dyn FsFile>> {
    match fs.open(path, OpenHow::CreateNew) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            fs.remove(path)?;
            fs.open(path, OpenHow::CreateNew)
        }
        outcome => outcome,
    }
}

/// The file of the segment that begins at `base`.
pub(crate) fn log_path(dir: &Path, base: u64) -> PathBuf {
    dir.join(format!("{base:020}.log"))
}

/// The file of its index.
pub(crate) fn index_path(dir: &Path, base: u64) -> PathBuf {
    dir.join(format!("{base:020}.idx"))
}

/// The file that keeps its end, which was cut off when the shard was opened as `epoch`.
pub(crate) fn torn_path(dir: &Path, base: u64, epoch: u32) -> PathBuf {
    dir.join(format!("{base:020}.{epoch}.torn"))
}

/// The base of the segment that a file of this name is, if it is one.
pub(crate) fn base_of_name(name: &str) -> Option<u64> {
    base_of_digits(name.strip_suffix(".log")?)
}

/// Epoch and base of a file with an end that was cut off, if it is one.
pub(crate) fn torn_of_name(name: &str) -> Option<(u32, u64)> {
    let (base, epoch) = name.strip_suffix(".torn")?.split_once('.')?;
    Some((epoch.parse().ok()?, base_of_digits(base)?))
}

/// The base that these digits are, as they stand in the names of files.
pub(crate) fn base_of_digits(digits: &str) -> Option<u64> {
    let is_base = digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_base.then(|| digits.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> SegmentHeader {
        SegmentHeader {
            id: StoreId(1 << 100 | 7),
            shard: 3,
            base: 99,
            previous_end: 90,
            gaps: Gaps::default().and(4..6).and(90..99),
            after_damage: true,
            created_us: 5,
            epoch: 2,
            salt: 0xabcd,
        }
    }

    #[test]
    fn a_first_page_reads_back_and_every_flipped_bit_is_noticed() {
        let bytes = header().encode();
        assert_eq!(SegmentHeader::decode(&bytes[..]), Ok(header()));
        for bit in 0..SEGMENT_HEADER * 8 {
            let mut bytes = bytes.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(SegmentHeader::decode(&bytes[..]), Err(BadHeader::Damaged), "bit {bit}");
        }
    }

    #[test]
    fn an_unknown_version_or_feature_is_told_from_damage() {
        let with = |at: usize, byte: u8| {
            let mut bytes = header().encode();
            bytes[at] = byte;
            let crc = checksum(0, &bytes[..SEGMENT_HEADER - 4]);
            bytes[SEGMENT_HEADER - 4..].copy_from_slice(&crc.to_le_bytes());
            SegmentHeader::decode(&bytes[..])
        };
        assert!(matches!(with(8, 2), Err(BadHeader::Unknown(why)) if why.contains("format 2")));
        assert!(matches!(with(12, 4), Err(BadHeader::Unknown(why)) if why.contains("0x4")));
        assert_eq!(with(10, 9), Ok(header()), "a later minor version");
        assert_eq!(with(16, 9), Ok(header()), "a compatible feature");
    }

    #[test]
    fn only_names_of_segments_are_taken_for_segments() {
        let base = |name| base_of_name(name);
        assert_eq!(base("00000000000000000099.log"), Some(99));
        assert_eq!(base("00000000000000000099.log.tmp"), None);
        assert_eq!(base("99.log"), None);
        assert_eq!(base("0000000000000000+099.log"), None);
        assert_eq!(base("99999999999999999999.log"), None);
        let dir = Path::new("d");
        let name = |path: PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
        assert_eq!(torn_of_name(&name(torn_path(dir, 7, 3))), Some((3, 7)));
        assert_eq!(torn_of_name("00000000000000000007.torn"), None);
        assert_eq!(torn_of_name("7.3.torn"), None);
    }
}
