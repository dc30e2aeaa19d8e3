//! Runs of the metadata: every state that is found was committed, and none that was acknowledged is
//! gone.

use std::path::Path;
use std::sync::Arc;

use fastrand::Rng;
use slipring::Start;
use slipring::internals::{
    Change, Contents, DeliveryRecord, META_FILE, MetaError, Metadata, PartitionRecord,
    SubscriptionRecord, TopicRecord,
};

use crate::history::History;
use crate::{Failure, Fault, Planned, Report, SimFs, SimOptions, Until};

/// The store that all runs belong to.
pub const STORE: u128 = 0x5117;

type Outcome<T> = Result<T, Failure>;

struct Run {
    seed: u64,
    rng: Rng,
    fs: SimFs,
    history: History<Contents>,
    has_been_opened: bool,
    report: Report,
}

/// One run: several lives of a store's metadata.
///
/// # Errors
///
/// The promise that was broken.
pub fn run(seed: u64) -> Outcome<Report> {
    let mut run = Run::new(seed, SimOptions::default());
    for _ in 0..run.rng.u8(1..4) {
        let plan = run.draw_plan();
        let operations = run.rng.usize(1..8);
        run.life(&plan, operations)?;
    }
    run.finish()
}

/// The same operations as often as there are calls to the disk, with the fault at each once. Gives
/// how many calls that was.
///
/// # Errors
///
/// The promise that was broken.
pub fn fault_at_every_call(
    seed: u64,
    operations: usize,
    fault: Fault,
    until: Until,
) -> Outcome<u64> {
    for at in 0.. {
        let mut run = Run::new(seed, SimOptions { short_per_mille: 0, ..SimOptions::default() });
        run.life(&[Planned { at, fault, until }], operations)?;
        let was_reached = run.report.calls > at;
        run.finish()?;
        if !was_reached {
            return Ok(at);
        }
    }
    unreachable!("a run has an end")
}

impl Run {
    fn new(seed: u64, options: SimOptions) -> Self {
        Self {
            seed,
            rng: Rng::with_seed(seed ^ 0x3e_7a),
            fs: SimFs::new(seed, options),
            history: History::new(Contents::default()),
            has_been_opened: false,
            report: Report::default(),
        }
    }

    fn fail<T>(&self, what: String) -> Outcome<T> {
        Err(Failure::new(self.seed, format!("metadata: {what}"), &self.fs))
    }

    fn draw_plan(&mut self) -> Vec<Planned> {
        let fault = match self.rng.u8(0..12) {
            0..4 => Fault::PowerCut,
            4..6 => Fault::Kill,
            6..8 => Fault::Io,
            8..10 => Fault::NoSpace,
            10 => Fault::Short,
            _ => return vec![],
        };
        let until = if self.rng.bool() { Until::Once } else { Until::Restart };
        vec![Planned { at: self.rng.u64(..200), fault, until }]
    }

    /// Opens, commits, and ends in some way. The disk is up again afterwards, without faults.
    fn life(&mut self, plan: &[Planned], operations: usize) -> Outcome<()> {
        self.fs.plan(plan.to_vec());
        let may_fail = plan.iter().any(|planned| planned.fault != Fault::Short);
        match self.open(may_fail)? {
            Some(metadata) => {
                for _ in 0..operations {
                    if !self.commit(&metadata, may_fail)? {
                        break;
                    }
                }
                if !self.fs.is_down() && self.rng.bool() {
                    self.fs.plan(vec![]);
                    self.commit(&metadata, false)?;
                }
            }
            None => self.report.crashes_in_open += u64::from(self.fs.is_down()),
        }
        match self.rng.u8(0..3) {
            _ if self.fs.is_down() => {}
            0 => self.fs.power_cut(),
            1 => self.fs.kill(),
            _ => {
                self.report.calls += self.fs.calls();
                self.fs.plan(vec![]);
                return Ok(());
            }
        }
        self.report.calls += self.fs.calls();
        self.report.crashes += 1;
        self.fs = self.fs.restart();
        Ok(())
    }

    fn open(&mut self, may_fail: bool) -> Outcome<Option<Metadata>> {
        let fs = Arc::new(self.fs.clone());
        let outcome = match Metadata::open(Arc::clone(&fs) as Arc<_>) {
            Err(MetaError::Missing) if !self.has_been_opened => {
                let mut empty = self.history.last().clone();
                (empty.store, empty.revision) = (STORE, 1);
                self.history = History::new(empty);
                Metadata::create(fs, STORE)
            }
            outcome => outcome,
        };
        let metadata = match outcome {
            Ok(metadata) => metadata,
            Err(error) => {
                let is_damage =
                    matches!(error, MetaError::Damaged { .. } | MetaError::Incompatible { .. });
                self.report.errors += 1;
                return if may_fail && !is_damage {
                    Ok(None)
                } else {
                    self.fail(format!("opening: {error}"))
                };
            }
        };
        let found = metadata.contents();
        if !self.history.found(&found) {
            return self.fail(format!("found {found:?}, but not one of {:?}", self.history));
        }
        self.has_been_opened = true;
        self.report.opens += 1;
        Ok(Some(metadata))
    }

