//! Which handlers the calling thread is inside of.

use std::cell::RefCell;

thread_local! {
    /// Their subscriptions: the innermost last. There are several where a handler ends another
    /// subscription, whose captures are dropped then.
    static INSIDE: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

/// Marks the thread as being inside the handler of a subscription, as long as it lives.
pub(crate) struct Inside;

impl Inside {
    pub(crate) fn enter(subscription: u64) -> Self {
        INSIDE.with_borrow_mut(|inside| inside.push(subscription));
        Self
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.with_borrow_mut(|inside| inside.pop());
    }
}

/// Whether the thread is inside the handler of `subscription`.
pub(crate) fn is_inside(subscription: u64) -> bool {
    INSIDE.with_borrow(|inside| inside.contains(&subscription))
}

/// Whether it is inside any.
pub(crate) fn is_inside_any() -> bool {
    INSIDE.with_borrow(|inside| !inside.is_empty())
}
