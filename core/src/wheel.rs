//! Where in a hierarchical timer wheel a deadline goes, and which place comes next.
//!
//! Six wheels of 64 places (Varghese and Lauck: "Hashed and hierarchical timing wheels", 1987,
//! scheme 7): a place of the lowest is one tick, a place of each further one is a whole turn of the
//! one below. What is at a place of a higher wheel is spread over the lower ones when its time
//! comes, so each entry moves at most five times. One word per wheel tells which places are used.
//!
//! This knows no entries: whoever uses it has a list for each place.

const BITS: u32 = 6;
const PLACES: usize = 1 << BITS;
const WHEELS: usize = 6;

/// Ticks ahead that a deadline can be placed: a place of the highest wheel less than its turn.
const SPAN: u64 = (1 << (BITS * WHEELS as u32)) - (1 << (BITS * (WHEELS as u32 - 1)));

/// Lists that a wheel needs.
pub(crate) const LISTS: usize = WHEELS * PLACES;

/// See the module's head.
#[derive(Debug, Default)]
pub(crate) struct Wheel {
    /// Up to here all has been looked at.
    elapsed: u64,
    used: [u64; WHEELS],
}

/// A place whose time comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NextPlace {
    pub(crate) list: usize,
    /// When: in the past if it has been begun and not been emptied.
    pub(crate) tick: u64,
}

impl Wheel {
    /// Up to here all has been looked at; what is due then or before belongs into no place.
    pub(crate) fn elapsed(&self) -> u64 {
        self.elapsed
    }

    /// Moves on to `tick`, before which nothing is at any place.
    pub(crate) fn advance(&mut self, tick: u64) {
        self.elapsed = self.elapsed.max(tick);
    }

    /// The place for `deadline`, which has not elapsed; it is used from now on.
    pub(crate) fn place(&mut self, deadline: u64) -> usize {
        let tick = deadline.min(self.elapsed + SPAN);
        // The highest digit in which they differ says how far away it is.
        let different = (self.elapsed ^ tick) | (PLACES as u64 - 1);
        let wheel = ((63 - different.leading_zeros()) / BITS).min(WHEELS as u32 - 1);
        let place = (tick >> (BITS * wheel)) as usize % PLACES;
        self.used[wheel as usize] |= 1 << place;
        wheel as usize * PLACES + place
    }

    /// Nothing is at the place `list` any more.
    pub(crate) fn clear(&mut self, list: usize) {
        self.used[list / PLACES] &= !(1 << (list % PLACES));
    }

    /// Whether nothing is at any place.
    pub(crate) fn is_empty(&self) -> bool {
        self.used == [0; WHEELS]
    }

    /// The used place whose time comes first.
    pub(crate) fn next(&self) -> Option<NextPlace> {
        let next = |(wheel, &used): (usize, &u64)| {
            if used == 0 {
                return None;
            }
            let shift = BITS * wheel as u32;
            let now = self.elapsed >> shift;
            let ahead = used.rotate_right((now % PLACES as u64) as u32).trailing_zeros();
            let place = now + u64::from(ahead);
            let list = wheel * PLACES + place as usize % PLACES;
            Some(NextPlace { list, tick: place << shift })
        };
        self.used.iter().enumerate().filter_map(next).min_by_key(|place| place.tick)
    }
}

#[cfg(test)]
#[cfg(not(slipring_loom))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Entries in lists of their own: each comes out at its tick, whatever steps time takes.
        #[test]
        fn everything_comes_at_its_time(
            start in prop::sample::select(vec![0u64, 63, 4095, (1 << 36) - 5]),
            steps in prop::collection::vec((0u32..34, 0u32..28), 1..60),
        ) {
            let mut wheel = Wheel::default();
            wheel.advance(start);
            let mut lists = vec![Vec::new(); LISTS];
            let mut expected = Vec::new();
            let mut now = start;
            for (near, step) in steps {
                let deadline = now + 1 + (1u64 << near) + u64::from(near) * 77;
                lists[wheel.place(deadline)].push(deadline);
                expected.push(deadline);
                now += (1 << step) - 1;
                while let Some(next) = wheel.next() {
                    let first = *expected.iter().min().unwrap();
                    prop_assert!(next.tick <= first, "{} is overlooked", first);
                    if next.tick > now {
                        break;
                    }
                    wheel.advance(next.tick);
                    wheel.clear(next.list);
                    for deadline in std::mem::take(&mut lists[next.list]) {
                        if deadline <= wheel.elapsed() {
                            prop_assert_eq!(deadline, wheel.elapsed());
                            expected.retain(|&other| other != deadline);
                        } else {
                            lists[wheel.place(deadline)].push(deadline);
                        }
                    }
                }
                wheel.advance(now);
                prop_assert!(expected.iter().all(|&deadline| deadline > now));
            }
            prop_assert_eq!(wheel.is_empty(), expected.is_empty());
        }
    }
}
