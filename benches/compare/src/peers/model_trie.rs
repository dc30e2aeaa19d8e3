//! The plain trie that the routing bars are set against: segments interned to numbers, all literal
//! edges in one map of (node, segment) to node, wildcard children as fields. It cannot remove, is
//! not shared between threads, and takes `**` only at the end of a pattern.

use ahash::AHashMap;

use crate::side::Router;

const NONE: u32 = u32::MAX;
const ROOT: u32 = 0;
/// Live states a match can have; the patterns of the comparison stay far below.
const STATES: usize = 64;

/// One trie node.
#[derive(Debug)]
struct Node {
    any_segment: u32,
    subscriptions: Vec<u32>,
    any_rest: Vec<u32>,
}

/// The model.
#[derive(Debug)]
pub(crate) struct ModelTrie {
    segments: AHashMap<Box<str>, u32>,
    /// By node in the upper half and segment in the lower.
    edges: AHashMap<u64, u32>,
    nodes: Vec<Node>,
}

impl ModelTrie {
    /// A trie of the patterns; the index is the id.
    pub(crate) fn new(patterns: &[String]) -> Self {
        let mut trie =
            Self { segments: AHashMap::new(), edges: AHashMap::new(), nodes: vec![Node::new()] };
        for (id, pattern) in (0..).zip(patterns) {
            trie.subscribe(pattern, id);
        }
        trie
    }

    fn new_node(&mut self) -> u32 {
        self.nodes.push(Node::new());
        self.nodes.len() as u32 - 1
    }

    fn literal_child(&mut self, node: u32, segment: &str) -> u32 {
        let fresh = self.segments.len() as u32;
        let segment = match self.segments.get(segment) {
            Some(number) => *number,
            None => *self.segments.entry(segment.into()).or_insert(fresh),
        };
        if let Some(child) = self.edges.get(&edge(node, segment)) {
            return *child;
        }
        let child = self.new_node();
        self.edges.insert(edge(node, segment), child);
        child
    }

    /// Calls `found` with the id of each subscription that matches.
    #[inline]
    fn for_each_match(&self, topic: &str, mut found: impl FnMut(u32)) {
        let (mut states, mut next) = ([ROOT; STATES], [ROOT; STATES]);
        let mut live = 1;
        for segment in topic.split('/') {
            let segment = self.segments.get(segment).copied();
            let mut reached = 0;
            for &state in &states[..live] {
                let node = &self.nodes[state as usize];
                node.any_rest.iter().for_each(|&id| found(id));
                if node.any_segment != NONE {
                    next[reached] = node.any_segment;
                    reached += 1;
                }
                let child = segment.and_then(|segment| self.edges.get(&edge(state, segment)));
                if let Some(&child) = child {
                    next[reached] = child;
                    reached += 1;
                }
            }
            std::mem::swap(&mut states, &mut next);
            live = reached;
            if live == 0 {
                return;
            }
        }
        for &state in &states[..live] {
            let node = &self.nodes[state as usize];
            node.any_rest.iter().chain(&node.subscriptions).for_each(|&id| found(id));
        }
    }
}

impl Node {
    const fn new() -> Self {
        Self { any_segment: NONE, subscriptions: Vec::new(), any_rest: Vec::new() }
    }
}

#[inline(always)]
const fn edge(node: u32, segment: u32) -> u64 {
    (node as u64) << 32 | segment as u64
}

impl Router for ModelTrie {
    fn matches(&self, topic: &str) -> usize {
        let mut count = 0;
        self.for_each_match(topic, |id| {
            std::hint::black_box(id);
            count += 1;
        });
        count
    }

    fn subscribe(&mut self, pattern: &str, id: u32) {
        let mut node = ROOT;
        for segment in pattern.split('/') {
            node = match segment {
                "**" => return self.nodes[node as usize].any_rest.push(id),
                "*" if self.nodes[node as usize].any_segment == NONE => {
                    let child = self.new_node();
                    self.nodes[node as usize].any_segment = child;
                    child
                }
                "*" => self.nodes[node as usize].any_segment,
                literal => self.literal_child(node, literal),
            };
        }
        self.nodes[node as usize].subscriptions.push(id);
    }
}
