//! Runs of the cursor journal against a model that is a plain set per cursor.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fastrand::Rng;
use slipring::internals::{
    Cursor, CursorChange, CursorDelta, CursorJournal, CursorKey, IfDamaged, IfMissing,
    JournalError, JournalOptions,
};

use crate::history::History;
use crate::{Failure, Fault, Planned, Report, SimFs, SimOptions, Until};

/// The store that all runs belong to.
pub const STORE: u128 = 0x5117;

/// A cursor as plain sets.
#[derive(Debug, Clone, Default, PartialEq)]
struct Plain {
    floor: u64,
    settled: BTreeSet<u64>,
    attempts: BTreeMap<u64, u16>,
}

type State = BTreeMap<CursorKey, Plain>;

impl Plain {
    fn of(cursor: &Cursor) -> Self {
        Self {
            floor: cursor.floor(),
            settled: cursor.settled().iter().collect(),
            attempts: cursor.attempts().clone(),
        }
    }

    fn advance(&mut self, delta: &CursorDelta) {
        self.floor = self.floor.max(delta.floor);
        self.settled.extend(&delta.settled);
        while self.settled.contains(&self.floor) {
            self.floor += 1;
        }
        self.settled = self.settled.split_off(&self.floor);
        for (sequence, attempt) in &delta.attempts {
            let known = self.attempts.entry(*sequence).or_default();
            *known = (*attempt).max(*known);
        }
        let Self { floor, settled, attempts } = self;
        attempts.retain(|sequence, _| sequence >= floor && !settled.contains(sequence));
    }
}

fn plain(cursors: &BTreeMap<CursorKey, Cursor>) -> State {
    cursors.iter().map(|(key, cursor)| (*key, Plain::of(cursor))).collect()
}

/// Small limits, so that a short run meets all of them.
pub fn options(seed: u64) -> JournalOptions {
    JournalOptions {
        snapshot_changes: 12,
        snapshot_bytes: 3000,
        reserve_bytes: 1000,
        max_staged_bytes: 600,
        seed: Some(seed),
        ..JournalOptions::default()
    }
}

struct Run {
    seed: u64,
    rng: Rng,
    fs: SimFs,
    /// Whether the last power cut left random bytes, which nobody can tell from damage.
    ruined: bool,
    history: History<State>,
    has_been_opened: bool,
    report: Report,
}

type Outcome<T> = Result<T, Failure>;

