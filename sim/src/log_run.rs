//! A run of the disk store from one seed: appends, syncs, reads and retention, with the power cut,
//! the process killed and the disk failing at any call, also while the store recovers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use slipring::NewMessage;
use slipring::TestClock;
use slipring::store::{
    DiskStore, DiskStoreBuilder, Group, MessageStore, OnDamage, RecordPlace, Retention, StoreError,
    StoredRecord, SyncPolicy,
};

use crate::fault::{Fault, Planned, Until};
use crate::log_model::{LogModel, Stop};
use crate::{SimFs, SimOptions};

/// What happened in a run.
#[derive(Debug, Clone, Copy, Default)]
#[expect(clippy::exhaustive_structs, reason = "added up by whoever runs many")]
pub struct RunReport {
    /// Power cuts and kills.
    pub crashes: u32,
    /// Those of them that struck while the store was being opened.
    pub crashes_in_recovery: u32,
    /// Records that were appended.
    pub appended: u64,
    /// Syncs that failed.
    pub poisoned: u32,
    /// Appends that found the disk full.
    pub full: u32,
    /// Times that the end was found damaged, because bytes had been ruined.
    pub damaged: u32,
}

impl std::ops::AddAssign for RunReport {
    fn add_assign(&mut self, other: Self) {
        self.crashes += other.crashes;
        self.crashes_in_recovery += other.crashes_in_recovery;
        self.appended += other.appended;
        self.poisoned += other.poisoned;
        self.full += other.full;
        self.damaged += other.damaged;
    }
}

/// Runs `seed`; an error says what was broken and what the disk was last asked.
///
/// # Errors
///
/// What the store lost, invented, reordered or used again.
pub fn run_log(seed: u64) -> Result<RunReport, String> {
    let mut run = Run::new(seed);
    let outcome = run.rounds();
    outcome.map(|()| run.report).map_err(|error| {
        format!("seed {seed}: {error}\n{:?}\nlast calls:\n  {}", run.setting(), run.trace())
    })
}

/// Runs a fixed workload of 200 steps with one fault, and says how many calls of the disk there
/// were. Opening the store is part of it.
///
/// # Errors
///
/// What the store lost, invented, reordered or used again.
pub fn run_log_fault(policy: SyncPolicy, fault: Option<Planned>) -> Result<u64, String> {
    let mut run = Run::new(7);
    let options = SimOptions { can_ruin: false, short_per_mille: 0, capacity: None };
    run.fs = SimFs::new(7, options);
    (run.policy, run.shards, run.preallocate, run.reserve) = (policy, 1, 16 << 10, 8 << 10);
    run.in_pieces = false;
    (run.models, run.nexts) = (vec![LogModel::default()], vec![BTreeMap::new()]);
    run.fs.plan(fault.into_iter().collect());
    let outcome = run.under_fault(200);
    outcome.map_err(|error| {
        format!("{fault:?}: {error}\n{}\nlast calls:\n  {}", run.setting(), run.trace())
    })
}

