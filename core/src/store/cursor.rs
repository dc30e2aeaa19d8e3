//! What a durable subscription has settled in a shard, and the changes of it that are journalled.
//!
//! Changes merge: applied twice, or again on top of what came after them, they change nothing. So a
//! snapshot may be newer than the changes that are written behind it.

use std::collections::BTreeMap;

use roaring::RoaringTreemap;

use super::wire::{Reader, put_bytes, put_number};

/// From the first unsettled sequence of a cursor, how far up one can be settled. Whoever delivers
/// stops before that: one stuck message must not let the state grow without end.
pub const MAX_WINDOW: u64 = 1 << 24;
/// Messages of one cursor that can be in a delivery attempt after the first.
pub const MAX_ATTEMPTS: usize = 1 << 20;

/// Whose cursor, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(clippy::exhaustive_structs, reason = "a key is made of exactly these")]
pub struct CursorKey {
    /// The number that the metadata gave the subscription; none is given twice.
    pub subscription: u64,
    /// The shard.
    pub shard: u32,
}

/// What is settled: everything below the floor, and some above it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Cursor {
    floor: u64,
    settled: RoaringTreemap,
    attempts: BTreeMap<u64, u16>,
}

/// What has become settled since the last change.
#[derive(Debug, Clone, PartialEq, Default)]
#[expect(clippy::exhaustive_structs, reason = "made by whoever settles")]
pub struct CursorDelta {
    /// Everything below is settled. A floor below the cursor's says nothing.
    pub floor: u64,
    /// Settled beside that.
    pub settled: RoaringTreemap,
    /// Messages whose delivery attempt is now a later one than the first, with its number.
    pub attempts: BTreeMap<u64, u16>,
}

/// A change of one cursor.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::exhaustive_enums, reason = "a journal must know all of them")]
pub enum CursorChange {
    /// More is settled.
    Advance(CursorDelta),
    /// The cursor is another one now, also one that has settled less: it was made, or moved.
    Replace(Cursor),
    /// There is no such cursor any more.
    Forget,
}

impl Cursor {
    /// A cursor that has settled everything below `floor`.
    pub fn new(floor: u64) -> Self {
        Self { floor, ..Self::default() }
    }

    /// The first sequence that is not settled.
    pub fn floor(&self) -> u64 {
        self.floor
    }

    /// What is settled above the floor.
    pub fn settled(&self) -> &RoaringTreemap {
        &self.settled
    }

    /// Unsettled messages in a delivery attempt after the first, with its number.
    pub fn attempts(&self) -> &BTreeMap<u64, u16> {
        &self.attempts
    }

    /// Whether a sequence is settled.
    pub fn is_settled(&self, sequence: u64) -> bool {
        sequence < self.floor || self.settled.contains(sequence)
    }

    /// Settles more.
    ///
    /// # Errors
    ///
    /// Why the change is refused; the cursor is as before.
    pub fn advance(&mut self, delta: &CursorDelta) -> Result<(), &'static str> {
        let floor = self.floor.max(delta.floor);
        check_window(floor, &delta.settled, &delta.attempts)?;
        if self.attempts.len() + delta.attempts.len() > MAX_ATTEMPTS {
            return Err("too many messages in a delivery attempt after the first");
        }
        if floor > self.floor {
            self.floor = floor;
            self.settled.remove_range(..floor);
            self.forget_passed();
        }
        if !delta.settled.is_empty() {
            self.settled |= &delta.settled;
            self.settled.remove_range(..floor);
        }
        self.close_gap();
        for (&sequence, &attempt) in delta.attempts.range(self.floor..) {
            let known = self.attempts.entry(sequence).or_insert(attempt);
            *known = attempt.max(*known);
        }
        let Self { settled, attempts, .. } = self;
        let changed = delta.settled.len() as usize + delta.attempts.len();
        if changed < attempts.len() {
            for sequence in delta.settled.iter().chain(delta.attempts.keys().copied()) {
                if settled.contains(sequence) {
                    attempts.remove(&sequence);
                }
            }
        } else {
            attempts.retain(|sequence, _| !settled.contains(*sequence));
        }
        Ok(())
    }

    /// Moves the floor up over what is settled just above it.
    fn close_gap(&mut self) {
        let start = self.floor;
        for sequence in &self.settled {
            if sequence != self.floor {
                break;
            }
            self.floor += 1;
        }
        if self.floor > start {
            self.settled.remove_range(..self.floor);
            self.forget_passed();
        }
    }

    /// Lets go of the attempts below the floor, one by one: splitting them off would count the rest.
    fn forget_passed(&mut self) {
        while let Some(first) = self.attempts.first_entry().filter(|at| *at.key() < self.floor) {
            first.remove();
        }
    }
}

