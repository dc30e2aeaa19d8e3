//! Subscriptions whose messages go to a function.
#![expect(unsafe_code, reason = "exported names")]

use crate::broker::slipring_broker;
use crate::callback::{
    User, slipring_batch_handler_fn, slipring_failed_fn, slipring_handler_fn, slipring_lagged_fn,
    slipring_user_free_fn,
};
use crate::handle::Caller;
use crate::handled::{handled, handled_all};
use crate::last_error::Failure;
use crate::log::Log;
use crate::message::{view, with_views};
use crate::options::{slipring_subscription_options, time};
use crate::panic::entry;
use crate::status::slipring_status;
use slipring_core::{
    HandlerSubscription, SubscriptionBuilder, UnsubscribeError, UnsubscribeReason,
};
use std::collections::VecDeque;
use std::ffi::{c_char, c_void};
use std::sync::{Arc, Mutex, PoisonError};

/// A handler: functions, and the user data that is handed to them.
///
/// Guarantees: the functions are called one at a time, in the order of the messages, on a delivery
/// worker or the handler's own thread, not always the same one. None of them is called any more
/// when unsubscribing has returned. `user_free` is called exactly once, after the last of them, on
/// any thread: also if subscribing fails, and before unsubscribing returns, except from inside a
/// handler. From inside the handler itself it follows when that has returned; from inside another
/// one it may follow a little later, so that it can wait for that one.
///
/// From inside the functions everything is allowed: publish, subscribe, unsubscribe this or another
/// subscription, close or free the broker.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct slipring_handler {
    /// Handles a message. Not NULL.
    pub handle: slipring_handler_fn,
    /// Is told of messages that were lost, between the calls of `handle` where they are missing.
    /// May be NULL.
    pub lagged: slipring_lagged_fn,
    /// Is told of every failure, after it was counted. May be NULL.
    pub failed: slipring_failed_fn,
    /// Handed to the functions.
    pub user: *mut c_void,
    /// Lets go of `user`. May be NULL.
    pub user_free: slipring_user_free_fn,
}

/// A handler that is called with several messages at once: those that are queued for it, up to 64, never
/// waited for. Otherwise as `slipring_handler`.
///
/// What `handle` makes of each message, it says of each, or of all of them at once: see
/// `slipring_batch_handler_fn`. Each that has failed is a failure of its own, is told to `failed`, and
/// counts for the circuit breaker, in their order. Their places in the queue are free when `handle` is
/// called, and all of them are its own until it returns, also if it unsubscribes. Several can have the
/// same ordering key: those behind one that fails were handled before that comes again. Not more come at
/// once than `max_outstanding`, and one alone while a circuit breaker tries whether the handler has
/// recovered, or where the process may have died of it before.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct slipring_batch_handler {
    /// Handles messages. Not NULL.
    pub handle: slipring_batch_handler_fn,
    /// As in `slipring_handler`.
    pub lagged: slipring_lagged_fn,
    /// As in `slipring_handler`.
    pub failed: slipring_failed_fn,
    /// Handed to the functions.
    pub user: *mut c_void,
    /// Lets go of `user`. May be NULL.
    pub user_free: slipring_user_free_fn,
}

/// A subscription whose messages go to a handler. Usable from all threads at once; it ends once,
/// with `slipring_handler_subscription_free` or `slipring_handler_subscription_detach`.
#[derive(Debug)]
pub struct slipring_handler_subscription {
    subscription: HandlerSubscription,
}

/// What the functions of a handler share; they are called one at a time.
struct Handling {
    user: User,
    /// What the handler has returned where it has failed, and nobody was told yet.
    returned: Mutex<VecDeque<i32>>,
}

impl Handling {
    #[cold]
    fn note(&self, returned: &[i32]) {
        let mut noted = self.returned.lock().unwrap_or_else(PoisonError::into_inner);
        // Where nobody is told, these are from before.
        noted.clear();
        noted.extend(returned);
    }

    fn told(&self) -> i32 {
        let mut noted = self.returned.lock().unwrap_or_else(PoisonError::into_inner);
        noted.pop_front().unwrap_or_default()
    }
}

/// A handler of either kind.
struct Functions<F> {
    handle: Option<F>,
    lagged: slipring_lagged_fn,
    failed: slipring_failed_fn,
    user: User,
}

/// What there is to subscribe with.
struct Subscribing<'c, F> {
    builder: SubscriptionBuilder<'c>,
    handle: F,
    handling: Arc<Handling>,
    log: &'c Log,
}

