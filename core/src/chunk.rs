//! Chunks: the memory of a shard's log. A record is written into a chunk once and read in place by
//! every subscriber.
//!
//! A chunk is a block of memory aligned to [`CHUNK_BYTES`], so that the address of any record tells
//! its chunk. It begins with a header, and is recycled when its last *token* is given back. Tokens
//! are what keeps a chunk: the one that its appender has and the log gets from it, one of each
//! consumer that is reading there, one for each outstanding claim and each message that somebody
//! keeps.
//!
//! A queued message has no token: the log keeps the chunk as long as it retains the message. A
//! consumer takes a token when it comes to another chunk, while pinned, and looks whether the
//! message has expired meanwhile ([`Pins`]). So tokens cost an atomic operation a chunk, and none a
//! message.
//!
//! Two ways to get space: an [`Appender`], owned by whoever holds the shard's baton, bumps a plain
//! position; a [`ClaimArea`], open to everyone, hands out space by `fetch_add` before it is known
//! when, or whether, it will be published (loans and tickets). What a claim never publishes is
//! simply not used: nothing waits for it, because the order of messages is that of the log's
//! index, not that of their addresses.
//!
//! Pairs: `chunk-read` (a release of tokens / the fence before recycling) makes every read of a
//! chunk happen before it is written again; `claim-current` (the swap of the current claim chunk /
//! its load) makes the chunk's header visible.
#![expect(unsafe_code, reason = "raw memory that many threads share under a token protocol")]

use crate::prefetch;
use crate::sync::{
    Arc, AtomicPtr, AtomicU64, CachePadded, Mutex, Ordering, UnsafeCell, epoch, fence, watched,
};
use std::collections::HashMap;
use std::ptr::{self, NonNull};

/// Size and alignment of a chunk. Larger records get a block of several chunks for themselves; a
/// record's header then still lies in the first of them.
pub const CHUNK_BYTES: usize = if cfg!(slipring_loom) { 4 * 1024 } else { 64 * 1024 };

/// Where the first record of a chunk begins.
pub const FIRST_RECORD: usize = 384;

/// How far ahead of what it writes a publisher fetches the lines of its chunk, in bytes.
pub(crate) const AHEAD: usize = 1024;

#[repr(C)]
#[derive(Debug)]
struct Header {
    tokens: CachePadded<AtomicU64>,
    /// Next free byte, for claims.
    claimed: CachePadded<AtomicU64>,
    /// Size in units of CHUNK_BYTES; never changes.
    units: u32,
    /// Whom the chunk goes back to; set while it is in use. Written by the pool alone, while
    /// nobody holds a token.
    home: UnsafeCell<Option<Arc<Pool>>>,
}

const _: () = assert!(size_of::<Header>() <= FIRST_RECORD);

/// The address of a chunk. Copying it is free; using its memory needs a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunk(NonNull<Header>);

// SAFETY: the header is atomics and fields that only the pool writes, while it owns the chunk
// alone; the data is governed by tokens.
unsafe impl Send for Chunk {}
// SAFETY: as above.
unsafe impl Sync for Chunk {}

impl Chunk {
    /// The chunk that holds the record at `address`.
    #[inline]
    pub fn of(address: usize) -> Self {
        let base = address & !(CHUNK_BYTES - 1);
        debug_assert!(base != 0, "an address inside a chunk");
        // A null base would already have been dereferenced by whoever read the record.
        Self(NonNull::new(ptr::with_exposed_provenance_mut(base)).unwrap_or(NonNull::dangling()))
    }

    fn header(&self) -> &Header {
        // SAFETY: the header outlives the chunk's use: memory goes back to the system only when
        // the pool is dropped, and every chunk in use holds the pool.
        unsafe { self.0.as_ref() }
    }

    fn base(self) -> *mut u8 {
        self.0.as_ptr().cast()
    }

    /// Size in bytes, header included.
    pub fn bytes(self) -> usize {
        self.header().units as usize * CHUNK_BYTES
    }

    /// Adds `count` tokens. The caller has one, or is pinned while the chunk is reachable.
    #[inline]
    pub fn grant(self, count: u64) {
        // Relaxed: a new token is made from one that is held, which keeps the chunk.
        self.header().tokens.fetch_add(count, Ordering::Relaxed);
    }

