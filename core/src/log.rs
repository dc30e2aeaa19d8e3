//! The in-memory log of a shard: which record has which sequence, and which chunks are retained.
//!
//! The index is a circular array from sequence to record address, in pages that are allocated when
//! they are first reached and then used again and again. `low` is the oldest sequence that may be
//! read, `head` the next one to be written. The baton's holder writes; readers (replay and
//! catch-up) need no lock:
//!
//! - a reader pins the epoch, reads a slot, and then checks that its sequence is not below `low`.
//!   A slot is reused only after `low` has passed its old sequence, so a reader that was given the
//!   new content sees that (`slot-reused`);
//! - the token that the log holds of a chunk is given back through the epoch after `low` has
//!   passed, so a reader that passed the check may still take tokens of its own while pinned.
//!
//! A reader that follows the log, and so is not told of each message, gives an *alert* when it
//! begins to wait.
//!
//! Pairs: `head-published` (store of head after the records / load by readers), `slot-reused`
//! (store of low, then of the slot / load of the slot, then of low), `alert` (store of the alert behind
//! the reader's announcement / the swap that takes it), `all-queued` (store behind the pushes of what
//! is below / load before a look into the queues).

#![expect(unsafe_code, reason = "records behind an epoch pin")]

use crate::backing::{Backing, Recall, Recalled};
use crate::chunk::{CHUNK_BYTES, Chunk, FIRST_RECORD};
use crate::error::StoreFault;
use crate::kept::KeptRecord;
use crate::message::{Context, Message, OwnedMessage, Record};
use crate::prefetch;
use crate::sync::{AtomicBool, AtomicU64, AtomicUsize, CachePadded, Ordering, epoch};
use arrayvec::ArrayVec;
use std::collections::VecDeque;
use std::sync::OnceLock;

/// Sequences per page of the index.
const PAGE: usize = if cfg!(slipring_loom) { 4 } else { 4096 };

/// Addresses of records, by sequence.
type Page = [AtomicUsize; PAGE];

/// Messages that are written and pushed to a lane in one go.
const GROUP: usize = 64;
/// The same where each group is a write into a file; a chunk ends it sooner.
const STORED_GROUP: usize = 1024;

/// The smallest record, which bounds how many fit into a budget.
const MIN_RECORD: usize = if cfg!(slipring_loom) { 1024 } else { 32 };

/// Expired chunks that are let go together. Each time, the epochs of all threads are looked at, which
/// are in the caches of their processors. Models let each go at once.
const LET_GO: usize = if cfg!(slipring_loom) { 0 } else { 4 };

/// Chunks among which that of a claim is looked for, newest first. What is retained under another
/// entry already is only counted twice.
const RECENT: usize = 16;

/// What readers see of a log.
#[derive(Debug)]
pub struct Log {
    head: CachePadded<Head>,
    /// The oldest sequence that is retained.
    low: CachePadded<AtomicU64>,
    /// Address of the chunk that is being filled: on a line of its own, which readers that wait look at
    /// again and again.
    filling: CachePadded<AtomicUsize>,
    /// Below it everything is in the queues that it is for; kept where something backs the log.
    queued: CachePadded<AtomicU64>,
    /// Whether a reader that follows the log has begun to wait.
    alert: CachePadded<AtomicBool>,
    pages: Box<[OnceLock<std::sync::Arc<Page>>]>,
    /// Where its records are also when they have expired here.
    backing: Option<Backing>,
}

/// Where the log ends.
#[derive(Debug)]
struct Head {
    next: AtomicU64,
    /// Address of the latest record, or nearly: beside the sequence, so that a reader that comes for
    /// one message need not fetch another line for it.
    latest: AtomicUsize,
}

impl Log {
    /// The next sequence to be written.
    pub fn head(&self) -> u64 {
        // SYNC head-published: pairs with LogWriter::advance.
        self.head.next.load(Ordering::Acquire)
    }

    /// Below it, what is in no queue is for nobody who has none of it there. Between a message's being
    /// shown and its being queued this is behind the [`head`](Self::head). For logs that something
    /// backs.
    pub(crate) fn queued(&self) -> u64 {
        // SYNC all-queued: pairs with LogWriter::note_queued.
        self.queued.load(Ordering::Acquire)
    }

