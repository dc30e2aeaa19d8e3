//! A persistent hash tree: a change makes a new tree that shares nearly everything with the old.

use std::iter::once;
use std::sync::Arc; // immutable data only: who reads it got it through a Snapshot

/// A persistent hash tree, 16 ways a level, by the low bits of the key first. An insert copies the
/// nodes on one path; everything else is shared with the tree it was made from.
#[derive(Clone)]
pub(crate) struct Tree<T> {
    root: Option<Node<T>>,
    len: usize,
}

#[derive(Clone)]
enum Node<T> {
    Entry(u64, T),
    /// Which of the 16 children there are, and those, in order; two at least, except that the one
    /// child may be another `Inner`.
    Inner(u16, Arc<[Self]>),
}

const WAY_BITS: u32 = 4;
const WAY_MASK: u64 = (1 << WAY_BITS) - 1;

impl<T: Clone> Tree<T> {
    pub(crate) fn new() -> Self {
        Self { root: None, len: 0 }
    }

    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.root.is_none()
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn get(&self, key: u64) -> Option<&T> {
        let mut node = self.root.as_ref()?;
        let mut rest = key;
        loop {
            match node {
                Node::Entry(found, value) => return (*found == key).then_some(value),
                Node::Inner(present, children) => {
                    let way = 1u16 << (rest & WAY_MASK);
                    if present & way == 0 {
                        return None;
                    }
                    node = &children[rank(*present, way)];
                    rest >>= WAY_BITS;
                }
            }
        }
    }

    pub(crate) fn insert(&mut self, key: u64, value: T) {
        let (root, is_new) = match &self.root {
            None => (Node::Entry(key, value), true),
            Some(root) => root.with(key, value, 0),
        };
        self.root = Some(root);
        self.len += usize::from(is_new);
    }

    pub(crate) fn remove(&mut self, key: u64) {
        if self.get(key).is_some() {
            self.root = self.root.as_ref().and_then(|root| root.without(key, 0));
            self.len -= 1;
        }
    }

    /// The entry, if it is the only one.
    pub(crate) fn single(&self) -> Option<(u64, &T)> {
        match &self.root {
            Some(Node::Entry(key, value)) => Some((*key, value)),
            _ => None,
        }
    }

    pub(crate) fn for_each<'t>(&'t self, f: &mut impl FnMut(u64, &'t T)) {
        if let Some(root) = &self.root {
            root.for_each(f);
        }
    }
}

fn rank(present: u16, way: u16) -> usize {
    (present & (way - 1)).count_ones() as usize
}

fn way(key: u64, level: u32) -> u16 {
    1 << ((key >> (level * WAY_BITS)) & WAY_MASK)
}

/// `children` with the one at `at` replaced.
fn replaced<T: Clone>(children: &[T], at: usize, child: T) -> Arc<[T]> {
    let (before, after) = (&children[..at], &children[at + 1..]);
    before.iter().cloned().chain(once(child)).chain(after.iter().cloned()).collect()
}

impl<T: Clone> Node<T> {
    /// This node with an entry set, and whether that is new. Recurses once a level: 16 at most.
    fn with(&self, key: u64, value: T, level: u32) -> (Self, bool) {
        match self {
            Self::Entry(found, _) if *found == key => (Self::Entry(key, value), false),
            Self::Entry(found, _) => {
                let (old, new) = (way(*found, level), way(key, level));
                let node = if old == new {
                    let child = self.with(key, value, level + 1).0;
                    Self::Inner(old, Arc::from([child]))
                } else {
                    let entry = Self::Entry(key, value);
                    let pair =
                        if old < new { [self.clone(), entry] } else { [entry, self.clone()] };
                    Self::Inner(old | new, Arc::from(pair))
                };
                (node, true)
            }
            Self::Inner(present, children) => {
                let way = way(key, level);
                let at = rank(*present, way);
                if present & way != 0 {
                    let (child, is_new) = children[at].with(key, value, level + 1);
                    return (Self::Inner(*present, replaced(children, at, child)), is_new);
                }
                let (before, after) = children.split_at(at);
                let entry = once(Self::Entry(key, value));
                let children =
                    before.iter().cloned().chain(entry).chain(after.iter().cloned()).collect();
                (Self::Inner(present | way, children), true)
            }
        }
    }

    /// This node without an entry that it holds; `None` if that was all.
    fn without(&self, key: u64, level: u32) -> Option<Self> {
        let Self::Inner(present, children) = self else {
            return None;
        };
        let way = way(key, level);
        let at = rank(*present, way);
        if let Some(child) = children[at].without(key, level + 1) {
            if children.len() == 1 && matches!(child, Self::Entry(..)) {
                return Some(child);
            }
            return Some(Self::Inner(*present, replaced(children, at, child)));
        }
        match &**children {
            [_] => None,
            [one, other] => {
                let left = if at == 0 { other } else { one };
                if matches!(left, Self::Entry(..)) {
                    return Some(left.clone());
                }
                Some(Self::Inner(present & !way, Arc::from([left.clone()])))
            }
            _ => {
                let (before, after) = (&children[..at], &children[at + 1..]);
                let children = before.iter().cloned().chain(after.iter().cloned()).collect();
                Some(Self::Inner(present & !way, children))
            }
        }
    }

    fn for_each<'t>(&'t self, f: &mut impl FnMut(u64, &'t T)) {
        match self {
            Self::Entry(key, value) => f(*key, value),
            Self::Inner(_, children) => children.iter().for_each(|child| child.for_each(f)),
        }
    }
}
