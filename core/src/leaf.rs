//! The subscriptions of one pattern, at the end of its path in the trie.

use std::sync::Arc; // immutable data only: who reads it got it through a Snapshot

use crate::topic::Pattern;
use crate::tree::Tree;

/// The entries of one pattern (of several, where their keys collide).
pub(crate) struct Leaf<V>(pub(crate) Arc<LeafKind<V>>);

pub(crate) enum LeafKind<V> {
    One { pattern: Pattern, id: u64, value: V },
    Many { pattern: Pattern, entries: Tree<V> },
    Collided(Vec<Leaf<V>>),
}

impl<V> Clone for Leaf<V> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<V> Leaf<V> {
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// A leaf with one more entry (or another value in it).
pub(crate) struct Added<V> {
    pub(crate) leaf: Leaf<V>,
    pub(crate) is_new: bool,
    pub(crate) is_new_pattern: bool,
}

/// What is left of a leaf without one of its entries.
pub(crate) struct Removed<V> {
    pub(crate) leaf: Option<Leaf<V>>,
    pub(crate) was_last_of_pattern: bool,
}

impl<V: Clone> Leaf<V> {
    pub(crate) fn one(pattern: Pattern, id: u64, value: V) -> Self {
        Self(Arc::new(LeafKind::One { pattern, id, value }))
    }

    /// The leaf that was `before`, if any, with an entry added or replaced.
    pub(crate) fn added(before: Option<&Self>, pattern: &Pattern, id: u64, value: V) -> Added<V> {
        match before {
            Some(before) => before.with(pattern, id, value),
            None => {
                let leaf = Self::one(pattern.clone(), id, value);
                Added { leaf, is_new: true, is_new_pattern: true }
            }
        }
    }

    /// This leaf with an entry added or replaced.
    fn with(&self, pattern: &Pattern, id: u64, value: V) -> Added<V> {
        let kind = match &*self.0 {
            LeafKind::One { pattern: mine, id: my_id, value: my_value } if mine == pattern => {
                let is_new = *my_id != id;
                if !is_new {
                    let leaf = Self::one(mine.clone(), id, value);
                    return Added { leaf, is_new, is_new_pattern: false };
                }
                let mut entries = Tree::new();
                entries.insert(*my_id, my_value.clone());
                entries.insert(id, value);
                LeafKind::Many { pattern: mine.clone(), entries }
            }
            LeafKind::Many { pattern: mine, entries } if mine == pattern => {
                let mut more = entries.clone();
                more.insert(id, value);
                let is_new = more.len() > entries.len();
                let kind = LeafKind::Many { pattern: mine.clone(), entries: more };
                return Added { leaf: Self(Arc::new(kind)), is_new, is_new_pattern: false };
            }
            LeafKind::Collided(leaves) => return Self::with_in(leaves, pattern, id, value),
            _ => {
                let leaves = vec![self.clone(), Self::one(pattern.clone(), id, value)];
                let leaf = Self(Arc::new(LeafKind::Collided(leaves)));
                return Added { leaf, is_new: true, is_new_pattern: true };
            }
        };
        Added { leaf: Self(Arc::new(kind)), is_new: true, is_new_pattern: false }
    }

    fn with_in(leaves: &[Self], pattern: &Pattern, id: u64, value: V) -> Added<V> {
        let mut leaves = leaves.to_vec();
        let (is_new, is_new_pattern) =
            match leaves.iter_mut().find(|leaf| leaf.pattern() == Some(pattern)) {
                Some(found) => {
                    let added = found.with(pattern, id, value);
                    *found = added.leaf;
                    (added.is_new, false)
                }
                None => {
                    leaves.push(Self::one(pattern.clone(), id, value));
                    (true, true)
                }
            };
        Added { leaf: Self(Arc::new(LeafKind::Collided(leaves))), is_new, is_new_pattern }
    }

    /// This leaf without an entry; `None` if the entry is not here.
    pub(crate) fn without(&self, pattern: &Pattern, id: u64) -> Option<Removed<V>> {
        match &*self.0 {
            LeafKind::One { pattern: mine, id: my_id, .. } => (mine == pattern && *my_id == id)
                .then_some(Removed { leaf: None, was_last_of_pattern: true }),
            LeafKind::Many { pattern: mine, entries } => {
                if mine != pattern || entries.get(id).is_none() {
                    return None;
                }
                let mut fewer = entries.clone();
                fewer.remove(id);
                let kind = match fewer.single() {
                    Some((id, value)) => {
                        LeafKind::One { pattern: mine.clone(), id, value: value.clone() }
                    }
                    None => LeafKind::Many { pattern: mine.clone(), entries: fewer },
                };
                let leaf = Some(Self(Arc::new(kind)));
                Some(Removed { leaf, was_last_of_pattern: false })
            }
            LeafKind::Collided(leaves) => {
                let at = leaves.iter().position(|leaf| leaf.pattern() == Some(pattern))?;
                let Removed { leaf, was_last_of_pattern } = leaves[at].without(pattern, id)?;
                let mut leaves = leaves.clone();
                match leaf {
                    Some(leaf) => leaves[at] = leaf,
                    None => drop(leaves.swap_remove(at)),
                }
                let leaf = match &*leaves {
                    [only] => only.clone(),
                    _ => Self(Arc::new(LeafKind::Collided(leaves))),
                };
                Some(Removed { leaf: Some(leaf), was_last_of_pattern })
            }
        }
    }
}

impl<V> Leaf<V> {
    /// The length of its pattern, if it has one.
    pub(crate) fn text_len(&self) -> usize {
        self.pattern().map_or(0, |pattern| pattern.as_str().len())
    }

    fn pattern(&self) -> Option<&Pattern> {
        match &*self.0 {
            LeafKind::One { pattern, .. } | LeafKind::Many { pattern, .. } => Some(pattern),
            LeafKind::Collided(_) => None,
        }
    }
}

impl<V: Clone> Leaf<V> {
    /// Adds the entries whose patterns match.
    pub(crate) fn collect<'t>(&'t self, topic: &str, found: &mut Vec<(u64, &'t V)>) {
        match &*self.0 {
            LeafKind::One { pattern, id, value } => {
                if pattern.matches(topic) {
                    found.push((*id, value));
                }
            }
            LeafKind::Many { pattern, entries } => {
                if pattern.matches(topic) {
                    entries.for_each(&mut |id, value| found.push((id, value)));
                }
            }
            LeafKind::Collided(leaves) => leaves.iter().for_each(|leaf| leaf.collect(topic, found)),
        }
    }
}