fn check_window(
    floor: u64,
    settled: &RoaringTreemap,
    attempts: &BTreeMap<u64, u16>,
) -> Result<(), &'static str> {
    let last = settled.max().max(attempts.last_key_value().map(|(sequence, _)| *sequence));
    if last.is_some_and(|last| last >= floor.saturating_add(MAX_WINDOW)) {
        return Err("further above the first unsettled message than a cursor reaches");
    }
    if attempts.values().any(|attempt| *attempt < 2) {
        return Err("a first delivery attempt is not written down");
    }
    Ok(())
}

const ADVANCE: u8 = 1;
const REPLACE: u8 = 2;
const FORGET: u8 = 3;

/// Appends a change to the body of a batch.
pub(super) fn encode(out: &mut Vec<u8>, key: CursorKey, change: &CursorChange) {
    match change {
        CursorChange::Advance(delta) => {
            encode_head(out, ADVANCE, key);
            encode_state(out, delta.floor, &delta.settled, &delta.attempts);
        }
        CursorChange::Replace(cursor) => encode_cursor(out, key, cursor),
        CursorChange::Forget => encode_head(out, FORGET, key),
    }
}

/// Appends a whole cursor.
pub(super) fn encode_cursor(out: &mut Vec<u8>, key: CursorKey, cursor: &Cursor) {
    encode_head(out, REPLACE, key);
    encode_state(out, cursor.floor, &cursor.settled, &cursor.attempts);
}

fn encode_head(out: &mut Vec<u8>, kind: u8, key: CursorKey) {
    out.push(kind);
    put_number(out, key.subscription);
    put_number(out, key.shard.into());
}

fn encode_state(
    out: &mut Vec<u8>,
    floor: u64,
    settled: &RoaringTreemap,
    attempts: &BTreeMap<u64, u16>,
) {
    put_number(out, floor);
    let mut set = vec![];
    if !settled.is_empty() {
        settled.serialize_into(&mut set).expect("writing to memory does not fail");
    }
    put_bytes(out, &set);
    put_number(out, attempts.len() as u64);
    let mut before = 0;
    for (sequence, attempt) in attempts {
        put_number(out, sequence - before);
        put_number(out, (*attempt).into());
        before = *sequence;
    }
}

/// Takes the changes of a body; `None` if it is not made of them.
pub(super) fn decode(body: &[u8]) -> Option<Vec<(CursorKey, CursorChange)>> {
    let mut reader = Reader::new(body);
    let mut changes = vec![];
    while reader.len() > 0 {
        let kind = reader.byte()?;
        let key = CursorKey { subscription: reader.number()?, shard: reader.small()? };
        let change = match kind {
            ADVANCE => {
                let (floor, settled, attempts) = decode_state(&mut reader)?;
                CursorChange::Advance(CursorDelta { floor, settled, attempts })
            }
            REPLACE => {
                let (floor, settled, attempts) = decode_state(&mut reader)?;
                let mut cursor = Cursor::new(floor);
                cursor.advance(&CursorDelta { floor, settled, attempts }).ok()?;
                CursorChange::Replace(cursor)
            }
            FORGET => CursorChange::Forget,
            _ => return None,
        };
        changes.push((key, change));
    }
    Some(changes)
}

fn decode_state(reader: &mut Reader<'_>) -> Option<(u64, RoaringTreemap, BTreeMap<u64, u16>)> {
    let floor = reader.number()?;
    let mut set = reader.bytes()?;
    let settled = if set.is_empty() {
        RoaringTreemap::new()
    } else {
        RoaringTreemap::deserialize_from(&mut set).ok().filter(|_| set.is_empty())?
    };
    let mut attempts = BTreeMap::new();
    let mut before = 0_u64;
    for at in 0..reader.number()? {
        let gap = reader.number()?;
        if gap == 0 && at > 0 {
            return None;
        }
        before = before.checked_add(gap)?;
        attempts.insert(before, reader.small()?);
    }
    Some((floor, settled, attempts))
}