impl<'c> Caller<'c> {
    /// Takes what a subscription with a handler is made of.
    fn subscribing<F>(
        self,
        broker: *const slipring_broker,
        pattern: (*const c_char, usize),
        options: *const slipring_subscription_options,
        functions: Result<Option<Functions<F>>, Failure>,
    ) -> Result<Subscribing<'c, F>, Failure> {
        let options = self.sized(options, "options")?;
        let filter_user = User::new(options.filter_user, options.filter_user_free);
        let functions = functions?.ok_or_else(|| Failure::invalid("handler is NULL"))?;
        let Functions { handle, lagged, failed, user } = functions;
        let handle = handle.ok_or_else(|| Failure::invalid("handler.handle is NULL"))?;
        let mut builder = self.subscription(broker, pattern, &options, filter_user)?;
        let handling = Arc::new(Handling { user, returned: Mutex::default() });
        if lagged.is_some() {
            let handling = Arc::clone(&handling);
            builder = builder.on_lagged(move |lost| handling.user.tell_lagged(lagged, lost));
        }
        if failed.is_some() {
            let handling = Arc::clone(&handling);
            builder = builder.on_error(move |error| {
                let returned = handling.told();
                handling.user.tell_failed(failed, &error.message, returned, error.reason);
            });
        }
        let log = &self.get(broker, "broker")?.log;
        Ok(Subscribing { builder, handle, handling, log })
    }
}

/// Subscribes to `pattern`; `handler`, which is copied, is called with every message, possibly
/// before this has returned. `options` may be NULL for the defaults, and is used up as
/// `slipring_broker_subscribe` says; so is `handler` as soon as it is not NULL.
///
/// Errors: as `slipring_broker_subscribe`, and ETHREAD.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_broker_subscribe_handler(
    broker: *const slipring_broker,
    pattern: *const c_char,
    pattern_len: usize,
    options: *const slipring_subscription_options,
    handler: *const slipring_handler,
    subscription: *mut *mut slipring_handler_subscription,
) -> slipring_status {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe {
        entry(|c| {
            // Let go of whatever goes wrong from here on.
            let functions = c.optional(handler, "handler").map(|handler| {
                let &slipring_handler { handle, lagged, failed, user, user_free } = handler?;
                let user = User::new(user, user_free);
                Some(Functions { handle, lagged, failed, user })
            });
            let subscribing = c.subscribing(broker, (pattern, pattern_len), options, functions)?;
            let out = c.out(subscription, "subscription")?;
            let Subscribing { builder, handle, handling, log } = subscribing;
            // This may start workers.
            let subscribed = log.during(|| {
                builder.handler(move |message| {
                    let view = view(message);
                    let (returned, handled) = handled(|| handling.user.ask(Some(handle), &view));
                    if returned != 0 {
                        handling.note(&[returned]);
                    }
                    handled
                })
            });
            out.give(slipring_handler_subscription { subscription: subscribed? });
            Ok(())
        })
    }
}

/// The same with a handler that is called with several messages at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_broker_subscribe_batch_handler(
    broker: *const slipring_broker,
    pattern: *const c_char,
    pattern_len: usize,
    options: *const slipring_subscription_options,
    handler: *const slipring_batch_handler,
    subscription: *mut *mut slipring_handler_subscription,
) -> slipring_status {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe {
        entry(|c| {
            // Let go of whatever goes wrong from here on.
            let functions = c.optional(handler, "handler").map(|handler| {
                let &slipring_batch_handler { handle, lagged, failed, user, user_free } = handler?;
                let user = User::new(user, user_free);
                Some(Functions { handle, lagged, failed, user })
            });
            let subscribing = c.subscribing(broker, (pattern, pattern_len), options, functions)?;
            let out = c.out(subscription, "subscription")?;
            let Subscribing { builder, handle, handling, log } = subscribing;
            // This may start workers.
            let subscribed = log.during(|| {
                builder.block_handler(move |block| {
                    let ask = |views: &[_], answers: &mut [i32]| {
                        handling.user.ask_all(Some(handle), views, answers)
                    };
                    let (returned, failures) = with_views(block, |views| {
                        handled_all(views.len(), |answers| ask(views, answers))
                    });
                    if !returned.is_empty() {
                        handling.note(&returned);
                    }
                    failures
                })
            });
            out.give(slipring_handler_subscription { subscription: subscribed? });
            Ok(())
        })
    }
}

/// Number of the subscription, unique in the broker; 0 if `subscription` is NULL. Does not wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_handler_subscription_id(
    subscription: *const slipring_handler_subscription,
) -> u64 {
    let mut id = 0;
    // SAFETY: the caller's pointers, used as the header says.
    unsafe {
        entry(|c| {
            id = c.get(subscription, "subscription")?.subscription.id();
            Ok(())
        })
    };
    id
}

/// Messages queued and not handed to the handler yet. Errors: EINVAL. Does not wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_handler_subscription_queued(
    subscription: *const slipring_handler_subscription,
    queued: *mut u64,
) -> slipring_status {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe {
        entry(|c| {
            let subscription = c.get(subscription, "subscription")?;
            c.out(queued, "queued")?.write(subscription.subscription.queued());
            Ok(())
        })
    }
}

