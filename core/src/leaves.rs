//! The frozen leaves of a large trie: patterns with one subscription each, which most are, lie flat.
//!
//! A lookup finds a [`Spot`], which tells at once where the pattern's text and where the
//! subscription is, so both come from memory at the same time. Nothing is allocated for a leaf. All
//! lies in the order of the keys, so a merge reads and writes from front to back. Patterns with
//! several subscriptions, or with one key, stay as they are among the changes.

use std::num::NonZeroU32;

use crate::leaf::{Leaf, LeafKind, Removed};
use crate::overlay::Frozen;
use crate::pages::large_vec;
use crate::prefetch;
use crate::table::{self, Table, merge_sorted};
use crate::topic::{self, MAX_NAME_LEN_BYTES, Pattern};

/// See the module's head.
pub(crate) struct Leaves<V> {
    table: Table<Spot>,
    /// Patterns, each behind its length in two bytes. The first byte is not used.
    texts: Vec<u8>,
    entries: Vec<Entry<V>>,
    shared: Vec<Leaf<V>>,
}

struct Entry<V> {
    id: u64,
    value: V,
}

/// Where a leaf is.
#[derive(Clone, Copy)]
struct Spot {
    /// Its place in `texts`, or [`SHARED`].
    text: NonZeroU32,
    /// Its place in `entries`, or in `shared`.
    at: u32,
}

const SHARED: NonZeroU32 = NonZeroU32::MAX;

/// A leaf that was found.
pub(crate) enum Found<'t, V> {
    Flat(Flat<'t, V>),
    Shared(&'t Leaf<V>),
}

/// A pattern with one subscription in a frozen table. Nothing of it has been looked at yet.
pub(crate) struct Flat<'t, V> {
    leaves: &'t Leaves<V>,
    spot: Spot,
}

impl<V> Clone for Found<'_, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<V> Copy for Found<'_, V> {}

impl<V> Clone for Flat<'_, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<V> Copy for Flat<'_, V> {}

impl<'t, V> Flat<'t, V> {
    #[inline(always)]
    fn text(self) -> &'t [u8] {
        let at = self.spot.text.get() as usize;
        let texts = &self.leaves.texts[at..];
        let (len, texts) = texts.split_first_chunk::<2>().expect("a length before each text");
        &texts[..usize::from(u16::from_ne_bytes(*len))]
    }

    fn entry(self) -> &'t Entry<V> {
        &self.leaves.entries[self.spot.at as usize]
    }

    fn pattern(self) -> Pattern {
        Pattern::of_canonical(std::str::from_utf8(self.text()).expect("a pattern's text"))
    }
}

impl<'t, V: Clone> Found<'t, V> {
    /// Begins to fetch what the calls below look at.
    #[inline(always)]
    pub(crate) fn fetch(self) {
        match self {
            Self::Flat(Flat { leaves, spot }) => {
                let text = (&raw const leaves.texts[spot.text.get() as usize]).expose_provenance();
                prefetch::for_read(text);
                // A text is seldom longer than this.
                prefetch::for_read(text + 32);
                let entry = &raw const leaves.entries[spot.at as usize];
                prefetch::for_read(entry.expose_provenance());
            }
            Self::Shared(leaf) => prefetch::for_read((&raw const *leaf.0).expose_provenance()),
        }
    }

    /// The entry, if there is one subscription to one pattern, and that matches; `Err` if there are
    /// several.
    #[inline(always)]
    pub(crate) fn single(self, topic: &str) -> Result<Option<(u64, &'t V)>, ()> {
        match self {
            Self::Flat(flat) => Ok(topic::matches(flat.text(), topic).then(|| {
                let Entry { id, value } = flat.entry();
                (*id, value)
            })),
            Self::Shared(leaf) => match &*leaf.0 {
                LeafKind::One { pattern, id, value } => {
                    Ok(pattern.matches(topic).then_some((*id, value)))
                }
                _ => Err(()),
            },
        }
    }

    /// Adds the entries whose patterns match, and says whether one id may be there twice.
    pub(crate) fn collect(self, topic: &str, found: &mut Vec<(u64, &'t V)>) -> bool {
        match self {
            Self::Flat(_) => {
                found.extend(self.single(topic).ok().flatten());
                false
            }
            Self::Shared(leaf) => {
                leaf.collect(topic, found);
                matches!(&*leaf.0, LeafKind::Collided(_))
            }
        }
    }

    /// A leaf of its own.
    pub(crate) fn to_leaf(self) -> Leaf<V> {
        match self {
            Self::Flat(flat) => {
                let Entry { id, value } = flat.entry();
                Leaf::one(flat.pattern(), *id, value.clone())
            }
            Self::Shared(leaf) => leaf.clone(),
        }
    }

    /// As [`Leaf::without`].
    pub(crate) fn without(self, pattern: &Pattern, id: u64) -> Option<Removed<V>> {
        match self {
            Self::Flat(flat) => (flat.text() == pattern.as_str().as_bytes()
                && flat.entry().id == id)
                .then_some(Removed { leaf: None, was_last_of_pattern: true }),
            Self::Shared(leaf) => leaf.without(pattern, id),
        }
    }
}

/// Makes [`Leaves`], one by one in the order of their keys.
pub(crate) struct Builder<V> {
    table: table::Builder<Spot>,
    texts: Vec<u8>,
    entries: Vec<Entry<V>>,
    shared: Vec<Leaf<V>>,
}

impl<V: Clone> Builder<V> {
    /// For about `len` leaves with about `text_bytes` bytes of patterns.
    pub(crate) fn new(len: usize, text_bytes: usize) -> Self {
        let mut texts = large_vec::<u8>(1 + text_bytes + 2 * len);
        texts.push(0);
        let table = table::Builder::new(len);
        Self { table, texts, entries: large_vec(len), shared: vec![] }
    }

