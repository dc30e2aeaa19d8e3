//! Which subscriptions a topic reaches: an immutable index of patterns that is replaced as a whole.
//!
//! **Who calls it.** A control operation makes a new [`Trie`] out of the current one with
//! [`Trie::insert`] or [`Trie::remove`] and publishes it through a
//! [`Snapshot`](crate::snapshot::Snapshot); shards ask [`Trie::for_each_match`] for topics they have
//! not resolved yet, and [`Trie::concerns`] whether what changed since can concern those they have.
//!
//! **Shape.** A pattern is literal runs with wildcards between them: `a/b/*/c/**` is the run `a/b`,
//! `*`, the run `c`, `**`, the empty run. The trie has no node per segment. It has
//! - an *anchor* for the root and for every place behind a wildcard,
//! - a *branch* for every (anchor, run) that some wildcard follows, and
//! - a *leaf* for every (anchor, run) that ends a pattern; an exact pattern is one leaf,
//!
//! and each is found by one lookup in a hash table, because its key is a hash of the whole way to
//! it and the hash of any run of the topic takes O(1) from prefix hashes. So no lookup waits for
//! the one before it, as in a trie that walks from node to node, and where memory is slow that is
//! most of the time. Which lengths of runs leave an anchor is a 32-bit mask kept in its branch,
//! so lookups that cannot succeed are mostly not made.
//!
//! **Exactness.** Hashes only find candidates: every leaf has its pattern and compares it with the
//! topic before it reports anything. Different branches with the same key only merge, which gives
//! more candidates and never fewer.
//!
//! **Cost.** A match visits each (anchor, position in the topic) at most once, with at most 32
//! lookups at each: O(depth x live anchors), nothing recursive. A change costs the same whatever
//! the size, see [`overlay`](crate::overlay).

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc; // immutable data only: who reads it got it through a Snapshot

use arrayvec::ArrayVec;

use crate::leaf::{Added, Leaf, Removed};
use crate::leaves::{self, Found, Leaves};
use crate::overlay::Overlay;
use crate::path::{
    Follows, Hasher, Path, ROOT_ANCHOR, Step, TopicHashes, Wildcard, anchor_key, counter_key,
};
use crate::prefetch;
use crate::recent::Recent;
use crate::table::Table;
use crate::topic::{MAX_NAME_SEGMENTS, Pattern};

/// An immutable set of (pattern, id, value); see the module's head. An id may have several
/// patterns.
#[derive(Clone)]
pub struct Trie<V: Clone> {
    hasher: Hasher,
    leaves: Overlay<Leaves<V>>,
    branches: Overlay<Table<Branch>>,
    /// How many patterns have a run of a certain length behind a certain anchor, by
    /// [`counter_key`]: tells when a bit of a branch can go.
    counters: Overlay<Table<u32>>,
    root: Root,
    /// How many (pattern, id) pairs there are.
    len: usize,
    version: u64,
    recent: Recent,
}

impl<V: Clone> Trie<V> {
    /// An empty trie, with hash keys of its own.
    pub fn new() -> Self {
        Self {
            hasher: Hasher::new(u64::MAX),
            leaves: Overlay::new(Arc::new(leaves::Builder::new(0, 0).finish())),
            branches: Overlay::new(Arc::new(Table::of_sorted(0, []))),
            counters: Overlay::new(Arc::new(Table::of_sorted(0, []))),
            root: Root { runs: 0, counts: [0; MAX_NAME_SEGMENTS] },
            len: 0,
            version: 0,
            recent: Recent::default(),
        }
    }

    /// A trie of all `entries`; much cheaper than inserting them one by one.
    pub fn bulk(entries: impl IntoIterator<Item = (Pattern, u64, V)>) -> Self {
        Self::new().built(entries)
    }

