//! The queue of a lane: either kind of ring behind one face, each end and the gauge.

use crate::config::Overflow;
use crate::log::Log;
use crate::lossy;
use crate::ring;
use crate::runs::Span;

/// Messages that are taken from a lossy ring in one go.
const LOSSY_BATCH: u64 = 32;

/// Makes the ends of a queue of `capacity` messages, and what tells its figures.
pub(crate) fn queue(capacity: usize, overflow: Overflow) -> (WriteQueue, ReadQueue, Gauge) {
    if overflow == Overflow::DropOldest {
        let (producer, ring) = lossy::lossy(capacity, 0);
        let gauge = Gauge::Lossy(producer.gauge());
        let read = ReadQueue::Lossy { ring, taken: Span::default(), displaced: 0 };
        (WriteQueue::Lossy(producer), read, gauge)
    } else {
        let (producer, consumer) = ring::ring(capacity, 0);
        let gauge = Gauge::Plain(producer.gauge());
        (WriteQueue::Plain(producer), ReadQueue::Plain(consumer), gauge)
    }
}

/// What a poll of a ring has found.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Polled {
    pub(crate) count: usize,
    /// Nothing else was there, when it was looked last.
    pub(crate) is_all: bool,
}

/// What happened to messages for a lane: packed into one register, because a struct would go
/// through memory right behind the stores of the records, and wait there for all of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Pushed(u64);

impl Pushed {
    const DISCONNECT: u64 = 1 << 63;
    const FELL_BACK: u64 = 1 << 62;
    const SPECIAL: u64 = Self::DISCONNECT | Self::FELL_BACK;

    #[inline]
    pub(crate) fn new(enqueued: u64, dropped: u64) -> Self {
        Self(enqueued | dropped << 32)
    }

    #[inline]
    pub(crate) fn enqueued(self) -> u64 {
        self.0 & u64::from(u32::MAX)
    }

    #[inline]
    pub(crate) fn dropped(self) -> u64 {
        (self.0 & !Self::SPECIAL) >> 32
    }

    /// Whether [`fell_back`](Self::fell_back) or [`disconnect`](Self::disconnect) is so.
    #[inline]
    pub(crate) fn is_special(self) -> bool {
        self.0 & Self::SPECIAL != 0
    }

    /// The same, and the queue was full, and from now on the reader takes what comes from the log.
    pub(crate) fn and_fell_back(self) -> Self {
        Self(self.0 | Self::FELL_BACK)
    }

    /// The queue was full, and from now on the reader takes what comes from the log.
    pub(crate) fn fell_back(self) -> bool {
        self.0 & Self::FELL_BACK != 0
    }

    /// The same, and the subscription ends.
    pub(crate) fn and_disconnect(self) -> Self {
        Self(self.0 | Self::DISCONNECT)
    }

    /// The queue has been full for longer than the subscription allows: it ends.
    #[inline]
    pub(crate) fn disconnect(self) -> bool {
        self.0 & Self::DISCONNECT != 0
    }
}

impl std::ops::AddAssign for Pushed {
    /// Of pushes to one lane, which falls back at most once, and of which the last alone may
    /// disconnect.
    fn add_assign(&mut self, later: Self) {
        self.0 += later.0;
    }
}

/// The write end.
#[derive(Debug)]
pub(crate) enum WriteQueue {
    Plain(ring::Producer),
    Lossy(lossy::Producer),
}

impl WriteQueue {
    /// The sequence of the oldest message that has not been taken.
    pub(crate) fn oldest(&mut self) -> Option<u64> {
        match self {
            Self::Plain(ring) => ring.oldest(),
            Self::Lossy(ring) => ring.oldest(),
        }
    }
}

/// The read end.
#[derive(Debug)]
pub(crate) enum ReadQueue {
    Plain(ring::Consumer),
    Lossy {
        ring: lossy::Consumer,
        /// Taken from the ring and not delivered yet.
        taken: Span,
        /// Displaced just before those.
        displaced: u64,
    },
}