    /// Adds a pattern with one subscription.
    pub(crate) fn one(&mut self, key: u64, pattern: &Pattern, id: u64, value: V) {
        let text = pattern.as_str().as_bytes();
        if self.has_room() {
            self.flat(key, text, id, value);
        } else {
            self.shared(key, Leaf::one(pattern.clone(), id, value));
        }
    }

    /// Adds any leaf.
    pub(crate) fn leaf(&mut self, key: u64, leaf: Found<'_, V>) {
        let (text, id, value) = match leaf {
            Found::Flat(flat) => {
                let Entry { id, value } = flat.entry();
                (flat.text(), *id, value)
            }
            Found::Shared(leaf) => match &*leaf.0 {
                LeafKind::One { pattern, id, value } => (pattern.as_str().as_bytes(), *id, value),
                _ => return self.shared(key, leaf.clone()),
            },
        };
        if self.has_room() {
            self.flat(key, text, id, value.clone());
        } else {
            self.shared(key, leaf.to_leaf());
        }
    }

    /// Whether one more text has a place that a [`Spot`] can tell.
    fn has_room(&self) -> bool {
        self.texts.len() + 2 + MAX_NAME_LEN_BYTES < SHARED.get() as usize
    }

    fn flat(&mut self, key: u64, text: &[u8], id: u64, value: V) {
        let spot = Spot {
            text: u32::try_from(self.texts.len()).ok().and_then(NonZeroU32::new).unwrap_or(SHARED),
            at: self.entries.len() as u32,
        };
        self.texts.extend_from_slice(&(text.len() as u16).to_ne_bytes());
        self.texts.extend_from_slice(text);
        self.entries.push(Entry { id, value });
        self.table.push(key, spot);
    }

    fn shared(&mut self, key: u64, leaf: Leaf<V>) {
        self.table.push(key, Spot { text: SHARED, at: self.shared.len() as u32 });
        self.shared.push(leaf);
    }

    pub(crate) fn finish(self) -> Leaves<V> {
        let Self { table, texts, entries, shared } = self;
        Leaves { table: table.finish(), texts, entries, shared }
    }
}

impl<V> Leaves<V> {
    #[inline(always)]
    fn at(&self, spot: Spot) -> Found<'_, V> {
        if spot.text == SHARED {
            Found::Shared(&self.shared[spot.at as usize])
        } else {
            Found::Flat(Flat { leaves: self, spot })
        }
    }
}

impl<V: Clone> Frozen for Leaves<V> {
    type Value = Leaf<V>;
    type Found<'t>
        = Found<'t, V>
    where
        V: 't;

    fn len(&self) -> usize {
        self.table.len()
    }

    #[inline(always)]
    fn get(&self, key: u64) -> Option<Found<'_, V>> {
        self.table.get(key).map(|spot| self.at(*spot))
    }

    #[inline(always)]
    fn may_have(&self, key: u64) -> bool {
        self.table.may_have(key)
    }

    #[inline(always)]
    fn fetch(&self, key: u64) {
        self.table.fetch(key);
    }

    fn found(value: &Leaf<V>) -> Found<'_, V> {
        Found::Shared(value)
    }

    fn to_value(found: Found<'_, V>) -> Leaf<V> {
        found.to_leaf()
    }

    fn is_same(found: Found<'_, V>, value: &Leaf<V>) -> bool {
        matches!(found, Found::Shared(leaf) if leaf.is_same(value))
    }

    fn merged(&self, changes: Vec<(u64, Option<Leaf<V>>)>) -> Self {
        let more: usize =
            changes.iter().filter_map(|(_, leaf)| leaf.as_ref()).map(Leaf::text_len).sum();
        let mut builder = Builder::new(self.len() + changes.len(), self.texts.len() + more);
        let base = self.table.iter().map(|(key, spot)| (key, self.at(*spot)));
        let changes = changes.iter().map(|(key, leaf)| (*key, leaf.as_ref().map(Found::Shared)));
        for (key, leaf) in merge_sorted(base, changes) {
            builder.leaf(key, leaf);
        }
        builder.finish()
    }
}