    fn built(mut self, entries: impl IntoIterator<Item = (Pattern, u64, V)>) -> Self {
        let entries = entries.into_iter();
        let (mut all, mut order) = (vec![], Vec::with_capacity(entries.size_hint().0));
        all.reserve(entries.size_hint().0);
        let mut text_bytes = 0;
        for (pattern, id, value) in entries {
            order.push((Path::of(&pattern, &self.hasher).leaf_key, all.len()));
            text_bytes += pattern.as_str().len();
            all.push(Some((pattern, id, value)));
        }
        // By key, and then as they came: the last value of an id counts.
        order.sort_unstable();
        let mut leaves = leaves::Builder::new(all.len(), text_bytes);
        let mut edges = vec![];
        let mut done = 0;
        for group in order.chunk_by(|(one, _), (other, _)| one == other) {
            if let Some(&(_, at)) = order.get(done + 2 * BULK_AHEAD) {
                prefetch::for_read((&raw const all[at]).expose_provenance());
            }
            if let Some(&(_, at)) = order.get(done + BULK_AHEAD)
                && let Some((pattern, ..)) = &all[at]
            {
                prefetch::for_read(pattern.as_str().as_ptr().expose_provenance());
            }
            done += group.len();
            let mut shared: Option<Leaf<V>> = None;
            for &(key, at) in group {
                let Some((pattern, id, value)) = all[at].take() else { continue };
                if group.len() == 1 {
                    self.note_edges(&pattern, &mut edges);
                    leaves.one(key, &pattern, id, value);
                    self.len += 1;
                    continue;
                }
                let added = Leaf::added(shared.as_ref(), &pattern, id, value);
                if added.is_new_pattern {
                    self.note_edges(&pattern, &mut edges);
                }
                self.len += usize::from(added.is_new);
                shared = Some(added.leaf);
            }
            if let (Some(leaf), [(key, _), ..]) = (&shared, group) {
                leaves.leaf(*key, Found::Shared(leaf));
            }
        }
        self.leaves = Overlay::new(Arc::new(leaves.finish()));
        edges.sort_unstable_by_key(|edge| edge.counter);
        let counters = edges.chunk_by(|one, other| one.counter == other.counter);
        let count = counters.clone().count();
        let counters = counters.map(|edges| (edges[0].counter, edges.len() as u32));
        self.counters = Overlay::new(Arc::new(Table::of_sorted(count, counters)));
        edges.sort_unstable_by_key(|edge| edge.branch);
        let branches = edges.chunk_by(|one, other| one.branch == other.branch);
        let count = branches.clone().count();
        let branches = branches.map(|edges| (edges[0].branch, Branch::of(edges)));
        self.branches = Overlay::new(Arc::new(Table::of_sorted(count, branches)));
        self.version = 1;
        self
    }

    /// Counts a pattern in at the root, and notes what else is to be counted.
    fn note_edges(&mut self, pattern: &Pattern, edges: &mut Vec<Edge>) {
        if pattern.is_exact() {
            return;
        }
        let path = Path::of(pattern, &self.hasher);
        self.root.count(&path);
        edges.extend(path.edges().map(|(step, follows, run_len)| Edge {
            counter: counter_key(step.anchor, follows, run_len),
            branch: step.branch,
            wildcard: step.wildcard,
            follows,
            run_len,
        }));
    }

    /// A trie that also has this entry (or has its value replaced); shares nearly everything.
    #[must_use]
    pub fn insert(&self, pattern: &Pattern, id: u64, value: V) -> Self {
        let mut next = self.clone();
        next.add(pattern, id, value);
        next.note_change(pattern);
        next
    }

    /// A trie without this entry; shares nearly everything. The same trie if there is none.
    ///
    /// The value of an entry that was there at the last merge is kept alive by the base until the
    /// next one.
    #[must_use]
    pub fn remove(&self, pattern: &Pattern, id: u64) -> Self {
        let mut next = self.clone();
        let path = Path::of(pattern, &self.hasher);
        let Some(leaf) = next.leaves.get(path.leaf_key) else {
            return next;
        };
        let Some(Removed { leaf, was_last_of_pattern }) = leaf.without(pattern, id) else {
            return next;
        };
        next.leaves.set(path.leaf_key, leaf);
        if was_last_of_pattern {
            next.uncount(&path);
        }
        next.len -= 1;
        next.note_change(pattern);
        next
    }

