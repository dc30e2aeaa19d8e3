//! What a shard's log must hold, by what its store has promised.

use std::collections::{BTreeMap, BTreeSet};

use slipring::store::{MessageStore, Records, StoreError};

/// How a machine stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// In order.
    Closed,
    /// The process died, or gave up after an error.
    Kill,
    PowerCut,
}

#[derive(Debug, Clone)]
struct Record {
    partition: u32,
    offset: u64,
    bytes: Vec<u8>,
    /// The append returned success.
    stored: bool,
}

/// One shard's log as it must be.
#[derive(Debug, Clone, Default)]
pub(crate) struct LogModel {
    records: BTreeMap<u64, Record>,
    /// What is below must survive a power cut: it was acknowledged, or served after a crash.
    must: u64,
    /// What is below must survive a kill.
    must_kill: u64,
    /// What is below may have been seen: its sequences and offsets must not be given out again.
    seen: u64,
    seen_offsets: BTreeMap<u32, u64>,
    /// Expired below.
    lows: BTreeMap<u32, u64>,
}

impl LogModel {
    /// A group was handed to the store; it must be stored if `stored`, and may be otherwise.
    pub(crate) fn appended(&mut self, group: Vec<(u64, u32, u64, Vec<u8>)>, stored: bool) {
        for (sequence, partition, offset, bytes) in group {
            self.records.insert(sequence, Record { partition, offset, bytes, stored });
        }
        if stored {
            self.must_kill = self.end();
        }
    }

    fn end(&self) -> u64 {
        self.records.last_key_value().map_or(0, |(sequence, _)| sequence + 1)
    }

    /// Everything below `upto` was acknowledged as safe from power cuts.
    pub(crate) fn durable(&mut self, upto: u64) {
        self.must = self.must.max(upto);
    }

    /// Everything below `upto` was or may have been delivered.
    pub(crate) fn delivered(&mut self, upto: u64) {
        let fresh = self.seen..upto.max(self.seen);
        for record in self.records.range(fresh).map(|(_, record)| record) {
            let seen = self.seen_offsets.entry(record.partition).or_default();
            *seen = (*seen).max(record.offset + 1);
        }
        self.seen = self.seen.max(upto);
    }

    pub(crate) fn expired(&mut self, lows: &[(u32, u64)]) {
        for &(partition, low) in lows {
            let known = self.lows.entry(partition).or_default();
            *known = (*known).max(low);
        }
    }

    /// A sync failed: what the operating system has is not what the disk has.
    pub(crate) fn sync_failed(&mut self) {
        self.must_kill = self.must;
    }

    /// Compares a store that was opened after `stop` with what must be there, and takes over what
    /// is. `may_be_damaged`: bytes were ruined; `refuses`: and so the store takes no more. Says
    /// whether anything was damaged.
    pub(crate) fn check(
        &mut self,
        store: &dyn MessageStore,
        shard: usize,
        stop: Stop,
        may_be_damaged: bool,
        refuses: bool,
    ) -> Result<bool, String> {
        let bounds = store.bounds(shard).map_err(|error| error.to_string())?;
        let required = match stop {
            Stop::Closed => self.end(),
            Stop::Kill => self.must_kill.max(self.must),
            Stop::PowerCut => self.must,
        };
        let (found, damaged) = self.read_all(store, shard, may_be_damaged)?;
        let last_found = found.last().copied().unwrap_or(0);
        let mut lost = vec![];
        for (&sequence, record) in &self.records {
            if found.contains(&sequence) {
                continue;
            }
            let low = self.lows.get(&record.partition).copied().unwrap_or(0);
            if record.offset < low {
                if sequence < required {
                    let seen = self.seen_offsets.entry(record.partition).or_default();
                    *seen = (*seen).max(record.offset + 1);
                }
            } else if record.stored && sequence < required {
                return Err(format!("acknowledged and lost: sequence {sequence} of shard {shard}"));
            } else if sequence < last_found && !may_be_damaged {
                return Err(format!("lost from the middle: sequence {sequence}"));
            }
            lost.push(sequence);
        }
        for sequence in lost {
            self.records.remove(&sequence);
        }
        if refuses {
            return Ok(true);
        }
        if bounds.end < self.seen {
            return Err(format!("sequences from {} on would be reused", bounds.end));
        }
        self.check_partitions(store, shard)?;
        self.records.values_mut().for_each(|record| record.stored = true);
        (self.must, self.must_kill) = (bounds.end, bounds.end);
        self.delivered(bounds.end);
        Ok(damaged)
    }