impl ReadQueue {
    /// Looks at the next messages without delivering them. A lossy ring gives up to `most` of them
    /// away for that: they cannot be displaced any more.
    #[inline(always)]
    pub(crate) fn look(&mut self, most: u64, log: &Log) -> ring::Look {
        match self {
            Self::Plain(ring) => match ring.look(|| log.head()) {
                ring::Look::Empty => match ring.loss_at_end(|| log.head()) {
                    0 => ring::Look::Empty,
                    lost => ring::Look::Loss(lost),
                },
                look => look,
            },
            Self::Lossy { ring, taken, displaced } => {
                if *displaced == 0 && taken.count == 0 {
                    // Told before anything is taken.
                    *displaced = ring.displaced();
                }
                if *displaced == 0 && taken.count == 0 {
                    (*taken, *displaced) = ring.take(most.clamp(1, LOSSY_BATCH));
                }
                match (*displaced, taken.count) {
                    (0, 0) => ring::Look::Empty,
                    (0, _) => ring::Look::Span(*taken),
                    (lost, _) => ring::Look::Loss(lost),
                }
            }
        }
    }

    /// The loss that a look shows, if it shows one: it is told now.
    #[cold]
    pub(crate) fn take_loss(&mut self, log: &Log) -> u64 {
        let ring::Look::Loss(lost) = self.look(1, log) else { return 0 };
        match self {
            Self::Plain(ring) => ring.acknowledge_loss(lost),
            Self::Lossy { displaced, .. } => *displaced = 0,
        }
        lost
    }

    /// Gives the places of what was stepped over back to the writer.
    #[inline]
    pub(crate) fn release(&mut self) {
        if let Self::Plain(ring) = self {
            ring.release();
        }
    }

    /// Steps over `count` messages that were looked at.
    #[inline(always)]
    pub(crate) fn advance(&mut self, count: u64) {
        match self {
            Self::Plain(ring) => ring.advance(count),
            Self::Lossy { taken, .. } => {
                taken.first += count;
                taken.count -= count;
            }
        }
    }

    /// Messages that were taken from the ring and not delivered yet, where looking takes them.
    #[inline(always)]
    pub(crate) fn taken(&self) -> Option<u64> {
        match self {
            Self::Plain(_) => None,
            Self::Lossy { taken, .. } => Some(taken.count),
        }
    }

    /// Whether nothing is there, not even a loss to be told.
    pub(crate) fn is_empty(&self, log: &Log) -> bool {
        match self {
            Self::Plain(ring) => ring.is_empty(|| log.head()),
            Self::Lossy { ring, taken, displaced } => {
                *displaced == 0 && taken.count == 0 && ring.is_empty()
            }
        }
    }
}

/// What others may ask about a queue.
#[derive(Debug)]
pub(crate) enum Gauge {
    Plain(ring::Gauge),
    Lossy(lossy::Gauge),
}

impl Gauge {
    /// Whether no message fits. The answer may be out of date when it arrives.
    pub(crate) fn is_full(&self, log: &Log) -> bool {
        match self {
            Self::Plain(gauge) => gauge.is_full(|| log.head()),
            Self::Lossy(_) => false,
        }
    }

    /// Whether a quarter of all that fits does so now.
    pub(crate) fn has_much_room(&self, log: &Log) -> bool {
        match self {
            Self::Plain(gauge) => gauge.has_much_room(|| log.head()),
            Self::Lossy(_) => true,
        }
    }

    /// Messages in the ring.
    pub(crate) fn depth(&self, log: &Log) -> u64 {
        match self {
            Self::Plain(gauge) => gauge.depth(|| log.head()),
            Self::Lossy(gauge) => gauge.depth(),
        }
    }

    /// Messages pushed so far.
    pub(crate) fn pushed(&self, log: &Log) -> u64 {
        match self {
            Self::Plain(gauge) => gauge.pushed(0, || log.head()),
            Self::Lossy(gauge) => gauge.pushed(0),
        }
    }
}
