//! The input of the routing benchmarks: patterns and topics of a plausible plant.
//!
//! Names have 3 to 6 segments out of 32 roots and 128 words per further level. Of the patterns 70 %
//! are exact, 20 % have one `*` behind the root, 10 % end with `**`; all are different. Of the
//! topics every other one is one of the exact patterns, the rest are random.

use std::collections::HashSet;

const ROOTS: u64 = 32;
const WORDS: u64 = 128;

/// Patterns to subscribe to, in random order, and topics to publish to.
#[derive(Debug, Clone, Default)]
pub struct RoutingInput {
    /// All different, in canonical form.
    pub patterns: Vec<String>,
    /// Half of them exact patterns, half random.
    pub topics: Vec<String>,
}

/// A small random generator (splitmix64), the same on every machine.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// A generator whose numbers `seed` determines.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `limit`, which must not be 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        ((u128::from(mixed) * u128::from(limit)) >> 64) as u64
    }
}

impl RoutingInput {
    /// `patterns` patterns and `topics` topics, determined by `seed`.
    pub fn new(patterns: usize, topics: usize, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let mut seen = HashSet::new();
        let mut input = Self::default();
        let (exact, with_one) = (patterns * 70 / 100, patterns * 90 / 100);
        while input.patterns.len() < patterns {
            let mut segments = name(&mut random);
            if input.patterns.len() >= with_one {
                let keep = 2 + random.below(segments.len() as u64 - 2) as usize;
                segments.truncate(keep);
                segments.push("**".into());
            } else if input.patterns.len() >= exact {
                let at = 1 + random.below(segments.len() as u64 - 1) as usize;
                segments[at] = "*".into();
            }
            let pattern = segments.join("/");
            if seen.insert(pattern.clone()) {
                input.patterns.push(pattern);
            }
        }
        for at in 0..topics {
            input.topics.push(match at % 2 {
                0 => input.patterns[random.below(exact as u64) as usize].clone(),
                _ => name(&mut random).join("/"),
            });
        }
        for at in (1..patterns).rev() {
            input.patterns.swap(at, random.below(at as u64 + 1) as usize);
        }
        input
    }
}

fn name(random: &mut Random) -> Vec<String> {
    let len = 3 + random.below(4);
    (0..len)
        .map(|level| match level {
            0 => format!("site{}", random.below(ROOTS)),
            _ => format!("lvl{level}n{}", random.below(WORDS)),
        })
        .collect()
}
