//! What a thread does that finds nothing in several subscriptions.
#![expect(unsafe_code, reason = "exported names")]

use crate::handle::{Exclusive, Handle};
use crate::options;
use crate::panic::entry;
use crate::status::slipring_status;
use slipring_core::Idle;

/// What a thread that polls several subscriptions in turn does between the rounds: one that looks all
/// the time slows down who publishes, and one that looks rarely is late. One call at a time may use
/// it, and another gets EBUSY. Free it with `slipring_idle_free`.
#[derive(Debug)]
pub struct slipring_idle {
    idle: Exclusive<Idle>,
}

impl Handle for slipring_idle {
    type Value = Idle;

    fn exclusive(&self) -> &Exclusive<Idle> {
        &self.idle
    }
}

/// A waiter that has found nothing yet. `wait` is a `slipring_wait_strategy`; it never parks, since it
/// does not know what to be woken by. Errors: EINVAL, ERANGE. Does not wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_idle_new(
    wait: u32,
    idle: *mut *mut slipring_idle,
) -> slipring_status {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe {
        entry(|c| {
            let out = c.out(idle, "idle")?;
            let idle = Exclusive::new(Idle::new(options::wait(wait)?));
            out.give(slipring_idle { idle });
            Ok(())
        })
    }
}

/// A round has found `count` messages: pauses if that was none, for as long as that has lately been
/// worth it, which is microseconds. Errors: EINVAL, EBUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_idle_rest(
    idle: *mut slipring_idle,
    count: usize,
) -> slipring_status {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe {
        entry(|c| {
            c.exclusive(idle, "idle")?.rest(count);
            Ok(())
        })
    }
}

/// Frees it and sets the pointer to NULL. NULL, or a pointer to NULL, is no error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_idle_free(idle: *mut *mut slipring_idle) {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe {
        entry(|c| {
            c.free_exclusive(idle);
            Ok(())
        })
    };
}
