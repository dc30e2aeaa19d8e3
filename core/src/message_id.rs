//! Message ids: the publisher's own, or made of a message's place.

use std::fmt;

/// A message's id. Displays as the publisher's own text, or as a UUID (version 8) made of the
/// store (48 bits), the partition (26 bits) and the offset (48 bits).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MessageId<'a>(Id<'a>);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Id<'a> {
    Own(&'a str),
    Derived(u128),
}

impl<'a> MessageId<'a> {
    /// The publisher's own.
    pub(crate) fn given(text: &'a str) -> Self {
        Self(Id::Own(text))
    }

    pub(crate) fn derived(store: u64, partition: u32, offset: u64) -> Self {
        let store = u128::from(store & ((1 << 48) - 1));
        let partition = u128::from(partition & ((1 << 26) - 1));
        let offset = u128::from(offset & ((1 << 48) - 1));
        Self(Id::Derived(store << 74 | partition << 48 | offset))
    }

    /// The publisher's own id, if it gave one.
    pub fn own(&self) -> Option<&str> {
        match &self.0 {
            Id::Own(text) => Some(text),
            Id::Derived(_) => None,
        }
    }
}

impl fmt::Display for MessageId<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Id::Own(text) => f.write_str(text),
            Id::Derived(bits) => {
                // 122 bits around the version and variant fields of RFC 9562.
                let (high, middle, low) =
                    (bits >> 74, (bits >> 62) & 0xfff, bits & ((1 << 62) - 1));
                let uuid = high << 80 | 8 << 76 | middle << 64 | 0b10 << 62 | low;
                uuid::Uuid::from_u128(uuid).fmt(f)
            }
        }
    }
}

#[cfg(test)]
#[cfg(not(slipring_loom))]
mod tests {
    use super::*;

    #[test]
    fn derived_ids_are_version_8_uuids_and_differ() {
        let a = MessageId::derived(u64::MAX, 1, 2).to_string();
        let b = MessageId::derived(u64::MAX, 2, 1).to_string();
        assert_ne!(a, b);
        assert_eq!(&a[14..15], "8");
        assert_eq!(uuid::Uuid::parse_str(&a).unwrap().get_version_num(), 8);
    }
}