    /// Calls `f` for every id that has a pattern matching `topic`, once each, in no particular
    /// order. `topic` must be a valid name; for other text the answer is arbitrary.
    ///
    /// Allocates only when a `**` that has wildcards behind it matches, or when more than a few
    /// patterns do.
    #[inline]
    pub fn for_each_match(&self, topic: &str, f: impl FnMut(u64, &V)) {
        let mut topic_hashes = TopicHashes::new();
        if !topic_hashes.fill(topic, &self.hasher) {
            return;
        }
        let mut walk = Walk {
            trie: self,
            topic: &topic_hashes,
            leaf_keys: ArrayVec::new(),
            hits: Hits::new(),
            pending: vec![],
            seen: Seen::default(),
        };
        walk.run(topic.starts_with('$'));
        walk.hits.report(topic, f);
    }

    /// The number of (pattern, id) pairs.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many changes led here: every effective [`Trie::insert`] and [`Trie::remove`] adds one,
    /// merging none.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Whether one of the changes since `since_version` of this trie is to a pattern that matches
    /// `topic`; also true where that is not known, because it is too long ago.
    ///
    /// The last [`RECENT_CHANGES`](crate::recent::RECENT_CHANGES) changes are always known.
    pub fn concerns(&self, since_version: u64, topic: &str) -> bool {
        let Some(changes) = self.version.checked_sub(since_version) else {
            return true;
        };
        self.recent.concern(changes, topic)
    }

    /// Whether enough has changed since the last merge for the next to be worth its cost.
    ///
    /// Changes cost more the more of them there are, since the caches hold about [`CACHED_CHANGES`];
    /// beyond, a merge copies 64 entries for each change.
    pub fn needs_merge(&self) -> bool {
        let changes = self.leaves.changes_len().max(self.branches.changes_len());
        let base = self.leaves.base_len();
        changes > 64 + (base / 8).min(CACHED_CHANGES).max(base / 64)
    }

    /// Whether there is anything to merge: values of removed entries are kept until then.
    pub fn is_merged(&self) -> bool {
        self.leaves.changes_len() + self.branches.changes_len() + self.counters.changes_len() == 0
    }

    /// Makes the base for a trie of the same content whose lookups cost one step each. O(len); for
    /// a background thread, while readers and writers go on. [`Trie::install`] puts it in place.
    pub fn merge(&self) -> Merged<V> {
        Merged {
            from: self.clone(),
            leaves: self.leaves.merge(),
            branches: self.branches.merge(),
            counters: self.counters.merge(),
        }
    }

    /// This trie over a base that was merged from an earlier version of it: the content is this
    /// trie's. O(changes since the merge before). Nothing happens if `merged` is out of date,
    /// because another merge was installed since it began.
    #[must_use]
    pub fn install(&self, merged: &Merged<V>) -> Self {
        let from = &merged.from;
        let leaves = self.leaves.rebase(&from.leaves, &merged.leaves);
        let branches = self.branches.rebase(&from.branches, &merged.branches);
        let counters = self.counters.rebase(&from.counters, &merged.counters);
        match (leaves, branches, counters) {
            (Some(leaves), Some(branches), Some(counters)) => {
                Self { leaves, branches, counters, ..self.clone() }
            }
            _ => self.clone(),
        }
    }

    /// How many parts there are; for tests that nothing is left behind. O(changes).
    pub fn stats(&self) -> TrieStats {
        TrieStats {
            leaves: self.leaves.count(),
            branches: self.branches.count(),
            counters: self.counters.count(),
            changes: self.leaves.changes_len()
                + self.branches.changes_len()
                + self.counters.changes_len(),
        }
    }

