//! The keys under which the trie's parts are found: hashes of the whole way from the root.
//!
//! A pattern is literal runs with wildcards between them. An *anchor* is the root or the place
//! behind a wildcard; what lies behind an anchor is found by the anchor's key and the hash and
//! length of the run that leads there. The hash of a run is a polynomial over its segments'
//! hashes, so that of any run of a topic comes from two of the topic's prefix hashes.

use ahash::RandomState;
use arrayvec::ArrayVec;

use crate::topic::{MAX_NAME_SEGMENTS, Pattern};

/// Hashes segments, runs and paths.
#[derive(Clone)]
pub(crate) struct Hasher {
    /// Random, so that nobody can choose segments that collide.
    secrets: [u64; 2],
    /// All ones; tests clear bits to make collisions.
    pub(crate) key_mask: u64,
}

/// Any odd number does: the hash of a run is a polynomial in it over its segments' hashes.
const RUN_BASE: u64 = 0x9e37_79b9_7f4a_7c15;
pub(crate) const ROOT_ANCHOR: u64 = 0;

const fn powers(base: u64) -> [u64; MAX_NAME_SEGMENTS + 1] {
    let mut powers = [1u64; MAX_NAME_SEGMENTS + 1];
    let mut at = 1;
    while at <= MAX_NAME_SEGMENTS {
        powers[at] = powers[at - 1].wrapping_mul(base);
        at += 1;
    }
    powers
}

static RUN_POWERS: [u64; MAX_NAME_SEGMENTS + 1] = powers(RUN_BASE);

/// The two halves of the full product, folded: mixes every bit of both into every bit.
#[inline(always)]
fn fold(one: u64, other: u64) -> u64 {
    let product = u128::from(one) * u128::from(other);
    (product as u64) ^ (product >> 64) as u64
}

const ODD: [u64; 4] =
    [0xa076_1d64_78bd_642f, 0xe703_7ed1_a0b4_28db, 0x8ebc_6af0_9c88_c6e3, 0x5899_65cc_7537_4cc3];

impl Hasher {
    pub(crate) fn new(key_mask: u64) -> Self {
        let random = RandomState::new();
        Self { secrets: [random.hash_one(1), random.hash_one(2)], key_mask }
    }

    /// The key of what lies `run_len` segments with the hash `run` behind `anchor`.
    #[inline(always)]
    pub(crate) fn key(&self, anchor: u64, run: u64, run_len: usize, follows: Follows) -> u64 {
        let what = (run_len as u64) << 1 | follows as u64;
        fold(anchor ^ run ^ ODD[0], ODD[1].wrapping_mul(what << 1 | 1)) & self.key_mask
    }

    /// Hashes the segment that begins at `start`; gives the hash and where the segment ends.
    ///
    /// Eight bytes a step, from the segment's start, the rest masked: the hash depends on nothing
    /// but the segment.
    #[inline(always)]
    fn segment(&self, text: &[u8], start: usize) -> (u64, usize) {
        const LOW: u64 = 0x0101_0101_0101_0101;
        const HIGH: u64 = 0x8080_8080_8080_8080;
        let mut hash = self.secrets[0];
        let mut at = start;
        loop {
            let (word, valid) = load_word(text, at);
            let zero_at_slash = word ^ (LOW * b'/' as u64);
            let slashes = zero_at_slash.wrapping_sub(LOW) & !zero_at_slash & HIGH;
            let len = ((slashes.trailing_zeros() / 8) as usize).min(valid);
            if len < 8 {
                let masked = word & !(u64::MAX << (len * 8));
                let end = at + len;
                let tagged = self.secrets[1] ^ ((end - start) as u64).wrapping_mul(ODD[2]);
                return (fold(hash ^ masked, tagged), end);
            }
            hash = fold(hash ^ word, self.secrets[1]);
            at += 8;
        }
    }
}

/// Up to eight bytes of `text` from `at`, the first lowest, and how many there are.
#[inline(always)]
fn load_word(text: &[u8], at: usize) -> (u64, usize) {
    if let Some(bytes) = text.get(at..at + 8) {
        let mut word = [0; 8];
        word.copy_from_slice(bytes);
        return (u64::from_le_bytes(word), 8);
    }
    let valid = text.len() - at;
    if valid == 0 {
        return (0, 0);
    }
    if let Some(bytes) = text.last_chunk::<8>() {
        return (u64::from_le_bytes(*bytes) >> ((8 - valid) * 8), valid);
    }
    let mut word = [0; 8];
    word[..valid].copy_from_slice(&text[at..]);
    (u64::from_le_bytes(word), valid)
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wildcard {
    One,
    Any,
}

/// What is behind a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Follows {
    End = 0,
    Wildcard = 1,
}

