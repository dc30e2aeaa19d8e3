//! Directories: which names there are, and which of them the disk knows.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;

use fastrand::Rng;

use crate::file::Fate;

/// A file or directory, whatever it is called.
pub(crate) type Id = u64;
pub(crate) const ROOT: Id = 0;

type Entries = BTreeMap<OsString, Id>;

/// All directories, by their id.
#[derive(Debug, Clone)]
pub(crate) struct Names {
    seen: BTreeMap<Id, Entries>,
    disk: BTreeMap<Id, Entries>,
    unsynced: Vec<Step>,
}

/// Names that change together or not at all.
#[derive(Debug, Clone)]
struct Step {
    changes: Vec<(Id, OsString, Option<Id>)>,
}

impl Names {
    pub(crate) fn new() -> Self {
        let root = BTreeMap::from([(ROOT, Entries::new())]);
        Self { seen: root.clone(), disk: root, unsynced: vec![] }
    }

    /// The names in a directory; `None` if it is none.
    pub(crate) fn entries(&self, dir: Id) -> Option<&Entries> {
        self.seen.get(&dir)
    }

    pub(crate) fn add_dir(&mut self, dir: Id) {
        self.seen.insert(dir, Entries::new());
        self.disk.insert(dir, Entries::new());
    }

    pub(crate) fn change(&mut self, changes: Vec<(Id, OsString, Option<Id>)>) {
        let step = Step { changes };
        step.apply(&mut self.seen);
        self.unsynced.push(step);
    }

    pub(crate) fn sync(&mut self, dir: Id) {
        let touches = |step: &mut Step| step.changes.iter().any(|change| change.0 == dir);
        for step in self.unsynced.extract_if(.., touches) {
            step.apply(&mut self.disk);
        }
    }

    /// A sync that fails: some of the changes arrive, and nobody says which. The others wait for the
    /// next sync. Unlike bytes, none is forgotten while programs still see it: names are in a file
    /// system's journal, and one that could not write that takes no more changes at all.
    pub(crate) fn fail_sync(&mut self, dir: Id, rng: &mut Rng) {
        let arrives =
            |step: &mut Step| step.changes.iter().any(|change| change.0 == dir) && rng.bool();
        for step in self.unsynced.extract_if(.., arrives) {
            step.apply(&mut self.disk);
        }
    }

    /// What the disk knows when the power goes.
    pub(crate) fn cut_power(&mut self, rng: &mut Rng) {
        let fate = Fate::draw(rng);
        for step in std::mem::take(&mut self.unsynced) {
            let is_kept = match fate {
                Fate::AllKept => true,
                Fate::AllDropped => false,
                Fate::Each => rng.bool(),
            };
            if is_kept {
                step.apply(&mut self.disk);
            }
        }
        self.seen = self.disk.clone();
    }

    /// Everything that has a name, for programs or on the disk.
    pub(crate) fn named(&self) -> BTreeSet<Id> {
        let dirs = self.seen.values().chain(self.disk.values());
        let mut named: BTreeSet<Id> = dirs.flat_map(|entries| entries.values().copied()).collect();
        let pending = self.unsynced.iter().flat_map(|step| &step.changes);
        named.extend(pending.filter_map(|change| change.2));
        named
    }
}

impl Step {
    fn apply(&self, dirs: &mut BTreeMap<Id, Entries>) {
        for (dir, name, id) in &self.changes {
            let Some(entries) = dirs.get_mut(dir) else { continue };
            match id {
                Some(id) => entries.insert(name.clone(), *id),
                None => entries.remove(name),
            };
        }
    }
}
