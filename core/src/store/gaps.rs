//! Sequences that were given up: records under them may have been seen before a crash, and are lost.

use super::record::{long, word};
use std::ops::Range;

/// Gaps that are listed.
const LISTED: usize = 32;
/// Bytes that they take in a file: how many are listed, and where each begins and ends.
pub(crate) const GAPS: usize = 8 + LISTED * 16;

/// How many there were in the life of a log, and where the newest ones are: what was given up
/// lately is not to be taken for messages that have expired.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Gaps {
    total: u64,
    /// In order, none beside another: those before `count` are in use.
    listed: [(u64, u64); LISTED],
    count: usize,
}

impl Gaps {
    /// How many sequences were given up in all.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// With `gap`, which is behind all others.
    pub(crate) fn and(mut self, gap: Range<u64>) -> Self {
        if gap.is_empty() {
            return self;
        }
        self.total += gap.end - gap.start;
        match self.listed[..self.count].last_mut() {
            Some((_, end)) if *end == gap.start => *end = gap.end,
            _ => {
                if self.count == LISTED {
                    self.listed.rotate_left(1);
                    self.count -= 1;
                }
                self.listed[self.count] = (gap.start, gap.end);
                self.count += 1;
            }
        }
        self
    }

    /// With `count` sequences more, of which some may be those of records that are damaged: what
    /// becomes of these is a loss.
    pub(crate) fn and_damaged(mut self, count: u64) -> Self {
        self.total += count;
        self
    }

    /// How many of `sequences` are in a gap that is listed.
    pub(crate) fn within(&self, sequences: Range<u64>) -> u64 {
        let gaps = self.listed[..self.count].iter();
        gaps.map(|&(from, to)| to.min(sequences.end).saturating_sub(from.max(sequences.start)))
            .sum()
    }

    /// What is listed, as [`GAPS`] bytes.
    pub(crate) fn encode(&self, bytes: &mut [u8]) {
        bytes[..4].copy_from_slice(&(self.count as u32).to_le_bytes());
        for (gap, place) in self.listed.iter().zip(bytes[8..].chunks_exact_mut(16)) {
            place[..8].copy_from_slice(&gap.0.to_le_bytes());
            place[8..].copy_from_slice(&gap.1.to_le_bytes());
        }
    }

    /// What these bytes list, of `total`, as far as it is in order. Where none are listed, all are
    /// zero.
    pub(crate) fn decode(total: u64, bytes: &[u8]) -> Self {
        let listed = (word(bytes, 0) as usize).min(LISTED);
        let places = (0..listed).map(|at| 8 + at * 16);
        let mut gaps = Self { total, ..Self::default() };
        let mut behind = 0;
        for (from, to) in places.map(|at| (long(bytes, at), long(bytes, at + 8))) {
            if from < behind || to <= from {
                break;
            }
            gaps.listed[gaps.count] = (from, to);
            gaps.count += 1;
            behind = to;
        }
        gaps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_up_is_counted_where_it_is() {
        let gaps = Gaps::default().and(10..20).and(20..25).and(25..25).and(40..41);
        assert_eq!((gaps.total(), gaps.count), (16, 2));
        assert_eq!(gaps.within(0..100), 16);
        assert_eq!((gaps.within(0..10), gaps.within(12..22), gaps.within(25..40)), (0, 10, 0));
        let damaged = gaps.and_damaged(7);
        assert_eq!((damaged.total(), damaged.within(0..100)), (23, 16));
    }

    #[test]
    fn the_newest_are_listed_and_read_back() {
        let gaps = (0..50).fold(Gaps::default(), |gaps, at| gaps.and(at * 10..at * 10 + 3));
        assert_eq!(gaps.total(), 150);
        assert_eq!(gaps.within(0..1000), 3 * LISTED as u64);
        assert_eq!(gaps.within(490..1000), 3);
        let mut bytes = [0; GAPS];
        gaps.encode(&mut bytes);
        assert_eq!(Gaps::decode(150, &bytes), gaps);
        assert_eq!(Gaps::decode(7, &[0; GAPS]), Gaps::default().and_damaged(7));
        assert_eq!(Gaps::decode(7, &[0xff; GAPS]), Gaps::default().and_damaged(7));
    }
}