    /// False if the metadata takes no more.
    fn commit(&mut self, metadata: &Metadata, may_fail: bool) -> Outcome<bool> {
        let changes = self.draw_changes();
        let was_poisoned = format!("{metadata:?}").contains("poison: Some");
        let outcome = metadata.commit(&changes);
        match &outcome {
            Ok(()) if was_poisoned => return self.fail("it takes a commit, poisoned".to_owned()),
            Err(MetaError::Poisoned(_)) if was_poisoned => return Ok(false),
            _ => {}
        }
        let Err(error) = outcome else {
            self.history = History::new(metadata.contents());
            self.report.acknowledged += 1;
            return Ok(true);
        };
        if let MetaError::Refused(why) = error {
            return self.fail(format!("a valid change is refused: {why}"));
        }
        if !may_fail && !self.fs.is_down() {
            return self.fail(format!("without a fault: {error}"));
        }
        if metadata.contents() != *self.history.last() {
            return self.fail("a commit that failed shows".to_owned());
        }
        self.report.errors += 1;
        let is_known = matches!(error, MetaError::Full | MetaError::Io(_));
        if !is_known || self.fs.is_down() {
            self.history.push(self.after(&changes));
            return Ok(false);
        }
        Ok(true)
    }

    /// What the changes make of the last state, by a store in memory.
    fn after(&self, changes: &[Change]) -> Contents {
        let mut contents = self.history.last().clone();
        for change in changes {
            match change.clone() {
                Change::PutTopic(name, record) => {
                    contents.next.topic = contents.next.topic.max(record.id + 1);
                    for partition in &record.partitions {
                        contents.next.partition = contents.next.partition.max(partition.id + 1);
                    }
                    contents.topics.insert(name, record);
                }
                Change::RemoveTopic(name) => drop(contents.topics.remove(&name)),
                Change::PutSubscription(name, record) => {
                    contents.next.subscription = contents.next.subscription.max(record.id + 1);
                    contents.subscriptions.insert(name, record);
                }
                Change::RemoveSubscription(name) => drop(contents.subscriptions.remove(&name)),
                Change::Frontier(shard, upto) => drop(contents.frontiers.insert(shard, upto)),
                Change::Low(shard, upto) => drop(contents.low.insert(shard, upto)),
                Change::Ready => contents.is_ready = true,
            }
        }
        contents.revision += 1;
        contents
    }

    fn draw_changes(&mut self) -> Vec<Change> {
        let now = self.history.last();
        let rng = &mut self.rng;
        let mut changes = vec![];
        for (name, topic) in &now.topics {
            match rng.u8(0..12) {
                0 => changes.push(Change::RemoveTopic(name.clone())),
                1 => {
                    let retention_ms = Some(rng.u64(..));
                    let record = TopicRecord { retention_ms, ..topic.clone() };
                    changes.push(Change::PutTopic(name.clone(), record));
                }
                _ => {}
            }
        }
        for (name, subscription) in &now.subscriptions {
            match rng.u8(0..12) {
                0 => changes.push(Change::RemoveSubscription(name.clone())),
                1 => {
                    let epoch = subscription.epoch + 1;
                    let record = SubscriptionRecord { epoch, ..subscription.clone() };
                    changes.push(Change::PutSubscription(name.clone(), record));
                }
                _ => {}
            }
        }
        let mut partition = now.next.partition;
        for id in now.next.topic..now.next.topic + rng.u64(..4) {
            let mut record = TopicRecord { id, ..TopicRecord::default() };
            for _ in 0..rng.u8(1..5) {
                record.partitions.push(PartitionRecord { id: partition, shard: rng.u32(..4) });
                partition += 1;
            }
            let name = format!("topic/{}/{id}", "long".repeat(rng.usize(1..60)));
            changes.push(Change::PutTopic(name, record));
        }
        if rng.bool() {
            let id = now.next.subscription;
            let record = SubscriptionRecord {
                id,
                patterns: vec!["topic/**".to_owned()],
                filter: rng.bool().then(|| "attributes:x".to_owned()),
                start: Start::Last(rng.usize(..9)),
                delivery: DeliveryRecord { max_attempts: rng.u32(..), ..Default::default() },
                ..SubscriptionRecord::default()
            };
            changes.push(Change::PutSubscription(format!("subscription-{id}"), record));
        }
        let shard = rng.u32(..4);
        let raise = |map: &std::collections::BTreeMap<u32, u64>, by| {
            map.get(&shard).copied().unwrap_or(0) + by
        };
        changes.push(Change::Frontier(shard, raise(&now.frontiers, rng.u64(..1 << 17))));
        changes.push(Change::Low(shard, raise(&now.low, rng.u64(..1000))));
        if rng.u8(0..4) == 0 {
            changes.push(Change::Ready);
        }
        changes
    }

    fn finish(mut self) -> Outcome<Report> {
        let Some(metadata) = self.open(false)? else {
            return self.fail("it does not open".to_owned());
        };
        self.commit(&metadata, false)?;
        drop(metadata);
        self.report.calls += self.fs.calls();
        self.fs = self.fs.restart();
        self.open(false)?;
        self.report.calls += self.fs.calls();
        Ok(self.report)
    }
}

/// How a process leaves metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a test goes through both")]
pub enum Left {
    /// It dies when its last commit is complete: nothing but the commit has made the file whole.
    Killed,
    /// In order.
    Closed,
}

/// A disk with metadata of some commits on it, and what it says.
///
/// # Errors
///
/// If that cannot be made.
pub fn sample(seed: u64, commits: usize, left: Left) -> Outcome<(SimFs, Contents)> {
    let mut run = Run::new(seed, SimOptions { short_per_mille: 0, ..SimOptions::default() });
    run.life(&[], commits)?;
    let Some(metadata) = run.open(false)? else {
        return run.fail("it does not open".to_owned());
    };
    run.commit(&metadata, false)?;
    let contents = metadata.contents();
    let killed = run.fs.copy();
    drop(metadata);
    let fs = if left == Left::Killed { killed } else { run.fs };
    debug_assert!(fs.contents(Path::new(META_FILE)).is_some());
    Ok((fs, contents))
}
