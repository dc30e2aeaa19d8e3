//! Settling messages by their ack ids.
#![expect(unsafe_code, reason = "exported names")]

use crate::ack_id::slipring_ack_id;
use crate::broker::{slipring_broker, with_name};
use crate::last_error::Failure;
use crate::log::Log;
use crate::options::time;
use crate::panic::{entry, free};
use crate::settle::acked;
use crate::status::slipring_status;
use crate::subscription::slipring_subscription;
use slipring_core::{AckError, AckId, Acker, ConfigError};
use std::ffi::c_char;
use std::time::Duration;

/// Settles messages of one subscription by their ack ids. Usable from all threads at once. It does
/// not keep the subscription. Free it with `slipring_acker_free`.
#[derive(Debug)]
pub struct slipring_acker {
    acker: Acker,
    log: Log,
}

/// What settles messages of this subscription, until it seeks. Errors: EINVAL, EBUSY, EATMOSTONCE.
/// Does not wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_subscription_acker(
    subscription: *mut slipring_subscription,
    acker: *mut *mut slipring_acker,
) -> slipring_status {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe {
        entry(|c| {
            let out = c.out(acker, "acker")?;
            let using = c.exclusive(subscription, "subscription")?;
            let acker = using.subscription.acker().ok_or(ConfigError::AtMostOnce)?;
            out.give(slipring_acker { acker, log: using.log.clone() });
            Ok(())
        })
    }
}

/// What settles messages of the subscription `name`, until it gets another consumer or seeks.
/// Errors: EINVAL, EUTF8, ENOSUBSCRIPTION, EATMOSTONCE, EFILTERING, EFORKED. Does not wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_broker_acker(
    broker: *const slipring_broker,
    name: *const c_char,
    name_len: usize,
    acker: *mut *mut slipring_acker,
) -> slipring_status {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe {
        with_name(broker, (name, name_len), |c, broker, name| {
            let out = c.out(acker, "acker")?;
            let acker = broker.broker.acker(name)?;
            out.give(slipring_acker { acker, log: broker.log.clone() });
            Ok(())
        })
    }
}

/// # Safety
/// As for [`entry`].
unsafe fn settle(
    acker: *const slipring_acker,
    ids: (*const slipring_ack_id, usize),
    outcomes: *mut slipring_status,
    settle: impl Fn(&Acker, &AckId) -> Result<bool, AckError>,
) -> slipring_status {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe {
        entry(|c| {
            let slipring_acker { acker, log } = c.get(acker, "acker")?;
            let ids = c.array(ids.0, ids.1, "ids")?;
            log.during(|| {
                c.settle_each(ids, outcomes, |id| -> Result<(), Failure> {
                    acked(settle(acker, &id.read()?)?)
                })
            })
        })
    }
}

/// Acknowledges messages by their ack ids, in one call: see `slipring_ack`. Errors: EINVAL, EACKID,
/// EFILTERING, EFORKED. Does not wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_acker_ack(
    acker: *const slipring_acker,
    ids: *const slipring_ack_id,
    ids_len: usize,
    outcomes: *mut slipring_status,
) -> slipring_status {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe { settle(acker, (ids, ids_len), outcomes, Acker::ack) }
}

/// Gives messages back by their ack ids: see `slipring_nack`. Errors: as there, and EACKID.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_acker_nack(
    acker: *const slipring_acker,
    ids: *const slipring_ack_id,
    ids_len: usize,
    delay_ns: u64,
    outcomes: *mut slipring_status,
) -> slipring_status {
    let delay = time(delay_ns);
    // SAFETY: the caller's pointers, used as the header says.
    unsafe {
        settle(acker, (ids, ids_len), outcomes, |acker, id| acker.nack(id, delay).map(|()| true))
    }
}

/// Lets leases end at another time, by their ack ids: see `slipring_extend`. Errors: as there, and
/// EACKID. Does not wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_acker_extend(
    acker: *const slipring_acker,
    ids: *const slipring_ack_id,
    ids_len: usize,
    by_ns: u64,
    outcomes: *mut slipring_status,
) -> slipring_status {
    let by = Duration::from_nanos(by_ns);
    // SAFETY: the caller's pointers, used as the header says.
    unsafe {
        settle(acker, (ids, ids_len), outcomes, |acker, id| {
            acker.modify_ack_deadline(id, by).map(|()| true)
        })
    }
}

/// Gives up on messages by their ack ids: see `slipring_dead_letter`. Errors and waiting: as there,
/// and EACKID.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_acker_dead_letter(
    acker: *const slipring_acker,
    ids: *const slipring_ack_id,
    ids_len: usize,
    reason: *const c_char,
    reason_len: usize,
    outcomes: *mut slipring_status,
) -> slipring_status {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe {
        entry(|c| {
            let reason = c.reason(reason, reason_len)?;
            let slipring_acker { acker, log } = c.get(acker, "acker")?;
            let ids = c.array(ids, ids_len, "ids")?;
            log.during(|| {
                c.settle_each(ids, outcomes, |id| Ok(acker.dead_letter(&id.read()?, reason)?))
            })
        })
    }
}

/// Frees the handle and sets the pointer to NULL. NULL, or a pointer to NULL, is no error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_acker_free(acker: *mut *mut slipring_acker) {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe { free(acker) }
}
