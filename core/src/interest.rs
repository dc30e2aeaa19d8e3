//! What a subscription wants: its patterns and its filter.

use crate::contain::drop_quietly;
use crate::filter::{self, Filter};
use crate::message::{Context, Message, Record};
use crate::sync::{Arc, AtomicU64, Ordering};
use crate::threads;
use crate::topic::Pattern;
use ahash::AHashMap;
use std::cell::Cell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A filter that is a function.
pub(crate) type FilterFn = dyn Fn(&Message<'_>) -> bool + Send + Sync;

/// A subscription's filter, in one of its forms.
pub(crate) enum Selector {
    Expression(Filter),
    Function(Box<FilterFn>),
}

impl fmt::Debug for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Expression(filter) => write!(f, "{filter}"),
            Self::Function(_) => f.write_str("function"),
        }
    }
}

/// Patterns and filter of a subscription.
#[derive(Debug)]
pub(crate) struct Interest {
    pub(crate) patterns: Vec<Pattern>,
    pub(crate) selector: Option<Arc<Selector>>,
    /// Messages before this offset of their partition are not wanted,
    from_offset: u64,
    /// nor are those published before this time. Both may lie in the future.
    from_us: u64,
    /// How often a filter function panicked.
    filter_panics: AtomicU64,
}

impl Interest {
    /// What `patterns` match and `selector` wants, but nothing before the offset `from_offset` of
    /// its partition, nor before the time `from_us`.
    pub(crate) fn new(
        patterns: Vec<Pattern>,
        selector: Option<Selector>,
        from_offset: u64,
        from_us: u64,
    ) -> Self {
        let selector = selector.map(Arc::new);
        Self { patterns, selector, from_offset, from_us, filter_panics: AtomicU64::new(0) }
    }

    /// The same interest in what comes from another place on.
    pub(crate) fn starting_at(&self, from_offset: u64, from_us: u64) -> Self {
        let (patterns, selector) = (self.patterns.clone(), self.selector.clone());
        Self { patterns, selector, from_offset, from_us, filter_panics: AtomicU64::new(0) }
    }

    /// The same interest.
    pub(crate) fn again(&self) -> Self {
        self.starting_at(self.from_offset, self.from_us)
    }

    /// Whether there are messages of its topics that it does not want.
    pub(crate) fn is_selective(&self) -> bool {
        self.selector.is_some() || self.from_offset > 0 || self.from_us > 0
    }

    /// How often the filter function panicked.
    pub(crate) fn filter_panics(&self) -> u64 {
        self.filter_panics.load(Ordering::Relaxed)
    }

    /// Whether one of the patterns matches `topic`.
    pub(crate) fn matches_topic(&self, topic: &str) -> bool {
        self.patterns.iter().any(|pattern| pattern.matches(topic))
    }

    /// Whether the filter lets `record` through. A panicking filter counts as no match.
    #[inline]
    pub(crate) fn selects(&self, record: Record<'_>, context: &Arc<Context>) -> bool {
        if record.offset() < self.from_offset || record.published_us() < self.from_us {
            return false;
        }
        match self.selector.as_deref() {
            None => true,
            Some(Selector::Expression(filter)) => filter.matches(&InPlace(record)),
            Some(Selector::Function(function)) => self.ask(function, record, context),
        }
    }

    fn ask(&self, function: &FilterFn, record: Record<'_>, context: &Arc<Context>) -> bool {
        let _inside = InsideFilter::enter();
        let message = Message { record, context, lease: None };
        catch_unwind(AssertUnwindSafe(|| function(&message))).unwrap_or_else(|panic| {
            drop_quietly(panic);
            self.filter_panics.fetch_add(1, Ordering::Relaxed);
            tracing::error!(topic = message.topic(), "a filter panicked; it counts as no match");
            false
        })
    }
}

impl Drop for Interest {
    /// Routes let go of it at any time, also while a shard or the routes are held: what a filter
    /// has captured may call the broker as little as the filter itself.
    fn drop(&mut self) {
        let _inside = InsideFilter::enter();
        let selector = self.selector.take();
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(selector))) {
            drop_quietly(panic);
        }
    }
}

/// A record's attributes as filters look them up.
struct InPlace<'a>(Record<'a>);

impl filter::Attributes for InPlace<'_> {
    #[inline]
    fn get(&self, key: &str) -> Option<&str> {
        self.0.attribute(key)
    }
}