/// Unsubscribes, frees the handle and sets the pointer to NULL: when this returns, the handler does
/// not run any more and is not called again. What was queued is thrown away. From inside the
/// handler itself it returns at once. NULL, or a pointer to NULL, is no error.
///
/// Waits for a running handler, except from inside a filter function. Two handlers that unsubscribe
/// each other at the same time would wait for ever: `slipring_handler_subscription_unsubscribe` has a
/// limit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_handler_subscription_free(
    subscription: *mut *mut slipring_handler_subscription,
) {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe {
        entry(|c| {
            if let Some(handle) = c.take(subscription) {
                // Not only dropped: that does not wait where unsubscribing has timed out before.
                // From inside a filter it is refused, and dropped all the same.
                drop(handle.subscription.unsubscribe());
            }
            Ok(())
        })
    };
}

/// The same, waiting for a running handler for at most `timeout_ns`. TIMEOUT if it was still
/// running: it is not called again, and the handle stays, to be freed later. Errors: EINVAL,
/// EFILTERING.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_handler_subscription_unsubscribe(
    subscription: *mut *mut slipring_handler_subscription,
    timeout_ns: u64,
) -> slipring_status {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe {
        entry(|c| {
            let back = c.out(subscription, "subscription")?;
            let mut handle =
                c.take(subscription).ok_or_else(|| Failure::invalid("subscription is NULL"))?;
            let ended = match time(timeout_ns) {
                None => handle.subscription.unsubscribe(),
                Some(timeout) => handle.subscription.unsubscribe_timeout(timeout),
            };
            let Err(UnsubscribeError { reason, subscription }) = ended else { return Ok(()) };
            handle.subscription = subscription;
            back.give_box(handle);
            Err(match reason {
                UnsubscribeReason::InsideFilter => Failure::error(
                    slipring_status::SLIPRING_EFILTERING,
                    "a filter function may not wait for a handler",
                ),
                _ => Failure::outcome(slipring_status::SLIPRING_TIMEOUT),
            })
        })
    }
}

/// Lets the handler run until the broker closes, frees the handle and sets the pointer to NULL.
/// NULL, or a pointer to NULL, is no error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_handler_subscription_detach(
    subscription: *mut *mut slipring_handler_subscription,
) {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe {
        entry(|c| {
            if let Some(handle) = c.take(subscription) {
                handle.subscription.detach();
            }
            Ok(())
        })
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use slipring_core::{Broker, Message};
    use std::ptr::{null, null_mut};
    use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

    unsafe extern "C" fn nothing(
        _: *mut c_void,
        _: *const crate::message::slipring_message,
    ) -> i32 {
        0
    }

    fn handler(broker: &slipring_broker) -> *mut slipring_handler_subscription {
        let handler = slipring_handler {
            handle: Some(nothing),
            lagged: None,
            failed: None,
            user: null_mut(),
            user_free: None,
        };
        let mut subscription = null_mut();
        // SAFETY: everything lives for the call.
        let status = unsafe {
            slipring_broker_subscribe_handler(
                broker,
                c"none".as_ptr(),
                4,
                null(),
                &raw const handler,
                &raw mut subscription,
            )
        };
        assert_eq!(status, slipring_status::SLIPRING_OK);
        subscription
    }

    /// A broker may be shared with Rust code, which has filters of its own.
    #[test]
    fn a_filter_of_rust_may_not_wait_for_a_handler() {
        static HANDLER: AtomicPtr<slipring_handler_subscription> = AtomicPtr::new(null_mut());
        static ASKED: AtomicU64 = AtomicU64::new(0);
        let broker = slipring_broker::from(Broker::builder().build().unwrap());
        HANDLER.store(handler(&broker), Ordering::Relaxed);
        let filter = |_: &Message<'_>| {
            let mut handler = HANDLER.load(Ordering::Relaxed);
            let before = handler;
            for timeout_ns in [0, u64::MAX] {
                // SAFETY: the handle is there, and nobody else uses it.
                let status = unsafe {
                    slipring_handler_subscription_unsubscribe(&raw mut handler, timeout_ns)
                };
                assert_eq!(status, slipring_status::SLIPRING_EFILTERING);
                assert_eq!(handler, before, "it stays where it is");
            }
            ASKED.fetch_add(1, Ordering::Relaxed);
            true
        };
        let subscription = broker.broker.subscription("in").filter_fn(filter).open().unwrap();
        broker.broker.publish("in", b"x").unwrap();
        assert_eq!(ASKED.load(Ordering::Relaxed), 1);
        drop(subscription);
        let mut handler = HANDLER.load(Ordering::Relaxed);
        // SAFETY: the handle is there, and nobody else uses it.
        unsafe { slipring_handler_subscription_free(&raw mut handler) };
        assert!(handler.is_null());
    }
}
