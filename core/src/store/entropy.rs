//! Random numbers for identities and salts; the same ones again where a test gives the seed.

use crate::sync::Mutex;
use std::hash::{BuildHasher, RandomState};

#[derive(Debug)]
pub(crate) struct Entropy(Mutex<u64>);

impl Entropy {
    pub(crate) fn new(seed: Option<u64>) -> Self {
        // The keys of std's hash maps come from the operating system.
        Self(Mutex::new(seed.unwrap_or_else(|| RandomState::new().hash_one(0))))
    }

    pub(crate) fn next(&self) -> u64 {
        let mut state = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        *state = state.wrapping_add(1);
        split_mix(*state)
    }
}

/// Number `at` of SplitMix64's stream (Steele, Lea and Flood, 2014).
pub(super) fn split_mix(at: u64) -> u64 {
    let z = at.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
