//! The states that may be found after a crash: the last that was acknowledged, and all since.

use std::collections::VecDeque;

/// States in order. The first is the last that was acknowledged.
#[derive(Debug, Clone)]
pub(crate) struct History<S> {
    states: VecDeque<S>,
}

impl<S: Clone + PartialEq> History<S> {
    pub(crate) fn new(state: S) -> Self {
        Self { states: VecDeque::from([state]) }
    }

    pub(crate) fn last(&self) -> &S {
        &self.states[self.states.len() - 1]
    }

    /// How many states are not acknowledged.
    pub(crate) fn pending(&self) -> usize {
        self.states.len() - 1
    }

    pub(crate) fn push(&mut self, state: S) {
        self.states.push_back(state);
    }

    /// The first so many of the pending states are acknowledged.
    pub(crate) fn acknowledge(&mut self, count: usize) {
        self.states.drain(..count);
    }

    /// A state was found again: if it may be, it is now the only one there is.
    pub(crate) fn found(&mut self, state: &S) -> bool {
        let is_allowed = self.states.contains(state);
        if is_allowed {
            self.states = VecDeque::from([state.clone()]);
        }
        is_allowed
    }
}
