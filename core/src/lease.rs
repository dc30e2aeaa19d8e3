//! Leases as consumers hold them: ack ids, and what can be done by one.

use crate::error::AckError;
use crate::sync::PlainArc as Arc;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Names one delivery of one message to one subscription: by it, the message can be settled from
/// anywhere. Opaque; as text it has 48 characters of `[0-9a-f]`, and as bytes there are 24.
///
/// ```
/// use slipring::AckId;
/// let refused = "no ack id".parse::<AckId>();
/// assert!(refused.is_err());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AckId {
    /// Of the subscription, and of its last seek or opening.
    pub(crate) epoch: u64,
    pub(crate) sequence: u64,
    pub(crate) generation: u32,
    pub(crate) shard: u16,
}

impl AckId {
    const BYTES: usize = 24;

    /// What those of a subscription's `incarnation` in a store have in common.
    pub(crate) fn epoch_of(store: u64, subscription: u64, incarnation: u16) -> u64 {
        const PART: u64 = (1 << 24) - 1;
        (store & PART) << 40 | (subscription & PART) << 16 | u64::from(incarnation)
    }

    /// As bytes, for [`from_bytes`](Self::from_bytes).
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&self.epoch.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.sequence.to_be_bytes());
        bytes[16..20].copy_from_slice(&self.generation.to_be_bytes());
        bytes[20..22].copy_from_slice(&self.shard.to_be_bytes());
        let (numbers, place) = bytes.split_at_mut(22);
        place.copy_from_slice(&check(numbers).to_be_bytes());
        bytes
    }

    /// The id that [`to_bytes`](Self::to_bytes) has given.
    ///
    /// # Errors
    /// [`InvalidAckId`], with a position behind the last byte: they are damaged.
    pub fn from_bytes(bytes: [u8; Self::BYTES]) -> Result<Self, InvalidAckId> {
        let number = |range: std::ops::Range<usize>| {
            bytes[range].iter().fold(0_u64, |number, &byte| number << 8 | u64::from(byte))
        };
        let id = Self {
            epoch: number(0..8),
            sequence: number(8..16),
            generation: number(16..20) as u32,
            shard: number(20..22) as u16,
        };
        if id.to_bytes() == bytes { Ok(id) } else { Err(InvalidAckId { position: Self::BYTES }) }
    }
}

/// Tells a damaged id from one of ours (Fletcher, 1982). It is no signature.
fn check(bytes: &[u8]) -> u16 {
    // 22 bytes are far from an overflow, so the remainders may wait.
    let (low, high) = bytes.iter().fold((1_u32, 0_u32), |(low, high), &byte| {
        let low = low + u32::from(byte);
        (low, high + low)
    });
    ((high % 255) * 256 + low % 255) as u16
}

impl fmt::Display for AckId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A text that is no ack id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InvalidAckId {
    /// The byte where it stops being one; that of its end, if it is damaged somewhere.
    pub position: usize,
}

impl fmt::Display for InvalidAckId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not an ack id, at byte {}", self.position)
    }
}

impl std::error::Error for InvalidAckId {}

impl FromStr for AckId {
    type Err = InvalidAckId;

    fn from_str(text: &str) -> Result<Self, InvalidAckId> {
        let digit = |position: usize| match text.as_bytes().get(position) {
            Some(&digit @ b'0'..=b'9') => Ok(digit - b'0'),
            Some(&digit @ b'a'..=b'f') => Ok(digit - b'a' + 10),
            _ => Err(InvalidAckId { position }),
        };
        let mut bytes = [0; Self::BYTES];
        for (index, byte) in bytes.iter_mut().enumerate() {
            *byte = digit(2 * index)? << 4 | digit(2 * index + 1)?;
        }
        let position = 2 * Self::BYTES;
        if text.len() > position {
            return Err(InvalidAckId { position });
        }
        Self::from_bytes(bytes).map_err(|_| InvalidAckId { position })
    }
}

/// A delivery that is to be settled.
#[derive(Debug, Clone)]
pub(crate) struct Leased {
    pub(crate) id: AckId,
    /// Counted from 1.
    pub(crate) attempt: u32,
    /// `None` where the handler's result settles it.
    pub(crate) by: Option<Arc<dyn Settle>>,
}

/// What settles messages: a subscription, as its messages know it.
pub(crate) trait Settle: fmt::Debug + Send + Sync {
    /// Settles the message. False if that has no effect, because the lease is over.
    fn ack(&self, id: AckId) -> Result<bool, AckError>;
    /// Gives the message back, to be delivered again after `delay`.
    fn nack(&self, id: AckId, delay: Option<Duration>) -> Result<(), AckError>;
    /// Gives up on the message.
    fn dead_letter(&self, id: AckId, reason: &str) -> Result<(), AckError>;
    /// The lease now ends `by` from now.
    fn extend(&self, id: AckId, by: Duration) -> Result<(), AckError>;
}

#[cfg(test)]
#[cfg(not(slipring_loom))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn an_id_reads_back_and_is_short(epoch: u64, sequence: u64, generation: u32, shard: u16) {
            let id = AckId { epoch, sequence, generation, shard };
            let text = id.to_string();
            prop_assert!(text.len() <= 64);
            prop_assert_eq!(text.parse(), Ok(id));
            prop_assert_eq!(AckId::from_bytes(id.to_bytes()), Ok(id));
        }

        #[test]
        fn one_bit_changed_in_its_bytes_is_found(epoch: u64, sequence: u64, bit in 0usize..192) {
            let id = AckId { epoch, sequence, generation: 7, shard: 1 };
            let mut bytes = id.to_bytes();
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(AckId::from_bytes(bytes), Err(InvalidAckId { position: 24 }));
        }

        #[test]
        fn one_character_changed_is_found(epoch: u64, sequence: u64, at in 0usize..48, by in 1u8..16) {
            let id = AckId { epoch, sequence, generation: 7, shard: 1 };
            let mut text = id.to_string().into_bytes();
            let digit = (text[at] as char).to_digit(16).unwrap() as u8 ^ by;
            text[at] = char::from_digit(u32::from(digit), 16).unwrap() as u8;
            let text = String::from_utf8(text).unwrap();
            prop_assert!(text.parse::<AckId>().is_err(), "{}", text);
        }

        #[test]
        fn other_text_is_refused_inside_itself(text in ".{0,60}") {
            if let Err(error) = text.parse::<AckId>() {
                prop_assert!(error.position <= text.len());
            }
        }
    }
}
