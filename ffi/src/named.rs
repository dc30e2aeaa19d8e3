//! Subscriptions by name: listed, described, sought, deleted.
#![expect(unsafe_code, reason = "exported names")]

use crate::broker::{slipring_broker, with_name};
use crate::options::{number_of, start};
use crate::panic::entry;
use crate::status::slipring_status;
use crate::text::slipring_text;
use std::ffi::c_char;

/// What is known of a subscription that has a name. It may grow: say its size.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct slipring_subscription_description {
    /// Messages that were not taken yet.
    pub queued: u64,
    /// Messages that were taken and are not settled, those that wait for another attempt included.
    pub unsettled: u64,
    /// A `slipring_delivery`.
    pub delivery: u32,
    /// 1 if it has a consumer.
    pub is_online: u32,
}

/// Names of the subscriptions that have one, in order, each ending in a newline, which no name
/// contains. Errors: EINVAL, EFILTERING, EFORKED. Does not wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_broker_subscriptions(
    broker: *const slipring_broker,
    names: *mut *mut slipring_text,
) -> slipring_status {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe {
        entry(|c| {
            let broker = c.get(broker, "broker")?;
            let out = c.out(names, "names")?;
            out.give(slipring_text::lines(&broker.broker.subscriptions()?));
            Ok(())
        })
    }
}

/// What is known of the subscription `name`: `description_size` is `sizeof *description`, and more
/// than this library knows is EINVAL. `patterns` may be NULL, or gets the subscription's patterns,
/// each ending in a newline. Errors: EINVAL, EUTF8, ENOSUBSCRIPTION, EFILTERING, EFORKED. Does not
/// wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_broker_describe_subscription(
    broker: *const slipring_broker,
    name: *const c_char,
    name_len: usize,
    description: *mut slipring_subscription_description,
    description_size: usize,
    patterns: *mut *mut slipring_text,
) -> slipring_status {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe {
        with_name(broker, (name, name_len), |c, broker, name| {
            let out = c.optional_out(patterns, "patterns")?;
            let known = broker.broker.describe_subscription(name)?;
            let value = slipring_subscription_description {
                queued: known.queued,
                unsettled: known.unsettled,
                delivery: number_of(known.delivery),
                is_online: u32::from(known.is_online),
            };
            c.write_sized(description, description_size, value, "description")?;
            out.give(slipring_text::lines(&known.patterns));
            Ok(())
        })
    }
}

/// Deletes the subscription `name`, with all that it has not settled. Its consumer, if it has one,
/// gets DISCONNECTED; a handler is unsubscribed, and may run to its end. Errors: EINVAL, EUTF8,
/// ENOSUBSCRIPTION, EFILTERING, EFORKED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_broker_delete_subscription(
    broker: *const slipring_broker,
    name: *const c_char,
    name_len: usize,
) -> slipring_status {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe {
        with_name(broker, (name, name_len), |_, broker, name| {
            Ok(broker.log.during(|| broker.broker.delete_subscription(name))?)
        })
    }
}

/// Lets the subscription `name`, which has no consumer at the moment, go on elsewhere: see
/// `slipring_subscription_seek`. Errors: EINVAL, EUTF8, ERANGE, ENOSUBSCRIPTION, EINUSE (it has a
/// consumer), EATMOSTONCE, EFILTERING, EFORKED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_broker_seek_subscription(
    broker: *const slipring_broker,
    name: *const c_char,
    name_len: usize,
    start: u32,
    start_value: u64,
) -> slipring_status {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe {
        with_name(broker, (name, name_len), |_, broker, name| {
            let start = self::start(start, start_value)?;
            Ok(broker.log.during(|| broker.broker.seek_subscription(name, start))?)
        })
    }
}
