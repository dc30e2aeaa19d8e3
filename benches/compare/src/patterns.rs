//! The patterns and topics of the routing comparison, the same in every run.
//!
//! Patterns are unique: 70 % exact, 20 % with one `*`, 10 % with `**` at the end; 3 to 6 segments,
//! 32 roots, 128 words a level. Half of the topics are drawn from the exact patterns, half are
//! random.

use std::collections::HashSet;

const ROOTS: u64 = 32;
const WORDS: u64 = 128;
const SEED: u64 = 42;

/// A small generator of pseudo-random numbers (splitmix64).
#[derive(Debug)]
struct Random(u64);

impl Random {
    const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number from `from` up to, not including, `to`.
    const fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.next() % (to - from)
    }

    fn segments(&mut self) -> Vec<String> {
        let count = self.between(3, 7);
        let level = |random: &mut Self, level| match level {
            0 => format!("site{}", random.between(0, ROOTS)),
            _ => format!("lvl{level}n{}", random.between(0, WORDS)),
        };
        (0..count).map(|depth| level(self, depth)).collect()
    }
}

/// One routing workload.
#[derive(Debug)]
pub(crate) struct Workload {
    /// Unique patterns, shuffled.
    pub(crate) patterns: Vec<String>,
    /// Topics to match, in the order they are matched in.
    pub(crate) topics: Vec<String>,
}

impl Workload {
    /// A workload of that many patterns and topics.
    pub(crate) fn new(patterns: usize, topics: usize) -> Self {
        let mut random = Random(SEED);
        let mut unique = HashSet::with_capacity(patterns);
        let (exact, with_star) = (patterns * 7 / 10, patterns * 9 / 10);
        let mut all = Vec::with_capacity(patterns);
        while all.len() < patterns {
            let mut segments = random.segments();
            let count = segments.len() as u64;
            if all.len() >= with_star {
                segments.truncate(random.between(2, count) as usize);
                segments.push("**".to_owned());
            } else if all.len() >= exact {
                segments[random.between(1, count) as usize] = "*".to_owned();
            }
            let pattern = segments.join("/");
            if unique.insert(pattern.clone()) {
                all.push(pattern);
            }
        }
        let topics = (0..topics)
            .map(|index| match index % 2 {
                0 => all[random.between(0, exact as u64) as usize].clone(),
                _ => random.segments().join("/"),
            })
            .collect();
        for last in (1..all.len()).rev() {
            all.swap(last, random.between(0, last as u64 + 1) as usize);
        }
        Self { patterns: all, topics }
    }
}
