//! Subscriptions that are pulled.
#![expect(unsafe_code, reason = "exported names, and messages that outlive their borrow")]

use crate::broker::slipring_broker;
use crate::callback::{User, slipring_messages_fn};
use crate::handle::{Exclusive, Exclusively, Handle};
use crate::last_error::Failure;
use crate::log::Log;
use crate::message::{self, NO_TEXT, slipring_message, slipring_text_view, text_view, with_views};
use crate::options::{self, slipring_subscription_options, time};
use crate::panic::entry;
use crate::status::slipring_status;
use slipring_core::{Message, RecvError, Subscription, TryRecvError};
use std::ffi::{c_char, c_int, c_void};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering};

/// A subscription whose messages are fetched by its owner. It may move between threads; it is one
/// consumer, so one call at a time may use it, and another gets EBUSY. Free it with
/// `slipring_subscription_free`.
#[derive(Debug)]
pub struct slipring_subscription {
    pulled: Exclusive<Pulled>,
    id: u64,
    name: Option<Box<str>>,
    /// Lost at the last SLIPRING_LAGGED. Written by the call that uses the handle, read by any.
    lost: AtomicU64,
}

#[derive(Debug)]
pub(crate) struct Pulled {
    /// Received last; cleared before the subscription, which they borrow from, is used again.
    messages: Vec<Message<'static>>,
    /// The views of those.
    views: Vec<slipring_message>,
    pub(crate) subscription: Subscription,
    /// Of the broker, where receiving can have something to tell it.
    pub(crate) log: Log,
}

impl Handle for slipring_subscription {
    type Value = Pulled;

    fn exclusive(&self) -> &Exclusive<Pulled> {
        &self.pulled
    }
}

impl Pulled {
    /// The subscription, with nothing borrowed from it.
    #[inline]
    fn subscription(&mut self) -> &mut Subscription {
        self.idle().1
    }

    /// The same, with the log.
    #[inline]
    fn idle(&mut self) -> (&Log, &mut Subscription) {
        self.views.clear();
        self.messages.clear();
        (&self.log, &mut self.subscription)
    }
}

/// Subscribes to `pattern`; the messages are pulled. Every publish that starts after this has
/// returned sees the subscription. `options` may be NULL for the defaults.
///
/// Options with a `filter_fn` are used up by the call, also if it fails: they must not be given
/// again with the same `filter_user`. Errors: CLOSED, EINVAL, EUTF8, ENAME (a pattern, or the
/// subscription's name), EFILTER, EINUSE, ERANGE, EFILTERING, EFORKED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_broker_subscribe(
    broker: *const slipring_broker,
    pattern: *const c_char,
    pattern_len: usize,
    options: *const slipring_subscription_options,
    subscription: *mut *mut slipring_subscription,
) -> slipring_status {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe {
        entry(|c| {
            let options = c.sized(options, "options")?;
            let filter_user = User::new(options.filter_user, options.filter_user_free);
            let out = c.out(subscription, "subscription")?;
            let builder = c.subscription(broker, (pattern, pattern_len), &options, filter_user)?;
            let subscription = builder.open()?;
            // Dead letters are stored on the way, which may fail.
            let is_settled = subscription.acker().is_some();
            let log = c.get(broker, "broker")?.log.clone();
            out.give(slipring_subscription {
                id: subscription.id(),
                name: subscription.name().map(Box::from),
                lost: AtomicU64::new(0),
                pulled: Exclusive::new(Pulled {
                    messages: Vec::new(),
                    views: Vec::new(),
                    subscription,
                    log: if is_settled { log } else { Log::default() },
                }),
            });
            Ok(())
        })
    }
}

/// Unsubscribes, frees the handle and sets the pointer to NULL; messages received from it are gone,
/// unless they were kept. One that has a name and delivers at least once is not unsubscribed, but
/// goes on without a consumer: see `slipring_subscription_options.name`. If a call is using it, in another thread or around this one, that happens
/// when that call returns. NULL, or a pointer to NULL, is no error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_subscription_free(subscription: *mut *mut slipring_subscription) {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe {
        entry(|c| {
            c.free_exclusive(subscription);
            Ok(())
        })
    };
}