    /// Address of a record that has been published, and perhaps is the latest: its sequence tells.
    /// Valid while there is a token of its chunk.
    #[inline(always)]
    pub(crate) fn latest(&self) -> usize {
        // SYNC head-published: pairs with LogWriter::advance.
        self.head.latest.load(Ordering::Acquire)
    }

    /// What has the records that have expired here.
    #[inline]
    pub(crate) fn backing(&self) -> Option<&Backing> {
        self.backing.as_ref()
    }

    /// How many records are written and pushed to a lane in one go, at most.
    #[inline(always)]
    pub(crate) fn group(&self) -> usize {
        if self.backing.is_some() { STORED_GROUP } else { GROUP }
    }

    /// The oldest sequence that can be read, here or from what backs the log.
    #[inline]
    pub(crate) fn oldest(&self) -> u64 {
        self.backing().map_or_else(|| self.low(), Backing::low)
    }

    /// The oldest sequence that is retained in memory.
    #[inline]
    pub fn low(&self) -> u64 {
        // SYNC slot-reused: pairs with LogWriter::expire.
        self.low.load(Ordering::Acquire)
    }

    /// Tells the writer that a reader has begun to wait, which can be seen already. The caller
    /// executes a heavy fence afterwards, and then looks whether there is something.
    pub(crate) fn alert(&self) {
        // SYNC alert: pairs with the swap in `is_alerted`. (A swap, so that alerts and their being
        // taken are one chain.)
        self.alert.swap(true, Ordering::Release);
    }

    /// Address of the chunk that is being filled, which does not expire yet. A hint.
    #[inline]
    pub(crate) fn filling(&self) -> usize {
        self.filling.load(Ordering::Relaxed)
    }

    /// A hint that the record at `latest`, in another chunk than those before, is probably that at
    /// `sequence`: what is needed then comes at once, and not one after the other.
    #[cold]
    pub(crate) fn fetch(&self, latest: usize, sequence: u64) {
        Chunk::of(latest).fetch_tokens();
        prefetch::for_read(&raw const self.low as usize);
        prefetch::for_read(self.slots(sequence).as_ptr() as usize);
        prefetch::for_read(latest);
    }

    /// The slots of `sequence` and of those behind it, as far as its page goes. What is in them is
    /// what [`is_retained`](Self::is_retained) afterwards says it is.
    #[inline(always)]
    pub(crate) fn slots(&self, sequence: u64) -> &[AtomicUsize] {
        let at = sequence as usize & (self.pages.len() * PAGE - 1);
        self.pages[at / PAGE].get().map_or(&[], |page| &page[at % PAGE..])
    }

    /// Address of the record at `sequence`, which is below a `head` that was read before, or came
    /// through a ring; `None` if it has expired. Valid while there is a token of its chunk.
    #[inline(always)]
    pub(crate) fn address(&self, sequence: u64) -> Option<usize> {
        // SYNC slot-reused: pairs with LogWriter::append.
        let address = self.slots(sequence).first()?.load(Ordering::Acquire);
        self.is_retained(sequence).then_some(address)
    }

    /// Whether what was read before from the slot of `sequence` is its address.
    #[inline(always)]
    pub(crate) fn is_retained(&self, sequence: u64) -> bool {
        sequence >= self.low()
    }

    /// As [`address`](Self::address). Valid while `_pinned` is, or longer with a token taken
    /// meanwhile.
    pub(crate) fn record(&self, sequence: u64, _pinned: &epoch::Guard) -> Option<usize> {
        self.address(sequence)
    }