/// The anchor behind a wildcard that is behind `branch`.
#[inline(always)]
pub(crate) fn anchor_key(branch: u64, wildcard: Wildcard) -> u64 {
    match wildcard {
        Wildcard::One => fold(branch ^ ODD[2], ODD[0]),
        Wildcard::Any => fold(branch ^ ODD[3], ODD[0]),
    }
}

pub(crate) fn counter_key(anchor: u64, follows: Follows, run_len: usize) -> u64 {
    fold(anchor ^ ODD[1], ODD[3].wrapping_mul((run_len as u64) << 2 | (follows as u64) << 1 | 1))
}

/// The keys on the way to a pattern's leaf.
pub(crate) struct Path {
    steps: ArrayVec<Step, MAX_NAME_SEGMENTS>,
    pub(crate) leaf_key: u64,
    tail_len: usize,
}

/// A run and the wildcard behind it.
#[derive(Clone, Copy)]
pub(crate) struct Step {
    pub(crate) run_len: usize,
    pub(crate) branch: u64,
    pub(crate) wildcard: Wildcard,
    /// The anchor behind the wildcard.
    pub(crate) anchor: u64,
}

impl Path {
    pub(crate) fn of(pattern: &Pattern, hasher: &Hasher) -> Self {
        let mut steps = ArrayVec::new();
        let text = pattern.as_str().as_bytes();
        let (mut anchor, mut run, mut run_len) = (ROOT_ANCHOR, 0u64, 0);
        let mut start = 0;
        while start <= text.len() {
            let (hash, end) = hasher.segment(text, start);
            let wildcard = match &text[start..end] {
                b"*" => Some(Wildcard::One),
                b"**" => Some(Wildcard::Any),
                _ => None,
            };
            start = end + 1;
            let Some(wildcard) = wildcard else {
                run = run.wrapping_mul(RUN_BASE).wrapping_add(hash);
                run_len += 1;
                continue;
            };
            let branch = hasher.key(anchor, run, run_len, Follows::Wildcard);
            anchor = anchor_key(branch, wildcard);
            steps.push(Step { run_len, branch, wildcard, anchor });
            (run, run_len) = (0, 0);
        }
        let leaf_key = hasher.key(anchor, run, run_len, Follows::End);
        Self { steps, leaf_key, tail_len: run_len }
    }

    pub(crate) fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Each step with what is behind its wildcard: a run of so many segments, and then the end or
    /// the next wildcard.
    pub(crate) fn edges(&self) -> impl Iterator<Item = (&Step, Follows, usize)> {
        let next = self.steps.iter().skip(1).map(|step| (Follows::Wildcard, step.run_len));
        let behind = next.chain([(Follows::End, self.tail_len)]);
        self.steps.iter().zip(behind).map(|(step, (follows, run_len))| (step, follows, run_len))
    }
}

/// The prefix hashes of a topic, from which any run's hash takes a multiplication.
pub(crate) struct TopicHashes {
    prefixes: [u64; MAX_NAME_SEGMENTS + 1],
    /// How many segments the topic has.
    pub(crate) depth: usize,
}

impl TopicHashes {
    #[inline(always)]
    pub(crate) fn new() -> Self {
        Self { prefixes: [0; MAX_NAME_SEGMENTS + 1], depth: 0 }
    }

    /// Takes the topic in; false if there are too many segments for any pattern to match.
    #[inline(always)]
    pub(crate) fn fill(&mut self, topic: &str, hasher: &Hasher) -> bool {
        let text = topic.as_bytes();
        let mut start = 0;
        let mut prefix = 0u64;
        for depth in 1..=MAX_NAME_SEGMENTS {
            let (hash, end) = hasher.segment(text, start);
            prefix = prefix.wrapping_mul(RUN_BASE).wrapping_add(hash);
            self.prefixes[depth] = prefix;
            if end >= text.len() {
                self.depth = depth;
                return true;
            }
            start = end + 1;
        }
        false
    }

    #[inline(always)]
    pub(crate) fn run(&self, from: usize, len: usize) -> u64 {
        self.prefixes[from + len].wrapping_sub(self.prefixes[from].wrapping_mul(RUN_POWERS[len]))
    }
}
