//! The contenders in C and C++ (`native/`), as functions of Rust.
#![expect(unsafe_code, reason = "functions in C++")]

use std::time::Duration;

use crate::cpu::{self, Role};

/// The processors of the two threads, as `native/harness.hpp` has them.
#[repr(C)]
#[derive(Clone, Copy)]
struct Processors {
    producer: i32,
    consumer: i32,
}

fn processors() -> Processors {
    let [producer, consumer] =
        [Role::Producer, Role::Consumer].map(|role| i32::try_from(cpu::number(role)).unwrap_or(0));
    Processors { producer, consumer }
}

type FanOut = unsafe extern "C" fn(u64, usize, Processors) -> u64;

unsafe extern "C" {
    fn native_boundary(messages: u64, batch: usize, publish_ns: *mut u64, poll_ns: *mut u64);
    fn native_to_handler(messages: u64, at: Processors) -> u64;
    fn native_fan_out(messages: u64, subscribers: usize, at: Processors) -> u64;
    fn native_mutex_fan_out(messages: u64, subscribers: usize, at: Processors) -> u64;
    #[cfg(native_boost)]
    fn native_boost_fan_out(messages: u64, subscribers: usize, at: Processors) -> u64;
    #[cfg(native_zmq)]
    fn native_zmq_fan_out(messages: u64, subscribers: usize, at: Processors) -> u64;
}

/// The C ABI on the calling thread: times of publishing, `batch` messages a call, and of polling.
pub(crate) fn boundary(messages: u64, batch: usize) -> (Duration, Duration) {
    let (mut publish, mut poll) = (0, 0);
    // SAFETY: two places for results.
    unsafe { native_boundary(messages, batch, &raw mut publish, &raw mut poll) };
    (Duration::from_nanos(publish), Duration::from_nanos(poll))
}

/// One publisher, a handler in C, batches of 64.
pub(crate) fn to_handler(messages: u64) -> Duration {
    // SAFETY: it takes any number.
    Duration::from_nanos(unsafe { native_to_handler(messages, processors()) })
}

fn run(contender: FanOut, messages: u64, subscribers: u64) -> Duration {
    let subscribers = usize::try_from(subscribers).unwrap_or(1);
    // SAFETY: they take any numbers.
    Duration::from_nanos(unsafe { contender(messages, subscribers, processors()) })
}

/// slipring in C++, one message at a time.
pub(crate) fn fan_out(messages: u64, subscribers: u64) -> Duration {
    run(native_fan_out, messages, subscribers)
}

/// The peers, where they are on this machine; one message at a time.
pub(crate) const PEERS: [(&str, &str, Option<fn(u64, u64) -> Duration>); 3] = [
    ("G4", "ZeroMQ inproc XPUB/SUB", ZMQ),
    ("G5", "boost spsc_queue, shared_ptr", BOOST),
    ("G6", "mutex and condition variable", Some(|m, s| run(native_mutex_fan_out, m, s))),
];

#[cfg(native_zmq)]
const ZMQ: Option<fn(u64, u64) -> Duration> = Some(|m, s| run(native_zmq_fan_out, m, s));
#[cfg(not(native_zmq))]
const ZMQ: Option<fn(u64, u64) -> Duration> = None;
#[cfg(native_boost)]
const BOOST: Option<fn(u64, u64) -> Duration> = Some(|m, s| run(native_boost_fan_out, m, s));
#[cfg(not(native_boost))]
const BOOST: Option<fn(u64, u64) -> Duration> = None;
