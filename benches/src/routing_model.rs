//! The trie that anybody would write in an hour, as the bar for ours: interned segments, one flat
//! map from (node, segment) to node, `*` and `**` as fields of the node. It knows `**` only at the
//! end of a pattern, cannot remove anything and is not safe to read while it changes.

use std::collections::HashMap;

use ahash::RandomState;

const NONE: u32 = 0;
const ROOT: u32 = 1;

/// See the module's head.
#[derive(Debug)]
pub struct ModelTrie {
    segments: HashMap<Box<str>, u32, RandomState>,
    edges: HashMap<u64, u32, RandomState>,
    nodes: Vec<Node>,
}

#[derive(Debug, Default)]
struct Node {
    one: u32,
    ends: Vec<u32>,
    any: Vec<u32>,
}

fn edge(node: u32, segment: u32) -> u64 {
    u64::from(node) << 32 | u64::from(segment)
}

impl Default for ModelTrie {
    fn default() -> Self {
        Self {
            segments: HashMap::default(),
            edges: HashMap::default(),
            nodes: vec![Node::default(), Node::default()],
        }
    }
}

impl ModelTrie {
    /// Adds a pattern that may end with `**` but has none elsewhere.
    pub fn insert(&mut self, pattern: &str, id: u32) {
        let mut node = ROOT;
        for segment in pattern.split('/') {
            match segment {
                "**" => return self.nodes[node as usize].any.push(id),
                "*" => {
                    if self.nodes[node as usize].one == NONE {
                        let new = self.add_node();
                        self.nodes[node as usize].one = new;
                    }
                    node = self.nodes[node as usize].one;
                }
                word => {
                    let new_segment = self.segments.len() as u32 + 1;
                    let segment = match self.segments.get(word) {
                        Some(segment) => *segment,
                        None => {
                            self.segments.insert(word.into(), new_segment);
                            new_segment
                        }
                    };
                    let key = edge(node, segment);
                    node = match self.edges.get(&key) {
                        Some(child) => *child,
                        None => {
                            let child = self.add_node();
                            self.edges.insert(key, child);
                            child
                        }
                    };
                }
            }
        }
        self.nodes[node as usize].ends.push(id);
    }

    fn add_node(&mut self) -> u32 {
        self.nodes.push(Node::default());
        self.nodes.len() as u32 - 1
    }

    /// Calls `f` for every pattern that matches.
    #[inline]
    pub fn for_each_match(&self, topic: &str, mut f: impl FnMut(u32)) {
        let mut states = [NONE; 64];
        let mut next = [NONE; 64];
        states[0] = ROOT;
        let mut count = 1;
        for segment in topic.split('/') {
            let segment = self.segments.get(segment).copied().unwrap_or(NONE);
            let mut next_count = 0;
            for &state in &states[..count] {
                let node = &self.nodes[state as usize];
                for &id in &node.any {
                    f(id);
                }
                if node.one != NONE {
                    next[next_count] = node.one;
                    next_count += 1;
                }
                if segment != NONE
                    && let Some(&child) = self.edges.get(&edge(state, segment))
                {
                    next[next_count] = child;
                    next_count += 1;
                }
            }
            std::mem::swap(&mut states, &mut next);
            count = next_count;
            if count == 0 {
                return;
            }
        }
        for &state in &states[..count] {
            let node = &self.nodes[state as usize];
            node.any.iter().for_each(|&id| f(id));
            node.ends.iter().for_each(|&id| f(id));
        }
    }
}
