//! What of a shard's log a subscription is done with: a floor, below which that is everything, and
//! the sparse set above it.
//!
//! Settling in order moves the floor and touches nothing else. Out of order, a sequence goes into a
//! roaring bitmap (Chambi, Lemire, Kaser, Godin: "Better bitmap performance with Roaring bitmaps",
//! 2016): at most a bit per sequence of the window, and less where runs are settled. What the
//! floor has passed is taken out of it by the container, so that each sequence costs O(1).

use roaring::RoaringTreemap;
use std::ops::Range;

/// Sequences of one container of the bitmap.
const CONTAINER: u64 = 1 << 16;

/// See the module's head.
#[derive(Debug, Clone, Default)]
pub struct Settled {
    floor: u64,
    /// Settled at or above the floor; and what is left of containers that the floor is inside of.
    above: RoaringTreemap,
    /// Behind the highest sequence that was put into `above`.
    end: u64,
}

impl Settled {
    /// Everything below `floor` is settled, nothing above it.
    pub fn new(floor: u64) -> Self {
        Self { floor, above: RoaringTreemap::new(), end: floor }
    }

    /// Everything below `floor` is settled, and what is in `above`.
    pub fn with(floor: u64, above: RoaringTreemap) -> Self {
        let end = above.max().map_or(floor, |last| last + 1).max(floor);
        let mut settled = Self { floor, above, end };
        settled.pass_settled();
        settled
    }

    /// All that is settled above the floor.
    pub fn sparse(&self) -> RoaringTreemap {
        let mut sparse = self.above.clone();
        sparse.remove_range(..self.floor);
        sparse
    }

    /// All of `range` that is not settled.
    pub fn missing(&self, range: Range<u64>) -> RoaringTreemap {
        let mut missing = RoaringTreemap::new();
        missing.insert_range(range.start.max(self.floor)..range.end.max(self.floor));
        missing -= &self.above;
        missing
    }

    /// Behind the highest sequence that is settled.
    pub fn end(&self) -> u64 {
        self.end.max(self.floor)
    }

    /// Below it everything is settled; it itself is not.
    #[inline]
    pub fn floor(&self) -> u64 {
        self.floor
    }

    /// Whether `sequence` is settled.
    #[inline]
    pub fn contains(&self, sequence: u64) -> bool {
        sequence < self.floor || sequence < self.end && self.above.contains(sequence)
    }

    /// How many are settled above the floor.
    pub fn above(&self) -> u64 {
        self.above.range_cardinality(self.floor..self.end.max(self.floor))
    }

    /// Settles `sequence`. False if it was settled before.
    #[inline]
    pub fn settle(&mut self, sequence: u64) -> bool {
        if sequence == self.floor {
            self.raise(sequence + 1);
            return true;
        }
        if sequence < self.floor || !self.above.insert(sequence) {
            return false;
        }
        self.end = self.end.max(sequence + 1);
        true
    }

    /// Settles all of `range`.
    #[inline]
    pub fn settle_all(&mut self, range: Range<u64>) {
        if range.start <= self.floor {
            if range.end > self.floor {
                self.raise(range.end);
            }
        } else if !range.is_empty() {
            self.end = self.end.max(range.end);
            self.above.insert_range(range);
        }
    }

    /// Moves the floor to `floor`, and on over all that is settled there.
    #[inline]
    fn raise(&mut self, floor: u64) {
        let before = self.floor;
        self.floor = floor;
        if floor < self.end {
            self.pass_settled();
        }
        if before / CONTAINER != self.floor / CONTAINER && !self.above.is_empty() {
            self.above.remove_range(..self.floor);
        }
    }

    fn pass_settled(&mut self) {
        while self.floor < self.end && self.above.contains(self.floor) {
            self.floor += 1;
        }
    }
}

#[cfg(test)]
#[cfg(not(slipring_loom))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn settling_in_order_keeps_nothing_above_the_floor() {
        let mut settled = Settled::new(7);
        for sequence in 7..200_000 {
            assert!(settled.settle(sequence));
            assert!(!settled.settle(sequence));
        }
        assert_eq!((settled.floor(), settled.above()), (200_000, 0));
        assert!(settled.above.is_empty());
    }

    #[test]
    fn what_the_floor_has_passed_is_let_go() {
        let mut settled = Settled::new(0);
        settled.settle_all(1..10 * CONTAINER);
        assert_eq!(settled.above(), 10 * CONTAINER - 1);
        assert!(settled.settle(0));
        assert_eq!((settled.floor(), settled.above()), (10 * CONTAINER, 0));
        assert!(settled.above.is_empty());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn it_holds_what_a_plain_set_holds(
            start in 0u64..3,
            steps in prop::collection::vec((0u64..400, 0u64..40, any::<bool>()), 0..60),
            stretch in prop::sample::select(vec![1, 700]),
        ) {
            let mut settled = Settled::new(start);
            let mut oracle: BTreeSet<u64> = (0..start).collect();
            for (at, len, is_range) in steps {
                let at = at * stretch;
                if is_range {
                    settled.settle_all(at..at + len);
                    oracle.extend(at..at + len);
                } else {
                    prop_assert_eq!(settled.settle(at), oracle.insert(at));
                }
                let floor = (0..).find(|sequence| !oracle.contains(sequence)).unwrap_or(0);
                prop_assert_eq!(settled.floor(), floor);
                prop_assert_eq!(settled.above() as usize, oracle.range(floor..).count());
                for sequence in at.saturating_sub(2)..at + len + 2 {
                    prop_assert_eq!(settled.contains(sequence), oracle.contains(&sequence));
                }
            }
        }
    }
}