struct Run {
    rng: Rng,
    fs: SimFs,
    clock: TestClock,
    shards: usize,
    policy: SyncPolicy,
    on_damage: OnDamage,
    segment_bytes: u64,
    preallocate: u64,
    reserve: u64,
    /// Whether writes are small and often done in pieces, so that a power cut leaves one batch alone
    /// torn, in one sector.
    in_pieces: bool,
    boot: u128,
    /// Whether bytes that a power cut ruined may still be there, which nobody can tell from damage.
    ruined: bool,
    models: Vec<LogModel>,
    nexts: Vec<BTreeMap<u32, u64>>,
    report: RunReport,
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let mut options = SimOptions {
            can_ruin: rng.u8(0..4) == 0,
            short_per_mille: if rng.bool() { 0 } else { 30 },
            capacity: (rng.u8(0..5) == 0).then(|| rng.u64(100_000..600_000)),
        };
        // Not drawn, so that other seeds do what they did when they found something.
        let in_pieces = seed % 8 == 6;
        if in_pieces {
            options.short_per_mille = 600;
        }
        let shards = rng.usize(1..=2);
        let policies =
            [SyncPolicy::Always, SyncPolicy::Os, SyncPolicy::Interval(Duration::from_millis(10))];
        Self {
            fs: SimFs::new(rng.u64(..), options),
            clock: TestClock::new(),
            shards,
            policy: policies[rng.usize(0..4) % 3],
            on_damage: if rng.bool() { OnDamage::Refuse } else { OnDamage::Skip },
            segment_bytes: 64 << 10,
            preallocate: [0, 4 << 10, 16 << 10, 64 << 10][rng.usize(0..4)],
            reserve: [0, 8 << 10][rng.usize(0..2)],
            in_pieces,
            boot: 1,
            ruined: false,
            models: vec![LogModel::default(); shards],
            nexts: vec![BTreeMap::new(); shards],
            report: RunReport::default(),
            rng,
        }
    }

    fn setting(&self) -> String {
        format!(
            "shards {}, {:?}, {:?}, segments {}, preallocate {}, reserve {}, in pieces {}",
            self.shards,
            self.policy,
            self.on_damage,
            self.segment_bytes,
            self.preallocate,
            self.reserve,
            self.in_pieces
        )
    }

    fn trace(&self) -> String {
        self.fs.trace().join("\n  ")
    }

    fn builder(&mut self) -> DiskStoreBuilder {
        DiskStore::builder()
            .shards(self.shards)
            .sync(self.policy)
            .on_damage(self.on_damage)
            .segment_bytes(self.segment_bytes)
            .preallocate_bytes(self.preallocate)
            .reserve_bytes(self.reserve)
            .clock(&self.clock)
            .seed(self.rng.u64(..))
            .boot(self.boot)
            .background(false)
    }

    fn rounds(&mut self) -> Result<(), String> {
        let mut stop = Stop::Closed;
        for _ in 0..self.rng.u32(2..6) {
            let Some((store, stopped)) = self.open(stop)? else { return Ok(()) };
            let damaged = store.recovery().iter().any(|recovery| recovery.damage.is_some());
            if damaged {
                self.report.damaged += 1;
                if !self.ruined {
                    return Err(format!("taken for damage: {:?}", store.recovery()));
                }
            }
            self.check(&store, stopped)?;
            if damaged && self.on_damage == OnDamage::Refuse {
                return self.check_refusal(&store);
            }
            for shard in 0..self.shards {
                let bounds = store.partitions(shard).map_err(|error| error.to_string())?;
                self.nexts[shard] =
                    bounds.iter().map(|bounds| (bounds.partition, bounds.next)).collect();
            }
            let steps = self.plan_work();
            stop = self.work(&store, steps)?;
            drop(store);
            self.end(stop);
        }
        self.check_at_last(stop)
    }

    /// The same for one fault that is planned already.
    fn under_fault(&mut self, steps: u32) -> Result<u64, String> {
        let stop = match self.builder().open_on(Arc::new(self.fs.clone())) {
            Ok(store) => self.work(&store, steps)?,
            Err(_) => Stop::PowerCut,
        };
        let calls = self.fs.calls();
        self.end(stop);
        self.check_at_last(stop)?;
        Ok(calls)
    }

    /// Opens the store with nothing that interferes.
    fn check_at_last(&mut self, stop: Stop) -> Result<(), String> {
        self.fs.plan(vec![]);
        self.fs.set_capacity(None);
        let store = match self.builder().open_on(Arc::new(self.fs.clone())) {
            Ok(store) => store,
            Err(error) => return Err(format!("cannot be opened: {error}")),
        };
        self.check(&store, stop)
    }

    fn check(&mut self, store: &DiskStore, stop: Stop) -> Result<(), String> {
        let mut damaged = false;
        for (shard, recovery) in store.recovery().iter().enumerate() {
            let refuses = recovery.damage.is_some() && self.on_damage == OnDamage::Refuse;
            damaged |= self.models[shard].check(store, shard, stop, self.ruined, refuses)?;
        }
        // Everything was read: what was ruined has been cut off.
        self.ruined &= damaged;
        Ok(())
    }

    /// The machine comes up after `stop`.
    fn end(&mut self, stop: Stop) {
        self.report.crashes += u32::from(stop != Stop::Closed);
        match stop {
            Stop::Closed => {}
            Stop::Kill => {
                self.fs.kill();
                self.fs = self.fs.restart();
            }
            Stop::PowerCut => {
                self.fs.power_cut();
                self.ruined |= self.fs.was_ruined();
                self.boot += 1;
                self.fs = self.fs.restart();
            }
        }
    }

    /// Opens the store, with crashes and failures while it does so; `None` when the disk is too
    /// small for it.
    fn open(&mut self, mut stop: Stop) -> Result<Option<(DiskStore, Stop)>, String> {
        for attempt in 0..4 {
            if attempt < 3 && self.rng.u8(0..3) == 0 {
                let fault = self.fault();
                let at = self.fs.calls() + self.rng.u64(0..60);
                self.fs.plan(vec![Planned { at, fault, until: Until::Once }]);
            } else {
                self.fs.plan(vec![]);
            }
            let is_planned = attempt < 3;
            let failed_syncs = self.fs.failed_syncs();
            match self.builder().open_on(Arc::new(self.fs.clone())) {
                Ok(store) if !self.fs.is_down() => {
                    self.fs.plan(vec![]);
                    return Ok(Some((store, stop)));
                }
                Ok(store) => drop(store),
                Err(StoreError::Full) if !is_planned => return Ok(None),
                Err(error) if !is_planned => return Err(format!("cannot be opened: {error}")),
                // What was in memory alone, this sync may have lost.
                Err(_) if self.fs.failed_syncs() > failed_syncs => self.failed(),
                Err(_) => {}
            }
            if self.fs.is_down() {
                self.report.crashes_in_recovery += 1;
            }
            // Where the store gave up, the machine may still go down.
            let next = match self.went_down() {
                Some(stop) => stop,
                None if self.rng.bool() => Stop::PowerCut,
                None => Stop::Kill,
            };
            self.end(next);
            if next == Stop::PowerCut || stop == Stop::Closed {
                stop = next;
            }
        }
        Err("four attempts, and the last one is not disturbed".to_owned())
    }

    /// How the machine went down, if it is.
    fn went_down(&self) -> Option<Stop> {
        let last = |trace: Vec<String>| {
            trace.iter().rev().find_map(|line| match line.as_str() {
                "Kill" => Some(Stop::Kill),
                "PowerCut" => Some(Stop::PowerCut),
                _ => None,
            })
        };
        self.fs.is_down().then(|| last(self.fs.trace())).flatten()
    }

    fn fault(&mut self) -> Fault {
        match self.rng.u8(0..10) {
            0..5 => Fault::PowerCut,
            5..7 => Fault::Kill,
            7..9 => Fault::Io,
            _ => Fault::NoSpace,
        }
    }

    /// Plans what interferes with the next steps, and says how many.
    fn plan_work(&mut self) -> u32 {
        if self.rng.u8(0..4) > 0 {
            let at = self.fs.calls() + self.rng.u64(0..150);
            let fault = self.fault();
            let until = if self.rng.u8(0..4) == 0 { Until::Restart } else { Until::Once };
            self.fs.plan(vec![Planned { at, fault, until }]);
        }
        self.rng.u32(1..60)
    }

    /// Uses the store until it stops, and says how.
    fn work(&mut self, store: &DiskStore, steps: u32) -> Result<Stop, String> {
        for _ in 0..steps {
            let shard = self.rng.usize(0..self.shards);
            let stepped = match self.rng.u8(0..20) {
                0..12 => self.append(store, shard)?,
                12..15 => self.sync(store, shard)?,
                15 => self.retain(store, shard)?,
                16 => {
                    self.clock.advance(Duration::from_secs(self.rng.u64(0..40_000)));
                    let outcome = store.maintain();
                    if let Err(StoreError::Poisoned(_)) = outcome {
                        self.failed();
                    }
                    outcome.is_ok()
                }
                17 if self.ruined => true,
                17 => {
                    let partition = self.rng.u32(0..6);
                    match self.models[shard].check_partition(store, shard, partition) {
                        Err(_) if self.fs.is_down() => false,
                        Err(error) if error.contains("simulated EIO") => true,
                        outcome => outcome.map(|()| true)?,
                    }
                }
                _ => true,
            };
            if !stepped || self.fs.is_down() {
                break;
            }
        }
        let went_down = self.went_down();
        let stop = match self.rng.u8(0..4) {
            _ if let Some(stop) = went_down => stop,
            0 => {
                if store.close().is_ok() {
                    Stop::Closed
                } else {
                    self.failed();
                    self.went_down().unwrap_or(Stop::Kill)
                }
            }
            1 => Stop::Kill,
            _ => Stop::PowerCut,
        };
        if stop == Stop::Kill {
            self.fs.kill();
        }
        if stop == Stop::PowerCut {
            self.fs.power_cut();
        }
        Ok(stop)
    }

    fn failed(&mut self) {
        self.models.iter_mut().for_each(LogModel::sync_failed);
        self.report.poisoned += 1;
    }

    /// False if the store takes no more.
    fn append(&mut self, store: &DiskStore, shard: usize) -> Result<bool, String> {
        let bounds = store.bounds(shard).map_err(|error| error.to_string())?;
        let mut group = vec![];
        let mut nexts = self.nexts[shard].clone();
        for at in 0..self.rng.u64(if self.in_pieces { 1..2 } else { 1..8 }) {
            let partition = self.rng.u32(0..6);
            let next = nexts.entry(partition).or_insert(bounds.first_offset);
            let place = RecordPlace {
                partition,
                offset: *next,
                sequence: bounds.end + at,
                published_us: self.rng.u64(0..1_000_000_000),
            };
            *next += 1;
            let lens = if self.in_pieces { 100..600 } else { 0..2000 };
            let mut payload = vec![0; self.rng.usize(lens)];
            if self.in_pieces {
                // Zeros would pass for what was not written.
                payload.fill(self.rng.u8(1..));
            } else if self.rng.bool() {
                self.rng.fill(&mut payload);
            }
            let mut message = NewMessage::new(&payload);
            if self.rng.bool() {
                message = message.key("key").attributes(&[("a", "b")]);
            }
            let mut bytes = vec![];
            StoredRecord::encode(&message, place, &mut bytes).map_err(|error| error.to_string())?;
            group.push((place.sequence, partition, place.offset, bytes));
        }
        let parts: Vec<&[u8]> = group.iter().map(|(.., bytes)| bytes.as_slice()).collect();
        let outcome = store.append(shard, &Group { base_sequence: bounds.end, parts: &parts });
        let end = bounds.end + group.len() as u64;
        match outcome {
            Ok(()) => {
                self.report.appended += group.len() as u64;
                self.models[shard].appended(group, true);
                self.nexts[shard] = nexts;
                if self.policy != SyncPolicy::Always {
                    self.models[shard].delivered(end);
                } else if self.rng.u8(0..4) > 0 {
                    return self.commit(store, shard, end);
                }
                Ok(true)
            }
            Err(StoreError::Full) => {
                self.report.full += 1;
                if self.rng.u8(0..8) == 0 {
                    self.fs.set_capacity(None);
                }
                self.unchanged(store, shard, bounds.end)
            }
            Err(StoreError::Io(_)) if !self.fs.is_down() => {
                self.unchanged(store, shard, bounds.end)
            }
            Err(StoreError::Io(_) | StoreError::Poisoned(_)) => {
                self.models[shard].appended(group, false);
                self.failed();
                Ok(false)
            }
            Err(error) => Err(format!("append: {error}")),
        }
    }

    fn unchanged(&self, store: &DiskStore, shard: usize, end: u64) -> Result<bool, String> {
        match store.bounds(shard) {
            Ok(bounds) if bounds.end == end => Ok(true),
            other => Err(format!("a refused group changed the log: {other:?}")),
        }
    }

    fn commit(&mut self, store: &DiskStore, shard: usize, upto: u64) -> Result<bool, String> {
        match store.commit(shard, upto) {
            Ok(()) => {
                self.models[shard].durable(upto);
                self.models[shard].delivered(upto);
                Ok(true)
            }
            Err(StoreError::Poisoned(_)) => {
                self.failed();
                Ok(false)
            }
            Err(error) => Err(format!("commit: {error}")),
        }
    }

    fn sync(&mut self, store: &DiskStore, shard: usize) -> Result<bool, String> {
        match store.sync(shard, u64::MAX) {
            Ok(durable) => {
                self.models[shard].durable(durable);
                Ok(true)
            }
            Err(StoreError::Poisoned(_)) => {
                self.failed();
                Ok(false)
            }
            Err(error) => Err(format!("sync: {error}")),
        }
    }

    fn retain(&mut self, store: &DiskStore, shard: usize) -> Result<bool, String> {
        let deleted = self.rng.u32(0..12);
        let max_bytes = Some(self.rng.u64(0..80_000));
        let retention = |partition| {
            if partition == deleted {
                Retention::NOTHING
            } else {
                Retention { max_age_us: None, max_bytes }
            }
        };
        if let Err(StoreError::Poisoned(_)) = store.retain(shard, 0, &retention) {
            self.failed();
        }
        // What it had found to be expired is, also if it failed afterwards.
        let bounds = store.partitions(shard).map_err(|error| error.to_string())?;
        let lows: Vec<_> = bounds.iter().map(|bounds| (bounds.partition, bounds.low)).collect();
        self.models[shard].expired(&lows);
        Ok(true)
    }

    fn check_refusal(&mut self, store: &DiskStore) -> Result<(), String> {
        let shards = store.recovery().into_iter().enumerate();
        let damage = shards.filter_map(|(shard, recovery)| Some((shard, recovery.damage?)));
        for (shard, damage) in damage {
            let group = Group { base_sequence: 0, parts: &[] };
            let is_refused = match store.append(shard, &group) {
                Err(StoreError::Damaged(_) | StoreError::InvalidGroup(_)) => true,
                // Of a log that takes more, because the damage is not at its end.
                Err(StoreError::Full) => damage.resume.is_some(),
                _ => false,
            };
            if !is_refused {
                return Err(format!("a log takes more behind its {damage}"));
            }
        }
        Ok(())
    }
}
