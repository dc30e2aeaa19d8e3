//! The log: events of one broker, told to a function of the caller.
//!
//! The core tells its events through `tracing`. A broker with a log function has a subscriber of its
//! own, which is set for its threads and, while they call it, for those of the caller: nothing is
//! set for the process.

use crate::callback::{User, slipring_log_fn};
use slipring_core::internals::{is_inside_filter, refusing_calls};
use std::fmt::{self, Write as _};
use std::sync::OnceLock;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::NoSubscriber;
use tracing::{Dispatch, Event, Level, Metadata, Subscriber, dispatcher};

/// How much an event matters.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::exhaustive_enums, reason = "C has no others")]
#[repr(u32)]
pub enum slipring_log_level {
    /// Something is wrong that nobody else is told of.
    SLIPRING_LOG_ERROR = 1,
    /// A handler has failed, a subscription was disconnected, a setting could not be kept.
    SLIPRING_LOG_WARN = 2,
    /// Life and death of a broker.
    SLIPRING_LOG_INFO = 3,
    /// Losses.
    SLIPRING_LOG_DEBUG = 4,
    /// Everything.
    SLIPRING_LOG_TRACE = 5,
}

/// Where a broker's events go, if anywhere; copies are the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct Log(Option<Dispatch>);

impl Log {
    /// Tells `function` the events up to `level`; `None` if there is no such level.
    pub(crate) fn new(function: slipring_log_fn, level: u32, user: User) -> Option<Self> {
        let most = match level {
            1 => LevelFilter::ERROR,
            2 => LevelFilter::WARN,
            3 => LevelFilter::INFO,
            4 => LevelFilter::DEBUG,
            5 => LevelFilter::TRACE,
            _ => return None,
        };
        if function.is_none() {
            return Some(Self::default());
        }
        // While there is one subscriber, tracing asks only the thread that comes to an event first
        // whether anybody wants it, and keeps the answer. With two it asks the subscribers.
        static SECOND: OnceLock<Dispatch> = OnceLock::new();
        SECOND.get_or_init(|| Dispatch::new(NoSubscriber::new()));
        Some(Self(Some(Dispatch::new(Listener { function, user, most }))))
    }

    /// Whether events are told at all.
    pub(crate) fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Does `work`, and has its events told.
    #[inline]
    pub(crate) fn during<R>(&self, work: impl FnOnce() -> R) -> R {
        match &self.0 {
            // From inside a log function nothing comes of it, and tracing does not nest there.
            Some(listener) if !is_inside_filter() => dispatcher::with_default(listener, work),
            _ => work(),
        }
    }
}

#[derive(Debug)]
struct Listener {
    function: slipring_log_fn,
    user: User,
    most: LevelFilter,
}

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= self.most
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.most)
    }

    /// The core has no spans.
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        line.message.push_str(&line.fields);
        let level = match *event.metadata().level() {
            Level::ERROR => slipring_log_level::SLIPRING_LOG_ERROR,
            Level::WARN => slipring_log_level::SLIPRING_LOG_WARN,
            Level::INFO => slipring_log_level::SLIPRING_LOG_INFO,
            Level::DEBUG => slipring_log_level::SLIPRING_LOG_DEBUG,
            Level::TRACE => slipring_log_level::SLIPRING_LOG_TRACE,
        };
        // A shard may be held here.
        refusing_calls(|| self.user.log(self.function, level as u32, &line.message));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// An event in words: the message, then its fields.
#[derive(Debug, Default)]
struct Line {
    message: String,
    fields: String,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a String cannot fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}