    /// The record at `sequence`, as [`record`](Self::record) has it.
    pub(crate) fn pinned_record<'a>(
        &self,
        sequence: u64,
        pinned: &'a epoch::Guard,
    ) -> Option<Record<'a>> {
        // SAFETY: not expired when it was looked up, so the log's token is not given back while
        // the guard lives.
        self.record(sequence, pinned).map(|address| unsafe { Record::at(address) })
    }

    /// The record at `sequence`, which then outlives the pin.
    pub(crate) fn keep(&self, sequence: u64, pinned: &epoch::Guard) -> Option<KeptRecord> {
        let address = self.record(sequence, pinned)?;
        // Not expired when it was looked up, so the log's token is not given back while pinned.
        Chunk::of(address).grant(1);
        Some(KeptRecord::of(address))
    }

    /// The message at `sequence`, which is below a `head` that was read before, kept; `None` if it
    /// has expired. Reads it back where it has left memory.
    ///
    /// # Errors
    /// If that is not possible now.
    pub(crate) fn keep_message(
        &self,
        sequence: u64,
        context: &crate::sync::Arc<Context>,
    ) -> Result<Option<OwnedMessage>, StoreFault> {
        let kept = match (self.keep(sequence, &epoch::pin()), self.backing()) {
            (None, Some(backing)) => {
                match Recalled::default().take(backing, sequence, sequence + 1)? {
                    Recall::Record(record) => Some(record),
                    Recall::Gone(_) => None,
                }
            }
            (kept, _) => kept,
        };
        Ok(kept.map(|record| Message { record: record.record(), context, lease: None }.keep()))
    }

    /// The same of one that has not left memory, if it is as `wanted`.
    pub(crate) fn keep_message_if(
        &self,
        sequence: u64,
        context: &crate::sync::Arc<Context>,
        wanted: impl FnOnce(&Message<'_>) -> bool,
    ) -> Option<OwnedMessage> {
        let pinned = epoch::pin();
        let record = self.pinned_record(sequence, &pinned)?;
        let message = Message { record, context, lease: None };
        wanted(&message).then(|| message.keep())
    }

    /// The first sequence whose record is as `wanted`; all records behind such a one are so too.
    pub(crate) fn first_where(&self, wanted: impl Fn(Record<'_>) -> bool) -> u64 {
        let pinned = epoch::pin();
        let (mut from, mut to) = (self.low(), self.head());
        while from < to {
            let middle = from + (to - from) / 2;
            // What has expired meanwhile lies before what is retained.
            if self.pinned_record(middle, &pinned).is_some_and(&wanted) {
                to = middle;
            } else {
                from = middle + 1;
            }
        }
        from
    }

    /// Bytes of the index that have been allocated.
    pub fn index_bytes(&self) -> u64 {
        let pages = self.pages.iter().filter(|page| page.get().is_some()).count();
        (pages * PAGE * size_of::<usize>()) as u64
    }

    /// The page that has the slot of `sequence`, made if it is not there.
    #[cold]
    #[inline(never)]
    fn page(&self, sequence: u64) -> std::sync::Arc<Page> {
        let make = || std::sync::Arc::new(std::array::from_fn(|_| AtomicUsize::new(0)));
        let at = sequence as usize & (self.pages.len() * PAGE - 1);
        std::sync::Arc::clone(self.pages[at / PAGE].get_or_init(make))
    }

    /// How many records the index can hold.
    fn window(&self) -> u64 {
        (self.pages.len() * PAGE) as u64
    }
}

#[derive(Debug)]
struct Retained {
    /// With one token, the log's.
    chunk: Chunk,
    /// Its size: beside it, because its own memory has not been touched for long.
    bytes: usize,
    /// The highest sequence of a record in it.
    last: u64,
}

/// The write end of a log; owned by whoever holds the baton.
#[derive(Debug)]
pub struct LogWriter {
    log: std::sync::Arc<Log>,
    next: u64,
    /// The page of the index that has the slot of `next`.
    page: std::sync::Arc<Page>,
    /// In the order in which they will expire.
    retained: VecDeque<Retained>,
    /// Expired, and still with the log's token.
    expired: ArrayVec<Chunk, { LET_GO + 1 }>,
    /// Bytes of those.
    waiting: usize,
    bytes: usize,
    budget: usize,
}

impl LogWriter {
    /// A log for `budget` bytes of chunks, whose first sequence is `start`.
    pub fn new(budget: usize, start: u64) -> Self {
        Self::backed(budget, start, None)
    }

    /// The same, with what has its records when they have expired.
    pub(crate) fn backed(budget: usize, start: u64, backing: Option<Backing>) -> Self {
        let window = (budget / MIN_RECORD).max(4 * CHUNK_BYTES / MIN_RECORD).next_power_of_two();
        let log = Log {
            head: CachePadded::new(Head {
                next: AtomicU64::new(start),
                latest: AtomicUsize::new(0),
            }),
            low: CachePadded::new(AtomicU64::new(start)),
            filling: CachePadded::new(AtomicUsize::new(0)),
            queued: CachePadded::new(AtomicU64::new(start)),
            alert: CachePadded::new(AtomicBool::new(false)),
            pages: (0..window.div_ceil(PAGE)).map(|_| OnceLock::new()).collect(),
            backing,
        };
        Self {
            page: log.page(start),
            log: std::sync::Arc::new(log),
            next: start,
            retained: VecDeque::new(),
            expired: ArrayVec::new(),
            waiting: 0,
            bytes: 0,
            budget,
        }
    }

    /// The read side.
    pub fn log(&self) -> &std::sync::Arc<Log> {
        &self.log
    }

    /// The sequence that the next record gets.
    #[inline]
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Gives the record at `address` the next sequence, and shows it to readers.
    #[inline(always)]
    pub fn append(&mut self, address: usize) {
        // SYNC slot-reused: pairs with Log::address.
        self.slots()[0].store(address, Ordering::Release);
        self.show(address, 1);
    }

    /// Slots for the addresses of the records that come next, at least one. To be stored with
    /// release (`slot-reused`), and shown by [`advance`](Self::advance).
    #[inline(always)]
    pub(crate) fn slots(&self) -> &[AtomicUsize] {
        &self.page[self.next as usize % PAGE..]
    }

    /// The next `count` records, whose addresses are in [`slots`](Self::slots), where they lie one
    /// behind the other.
    #[cold]
    pub(crate) fn unshown(&self, count: u64) -> &[u8] {
        let at = self.address(self.next);
        // SAFETY: whoever holds the baton has written them, into a chunk that it keeps.
        unsafe {
            let last = Record::at(self.address(self.next + count - 1));
            let len = last.address() + last.bytes() - at;
            std::slice::from_raw_parts(std::ptr::with_exposed_provenance(at), len)
        }
    }

    /// Gives the next `count` sequences to the records whose addresses are in [`slots`](Self::slots),
    /// and shows them to readers.
    #[inline(always)]
    pub(crate) fn advance(&mut self, count: u64) {
        self.show(self.address(self.next + count - 1), count);
    }

    #[inline(always)]
    fn show(&mut self, latest: usize, count: u64) {
        self.next += count;
        // No more than the page has room for are shown at once.
        if self.next.is_multiple_of(PAGE as u64) {
            self.page = self.log.page(self.next);
        }
        debug_assert!(self.next - self.log.low.load(Ordering::Relaxed) <= self.log.window());
        // SYNC head-published: pairs with Log::latest.
        self.log.head.latest.store(latest, Ordering::Release);
        // SYNC head-published: pairs with Log::head.
        self.log.head.next.store(self.next, Ordering::Release);
    }

    /// A hint that something will be shown soon.
    #[inline(always)]
    pub(crate) fn fetch_head(&self) {
        prefetch::for_write(&raw const self.log.head as usize);
    }

    /// All that is shown has been queued.
    #[inline]
    pub(crate) fn note_queued(&self) {
        if self.log.backing.is_some() {
            // SYNC all-queued: pairs with Log::queued.
            self.log.queued.store(self.next, Ordering::Release);
        }
    }

    /// The address of the record at `sequence`, which has not expired.
    #[inline(always)]
    pub(crate) fn address(&self, sequence: u64) -> usize {
        // Relaxed: this side alone writes it.
        self.log.slots(sequence).first().map_or(0, |slot| slot.load(Ordering::Relaxed))
    }

    /// Whether a reader has begun to wait since this was last asked, or before. The caller has
    /// shown what readers wait for and then executed a light fence.
    #[inline(always)]
    pub(crate) fn is_alerted(&self) -> bool {
        // SYNC alert: pairs with `alert`, so that whoever gave an alert that is taken is seen to
        // wait. A swap, because a store might come later than the next alert, and undo it.
        self.log.alert.load(Ordering::Relaxed) && self.log.alert.swap(false, Ordering::Acquire)
    }

    /// Tells readers which chunk is being filled.
    pub(crate) fn fill(&mut self, chunk: usize) {
        // Relaxed: a hint.
        self.log.filling.store(chunk, Ordering::Relaxed);
    }

    /// Retains `chunk`, of which the caller gives one token away, for records up to `last`.
    pub fn retain(&mut self, chunk: Chunk, last: u64) {
        let bytes = chunk.bytes();
        self.bytes += bytes;
        self.retained.push_back(Retained { chunk, bytes, last });
    }

    /// Lets go of what was retained for a record that is not shown after all.
    pub(crate) fn withdraw(&mut self) {
        if let Some(newest) = self.retained.pop_back_if(|newest| newest.last >= self.next) {
            self.bytes -= newest.bytes;
            newest.chunk.release(1);
        }
    }

    /// Retains the chunk of a record that was claimed apart, and now has the sequence `last`.
    pub fn retain_claimed(&mut self, chunk: Chunk, last: u64) {
        // Claims of the chunk may have been published before others, of chunks that came since.
        let newest = self.retained.iter().rev().take(RECENT);
        match newest.clone().position(|retained| retained.chunk == chunk) {
            Some(0) => {
                if let Some(newest) = self.retained.back_mut() {
                    newest.last = last;
                }
            }
            Some(behind) => {
                // It is retained for its latest record, so it expires after the others now.
                let at = self.retained.len() - 1 - behind;
                if let Some(retained) = self.retained.remove(at) {
                    self.retained.push_back(Retained { last, ..retained });
                }
            }
            None => {
                chunk.grant(1);
                self.retain(chunk, last);
            }
        }
    }

    /// Bytes of chunks that are retained.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether chunks must expire before `bytes` more can be retained, or because the index is
    /// nearly full.
    pub fn over_budget(&self, bytes: usize) -> bool {
        // One chunk's worth of the smallest records may still come before anybody asks again.
        let slack = (CHUNK_BYTES - FIRST_RECORD) / MIN_RECORD + 1;
        let used = self.next - self.log.low.load(Ordering::Relaxed);
        !self.retained.is_empty()
            && (self.bytes + bytes > self.budget || used + slack as u64 > self.log.window())
    }

    /// The sequences `low..end` that expire next.
    pub(crate) fn expiring(&self) -> Option<(u64, u64)> {
        let oldest = self.retained.front()?;
        let low = self.log.low.load(Ordering::Relaxed);
        Some((low, (oldest.last + 1).max(low)))
    }

    /// The same, and whether their chunk is only kept by the log.
    pub fn oldest(&self) -> Option<(u64, u64, bool)> {
        let (low, end) = self.expiring()?;
        Some((low, end, self.retained.front()?.chunk.tokens() == 1))
    }

    /// Lets the oldest chunk go: its records, and older ones elsewhere, have expired.
    pub fn expire(&mut self) {
        let Some(oldest) = self.retained.pop_front() else { return };
        self.bytes -= oldest.bytes;
        let low = self.log.low.load(Ordering::Relaxed);
        // SYNC slot-reused: pairs with Log::low.
        self.log.low.store((oldest.last + 1).max(low), Ordering::Release);
        self.expired.push(oldest.chunk);
        self.waiting += oldest.bytes;
        // Else it can wait until no message does.
        if self.expired.is_full() || self.waiting > self.budget / 4 {
            self.let_go();
        }
    }

    /// Lets go of what has expired, if that is enough to be worth it, or much of the budget. To be called
    /// when what made it expire has been shown: it takes its time.
    pub(crate) fn let_go_when_due(&mut self) {
        let is_enough = self.expired.len() >= LET_GO || self.waiting >= self.budget / 4;
        if is_enough && !self.expired.is_empty() {
            self.let_go();
        }
    }

    /// Gives the tokens of what has expired back when nobody reads it any more.
    #[cold]
    fn let_go(&mut self) {
        let expired = std::mem::take(&mut self.expired);
        self.waiting = 0;
        let give_back = move || {
            // Their lines come at once, and not one after the other.
            expired.iter().for_each(|chunk| chunk.fetch_header());
            expired.iter().for_each(|chunk| chunk.release(1));
        };
        epoch::defer(give_back);
    }

    /// A hint that something will expire soon.
    pub(crate) fn fetch_low(&self) {
        prefetch::for_write(&raw const self.log.low as usize);
    }
}

impl Drop for LogWriter {
    fn drop(&mut self) {
        while !self.retained.is_empty() {
            self.expire();
        }
        self.let_go();
    }
}
