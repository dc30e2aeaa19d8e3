//! An inbox: a subscription as the shards see it.

use crate::config::{DeliveryMode, Overflow};
use crate::interest::Interest;
use crate::lane::{Lane, Replay};
use crate::log::Log;
use crate::sync::{Arc, AtomicU8, OnceLock, Ordering, PlainArc};
use crate::wait::{WaitCell, Waiter};

/// Whether messages still come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum InboxState {
    Open = 0,
    /// The broker closed: what is queued is still delivered.
    Closed = 1,
    /// The subscription could not keep up and was disconnected: what is queued is still delivered.
    Disconnected = 2,
    /// Unsubscribed: what is queued is thrown away.
    Ended = 3,
}

/// How what comes for a subscription is queued.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Queue {
    pub(crate) overflow: Overflow,
    pub(crate) delivery: DeliveryMode,
    pub(crate) capacity: usize,
}

/// A subscription: what it wants, and a lane from each shard that has had something for it.
#[derive(Debug)]
pub(crate) struct Inbox {
    /// Its own: a subscription that goes on elsewhere gets an inbox with another.
    pub(crate) id: u64,
    /// Of the subscription, whichever inbox it has: the id of its first.
    pub(crate) number: u64,
    pub(crate) name: Option<Box<str>>,
    pub(crate) interest: Interest,
    pub(crate) overflow: Overflow,
    pub(crate) delivery: DeliveryMode,
    pub(crate) capacity: usize,
    /// When it was made, in microseconds since the epoch.
    pub(crate) began_us: u64,
    lanes: Box<[OnceLock<Arc<Lane>>]>,
    /// Where the consumer waits for messages.
    pub(crate) arrivals: WaitCell,
    /// Where publishers wait for room.
    pub(crate) space: WaitCell,
    state: AtomicU8,
}

impl Inbox {
    pub(crate) fn new(
        id: u64,
        name: Option<Box<str>>,
        interest: Interest,
        Queue { overflow, delivery, capacity }: Queue,
        shards: usize,
        began_us: u64,
    ) -> Self {
        Self {
            id,
            number: id,
            began_us,
            name,
            interest,
            overflow,
            delivery,
            capacity,
            lanes: (0..shards).map(|_| OnceLock::new()).collect(),
            arrivals: WaitCell::new(),
            space: WaitCell::new(),
            state: AtomicU8::new(InboxState::Open as u8),
        }
    }

    /// Another inbox for the same subscription, which wants `interest` from now on.
    pub(crate) fn again(&self, id: u64, interest: Interest) -> Self {
        let (name, shards) = (self.name.clone(), self.lanes.len());
        let Self { overflow, delivery, capacity, .. } = *self;
        let queue = Queue { overflow, delivery, capacity };
        Self { number: self.number, ..Self::new(id, name, interest, queue, shards, self.began_us) }
    }

    /// The lane from `shard`, if there has been one.
    #[inline]
    pub(crate) fn lane(&self, shard: usize) -> Option<&Arc<Lane>> {
        self.lanes[shard].get()
    }

    /// The lanes there are.
    pub(crate) fn lanes(&self) -> impl Iterator<Item = &Arc<Lane>> {
        self.lanes.iter().filter_map(OnceLock::get)
    }

    /// The lane from `shard`, made if need be. Called by the holder of the shard's baton, or
    /// before the subscription is known to any shard.
    pub(crate) fn make_lane(
        &self,
        shard: usize,
        log: &PlainArc<Log>,
        replay: Option<Replay>,
    ) -> &Arc<Lane> {
        self.lanes[shard].get_or_init(|| {
            let log = PlainArc::clone(log);
            let (overflow, falls_back) = (self.overflow, self.is_settled_later());
            Arc::new(Lane::new(shard, self.id, self.capacity, overflow, falls_back, log, replay))
        })
    }

    /// Whether its messages are settled by acknowledging them, not by handing them over.
    pub(crate) fn is_settled_later(&self) -> bool {
        self.delivery == DeliveryMode::AtLeastOnce
    }

    pub(crate) fn state(&self) -> InboxState {
        match self.state.load(Ordering::Acquire) {
            0 => InboxState::Open,
            1 => InboxState::Closed,
            2 => InboxState::Disconnected,
            _ => InboxState::Ended,
        }
    }

    /// Moves to `state`, unless it is further already. The caller wakes whoever waits.
    pub(crate) fn advance(&self, state: InboxState) {
        self.state.fetch_max(state as u8, Ordering::AcqRel);
    }

    /// Announces the consumer's waiter, also to shards whose log its lanes follow. It looks once
    /// more afterwards, and sleeps only if there still is nothing.
    pub(crate) fn await_arrivals(&self, waiter: Waiter) {
        self.arrivals.prepare_and(waiter, || self.lanes().for_each(|lane| lane.alert()));
    }

    /// Wakes the consumer and blocked publishers, to see what has changed.
    pub(crate) fn wake_all(&self) {
        if self.arrivals.is_armed_after_fence() {
            self.arrivals.wake();
        }
        if self.space.is_armed() {
            self.space.wake();
        }
    }

    /// Messages queued and not delivered.
    pub(crate) fn depth(&self) -> u64 {
        self.lanes().map(|lane| lane.depth()).sum()
    }
}