thread_local! {
    /// Whether this thread is running a filter function, during which a shard is held.
    static INSIDE_FILTER: Cell<bool> = const { Cell::new(false) };
}

struct InsideFilter {
    outer: bool,
}

impl InsideFilter {
    fn enter() -> Self {
        Self { outer: INSIDE_FILTER.replace(true) }
    }
}

impl Drop for InsideFilter {
    fn drop(&mut self) {
        INSIDE_FILTER.set(self.outer);
    }
}

/// Whether the calling thread is inside a filter function, where the broker may not be called.
#[inline]
pub fn is_inside_filter() -> bool {
    INSIDE_FILTER.get()
}

/// Runs `work` as a filter function is run: the broker may not be called from inside it.
pub fn refusing_calls<R>(work: impl FnOnce() -> R) -> R {
    let _inside = InsideFilter::enter();
    work()
}

/// Runs `work`, which may wait for a shard: on a thread of its own where this one is inside a filter
/// function and so may be holding that shard.
pub(crate) fn outside_filters(work: impl FnOnce() + Send + 'static) {
    if !is_inside_filter() {
        return work();
    }
    if let Err(error) = threads::spawn("slipring-end".into(), work) {
        // What is not ended goes on taking memory; nothing hangs.
        tracing::error!(%error, "a subscription dropped inside a filter could not be ended");
    }
}

/// Decides about records read from the log, where no route has done so: remembers which
/// partitions match.
#[derive(Debug, Clone, Default)]
pub(crate) struct Scan {
    partitions: AHashMap<u32, Seen>,
    /// When the subscription began, if it is new here: what had expired by then is no loss of it.
    since_us: Option<u64>,
}

/// A partition when a scan came upon it.
#[derive(Debug, Clone, Copy)]
struct Seen {
    is_wanted: bool,
    /// Its oldest offset that had not expired.
    low: u64,
}

/// What a record is to a subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Of no topic that it wants, or gone before it began.
    Foreign,
    /// Of its topics; its filter has not been asked.
    There,
    /// The same, and expired.
    Expired,
}

impl Scan {
    /// Of a subscription that begins at the time `us`, and has had nothing before.
    pub(crate) fn since(us: u64) -> Self {
        Self { since_us: Some(us), ..Self::default() }
    }

    /// Whether the subscription has had nothing before.
    pub(crate) fn is_of_new(&self) -> bool {
        self.since_us.is_some()
    }

    /// What `record` is to the subscription with this `interest`.
    pub(crate) fn standing(
        &mut self,
        record: Record<'_>,
        interest: &Interest,
        context: &Context,
    ) -> Standing {
        if !self.matches(record, interest, context) {
            return Standing::Foreign;
        }
        if !record.has_expired(context) {
            return Standing::There;
        }
        let Some(since_us) = self.since_us else { return Standing::Expired };
        let entry = &context.partitions[record.partition() as usize];
        // Relaxed: see `Record::has_expired`.
        let max_age_us = entry.max_age_us.load(Ordering::Relaxed);
        let was_old = record.published_us().saturating_add(max_age_us) <= since_us;
        let low = self.partitions.get(&record.partition()).map_or(0, |seen| seen.low);
        if was_old || record.offset() < low { Standing::Foreign } else { Standing::Expired }
    }

    /// Whether `interest` wants `record`.
    pub(crate) fn accepts(
        &mut self,
        record: Record<'_>,
        interest: &Interest,
        context: &Arc<Context>,
    ) -> bool {
        self.matches(record, interest, context) && interest.selects(record, context)
    }

    /// Whether `interest` wants the topic of `record`. Does not ask the filter, which is foreign code
    /// and may take any time.
    pub(crate) fn matches(
        &mut self,
        record: Record<'_>,
        interest: &Interest,
        context: &Context,
    ) -> bool {
        let partition = record.partition();
        let entry = &context.partitions[partition as usize];
        let seen = self.partitions.entry(partition).or_insert_with(|| Seen {
            is_wanted: interest.matches_topic(&entry.topic),
            // Relaxed: see `Record::has_expired`.
            low: entry.low.load(Ordering::Relaxed),
        });
        seen.is_wanted && !entry.deleted.load(Ordering::Relaxed)
    }
}
