//! A file: what is on the disk, what programs read, and every version of each sector in between.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fastrand::Rng;

/// The disk writes such a piece whole, tears it at a multiple of [`WORD`], or ruins it.
pub(crate) const SECTOR: usize = 512;
/// A sector is not torn inside such a piece.
const WORD: usize = 8;
/// Versions of one sector that are remembered; the first and the last always are.
const MAX_VERSIONS: usize = 8;

type Sector = Arc<[u8; SECTOR]>;
type Sectors = BTreeMap<u64, Sector>;

/// A sector that is not there is all zeros.
#[derive(Debug, Clone, Default)]
pub(crate) struct SimFile {
    disk: Sectors,
    disk_len: u64,
    cache: Sectors,
    len: u64,
    /// Sectors whose cached bytes are not on the disk, but will be after the next sync.
    dirty: BTreeMap<u64, Dirty>,
    /// Lengths since the last sync, each with the change that made it.
    lens: Vec<(u64, u64)>,
    /// Sectors whose cached bytes are not on the disk and will not be: a sync failed.
    lost: BTreeSet<u64>,
    /// Counts changes.
    change: u64,
}

#[derive(Debug, Clone, Default)]
struct Dirty {
    versions: Vec<Version>,
    /// Bytes written since the last sync: only these can be ruined.
    written: Vec<std::ops::Range<usize>>,
}

#[derive(Debug, Clone)]
struct Version {
    change: u64,
    bytes: Sector,
    /// The file was cut before this sector.
    is_cut: bool,
}

/// What may become of bytes that were not synced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    AllKept,
    AllDropped,
    Each,
}

impl Fate {
    pub(crate) fn draw(rng: &mut Rng) -> Self {
        match rng.u8(0..10) {
            0..3 => Self::AllKept,
            3..5 => Self::AllDropped,
            _ => Self::Each,
        }
    }
}

fn zeros() -> Sector {
    Arc::new([0; SECTOR])
}

fn sector_of(at: u64) -> u64 {
    at / SECTOR as u64
}

/// The pieces of a range, sector by sector: the sector, its part, and the part of the range.
fn pieces(at: u64, len: usize) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        (done < len).then(|| {
            let place = at + done as u64;
            let inside = (place % SECTOR as u64) as usize;
            let count = (SECTOR - inside).min(len - done);
            done += count;
            (sector_of(place), inside, done - count..done)
        })
    })
}

impl SimFile {
    /// A file whose bytes are on the disk.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let mut file = Self::default();
        file.write(bytes, 0);
        file.sync();
        file
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// The larger of what programs see and what is on the disk.
    pub(crate) fn room(&self) -> u64 {
        self.len.max(self.disk_len)
    }

    pub(crate) fn read(&self, buf: &mut [u8], at: u64) -> usize {
        let count = self.len.saturating_sub(at).min(buf.len() as u64) as usize;
        for (sector, inside, part) in pieces(at, count) {
            match self.cache.get(&sector) {
                Some(bytes) => {
                    let len = part.len();
                    buf[part].copy_from_slice(&bytes[inside..inside + len]);
                }
                None => buf[part].fill(0),
            }
        }
        count
    }

    pub(crate) fn write(&mut self, bytes: &[u8], at: u64) {
        self.change += 1;
        for (sector, inside, part) in pieces(at, bytes.len()) {
            let written = inside..inside + part.len();
            let mut new = *self.cache.entry(sector).or_insert_with(zeros).clone();
            new[written.clone()].copy_from_slice(&bytes[part]);
            self.put(sector, Some(Arc::new(new)), false);
            self.dirty.entry(sector).or_default().written.push(written);
        }
        if at + bytes.len() as u64 > self.len && !bytes.is_empty() {
            self.len = at + bytes.len() as u64;
            self.lens.push((self.change, self.len));
        }
    }

    fn put(&mut self, sector: u64, bytes: Option<Sector>, is_cut: bool) {
        let version =
            Version { change: self.change, bytes: bytes.clone().unwrap_or_else(zeros), is_cut };
        match bytes {
            Some(bytes) => self.cache.insert(sector, bytes),
            None => self.cache.remove(&sector),
        };
        self.lost.remove(&sector);
        let versions = &mut self.dirty.entry(sector).or_default().versions;
        if versions.len() >= MAX_VERSIONS && versions.last().is_some_and(|last| !last.is_cut) {
            versions.pop();
        }
        versions.push(version);
    }