    /// The sequences that can be read, and whether there is damage between them.
    fn read_all(
        &self,
        store: &dyn MessageStore,
        shard: usize,
        may_be_damaged: bool,
    ) -> Result<(BTreeSet<u64>, bool), String> {
        let bounds = store.bounds(shard).map_err(|error| error.to_string())?;
        let mut found = BTreeSet::new();
        let mut damaged = false;
        let mut records = Records::new();
        let mut at = bounds.low;
        while at < bounds.end {
            match store.read(shard, at..bounds.end, 10_000, &mut records) {
                Ok(()) => {}
                Err(StoreError::Damaged(damage)) if may_be_damaged => {
                    damaged = true;
                    let Some(resume) = damage.resume else { break };
                    assert!(resume > at, "reading goes on");
                    at = resume;
                    continue;
                }
                Err(error) => return Err(format!("reading sequence {at}: {error}")),
            }
            for (sequence, record) in records.iter() {
                let known = self.records.get(&sequence).ok_or_else(|| {
                    format!("phantom: sequence {sequence} of shard {shard} was never appended")
                })?;
                if known.bytes != record.bytes() {
                    return Err(format!("sequence {sequence} has another record"));
                }
                if !found.insert(sequence) || sequence < at {
                    return Err(format!("sequence {sequence} is read twice, or out of order"));
                }
            }
            if records.next() <= at {
                return Err(format!("reading does not go on from {at}"));
            }
            at = records.next();
        }
        Ok((found, damaged))
    }

    fn check_partitions(&mut self, store: &dyn MessageStore, shard: usize) -> Result<(), String> {
        let first_offset = store.bounds(shard).map_err(|error| error.to_string())?.first_offset;
        let bounds = store.partitions(shard).map_err(|error| error.to_string())?;
        let mut nexts = self.seen_offsets.clone();
        for record in self.records.values() {
            let next = nexts.entry(record.partition).or_default();
            *next = (*next).max(record.offset + 1);
        }
        // What expired and was lost before it was durable may come again.
        for (partition, low) in &mut self.lows {
            let known = bounds.iter().find(|bounds| bounds.partition == *partition);
            *low = (*low).min(known.map_or(0, |known| known.next));
        }
        for (partition, next) in nexts {
            let known = bounds.iter().find(|bounds| bounds.partition == partition);
            let comes = known.map_or(first_offset, |known| known.next);
            if comes < next {
                return Err(format!(
                    "offsets of partition {partition} would be reused: {next} comes next, not {comes}"
                ));
            }
        }
        Ok(())
    }

    /// Reads one partition by offsets and compares it.
    pub(crate) fn check_partition(
        &self,
        store: &dyn MessageStore,
        shard: usize,
        partition: u32,
    ) -> Result<(), String> {
        let bounds = store.partitions(shard).map_err(|error| error.to_string())?;
        let Some(bounds) = bounds.iter().find(|bounds| bounds.partition == partition) else {
            return Ok(());
        };
        let mut records = Records::new();
        let mut at = bounds.low;
        let mut found = vec![];
        while at < bounds.next {
            match store.read_partition(shard, partition, at..bounds.next, 5000, &mut records) {
                Ok(()) => {}
                Err(error) => return Err(format!("partition {partition} from {at}: {error}")),
            }
            found.extend(records.iter().map(|(sequence, _)| sequence));
            if records.next() <= at {
                break;
            }
            at = records.next();
        }
        let is_wanted = |record: &Record| {
            record.partition == partition && record.offset >= bounds.low && record.stored
        };
        let expected: Vec<u64> = self
            .records
            .iter()
            .filter(|(_, record)| is_wanted(record))
            .map(|(sequence, _)| *sequence)
            .collect();
        if found == expected {
            return Ok(());
        }
        Err(format!("partition {partition} has sequences {found:?}, not {expected:?}"))
    }
}