/// Applies a change to all cursors there are.
pub(super) fn apply(
    cursors: &mut BTreeMap<CursorKey, Cursor>,
    key: CursorKey,
    change: &CursorChange,
) -> Result<(), &'static str> {
    match change {
        CursorChange::Advance(delta) => match cursors.get_mut(&key) {
            Some(cursor) => cursor.advance(delta)?,
            None => return Err("there is no such cursor"),
        },
        CursorChange::Replace(cursor) => {
            cursors.insert(key, cursor.clone());
        }
        CursorChange::Forget => {
            cursors.remove(&key);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn delta(floor: u64, settled: &[u64], attempts: &[(u64, u16)]) -> CursorDelta {
        CursorDelta {
            floor,
            settled: settled.iter().copied().collect(),
            attempts: attempts.iter().copied().collect(),
        }
    }

    #[test]
    fn the_floor_moves_over_what_is_settled_above_it() {
        let mut cursor = Cursor::new(5);
        cursor.advance(&delta(0, &[7, 8, 10], &[(5, 2), (9, 3), (8, 2)])).unwrap();
        assert_eq!((cursor.floor(), cursor.settled().len()), (5, 3));
        assert_eq!(cursor.attempts(), &BTreeMap::from([(5, 2), (9, 3)]));
        cursor.advance(&delta(0, &[5, 6], &[])).unwrap();
        assert_eq!((cursor.floor(), cursor.settled().len()), (9, 1));
        cursor.advance(&delta(10, &[], &[])).unwrap();
        assert_eq!(cursor, Cursor::new(11));
        assert!(cursor.is_settled(10) && !cursor.is_settled(11));
    }

    #[test]
    fn a_change_beyond_the_limits_is_refused_and_changes_nothing() {
        let mut cursor = Cursor::new(5);
        let before = cursor.clone();
        cursor.advance(&delta(0, &[5 + MAX_WINDOW], &[])).unwrap_err();
        cursor.advance(&delta(0, &[], &[(5 + MAX_WINDOW, 2)])).unwrap_err();
        cursor.advance(&delta(0, &[], &[(6, 1)])).unwrap_err();
        let many = (5..6 + MAX_ATTEMPTS as u64).map(|sequence| (sequence, 2)).collect();
        cursor.advance(&CursorDelta { attempts: many, ..delta(0, &[], &[]) }).unwrap_err();
        assert_eq!(cursor, before);
        cursor.advance(&delta(u64::MAX, &[u64::MAX - 1], &[])).unwrap();
    }

    fn deltas() -> impl Strategy<Value = Vec<CursorDelta>> {
        let set = prop::collection::btree_set(0..60_u64, 0..12);
        let attempts = prop::collection::btree_map(0..60_u64, 2..9_u16, 0..5);
        let delta = (0..40_u64, set, attempts).prop_map(|(floor, settled, attempts)| CursorDelta {
            floor,
            settled: settled.into_iter().collect(),
            attempts,
        });
        prop::collection::vec(delta, 1..12)
    }

    proptest! {
        /// Against a plain set of settled sequences, and a map of attempts.
        #[test]
        fn a_cursor_is_the_set_of_what_was_settled(deltas in deltas()) {
            let mut cursor = Cursor::new(3);
            let mut settled: std::collections::BTreeSet<u64> = (0..3).collect();
            let mut attempts = BTreeMap::new();
            for delta in &deltas {
                cursor.advance(delta).unwrap();
                settled.extend(0..delta.floor);
                settled.extend(&delta.settled);
                for (sequence, attempt) in &delta.attempts {
                    let known = attempts.entry(*sequence).or_insert(*attempt);
                    *known = (*known).max(*attempt);
                }
                for sequence in 0..70 {
                    prop_assert_eq!(cursor.is_settled(sequence), settled.contains(&sequence));
                }
                attempts.retain(|sequence, _| !settled.contains(sequence));
                prop_assert_eq!(cursor.attempts(), &attempts);
                prop_assert!(!cursor.is_settled(cursor.floor()));
            }
        }

        #[test]
        fn changes_applied_again_change_nothing(deltas in deltas(), from in 0..12_usize) {
            let mut cursor = Cursor::new(0);
            deltas.iter().for_each(|delta| cursor.advance(delta).unwrap());
            let after = cursor.clone();
            deltas.iter().skip(from).for_each(|delta| cursor.advance(delta).unwrap());
            prop_assert_eq!(cursor, after);
        }

        #[test]
        fn changes_read_back_as_written(deltas in deltas(), subscription: u64, shard: u32) {
            let key = CursorKey { subscription, shard };
            let mut cursor = Cursor::new(1);
            deltas.iter().for_each(|delta| cursor.advance(delta).unwrap());
            let mut changes: Vec<_> =
                deltas.into_iter().map(|delta| (key, CursorChange::Advance(delta))).collect();
            changes.extend([(key, CursorChange::Replace(cursor)), (key, CursorChange::Forget)]);
            let mut body = vec![];
            changes.iter().for_each(|(key, change)| encode(&mut body, *key, change));
            prop_assert_eq!(decode(&body), Some(changes));
            body.pop();
            prop_assert_ne!(decode(&body).map(|changes| changes.len()), Some(0));
        }

        #[test]
        fn any_bytes_are_decoded_or_refused(body: Vec<u8>) {
            drop(decode(&body));
        }
    }
}
