//! zenoh's key expression tree. It matches expressions with expressions, which is more than a
//! broker asks of it.

use zenoh_keyexpr::keyexpr;
use zenoh_keyexpr::keyexpr_tree::impls::KeyedSetProvider;
use zenoh_keyexpr::keyexpr_tree::{IKeyExprTree, IKeyExprTreeMut, IKeyExprTreeNode, KeBoxTree};

use crate::side::Router;

/// zenoh's tree of boxed nodes, with its default children.
pub(crate) struct KeyExprTree(KeBoxTree<u32, bool, KeyedSetProvider>);

impl std::fmt::Debug for KeyExprTree {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KeyExprTree")
    }
}

impl KeyExprTree {
    /// A tree of the patterns; the index is the id.
    pub(crate) fn new(patterns: &[String]) -> Self {
        let mut tree = Self(KeBoxTree::default());
        for (id, pattern) in (0..).zip(patterns) {
            tree.subscribe(pattern, id);
        }
        tree
    }
}

impl Router for KeyExprTree {
    fn matches(&self, topic: &str) -> usize {
        let topic = keyexpr::new(topic).expect("a valid key expression");
        self.0.intersecting_nodes(topic).filter(|node| node.weight().is_some()).count()
    }

    fn subscribe(&mut self, pattern: &str, id: u32) {
        self.0.insert(keyexpr::new(pattern).expect("a valid key expression"), id);
    }
}