    /// Gives `count` tokens back; the chunk goes to its pool with the last.
    #[inline]
    pub fn release(self, count: u64) {
        // SYNC chunk-read: pairs with the fence below, on whichever thread gives the last back.
        let before = self.header().tokens.fetch_sub(count, Ordering::Release);
        debug_assert!(before >= count, "more tokens given back than there were");
        if before == count {
            self.recycle();
        }
    }

    #[cold]
    fn recycle(self) {
        // SYNC chunk-read: pairs with every release.
        if cfg!(slipring_tsan) {
            // ThreadSanitizer sees no fences.
            self.tokens();
        } else {
            fence(Ordering::Acquire);
        }
        // SAFETY: the last token is gone, so this thread alone reaches the header.
        let home = self.header().home.with_mut(|home| unsafe { (*home).take() });
        if let Some(pool) = home {
            pool.put(self);
        }
    }

    /// A hint that its first records will be written soon.
    fn fetch_first(self) {
        let base = self.base() as usize;
        (base..base + FIRST_RECORD + AHEAD).step_by(64).for_each(prefetch::for_write);
    }

    /// A hint that its last token will be given back soon.
    pub(crate) fn fetch_header(self) {
        let base = self.base() as usize;
        (base..base + size_of::<Header>()).step_by(64).for_each(prefetch::for_write);
    }

    /// A hint that tokens will be taken soon.
    #[inline]
    pub(crate) fn fetch_tokens(self) {
        prefetch::for_write(self.base() as usize);
    }

    /// Tokens now; for the decision to refuse, which reads it under the baton, and for tests.
    pub fn tokens(self) -> u64 {
        self.header().tokens.load(Ordering::Acquire)
    }
}

/// Where chunks come from and go back to: free lists by size.
#[derive(Debug)]
pub struct Pool {
    free: Mutex<Free>,
    /// Bytes of chunks handed out and not yet back.
    in_use: AtomicU64,
    /// Bytes kept free at most; beyond, memory goes back to the system.
    keep: usize,
}

#[derive(Debug, Default)]
struct Free {
    by_units: HashMap<u32, Vec<Chunk>>,
    bytes: usize,
}

impl Free {
    fn pop(&mut self, units: u32) -> Option<Chunk> {
        let chunk = self.by_units.get_mut(&units)?.pop()?;
        self.bytes -= units as usize * CHUNK_BYTES;
        Some(chunk)
    }
}

impl Pool {
    /// A pool that keeps at most `keep` bytes of free chunks for reuse.
    pub fn new(keep: usize) -> Arc<Self> {
        Arc::new(Self { free: Mutex::default(), in_use: AtomicU64::new(0), keep })
    }

    /// Bytes of chunks in use.
    pub fn in_use(&self) -> u64 {
        self.in_use.load(Ordering::Relaxed)
    }

    /// A chunk with room for `record` bytes after its header, and `tokens` tokens; `None` when the
    /// system has no memory. Memory is zeroed when it is new, and holds what was there before when
    /// it is recycled.
    fn take(pool: &Arc<Self>, record: usize, tokens: u64) -> Option<Chunk> {
        let units = (FIRST_RECORD + record).div_ceil(CHUNK_BYTES) as u32;
        let recycled = lock(&pool.free).pop(units);
        let chunk = match recycled {
            Some(chunk) => chunk,
            None => new_chunk(units)?,
        };
        Some(Self::hand_out(pool, chunk, tokens))
    }

    /// A chunk for the records that will come, with one token. A new one has all its pages: none is
    /// missing first when a record comes to it.
    fn take_ahead(pool: &Arc<Self>) -> Option<Chunk> {
        let recycled = lock(&pool.free).pop(1);
        let chunk = match recycled {
            Some(chunk) => chunk,
            None => {
                let chunk = new_chunk(1)?;
                memory::populate(chunk.base(), CHUNK_BYTES);
                chunk
            }
        };
        Some(Self::hand_out(pool, chunk, 1))
    }

    /// Puts a chunk to use that nobody else knows.
    fn hand_out(pool: &Arc<Self>, chunk: Chunk, tokens: u64) -> Chunk {
        let header = chunk.header();
        // SAFETY: the chunk came from the free list or is new: nobody else reaches its header.
        header.home.with_mut(|home| unsafe { *home = Some(Arc::clone(pool)) });
        // Relaxed: the chunk is handed to others by the log, a ring or the claim area, each with
        // a release of its own.
        header.tokens.store(tokens, Ordering::Relaxed);
        header.claimed.store(FIRST_RECORD as u64, Ordering::Relaxed);
        pool.in_use.fetch_add(chunk.bytes() as u64, Ordering::Relaxed);
        chunk
    }