    fn add(&mut self, pattern: &Pattern, id: u64, value: V) {
        let path = Path::of(pattern, &self.hasher);
        let before = self.leaves.get(path.leaf_key).map(Found::to_leaf);
        let Added { leaf, is_new, is_new_pattern } =
            Leaf::added(before.as_ref(), pattern, id, value);
        self.leaves.set(path.leaf_key, Some(leaf));
        if is_new_pattern {
            self.count(&path);
        }
        self.len += usize::from(is_new);
    }

    /// Counts the pattern in at every anchor on its path, and sets the bits that this makes true.
    fn count(&mut self, path: &Path) {
        self.root.count(path);
        for (step, follows, run_len) in path.edges() {
            let key = counter_key(step.anchor, follows, run_len);
            let count = self.counters.get(key).copied().unwrap_or(0);
            self.counters.set(key, Some(count + 1));
            if count == 0 {
                let mut branch = self.branches.get(step.branch).copied().unwrap_or_default();
                *branch.lens_mut(step.wildcard, follows) |= 1 << run_len;
                self.branches.set(step.branch, Some(branch));
            }
        }
    }

    /// Undoes [`Trie::count`].
    fn uncount(&mut self, path: &Path) {
        self.root.uncount(path);
        for (step, follows, run_len) in path.edges() {
            let key = counter_key(step.anchor, follows, run_len);
            let count = self.counters.get(key).copied().unwrap_or(0);
            debug_assert!(count > 0, "a pattern is counted out that was not counted in");
            if count > 1 {
                self.counters.set(key, Some(count - 1));
                continue;
            }
            self.counters.set(key, None);
            let mut branch = self.branches.get(step.branch).copied().unwrap_or_default();
            *branch.lens_mut(step.wildcard, follows) &= !(1 << run_len);
            let is_left = branch != Branch::default();
            self.branches.set(step.branch, is_left.then_some(branch));
        }
    }

    fn note_change(&mut self, pattern: &Pattern) {
        self.version += 1;
        self.recent.push(pattern.clone());
    }
}

impl<V: Clone> Default for Trie<V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<V: Clone> fmt::Debug for Trie<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trie")
            .field("len", &self.len)
            .field("version", &self.version)
            .field("leaves", &self.leaves)
            .finish_non_exhaustive()
    }
}

/// A new base for a [`Trie`], made by [`Trie::merge`].
///
/// It also holds on to the base it replaces. Whoever lets go of a base last frees it, which takes
/// long if it is large: keep this until [`Merged::replaced_is_unused`] and drop it where that time
/// does not matter.
pub struct Merged<V: Clone> {
    from: Trie<V>,
    leaves: Arc<Leaves<V>>,
    branches: Arc<Table<Branch>>,
    counters: Arc<Table<u32>>,
}

impl<V: Clone> Merged<V> {
    /// Whether nobody else has the replaced base any more.
    pub fn replaced_is_unused(&self) -> bool {
        self.from.leaves.base_users() == 1
    }
}

impl<V: Clone> fmt::Debug for Merged<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Merged").field("from", &self.from).finish_non_exhaustive()
    }
}

/// How many parts a [`Trie`] has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct TrieStats {
    /// Different patterns.
    pub leaves: usize,
    /// Literal runs with a wildcard behind them.
    pub branches: usize,
    /// Counters behind the bits of the branches.
    pub counters: usize,
    /// Parts that differ from the base.
    pub changes: usize,
}

/// What one pattern adds to a branch and its counter.
struct Edge {
    counter: u64,
    branch: u64,
    wildcard: Wildcard,
    follows: Follows,
    run_len: usize,
}

/// Which lengths of runs there are behind the wildcards behind a run: bit n for length n. A run
/// behind a wildcard has 31 segments at most.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Branch {
    one_ends: u32,
    one_wildcards: u32,
    any_ends: u32,
    any_wildcards: u32,
}

impl Branch {
    fn of(edges: &[Edge]) -> Self {
        let mut branch = Self::default();
        for edge in edges {
            *branch.lens_mut(edge.wildcard, edge.follows) |= 1 << edge.run_len;
        }
        branch
    }

