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
type Batches = unsafe extern "C" fn(u64, usize, usize, Processors) -> u64;

unsafe extern "C" {
    fn native_boundary(messages: u64, batch: usize, publish_ns: *mut u64, poll_ns: *mut u64);
    fn native_drain_by_handler(messages: u64, batch: usize) -> u64;
    fn native_to_handler(messages: u64, at: Processors) -> u64;
    fn native_fan_out(messages: u64, subscribers: usize, batch: usize, at: Processors) -> u64;
    fn native_mutex_fan_out(messages: u64, subscribers: usize, at: Processors) -> u64;
    #[cfg(native_boost)]
    fn native_boost_fan_out(messages: u64, subscribers: usize, at: Processors) -> u64;
    #[cfg(native_boost)]
    fn native_boost_batches(messages: u64, subscribers: usize, batch: usize, at: Processors)
    -> u64;
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

/// A handler in C on the processor of the calling thread, which fills its queue: how long it takes to
/// empty it. With a `batch` of 1 it is called with each message.
pub(crate) fn drain_by_handler(messages: u64, batch: usize) -> Duration {
    // SAFETY: it takes any number.
    Duration::from_nanos(unsafe { native_drain_by_handler(messages, batch) })
}

/// One publisher, a handler in C on another processor, batches of 64 for both.
pub(crate) fn to_handler(messages: u64) -> Duration {
    // SAFETY: it takes any number.
    Duration::from_nanos(unsafe { native_to_handler(messages, processors()) })
}

fn run(contender: FanOut, messages: u64, subscribers: u64) -> Duration {
    let subscribers = usize::try_from(subscribers).unwrap_or(1);
    // SAFETY: they take any numbers.
    Duration::from_nanos(unsafe { contender(messages, subscribers, processors()) })
}

/// Messages of a batch.
const BATCH: usize = 64;

fn run_batches(contender: Batches, messages: u64, subscribers: u64, batch: usize) -> Duration {
    let subscribers = usize::try_from(subscribers).unwrap_or(1);
    // SAFETY: they take any numbers, and whole batches.
    Duration::from_nanos(unsafe { contender(messages, subscribers, batch, processors()) })
}

/// slipring in C++, one message at a time.
pub(crate) fn fan_out(messages: u64, subscribers: u64) -> Duration {
    run_batches(native_fan_out, messages, subscribers, 1)
}

/// slipring in C++, batches of 64.
pub(crate) fn fan_out_batches(messages: u64, subscribers: u64) -> Duration {
    run_batches(native_fan_out, messages, subscribers, BATCH)
}

/// A peer of the fan-out, in one of its modes.
#[derive(Clone, Copy)]
pub(crate) struct Peer {
    pub(crate) bar: &'static str,
    pub(crate) name: &'static str,
    /// Whether it is given batches; else one message at a time.
    pub(crate) batches: bool,
    /// About how many deliveries it makes in a second: what fills a run.
    pub(crate) millions: f64,
    /// Where it is on this machine.
    pub(crate) run: Option<fn(u64, u64) -> Duration>,
}

/// All of them, the nearest first: it runs right behind ours.
pub(crate) const PEERS: [Peer; 4] = [
    Peer {
        bar: "G5",
        name: "boost spsc_queue, shared_ptr",
        batches: false,
        millions: 25.0,
        run: BOOST,
    },
    Peer {
        bar: "G5",
        name: "boost spsc_queue, shared_ptr, batches",
        batches: true,
        millions: 25.0,
        run: BOOST_BATCHES,
    },
    Peer { bar: "G4", name: "ZeroMQ inproc XPUB/SUB", batches: false, millions: 8.0, run: ZMQ },
    Peer {
        bar: "G6",
        name: "mutex and condition variable",
        batches: false,
        millions: 8.0,
        run: Some(|m, s| run(native_mutex_fan_out, m, s)),
    },
];

#[cfg(native_zmq)]
const ZMQ: Option<fn(u64, u64) -> Duration> = Some(|m, s| run(native_zmq_fan_out, m, s));
#[cfg(not(native_zmq))]
const ZMQ: Option<fn(u64, u64) -> Duration> = None;
#[cfg(native_boost)]
const BOOST: Option<fn(u64, u64) -> Duration> = Some(|m, s| run(native_boost_fan_out, m, s));
#[cfg(native_boost)]
const BOOST_BATCHES: Option<fn(u64, u64) -> Duration> =
    Some(|m, s| run_batches(native_boost_batches, m, s, BATCH));
#[cfg(not(native_boost))]
const BOOST_BATCHES: Option<fn(u64, u64) -> Duration> = None;
#[cfg(not(native_boost))]
const BOOST: Option<fn(u64, u64) -> Duration> = None;