/// Number of the subscription, unique in the broker; 0 if `subscription` is NULL. May be called
/// while another call is using the handle. Does not wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_subscription_id(
    subscription: *const slipring_subscription,
) -> u64 {
    let mut id = 0;
    // SAFETY: the caller's pointers, used as the header says.
    unsafe {
        entry(|c| {
            id = c.get(subscription, "subscription")?.id;
            Ok(())
        })
    };
    id
}

/// The subscription's name, which lives as long as the handle; `data` is NULL if it has none. May be
/// called while another call is using the handle. Errors: EINVAL. Does not wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_subscription_name(
    subscription: *const slipring_subscription,
    name: *mut slipring_text_view,
) -> slipring_status {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe {
        entry(|c| {
            let (handle, out) = (c.get(subscription, "subscription")?, c.out(name, "name")?);
            out.write(handle.name.as_deref().map_or(NO_TEXT, text_view));
            Ok(())
        })
    }
}

/// How many messages were lost at the last SLIPRING_LAGGED that this subscription has returned; 0
/// if `subscription` is NULL. May be called while another call is using the handle. Does not wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_subscription_lost(
    subscription: *const slipring_subscription,
) -> u64 {
    let mut lost = 0;
    // SAFETY: the caller's pointers, used as the header says.
    unsafe {
        entry(|c| {
            lost = c.get(subscription, "subscription")?.lost.load(Ordering::Relaxed);
            Ok(())
        })
    };
    lost
}

/// Messages queued and not received. What was published before the subscription began, or before it
/// last sought, may not be counted yet: whether there is something, receiving tells. Errors: EINVAL,
/// EBUSY. Does not wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_subscription_queued(
    subscription: *mut slipring_subscription,
    queued: *mut u64,
) -> slipring_status {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe {
        entry(|c| {
            let out = c.out(queued, "queued")?;
            let pulled = c.exclusive(subscription, "subscription")?;
            out.write(pulled.subscription.queued());
            Ok(())
        })
    }
}

type Using<'c> = Exclusively<'c, slipring_subscription>;

/// A failure to receive, whose loss is noted.
#[cold]
fn failed(using: &Using<'_>, error: RecvError) -> Failure {
    if let RecvError::Lagged(lost) = error {
        using.handle().lost.store(lost, Ordering::Relaxed);
    }
    error.into()
}

/// Receives one message with `recv`.
///
/// # Safety
/// As for [`entry`].
#[inline]
unsafe fn receive(
    subscription: *mut slipring_subscription,
    message: *mut slipring_message,
    recv: impl FnOnce(&mut Subscription) -> Result<Result<Message<'_>, slipring_status>, RecvError>,
) -> slipring_status {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe {
        entry(|c| {
            let out = c.out(message, "message")?;
            let mut using = c.exclusive(subscription, "subscription")?;
            let (log, subscription) = using.idle();
            let received = match log.during(|| recv(subscription)) {
                // The message is cleared before the subscription is used again.
                Ok(received) => received.map(|message| message::extend(message)),
                Err(error) => return Err(failed(&using, error)),
            };
            let received = received.map_err(Failure::outcome)?;
            if using.is_freed() {
                return Err(Failure::outcome(slipring_status::SLIPRING_CLOSED));
            }
            using.messages.push(received);
            out.write(message::view(&using.messages[0]));
            Ok(())
        })
    }
}

fn tried(error: TryRecvError) -> Result<slipring_status, RecvError> {
    match error {
        TryRecvError::Recv(error) => Err(error),
        _ => Ok(slipring_status::SLIPRING_EMPTY),
    }
}