/// One run: several lives of a journal, each ended by a crash, a fault, or in order.
///
/// # Errors
///
/// The promise that was broken.
pub fn run(seed: u64) -> Outcome<Report> {
    let mut run = Run::new(seed, SimOptions::default());
    for _ in 0..run.rng.u8(2..7) {
        let plan = run.draw_plan();
        let operations = run.rng.usize(5..60);
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
        let plan = [Planned { at, fault, until }];
        run.life(&plan, operations)?;
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
            rng: Rng::with_seed(seed ^ 0xc0_50_15),
            fs: SimFs::new(seed, options),
            ruined: false,
            history: History::new(State::new()),
            has_been_opened: false,
            report: Report::default(),
        }
    }

    fn fail<T>(&self, what: String) -> Outcome<T> {
        Err(Failure::new(self.seed, what, &self.fs))
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
        // Opening takes some 15 calls: a quarter of the faults strikes there.
        let at = if self.rng.u8(0..4) == 0 { self.rng.u64(..16) } else { self.rng.u64(..150) };
        let until = if self.rng.bool() { Until::Once } else { Until::Restart };
        vec![Planned { at, fault, until }]
    }

    /// Opens, works, and ends in some way. The disk is up again afterwards, without faults.
    fn life(&mut self, plan: &[Planned], operations: usize) -> Outcome<()> {
        self.fs.plan(plan.to_vec());
        let may_fail = plan.iter().any(|planned| planned.fault != Fault::Short);
        if let Some(journal) = self.open(may_fail)? {
            self.work(&journal, operations, may_fail)?;
        } else {
            self.report.crashes_in_open += u64::from(self.fs.is_down());
        }
        self.end_life();
        Ok(())
    }

    fn end_life(&mut self) {
        if !self.fs.is_down() {
            match self.rng.u8(0..3) {
                0 => self.fs.power_cut(),
                1 => self.fs.kill(),
                // Only the journal is opened anew.
                _ => return self.restart(false),
            }
        }
        self.restart(true);
    }

    fn restart(&mut self, crashed: bool) {
        self.report.calls += self.fs.calls();
        if crashed {
            self.report.crashes += 1;
            self.ruined |= self.fs.was_ruined();
            self.fs = self.fs.restart();
        } else {
            self.fs.plan(vec![]);
        }
    }

    fn try_open(&mut self, if_damaged: IfDamaged) -> Result<CursorJournal, JournalError> {
        let fs = Arc::new(self.fs.clone());
        let if_missing = if self.has_been_opened { IfMissing::Refuse } else { IfMissing::Create };
        let options = JournalOptions { if_damaged, if_missing, ..options(self.rng.u64(..)) };
        Ok(CursorJournal::open(fs, STORE, options)?.0)
    }

    /// The journal with the state that it must have; `None` if a fault kept it from opening.
    fn open(&mut self, may_fail: bool) -> Outcome<Option<CursorJournal>> {
        let mut outcome = self.try_open(IfDamaged::Refuse);
        if let Err(JournalError::Damaged { was_durable: false, .. }) = &outcome
            && self.ruined
        {
            self.report.errors += 1;
            outcome = self.try_open(IfDamaged::KeepValid);
        }
        let journal = match outcome {
            Ok(journal) => journal,
            Err(error @ (JournalError::Damaged { .. } | JournalError::Missing)) => {
                return self.fail(format!("opening: {error}"));
            }
            Err(error) if !may_fail => return self.fail(format!("opening: {error}")),
            Err(_) => {
                self.report.errors += 1;
                return Ok(None);
            }
        };
        let found = plain(&journal.cursors());
        if !self.history.found(&found) {
            return self.fail(format!("found {found:?}, but not one of {:?}", self.history));
        }
        self.ruined = false;
        self.has_been_opened = true;
        self.report.opens += 1;
        Ok(Some(journal))
    }

    fn work(&mut self, journal: &CursorJournal, operations: usize, may_fail: bool) -> Outcome<()> {
        let mut last = None;
        for _ in 0..operations {
            let operation = self.rng.u8(0..16);
            let outcome = match operation {
                0..10 => self.stage(journal).map(|staged| last = Some(staged).or(last)),
                10..12 => last.map_or(Ok(()), |last| journal.write(last)),
                12..15 => last.map_or(Ok(()), |last| {
                    let pending = self.history.pending();
                    journal.commit(last)?;
                    self.acknowledge(pending);
                    Ok(())
                }),
                _ => {
                    let pending = self.history.pending();
                    let outcome = journal.mark();
                    if outcome.is_ok() {
                        self.acknowledge(pending);
                    }
                    outcome
                }
            };
            let Err(error) = outcome else { continue };
            self.report.errors += 1;
            if !may_fail {
                return self.fail(format!("without a fault: {error}"));
            }
            if let JournalError::Poisoned(_) = error {
                return self.stays_poisoned(journal);
            }
            if self.fs.is_down() {
                return Ok(());
            }
        }
        // Whatever did not poison the journal heals when its cause is gone.
        if self.rng.bool() {
            self.fs.plan(vec![]);
            let outcome = self.stage(journal).and_then(|staged| journal.commit(staged));
            match outcome {
                Ok(()) => self.acknowledge(self.history.pending()),
                Err(JournalError::Poisoned(_)) if may_fail => {
                    return self.stays_poisoned(journal);
                }
                Err(_) if self.fs.is_down() => {}
                Err(error) => return self.fail(format!("it does not heal: {error}")),
            }
            if self.rng.bool()
                && !self.fs.is_down()
                && let Err(error) = journal.close()
                && !(may_fail && matches!(error, JournalError::Poisoned(_)))
            {
                return self.fail(format!("closing: {error}"));
            }
        }
        Ok(())
    }

    fn acknowledge(&mut self, count: usize) {
        self.history.acknowledge(count);
        self.report.acknowledged += count as u64;
    }

    fn stays_poisoned(&mut self, journal: &CursorJournal) -> Outcome<()> {
        if self.fs.is_down() {
            return Ok(());
        }
        self.fs.plan(vec![]);
        let is_refused = match self.stage(journal) {
            Ok(staged) => journal.commit(staged),
            Err(error) => Err(error),
        };
        match is_refused {
            Err(JournalError::Poisoned(_)) => Ok(()),
            other => self.fail(format!("poisoned, and then {other:?}")),
        }
    }

    fn stage(
        &mut self,
        journal: &CursorJournal,
    ) -> Result<slipring::internals::Staged, JournalError> {
        let key = CursorKey { subscription: self.rng.u64(1..5), shard: self.rng.u32(..2) };
        let mut state = self.history.last().clone();
        let change = match (self.rng.u8(0..12), state.get_mut(&key)) {
            (0, Some(_)) => {
                state.remove(&key);
                CursorChange::Forget
            }
            (1.., Some(cursor)) => {
                let delta = draw_delta(&mut self.rng, cursor.floor);
                cursor.advance(&delta);
                CursorChange::Advance(delta)
            }
            (_, None) => {
                let mut cursor = Cursor::new(self.rng.u64(..50));
                let delta = draw_delta(&mut self.rng, cursor.floor());
                cursor.advance(&delta).expect("within the limits");
                state.insert(key, Plain::of(&cursor));
                CursorChange::Replace(cursor)
            }
        };
        let staged = journal.stage(key, &change)?;
        self.history.push(state);
        Ok(staged)
    }

    /// The last opening, and everything is there.
    fn finish(mut self) -> Outcome<Report> {
        let Some(journal) = self.open(false)? else {
            return self.fail("it does not open".to_owned());
        };
        self.work(&journal, 5, false)?;
        if !matches!(journal.close(), Ok(()) | Err(JournalError::Closed)) {
            return self.fail("it does not close".to_owned());
        }
        let last = self.history.last().clone();
        self.fs.power_cut();
        self.restart(true);
        self.history = History::new(last);
        self.open(false)?;
        self.report.calls += self.fs.calls();
        Ok(self.report)
    }
}

fn draw_delta(rng: &mut Rng, floor: u64) -> CursorDelta {
    let mut delta = CursorDelta::default();
    if rng.u8(0..3) == 0 {
        delta.floor = floor + rng.u64(..20);
    }
    for _ in 0..rng.u8(0..6) {
        let first = floor + rng.u64(..400);
        delta.settled.insert_range(first..first + rng.u64(1..30));
    }
    for _ in 0..rng.u8(0..3) {
        delta.attempts.insert(floor + rng.u64(..400), rng.u16(2..9));
    }
    delta
}