    pub(crate) fn set_len(&mut self, len: u64) {
        self.change += 1;
        if len < self.len {
            let inside = (len % SECTOR as u64) as usize;
            if inside > 0
                && let Some(bytes) = self.cache.get(&sector_of(len))
            {
                let mut new = **bytes;
                new[inside..].fill(0);
                self.put(sector_of(len), Some(Arc::new(new)), false);
            }
            let first = len.div_ceil(SECTOR as u64);
            let mut cut: BTreeSet<u64> = self.cache.range(first..).map(|(at, _)| *at).collect();
            cut.extend(self.disk.range(first..).map(|(at, _)| *at));
            for sector in cut {
                self.put(sector, None, true);
            }
        }
        if len != self.len {
            self.len = len;
            self.lens.push((self.change, len));
        }
    }

    pub(crate) fn sync(&mut self) {
        for sector in std::mem::take(&mut self.dirty).into_keys() {
            self.write_back(sector);
        }
        self.disk_len = self.len;
        self.lens.clear();
    }

    fn write_back(&mut self, sector: u64) {
        match self.cache.get(&sector) {
            Some(bytes) => self.disk.insert(sector, bytes.clone()),
            None => self.disk.remove(&sector),
        };
    }

    /// A sync that fails: some of the bytes arrive, the others never will.
    pub(crate) fn fail_sync(&mut self, rng: &mut Rng) {
        let fate = Fate::draw(rng);
        for sector in std::mem::take(&mut self.dirty).into_keys() {
            if fate == Fate::AllKept || (fate == Fate::Each && rng.bool()) {
                self.write_back(sector);
            } else {
                self.lost.insert(sector);
            }
        }
    }

    pub(crate) fn drop_cache(&mut self) {
        for sector in std::mem::take(&mut self.lost) {
            match self.disk.get(&sector) {
                Some(bytes) => self.cache.insert(sector, bytes.clone()),
                None => self.cache.remove(&sector),
            };
        }
    }

    /// What the disk holds when the power goes; true if bytes were ruined.
    pub(crate) fn cut_power(&mut self, rng: &mut Rng, can_ruin: bool) -> bool {
        let fate = Fate::draw(rng);
        let mut events = vec![(0, self.disk_len)];
        events.append(&mut self.lens);
        let (until, len) = match fate {
            Fate::AllKept => events[events.len() - 1],
            Fate::AllDropped => events[0],
            Fate::Each => events[rng.usize(..events.len())],
        };
        let mut ruined = false;
        for (sector, dirty) in std::mem::take(&mut self.dirty) {
            let old = self.disk.get(&sector).cloned().unwrap_or_else(zeros);
            let choices = dirty.choices(old, until);
            let bytes = match fate {
                Fate::AllKept => choices[choices.len() - 1].clone(),
                Fate::AllDropped => choices[0].clone(),
                Fate::Each => {
                    let (bytes, is_ruined) = dirty.draw(&choices, rng, can_ruin);
                    ruined |= is_ruined;
                    bytes
                }
            };
            self.disk.insert(sector, bytes);
        }
        self.disk_len = len;
        self.disk.split_off(&len.div_ceil(SECTOR as u64));
        let inside = (len % SECTOR as u64) as usize;
        if inside > 0
            && let Some(last) = self.disk.get_mut(&sector_of(len))
        {
            Arc::make_mut(last)[inside..].fill(0);
        }
        self.lost.clear();
        self.cache = self.disk.clone();
        self.len = len;
        ruined
    }
}

impl Dirty {
    /// What of this sector can be on the disk, oldest first, if the last change of the length that
    /// survived is `until`.
    fn choices(&self, old: Sector, until: u64) -> Vec<Sector> {
        let cut = self.versions.iter().rposition(|v| v.is_cut && v.change <= until);
        let mut choices = if cut.is_some() { vec![] } else { vec![old] };
        let rest = &self.versions[cut.unwrap_or(0)..];
        choices.extend(
            rest.iter().filter(|v| !v.is_cut || v.change <= until).map(|v| v.bytes.clone()),
        );
        choices
    }

    fn draw(&self, choices: &[Sector], rng: &mut Rng, can_ruin: bool) -> (Sector, bool) {
        let any = |rng: &mut Rng| choices[rng.usize(..choices.len())].clone();
        match rng.u8(0..10) {
            0..4 => (choices[choices.len() - 1].clone(), false),
            4..6 => (choices[0].clone(), false),
            6 if can_ruin => {
                let mut bytes = *any(rng);
                for range in &self.written {
                    rng.fill(&mut bytes[range.clone()]);
                }
                (Arc::new(bytes), !self.written.is_empty())
            }
            6..9 => {
                let tear = rng.usize(0..=SECTOR / WORD) * WORD;
                let mut bytes = *any(rng);
                bytes[tear..].copy_from_slice(&any(rng)[tear..]);
                (Arc::new(bytes), false)
            }
            _ => (any(rng), false),
        }
    }
}