    fn lens_mut(&mut self, behind: Wildcard, follows: Follows) -> &mut u32 {
        match (behind, follows) {
            (Wildcard::One, Follows::End) => &mut self.one_ends,
            (Wildcard::One, Follows::Wildcard) => &mut self.one_wildcards,
            (Wildcard::Any, Follows::End) => &mut self.any_ends,
            (Wildcard::Any, Follows::Wildcard) => &mut self.any_wildcards,
        }
    }
}

/// The lengths of runs that leave the root and have a wildcard behind them, with how many patterns
/// each has.
#[derive(Clone)]
struct Root {
    runs: u32,
    counts: [u32; MAX_NAME_SEGMENTS],
}

impl Root {
    fn count(&mut self, path: &Path) {
        if let Some(Step { run_len, .. }) = path.steps().first() {
            self.counts[*run_len] += 1;
            self.runs |= 1 << run_len;
        }
    }

    fn uncount(&mut self, path: &Path) {
        if let Some(Step { run_len, .. }) = path.steps().first() {
            self.counts[*run_len] -= 1;
            if self.counts[*run_len] == 0 {
                self.runs &= !(1 << run_len);
            }
        }
    }
}

/// How many changes a second-level cache holds.
const CACHED_CHANGES: usize = 1 << 14;

/// How many leaves a match notes without allocating.
const FIRST_HITS: usize = 8;

/// How many patterns ahead of the one being placed a bulk build fetches.
const BULK_AHEAD: usize = 12;

/// How many leaves a match begins to look up before it needs the first.
const AHEAD: usize = 16;

/// The leaves that a topic may reach.
struct Hits<'t, V> {
    first: ArrayVec<Found<'t, V>, FIRST_HITS>,
    more: Vec<Found<'t, V>>,
}

impl<'t, V: Clone> Hits<'t, V> {
    fn new() -> Self {
        Self { first: ArrayVec::new(), more: vec![] }
    }

    #[inline(always)]
    fn push(&mut self, leaf: Found<'t, V>) {
        if let Err(full) = self.first.try_push(leaf) {
            self.more.push(full.element());
        }
    }

    /// Compares the patterns with the topic and calls `f` once for each id.
    #[inline(always)]
    fn report(&self, topic: &str, mut f: impl FnMut(u64, &V)) {
        let mut ids = ArrayVec::<u64, FIRST_HITS>::new();
        for leaf in &self.first {
            match leaf.single(topic) {
                Ok(found) if self.more.is_empty() => {
                    if let Some((id, value)) = found
                        && !ids.contains(&id)
                    {
                        ids.push(id);
                        f(id, value);
                    }
                }
                _ => return self.report_many(topic, &ids, f),
            }
        }
    }

    /// Reports what [`Hits::report`] could not, except the ids it did.
    #[cold]
    fn report_many(&self, topic: &str, reported: &[u64], mut f: impl FnMut(u64, &V)) {
        let mut found: Vec<(u64, &V)> = vec![];
        let mut patterns = 0;
        for leaf in self.first.iter().chain(&self.more) {
            let before = found.len();
            let is_several = leaf.collect(topic, &mut found);
            patterns += usize::from(found.len() > before) + usize::from(is_several);
        }
        // Within one pattern, an id is there once.
        if patterns > 1 {
            found.sort_unstable_by_key(|(id, _)| *id);
            found.dedup_by_key(|(id, _)| *id);
        }
        for (id, value) in found {
            if !reported.contains(&id) {
                f(id, value);
            }
        }
    }
}

/// An anchor whose runs towards wildcards are still to be looked up, from the positions
/// `from..until` of the topic.
struct Pending {
    anchor: u64,
    from: usize,
    until: usize,
    run_lens: u32,
    /// Whether there is a `**` on the way here; only then can an anchor be reached twice.
    is_behind_any: bool,
}

/// One match under way.
struct Walk<'w, 't, V: Clone> {
    trie: &'t Trie<V>,
    topic: &'w TopicHashes,
    /// Leaves whose look-up has begun.
    leaf_keys: ArrayVec<u64, AHEAD>,
    hits: Hits<'t, V>,
    pending: Vec<Pending>,
    /// The `**` anchors behind another `**` that were reached.
    seen: Seen,
}