    fn put(&self, chunk: Chunk) {
        let bytes = chunk.bytes();
        self.in_use.fetch_sub(bytes as u64, Ordering::Relaxed);
        let mut free = lock(&self.free);
        if free.bytes + bytes <= self.keep {
            free.bytes += bytes;
            // The most recently used chunk is taken again first: its lines are still cached.
            free.by_units.entry(chunk.header().units).or_default().push(chunk);
        } else {
            drop(free);
            free_chunk(chunk);
        }
    }

    /// A chunk for one record alone, with one token.
    pub fn detached(pool: &Arc<Self>, record: usize) -> Option<(Chunk, *mut u8)> {
        let chunk = Self::take(pool, record, 1)?;
        // SAFETY: FIRST_RECORD lies inside every chunk.
        Some((chunk, unsafe { chunk.base().add(FIRST_RECORD) }))
    }

    /// Copies of `records` in a chunk of their own, with a token for each: their addresses. `None`
    /// when the system has no memory. Their lengths are multiples of 8, and all or all but the first
    /// fit into [`CHUNK_BYTES`].
    pub fn copies<'a>(
        pool: &Arc<Self>,
        records: impl ExactSizeIterator<Item = &'a [u8]> + Clone,
    ) -> Option<Vec<usize>> {
        let bytes = records.clone().map(<[u8]>::len).sum();
        let chunk = Self::take(pool, bytes, records.len() as u64)?;
        let mut at = FIRST_RECORD;
        let copies = records.map(|record| {
            // SAFETY: as many bytes as all records have were asked for behind FIRST_RECORD, and
            // nobody else knows the chunk.
            let to = unsafe {
                let to = chunk.base().add(at);
                to.copy_from_nonoverlapping(record.as_ptr(), record.len());
                to
            };
            debug_assert!(at < CHUNK_BYTES, "found by its address");
            at += record.len();
            to as usize
        });
        Some(copies.collect())
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // Every chunk in use holds the pool, so what is left is what is free.
        let free = std::mem::take(&mut *lock(&self.free));
        free.by_units.into_values().flatten().for_each(free_chunk);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> impl std::ops::DerefMut<Target = T> {
    // A list of free chunks is whole at every moment, so a panic elsewhere does not spoil it.
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn new_chunk(units: u32) -> Option<Chunk> {
    let base = memory::map(units as usize * CHUNK_BYTES)?;
    base.expose_provenance();
    let header = base.cast::<Header>();
    let value = Header {
        tokens: CachePadded::new(AtomicU64::new(0)),
        claimed: CachePadded::new(AtomicU64::new(0)),
        units,
        home: UnsafeCell::new(None),
    };
    // SAFETY: the memory is new, large enough and aligned to CHUNK_BYTES.
    unsafe { header.write(value) };
    NonNull::new(header).map(Chunk)
}

fn free_chunk(chunk: Chunk) {
    let bytes = chunk.bytes();
    watched::free(chunk.base() as usize, bytes);
    // SAFETY: nobody holds a token, so nobody reaches the header again.
    unsafe { ptr::drop_in_place(chunk.0.as_ptr()) };
    memory::unmap(chunk.base(), bytes);
}

/// Aligned, zeroed memory from the system.
mod memory {
    use super::CHUNK_BYTES;

    #[cfg(not(any(miri, slipring_loom)))]
    pub(super) fn map(bytes: usize) -> Option<*mut u8> {
        use std::ptr;
        // Map one alignment more and give back what lies outside the aligned block: the pages are
        // zero, and none is touched before a record needs it.
        let padded = bytes.checked_add(CHUNK_BYTES)?;
        // SAFETY: an anonymous private mapping at an address of the kernel's choice.
        let start = unsafe {
            libc::mmap(
                ptr::null_mut(),
                padded,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return None;
        }
        let start = start.cast::<u8>();
        let head = start.align_offset(CHUNK_BYTES);
        // SAFETY: head < CHUNK_BYTES, inside the mapping.
        let base = unsafe { start.add(head) };
        unmap(start, head);
        // SAFETY: head + bytes <= padded.
        unmap(unsafe { base.add(bytes) }, padded - head - bytes);
        Some(base)
    }

    /// Has the system back the range with memory now, all pages in one go. Where it does not know how,
    /// it does that page by page, when each is first touched.
    #[cfg(not(any(miri, slipring_loom)))]
    pub(super) fn populate(base: *mut u8, bytes: usize) {
        // SAFETY: the range was mapped by `map`; its content does not change.
        unsafe { libc::madvise(base.cast(), bytes, libc::MADV_POPULATE_WRITE) };
    }

    #[cfg(any(miri, slipring_loom))]
    pub(super) fn populate(_: *mut u8, _: usize) {}

    #[cfg(not(any(miri, slipring_loom)))]
    pub(super) fn unmap(base: *mut u8, bytes: usize) {
        if bytes > 0 {
            // SAFETY: the range was mapped by `map` and nothing reaches into it any more.
            let result = unsafe { libc::munmap(base.cast(), bytes) };
            debug_assert_eq!(result, 0, "a mapped range can be unmapped");
        }
    }

    #[cfg(any(miri, slipring_loom))]
    fn layout(bytes: usize) -> Option<std::alloc::Layout> {
        std::alloc::Layout::from_size_align(bytes, CHUNK_BYTES).ok()
    }

    #[cfg(any(miri, slipring_loom))]
    pub(super) fn map(bytes: usize) -> Option<*mut u8> {
        // SAFETY: bytes is not zero.
        let base = unsafe { std::alloc::alloc_zeroed(layout(bytes)?) };
        (!base.is_null()).then_some(base)
    }

    #[cfg(any(miri, slipring_loom))]
    pub(super) fn unmap(base: *mut u8, bytes: usize) {
        if let Some(layout) = layout(bytes) {
            // SAFETY: allocated by `map` with this layout.
            unsafe { std::alloc::dealloc(base, layout) };
        }
    }
}

/// Space for records in order of publication; owned by whoever holds the baton.
#[derive(Debug)]
pub struct Appender {
    pool: Arc<Pool>,
    /// With one token.
    chunk: Option<Chunk>,
    /// Address of the next free byte, and the first that is not.
    next: usize,
    end: usize,
    /// Where the short way of a publish ends: at a message that ends behind it there is a step to be
    /// taken, or another chunk to begin. So the usual message makes one comparison for both.
    mark: usize,
    /// The step that is due there.
    step: usize,
    /// The chunk that comes after this one, when that step has been taken; with one token.
    ready: Option<Chunk>,
}

/// What is done for the chunks before and behind while the present one fills, by publishes whose
/// messages have been shown already. So nobody waits for it, and the message that begins a chunk finds
/// all that it needs near.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Readers are told which chunk is being filled, and what has expired is let go of.
    Begun,
    /// The next chunk is taken.
    Take,
    /// The lines that it begins with are fetched, to be written.
    Fetch,
}

/// The steps, and how many sixteenths of the present chunk are used when each is due.
const STEPS: &[(usize, Step)] = if cfg!(slipring_loom) {
    // The models have few chunks. They use them again as soon as they can: none is taken ahead.
    &[(0, Step::Begun)]
} else {
    &[(0, Step::Begun), (8, Step::Take), (15, Step::Fetch)]
};

impl Appender {
    /// An appender that has no chunk yet.
    pub fn new(pool: Arc<Pool>) -> Self {
        Self { pool, chunk: None, next: 0, end: 0, mark: 0, step: 0, ready: None }
    }

    /// Where `bytes` (a multiple of 8) can be written, if the current chunk has room. Nothing is
    /// taken until [`commit`](Self::commit).
    #[inline]
    pub fn room(&self, bytes: usize) -> Option<*mut u8> {
        debug_assert_eq!(bytes % 8, 0);
        (self.end - self.next >= bytes).then(|| ptr::with_exposed_provenance_mut(self.next))
    }

    /// The same for a message on the short way, which ends at the mark.
    #[inline(always)]
    pub(crate) fn room_before_mark(&self, bytes: usize) -> Option<*mut u8> {
        debug_assert_eq!(bytes % 8, 0);
        (self.next + bytes <= self.mark).then(|| ptr::with_exposed_provenance_mut(self.next))
    }

    /// Lets the next message go the short way if the current chunk has room, whatever step is due.
    pub(crate) fn pass_mark(&mut self) {
        self.mark = self.end;
    }

    /// Whether there is a step to be taken.
    #[inline(always)]
    pub(crate) fn is_due(&self) -> bool {
        self.next > self.mark
    }

    /// The step that is to be taken now. If there is none, the mark is where the next one is due.
    pub(crate) fn next_step(&mut self) -> Option<Step> {
        let due_at = |sixteenths: usize| self.end - CHUNK_BYTES / 16 * (16 - sixteenths);
        let next = STEPS.get(self.step).filter(|_| self.chunk.is_some());
        self.mark = next.map_or(self.end, |&(sixteenths, _)| due_at(sixteenths));
        let (_, step) = *next.filter(|_| self.is_due())?;
        self.step += 1;
        Some(step)
    }

    /// Takes the chunk that comes after this one. Without memory that is tried again when it is needed.
    pub(crate) fn take_ahead(&mut self) {
        self.ready = self.ready.take().or_else(|| Pool::take_ahead(&self.pool));
    }

    /// A hint that the chunk that comes after this one will be begun soon.
    pub(crate) fn fetch_ahead(&self) {
        if let Some(chunk) = self.ready {
            chunk.fetch_first();
        }
    }

    /// Whether the next chunk is there already.
    pub(crate) fn is_prepared(&self) -> bool {
        self.ready.is_some()
    }

    /// The free end of the current chunk: where it begins, and how many bytes it has.
    #[inline]
    pub fn span(&self) -> (*mut u8, usize) {
        (ptr::with_exposed_provenance_mut(self.next), self.end - self.next)
    }

    /// Takes the `bytes` that `room` or `span` showed.
    #[inline]
    pub fn commit(&mut self, bytes: usize) {
        debug_assert!(self.end - self.next >= bytes);
        self.next += bytes;
    }

    /// Takes back what was taken from `address` on, if that is in the current chunk: nobody has been
    /// shown what is there.
    pub(crate) fn withdraw(&mut self, address: usize) {
        if self.chunk.is_some_and(|chunk| chunk == Chunk::of(address)) {
            debug_assert!(address <= self.next, "taken before");
            self.next = address;
        }
    }

    /// Ends the current chunk and gives it away with its token, if there is one.
    pub fn seal(&mut self) -> Option<Chunk> {
        (self.next, self.end, self.mark) = (0, 0, 0);
        self.chunk.take()
    }

    /// Begins a new chunk; `None` if there is no memory. The last one has been sealed.
    pub fn begin(&mut self) -> Option<()> {
        debug_assert!(self.chunk.is_none(), "the chunk before is sealed first");
        let chunk = match self.ready.take() {
            Some(ready) => ready,
            None => Pool::take(&self.pool, CHUNK_BYTES - FIRST_RECORD, 1)?,
        };
        let base = chunk.base() as usize;
        self.chunk = Some(chunk);
        (self.next, self.end) = (base + FIRST_RECORD, base + CHUNK_BYTES);
        (self.mark, self.step) = (base, 0);
        Some(())
    }

    /// Address of the current chunk, 0 without one.
    pub(crate) fn filling(&self) -> usize {
        self.chunk.map_or(0, |chunk| chunk.base() as usize)
    }

    /// Bytes of the current chunk, 0 without one.
    pub fn bytes(&self) -> usize {
        self.chunk.map_or(0, Chunk::bytes)
    }
}

impl Drop for Appender {
    fn drop(&mut self) {
        for chunk in [self.seal(), self.ready.take()].into_iter().flatten() {
            chunk.release(1);
        }
    }
}

/// Space that is claimed before it is known when it will be published.
#[derive(Debug)]
pub struct ClaimArea {
    pool: Arc<Pool>,
    /// The chunk that claims go to, with one token; null before the first claim.
    current: CachePadded<AtomicPtr<Header>>,
}

impl ClaimArea {
    /// An area that has no chunk yet.
    pub fn new(pool: Arc<Pool>) -> Self {
        Self { pool, current: CachePadded::new(AtomicPtr::new(ptr::null_mut())) }
    }

    /// Claims `bytes` (a multiple of 8); `None` when the system has no memory.
    pub fn claim(&self, bytes: usize) -> Option<Claim> {
        debug_assert_eq!(bytes % 8, 0);
        // What would waste much of a chunk's end gets a block of its own.
        if bytes > (CHUNK_BYTES - FIRST_RECORD) / 4 {
            let (chunk, at) = Pool::detached(&self.pool, bytes)?;
            return Some(Claim { chunk, at, bytes });
        }
        // While pinned, the token that `current` has cannot be given back.
        let _pinned = epoch::pin();
        loop {
            // SYNC claim-current: pairs with the swap in `roll`.
            let current = self.current.load(Ordering::Acquire);
            if let Some(header) = NonNull::new(current) {
                let chunk = Chunk(header);
                // Relaxed: claims are disjoint, and what is written there is published later.
                let at = chunk.header().claimed.fetch_add(bytes as u64, Ordering::Relaxed) as usize;
                if at + bytes <= CHUNK_BYTES {
                    chunk.grant(1);
                    // SAFETY: at + bytes lies inside the chunk.
                    return Some(Claim { chunk, at: unsafe { chunk.base().add(at) }, bytes });
                }
            }
            self.roll(current)?;
        }
    }

    /// Replaces the chunk `full`, unless somebody has done so already.
    fn roll(&self, full: *mut Header) -> Option<()> {
        let fresh = Pool::take(&self.pool, CHUNK_BYTES - FIRST_RECORD, 1)?;
        // SYNC claim-current: pairs with the load in `claim`.
        let swap = self.current.compare_exchange(
            full,
            fresh.0.as_ptr(),
            Ordering::AcqRel,
            Ordering::Relaxed,
        );
        match swap {
            Ok(_) => retire(full),
            Err(_) => fresh.release(1),
        }
        Some(())
    }
}

/// Gives back the area's token of a chunk that claimers may still be looking at.
fn retire(header: *mut Header) {
    if let Some(header) = NonNull::new(header) {
        let chunk = Chunk(header);
        epoch::defer(move || chunk.release(1));
    }
}

impl Drop for ClaimArea {
    fn drop(&mut self) {
        retire(self.current.load(Ordering::Acquire));
    }
}

/// Space for one record, with one token. Dropped without being published, it is just not used.
#[derive(Debug)]
pub struct Claim {
    chunk: Chunk,
    at: *mut u8,
    bytes: usize,
}

// SAFETY: the claimed bytes belong to the claim alone.
unsafe impl Send for Claim {}
// SAFETY: as above; a shared claim gives no access to the bytes.
unsafe impl Sync for Claim {}

impl Claim {
    /// The chunk it lies in.
    pub fn chunk(&self) -> Chunk {
        self.chunk
    }

    /// The first byte; `bytes` are writable through it while the claim lives.
    pub fn at(&self) -> *mut u8 {
        self.at
    }

    /// Size of the space.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// `len` bytes from `offset` on.
    ///
    /// # Panics
    /// If they are not inside the claim.
    pub fn bytes_at(&self, offset: usize, len: usize) -> &[u8] {
        assert!(offset + len <= self.bytes, "outside the claim");
        // SAFETY: inside the claim, initialised (zeroed, or written before), and written only
        // through `&mut self`.
        unsafe { std::slice::from_raw_parts(self.at.add(offset), len) }
    }

    /// The same, to be written.
    ///
    /// # Panics
    /// If they are not inside the claim.
    pub fn bytes_at_mut(&mut self, offset: usize, len: usize) -> &mut [u8] {
        assert!(offset + len <= self.bytes, "outside the claim");
        // SAFETY: as in `bytes_at`, and borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.at.add(offset), len) }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.chunk.release(1);
    }
}

/// The tokens of the chunks that a consumer is reading in.
#[derive(Debug, Default)]
pub struct Pins {
    chunk: Option<Chunk>,
    count: u64,
    /// Tokens of chunks before, of which records may still be in use.
    older: Vec<(Chunk, u64)>,
}

impl Pins {
    /// Whether there is a token for the record at `address`, in the chunk at hand.
    #[inline(always)]
    pub fn hold(&self, address: usize) -> bool {
        self.chunk == Some(Chunk::of(address))
    }

    /// Owns one more token: of the chunk that has the record at `address`.
    #[inline]
    pub fn add(&mut self, address: usize) {
        let chunk = Chunk::of(address);
        if self.chunk != Some(chunk)
            && let Some(before) = self.chunk.replace(chunk)
        {
            self.older.push((before, std::mem::take(&mut self.count)));
        }
        self.count += 1;
    }

    /// Gives back the tokens of all chunks but the one at hand: no record of those is in use.
    #[inline]
    pub fn release_older(&mut self) {
        if !self.older.is_empty() {
            for (chunk, count) in self.older.drain(..) {
                chunk.release(count);
            }
        }
    }

    /// Gives all tokens back, but keeps that of the chunk at `kept`: no record taken so far is in
    /// use any more.
    #[inline]
    pub fn release_all_but(&mut self, kept: usize) {
        self.release_older();
        if self.chunk.is_some_and(|chunk| chunk.base() as usize != kept) {
            self.flush();
        }
    }

    /// Gives all tokens back: no record taken so far is in use any more.
    #[inline(never)]
    pub fn flush(&mut self) {
        self.release_older();
        if let Some(chunk) = self.chunk.take() {
            chunk.release(std::mem::take(&mut self.count));
        }
    }
}

impl Drop for Pins {
    fn drop(&mut self) {
        self.flush();
    }
}

#[cfg(test)]
#[cfg(not(slipring_loom))]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_comes_back_with_its_last_token() {
        let pool = Pool::new(1 << 20);
        let mut appender = Appender::new(Arc::clone(&pool));
        assert!(appender.room(8).is_none());
        assert!(appender.begin().is_some());
        let at = appender.room(64).unwrap();
        appender.commit(64);
        let chunk = Chunk::of(at as usize);
        let mut pins = Pins::default();
        assert!(!pins.hold(at as usize));
        chunk.grant(1);
        pins.add(at as usize);
        assert!(pins.hold(at as usize));
        assert_eq!(appender.seal(), Some(chunk));
        assert_eq!(chunk.tokens(), 2);
        drop(pins);
        assert_eq!(pool.in_use(), CHUNK_BYTES as u64);
        chunk.release(1);
        assert_eq!(pool.in_use(), 0);
        assert!(appender.begin().is_some());
        assert_eq!(appender.room(64).unwrap(), at, "the same chunk is used again");
    }

    #[test]
    fn the_next_chunk_is_there_before_the_present_one_is_full() {
        let pool = Pool::new(1 << 20);
        let mut appender = Appender::new(Arc::clone(&pool));
        assert_eq!((appender.next_step(), appender.room_before_mark(64)), (None, None));
        assert!(appender.begin().is_some());
        let mut steps = Vec::new();
        let mut short = 0;
        while appender.room(64).is_some() {
            if appender.room_before_mark(64).is_some() {
                short += 1;
            } else {
                appender.pass_mark();
                assert!(appender.room_before_mark(64).is_some(), "there is room");
            }
            appender.commit(64);
            while let Some(step) = appender.next_step() {
                if step == Step::Take {
                    appender.take_ahead();
                }
                steps.push(step);
            }
        }
        assert_eq!(steps, [Step::Begun, Step::Take, Step::Fetch]);
        assert_eq!(short, (CHUNK_BYTES - FIRST_RECORD) / 64 - steps.len(), "all others");
        assert!(appender.is_prepared());
        assert_eq!(pool.in_use(), 2 * CHUNK_BYTES as u64);
        appender.seal().unwrap().release(1);
        assert!(appender.begin().is_some());
        assert!(!appender.is_prepared());
        assert_eq!(pool.in_use(), CHUNK_BYTES as u64);
        appender.take_ahead();
        drop(appender);
        assert_eq!(pool.in_use(), 0);
    }

    #[test]
    fn claims_are_disjoint_and_an_aborted_one_costs_only_its_space() {
        let pool = Pool::new(1 << 20);
        let area = ClaimArea::new(Arc::clone(&pool));
        let first = area.claim(64).unwrap();
        let (chunk, at) = (first.chunk(), first.at() as usize);
        drop(first);
        let second = area.claim(64).unwrap();
        assert_eq!(second.chunk(), chunk);
        assert_eq!(second.at() as usize, at + 64);
        let large = area.claim(1 << 20).unwrap();
        assert_ne!(large.chunk(), chunk);
        assert_eq!(Chunk::of(large.at() as usize), large.chunk());
        assert!(large.chunk().bytes() > 1 << 20);
    }
}
