//! From one chunk to the next: what a publish does when the appender's short way ends, and what it
//! does ahead, so that the one that begins a chunk finds it ready.

use crate::batch::Batch;
use crate::chunk::{CHUNK_BYTES, Step};
use crate::idle::spin_for;
use crate::message::{Layout, NewMessage};
use crate::outcome::{Appended, Stop};
use crate::partition::Partition;
use crate::shard::{CHUNK_ROOM, Core, Waits};
use std::slice;

/// What a publish of a small message that begins a chunk waits when it has been shown, in units of
/// [`spin_for`]. A consumer that is as fast as its publisher reads right behind it, and each takes the
/// lines of the other from then on; here it comes to the end of what there is, and pauses.
const BREAK: u32 = 32;
const SMALL: usize = CHUNK_ROOM / 64;

impl Core {
    /// Publishes `message` whatever is special about it, and takes the steps towards the next chunk that
    /// are due then. Compiled into its caller, so that the result is not read from memory behind the stores
    /// of the record.
    #[inline(always)]
    pub(crate) fn append_specially(
        &mut self,
        partition: &Partition,
        message: &NewMessage<'_>,
        layout: Layout,
    ) -> Appended {
        self.pass_mark(partition, layout.bytes());
        let appended = match self.append_one(partition, message, layout) {
            Some((first_offset, outcome)) => {
                Appended { count: 1, first_offset, outcome, stop: None }
            }
            None => {
                let messages = slice::from_ref(message);
                self.append_once(partition, Batch::of(&messages), &mut Waits::default())
            }
        };
        if self.prepare() && layout.bytes() <= SMALL && !cfg!(slipring_loom) {
            spin_for(BREAK);
        }
        appended
    }

    /// Lets a message of so many `bytes` pass the appender's mark, and begins the next chunk for it, if
    /// that is there already and nobody is to be waited for.
    fn pass_mark(&mut self, partition: &Partition, bytes: usize) {
        self.appender.pass_mark();
        if self.appender.room(bytes).is_some()
            || !self.appender.is_prepared()
            || bytes > CHUNK_ROOM
            || self.is_held_up(partition)
        {
            return;
        }
        // If not, the longer way tells.
        if self.next_chunk(bytes).is_ok() {
            self.appender.pass_mark();
        }
    }

    /// Takes the steps that are due for the chunks before and behind; whether a chunk has been begun.
    #[cold]
    #[inline(never)]
    pub(crate) fn prepare(&mut self) -> bool {
        let mut has_begun = false;
        while let Some(step) = self.appender.next_step() {
            match step {
                Step::Begun => {
                    self.log.fill(self.appender.filling());
                    self.log.let_go_when_due();
                    has_begun = true;
                }
                Step::Take => self.appender.take_ahead(),
                Step::Fetch => {
                    self.log.fetch_low();
                    self.appender.fetch_ahead();
                }
            }
        }
        has_begun
    }

    /// Begins another chunk, unless the first of `messages` needs memory of its own.
    #[cold]
    pub(crate) fn begin_chunk_for(&mut self, messages: Batch<'_>) -> Result<bool, Stop> {
        let first = messages.first().and_then(|message| message.measure().ok());
        let bytes = first.map(Layout::bytes).filter(|bytes| *bytes <= CHUNK_ROOM);
        bytes.map_or(Ok(false), |bytes| self.next_chunk(bytes).map(|_| true))
    }

    /// Ends the current chunk and begins another, letting old ones expire to stay in the budget.
    #[cold]
    pub(crate) fn next_chunk(&mut self, bytes: usize) -> Result<*mut u8, Stop> {
        // The present chunk counts from now on, and the new one as well.
        let sealed = self.appender.seal();
        if let Some(chunk) = sealed {
            self.log.retain(chunk, self.log.next().wrapping_sub(1));
        }
        if let Some(stop) = self.make_room(CHUNK_BYTES) {
            return Err(stop);
        }
        if self.appender.begin().is_none() {
            return Err(Stop::NoMemory);
        }
        self.show_retained();
        self.appender.room(bytes).ok_or(Stop::NoMemory)
    }
}