/// The anchors reached and the least position of each: a list, and a map when that gets long.
#[derive(Default)]
struct Seen {
    few: Vec<(u64, usize)>,
    many: Option<HashMap<u64, usize>>,
}

impl Seen {
    const FEW: usize = 16;

    /// Notes that `anchor` is reached at `position`; gives the least position before that.
    fn reach(&mut self, anchor: u64, position: usize) -> Option<usize> {
        if let Some((_, least)) = self.few.iter_mut().find(|(seen, _)| *seen == anchor) {
            return Some(std::mem::replace(least, position.min(*least)));
        }
        if self.few.len() < Self::FEW {
            self.few.push((anchor, position));
            return None;
        }
        let least = self.many.get_or_insert_default().entry(anchor).or_insert(usize::MAX);
        let before = std::mem::replace(least, position.min(*least));
        (before != usize::MAX).then_some(before)
    }
}

/// The bits up to `len`; there is none above 31.
#[inline(always)]
fn bits_up_to(len: usize) -> u32 {
    u32::MAX >> (31 - len.min(31))
}

/// Calls `f` for every bit.
#[inline(always)]
fn each_bit(mut bits: u32, mut f: impl FnMut(usize)) {
    while bits != 0 {
        f(bits.trailing_zeros() as usize);
        bits &= bits - 1;
    }
}

impl<V: Clone> Walk<'_, '_, V> {
    #[inline(always)]
    fn run(&mut self, is_system: bool) {
        let depth = self.topic.depth;
        self.leaf(ROOT_ANCHOR, depth);
        // A wildcard in front does not match a system name.
        let run_lens = if is_system { self.trie.root.runs & !1 } else { self.trie.root.runs };
        self.branches(ROOT_ANCHOR, 0, run_lens, false);
        while let Some(next) = self.pending.pop() {
            for position in next.from..next.until {
                self.branches(next.anchor, position, next.run_lens, next.is_behind_any);
            }
        }
        self.take_leaves();
    }

    /// Begins to look up the leaf of the pattern that ends with the topic's last `run_len` segments.
    #[inline(always)]
    fn leaf(&mut self, anchor: u64, run_len: usize) {
        let run = self.topic.run(self.topic.depth - run_len, run_len);
        let key = self.trie.hasher.key(anchor, run, run_len, Follows::End);
        if !self.trie.leaves.may_have(key) {
            return;
        }
        self.trie.leaves.fetch(key);
        if let Err(full) = self.leaf_keys.try_push(key) {
            self.take_leaves();
            self.leaf_keys.push(full.element());
        }
    }

    /// Ends the look-ups that have begun, and begins to fetch the leaves.
    #[inline(always)]
    fn take_leaves(&mut self) {
        for key in self.leaf_keys.drain(..) {
            if let Some(leaf) = self.trie.leaves.get(key) {
                leaf.fetch();
                self.hits.push(leaf);
            }
        }
    }

    /// Follows the runs from `position` that have a wildcard behind them.
    #[inline(always)]
    fn branches(&mut self, anchor: u64, position: usize, run_lens: u32, is_behind_any: bool) {
        let key = |walk: &Self, run_len| {
            let run = walk.topic.run(position, run_len);
            walk.trie.hasher.key(anchor, run, run_len, Follows::Wildcard)
        };
        // First all filters, without a branch that could be mispredicted.
        let mut likely = 0;
        each_bit(run_lens & bits_up_to(self.topic.depth - position), |run_len| {
            likely |= u32::from(self.trie.branches.may_have(key(self, run_len))) << run_len;
        });
        each_bit(likely, |run_len| self.trie.branches.fetch(key(self, run_len)));
        each_bit(likely, |run_len| {
            let key = key(self, run_len);
            if let Some(&branch) = self.trie.branches.get(key) {
                self.branch(key, branch, position + run_len, is_behind_any);
            }
        });
    }