/// Sets `*is_due` to 1 if a message that was received before is due to be received again. Then the next
/// call that receives may have to give up on it, and so to wait a little (100 ms at most) where
/// somebody who subscribes to dead letters blocks. Errors: EINVAL, EBUSY. Does not wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_subscription_is_due(
    subscription: *mut slipring_subscription,
    is_due: *mut i32,
) -> slipring_status {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe {
        entry(|c| {
            let out = c.out(is_due, "is_due")?;
            out.write(i32::from(c.exclusive(subscription, "subscription")?.subscription.is_due()));
            Ok(())
        })
    }
}

/// Receives the next message, waiting for it as the subscription's wait strategy has it. It is
/// valid until the next call that receives, polls or waits on the subscription, or frees it.
///
/// Errors: LAGGED (the next call goes on), CLOSED, DISCONNECTED, EINVAL, EBUSY, EFILTERING,
/// EFORKED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_subscription_recv(
    subscription: *mut slipring_subscription,
    message: *mut slipring_message,
) -> slipring_status {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe { receive(subscription, message, |subscription| subscription.recv().map(Ok)) }
}

/// Receives the next message if one is queued, else EMPTY. Errors: as `slipring_subscription_recv`.
/// Does not wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_subscription_try_recv(
    subscription: *mut slipring_subscription,
    message: *mut slipring_message,
) -> slipring_status {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe {
        receive(subscription, message, |subscription| match subscription.try_recv() {
            Ok(message) => Ok(Ok(message)),
            Err(error) => tried(error).map(Err),
        })
    }
}

/// Receives the next message, waiting for at most `timeout_ns`, else TIMEOUT. Errors: as
/// `slipring_subscription_recv`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_subscription_recv_timeout(
    subscription: *mut slipring_subscription,
    timeout_ns: u64,
    message: *mut slipring_message,
) -> slipring_status {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe {
        receive(subscription, message, |subscription| match time(timeout_ns) {
            None => subscription.recv().map(Ok),
            Some(timeout) => {
                let received = subscription.recv_timeout(timeout)?;
                Ok(received.ok_or(slipring_status::SLIPRING_TIMEOUT))
            }
        })
    }
}

/// # Safety
/// As for [`entry`].
unsafe fn receive_batch(
    subscription: *mut slipring_subscription,
    most: usize,
    messages: *mut *const slipring_message,
    count: *mut usize,
    wait: bool,
) -> slipring_status {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe {
        entry(|c| {
            let (messages, count) = (c.out(messages, "messages")?, c.out(count, "count")?);
            let mut using = c.exclusive(subscription, "subscription")?;
            let pulled = &mut *using;
            pulled.views.clear();
            pulled.messages.clear();
            let subscription = &mut pulled.subscription;
            let batch = pulled.log.during(|| {
                if wait { subscription.recv_batch(most) } else { subscription.try_recv_batch(most) }
            });
            // The messages are cleared before the subscription is used again.
            let received = batch.map(|batch| {
                pulled.messages.extend(batch.iter().map(|message| message::extend(message)));
            });
            received.map_err(|error| failed(&using, error))?;
            if using.is_freed() {
                return Err(Failure::outcome(slipring_status::SLIPRING_CLOSED));
            }
            let pulled = &mut *using;
            pulled.views.extend(pulled.messages.iter().map(message::view));
            if pulled.views.is_empty() {
                return Err(Failure::outcome(slipring_status::SLIPRING_EMPTY));
            }
            messages.write(pulled.views.as_ptr());
            count.write(pulled.views.len());
            Ok(())
        })
    }
}

/// Receives up to `most` messages, at least one, waiting for that as `slipring_subscription_recv`
/// does: sets `*messages` to an array of `*count` of them, which are valid as that one is. EMPTY if
/// `most` is 0. Errors: as `slipring_subscription_recv`; a loss behind the first message is told by
/// the next call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_subscription_recv_batch(
    subscription: *mut slipring_subscription,
    most: usize,
    messages: *mut *const slipring_message,
    count: *mut usize,
) -> slipring_status {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe { receive_batch(subscription, most, messages, count, true) }
}

/// The same for what is queued now; EMPTY if nothing is. Does not wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_subscription_try_recv_batch(
    subscription: *mut slipring_subscription,
    most: usize,
    messages: *mut *const slipring_message,
    count: *mut usize,
) -> slipring_status {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe { receive_batch(subscription, most, messages, count, false) }
}

/// Calls `function` with up to `most` messages that are queued now, in place and without waiting,
/// and sets `*count`, which may be NULL, to how many. The fastest way to receive. Each call is with
/// some of them, in order, which are valid until it returns.
///
/// The function may call the broker, and free this subscription; a call that receives from it gets
/// EBUSY. EMPTY if nothing is queued. Errors: as `slipring_subscription_recv`; a loss behind the
/// first message is told by the next call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_subscription_poll(
    subscription: *mut slipring_subscription,
    most: usize,
    function: slipring_messages_fn,
    user: *mut c_void,
    count: *mut usize,
) -> slipring_status {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe {
        entry(|c| {
            if function.is_none() {
                return Err(Failure::invalid("function is NULL"));
            }
            let out = c.optional_out(count, "count")?;
            let mut using = c.exclusive(subscription, "subscription")?;
            let user = User::new(user, None);
            let (log, subscription) = using.idle();
            let polled = log.during(|| {
                subscription.poll_blocks(most, |block| {
                    with_views(block, |messages| user.tell(function, messages));
                })
            });
            match polled {
                Ok(0) => Err(Failure::outcome(slipring_status::SLIPRING_EMPTY)),
                Ok(polled) => {
                    out.write(polled);
                    Ok(())
                }
                Err(error) => Err(failed(&using, error)),
            }
        })
    }
}

/// Waits for at most `timeout_ns`, or SLIPRING_FOREVER, until a message is queued or there is
/// something else to tell by the next call that receives; else TIMEOUT. Errors: EINVAL, EBUSY,
/// EFILTERING, EFORKED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_subscription_wait(
    subscription: *mut slipring_subscription,
    timeout_ns: u64,
) -> slipring_status {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe {
        entry(|c| {
            let mut using = c.exclusive(subscription, "subscription")?;
            let subscription = using.subscription();
            let found = match time(timeout_ns) {
                None => subscription.wait().map(|()| true),
                Some(timeout) => subscription.wait_timeout(timeout),
            }?;
            if found { Ok(()) } else { Err(Failure::outcome(slipring_status::SLIPRING_TIMEOUT)) }
        })
    }
}

/// Goes on elsewhere, `start` being a `slipring_start` and `start_value` what that says: it may lie
/// before what was received, which then is delivered anew. All that was received and not settled is
/// forgotten, and its ack ids and ackers are stale; messages received are gone, unless they were
/// kept. Errors: CLOSED, EINVAL, EBUSY, ERANGE, EATMOSTONCE, EFILTERING, EFORKED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_subscription_seek(
    subscription: *mut slipring_subscription,
    start: u32,
    start_value: u64,
) -> slipring_status {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe {
        entry(|c| {
            let start = options::start(start, start_value)?;
            let mut using = c.exclusive(subscription, "subscription")?;
            let (log, subscription) = using.idle();
            Ok(log.during(|| subscription.seek(start))?)
        })
    }
}

/// A descriptor that is readable exactly while something can be received: for `poll`, `epoll` and
/// event loops. Level-triggered; do not read from it or close it. It stays the same, and valid as
/// long as the subscription. Errors: EINVAL, EBUSY, ESYSTEM. Does not wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_subscription_event_fd(
    subscription: *mut slipring_subscription,
    fd: *mut c_int,
) -> slipring_status {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe {
        entry(|c| {
            let out = c.out(fd, "fd")?;
            let mut using = c.exclusive(subscription, "subscription")?;
            let fd = using.subscription().event_fd();
            let fd =
                fd.map_err(|error| Failure::error(slipring_status::SLIPRING_ESYSTEM, error))?;
            out.write(fd.as_raw_fd());
            Ok(())
        })
    }
}