    /// Goes through the wildcards behind a run that ends at `position`.
    #[inline(always)]
    fn branch(&mut self, key: u64, branch: Branch, position: usize, is_behind_any: bool) {
        let left = self.topic.depth - position;
        if left > 0 {
            if (branch.one_ends >> (left - 1)) & 1 != 0 {
                self.leaf(anchor_key(key, Wildcard::One), left - 1);
            }
            let run_lens = branch.one_wildcards & bits_up_to(left - 1);
            if run_lens != 0 {
                let (from, until) = (position + 1, position + 2);
                let anchor = anchor_key(key, Wildcard::One);
                self.pending.push(Pending { anchor, from, until, run_lens, is_behind_any });
            }
        }
        if branch.any_ends | branch.any_wildcards != 0 {
            self.any(anchor_key(key, Wildcard::Any), branch, position, is_behind_any);
        }
    }

    #[inline(always)]
    fn any(&mut self, anchor: u64, branch: Branch, position: usize, is_behind_any: bool) {
        let depth = self.topic.depth;
        let mut until = depth + 1;
        if is_behind_any {
            match self.seen.reach(anchor, position) {
                Some(least) if least <= position => return,
                Some(least) => until = least,
                None => {}
            }
        }
        // The ends between `position` and `until`; all of them, the first time.
        let mut ends = branch.any_ends & bits_up_to(depth - position);
        if until <= depth {
            ends &= !bits_up_to(depth - until);
        }
        each_bit(ends, |run_len| self.leaf(anchor, run_len));
        let run_lens = branch.any_wildcards & bits_up_to(depth - position);
        if run_lens != 0 {
            let from = position;
            self.pending.push(Pending { anchor, from, until, run_lens, is_behind_any: true });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;

    impl<V: Clone> Trie<V> {
        /// A trie whose keys have few bits, so that all kinds of parts collide.
        fn colliding(key_mask: u64) -> Self {
            Self { hasher: Hasher::new(key_mask), ..Self::new() }
        }

        /// The ids that match, each once, with their values.
        fn found(&self, topic: &str) -> BTreeMap<u64, V> {
            let mut found = BTreeMap::new();
            self.for_each_match(topic, |id, value| {
                assert!(found.insert(id, value.clone()).is_none(), "{id} was reported twice");
            });
            found
        }

        fn ids(&self, topic: &str) -> Vec<u64> {
            self.found(topic).into_keys().collect()
        }
    }

    fn pattern(text: &str) -> Pattern {
        Pattern::new(text).unwrap()
    }

    /// What the trie must be equal to.
    #[derive(Clone, Default)]
    struct Model(BTreeMap<(Pattern, u64), u32>);

    impl Model {
        fn ids(&self, topic: &str) -> Vec<u64> {
            let matching = self.0.keys().filter(|(pattern, _)| pattern.matches(topic));
            matching.map(|(_, id)| *id).collect::<BTreeSet<_>>().into_iter().collect()
        }
    }

    #[derive(Debug, Clone)]
    enum Step {
        Insert(Pattern, u64, u32),
        Remove(Pattern, u64),
        RemoveSome(prop::sample::Index),
        Merge,
        BeginMerge,
        EndMerge,
    }

    fn patterns() -> impl Strategy<Value = Pattern> {
        let segment = prop_oneof![
            3 => prop::sample::select(vec!["a", "b", "c", "a-long-segment-of-20", "$s"]),
            2 => Just("*"),
            2 => Just("**"),
        ];
        prop::collection::vec(segment, 1..7).prop_map(|segments| pattern(&segments.join("/")))
    }

    fn topics() -> impl Strategy<Value = String> {
        let segment = prop::sample::select(vec!["a", "b", "c", "a-long-segment-of-20", "$s"]);
        prop::collection::vec(segment, 1..8).prop_map(|segments| segments.join("/"))
    }

    fn steps() -> impl Strategy<Value = Step> {
        prop_oneof![
            8 => (patterns(), 0..6u64, any::<u32>()).prop_map(|(p, id, v)| Step::Insert(p, id, v)),
            1 => (patterns(), 0..6u64).prop_map(|(p, id)| Step::Remove(p, id)),
            4 => any::<prop::sample::Index>().prop_map(Step::RemoveSome),
            1 => Just(Step::Merge),
            1 => Just(Step::BeginMerge),
            1 => Just(Step::EndMerge),
        ]
    }

    fn remove(model: &mut Model, trie: &mut Trie<u32>, pattern: Pattern, id: u64) {
        *trie = trie.remove(&pattern, id);
        model.0.remove(&(pattern, id));
    }

    fn run(mut trie: Trie<u32>, steps: Vec<Step>, topics: &[String]) -> Result<(), TestCaseError> {
        let mut model = Model::default();
        let mut merging: Option<Merged<u32>> = None;
        for step in steps {
            let (before, ids_before) = (trie.clone(), model.ids(&topics[0]));
            match step {
                Step::Insert(pattern, id, value) => {
                    trie = trie.insert(&pattern, id, value);
                    model.0.insert((pattern, id), value);
                }
                Step::Remove(pattern, id) => remove(&mut model, &mut trie, pattern, id),
                Step::RemoveSome(index) if !model.0.is_empty() => {
                    let (pattern, id) = (*index.get(&model.0.keys().collect::<Vec<_>>())).clone();
                    remove(&mut model, &mut trie, pattern, id);
                }
                Step::RemoveSome(_) => {}
                Step::Merge => trie = trie.install(&trie.merge()),
                Step::BeginMerge => merging = Some(trie.merge()),
                Step::EndMerge => {
                    if let Some(merged) = &merging {
                        trie = trie.install(merged);
                    }
                }
            }
            prop_assert_eq!(trie.len(), model.0.len());
            prop_assert_eq!(before.ids(&topics[0]), ids_before, "an old trie has changed");
            for topic in topics {
                prop_assert_eq!(trie.ids(topic), model.ids(topic), "{}", topic);
            }
        }
        let distinct: BTreeSet<_> = model.0.keys().map(|(pattern, _)| pattern).collect();
        if trie.hasher.key_mask == u64::MAX {
            prop_assert_eq!(trie.stats().leaves, distinct.len());
        }
        // Building in one go gives the same parts, and taking all away gives none.
        let mut bulk = Trie { hasher: trie.hasher.clone(), ..Trie::new() }
            .built(model.0.iter().map(|((pattern, id), value)| (pattern.clone(), *id, *value)));
        prop_assert_eq!(bulk.stats().leaves, trie.stats().leaves);
        prop_assert_eq!(bulk.stats().branches, trie.stats().branches);
        prop_assert_eq!(bulk.stats().counters, trie.stats().counters);
        for topic in topics {
            prop_assert_eq!(bulk.ids(topic), model.ids(topic), "{}", topic);
        }
        for (pattern, id) in model.0.keys() {
            trie = trie.remove(pattern, *id);
            bulk = bulk.remove(pattern, *id);
        }
        for trie in [trie, bulk] {
            let stats = trie.install(&trie.merge()).stats();
            prop_assert_eq!((trie.len(), stats), (0, TrieStats::default()));
        }
        Ok(())
    }

    proptest! {
        /// Goal: after any changes and merges the trie answers as a list of patterns does, old
        /// tries keep their answers, and nothing is left behind.
        #[test]
        fn a_trie_answers_as_a_list_of_patterns(
            steps in prop::collection::vec(steps(), 0..60),
            topics in prop::collection::vec(topics(), 1..12),
        ) {
            run(Trie::new(), steps, &topics)?;
        }

        /// Goal: the same where most keys collide, down to all of them.
        #[test]
        fn collisions_change_nothing(
            steps in prop::collection::vec(steps(), 0..60),
            topics in prop::collection::vec(topics(), 1..12),
            bits in 0..6u32,
        ) {
            run(Trie::colliding(!(u64::MAX >> bits)), steps, &topics)?;
        }
    }
}
