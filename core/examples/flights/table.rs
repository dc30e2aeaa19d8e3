//! The table: what each subscription got.
//!
//! The figures are counted by the consumers themselves. What was matched is what was delivered and
//! what was dropped: the receipts of the publishers say the same, summed over all subscriptions.

use slipring::Message;
use std::fmt::{self, Display};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// What one subscription got, counted where it got it.
#[derive(Default)]
pub(crate) struct Figures {
    delivered: u64,
    dropped: u64,
    /// Why they were dropped.
    because: Option<&'static str>,
    pub(crate) failed: u64,
    /// Of messages that were published after the subscription began.
    latencies_us: Vec<u64>,
    since_us: u64,
    last_us: u64,
}

/// Shared by a subscription's consumer and the table.
pub(crate) type Tally = Arc<Mutex<Figures>>;

pub(crate) fn lock(tally: &Tally) -> MutexGuard<'_, Figures> {
    tally.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Figures {
    /// Counts a message as delivered, now.
    pub(crate) fn got(&mut self, message: &Message<'_>) {
        self.delivered += 1;
        self.last_us = now_us();
        if message.published_us() >= self.since_us {
            self.latencies_us.push(self.last_us.saturating_sub(message.published_us()));
        }
    }

    /// Counts messages that the subscription was told it had lost.
    pub(crate) fn lost(&mut self, count: u64, because: &'static str) {
        self.dropped += count;
        self.because = Some(because);
    }

    fn rate(&self) -> f64 {
        let us = self.last_us.saturating_sub(self.since_us).max(1);
        self.delivered as f64 * 1e6 / us as f64
    }

    /// The latency that `percent` of the messages did not exceed.
    fn latency_us(&self, percent: usize) -> String {
        let mut sorted = self.latencies_us.clone();
        sorted.sort_unstable();
        let rank = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
        sorted.get(rank).map_or("-".into(), u64::to_string)
    }
}

fn now_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64)
}

/// One row for each subscription, in the order in which they began.
#[derive(Default)]
pub(crate) struct Table(Vec<(&'static str, Tally)>);

impl Table {
    /// A new row, and where its figures are counted.
    pub(crate) fn row(&mut self, name: &'static str) -> Tally {
        let figures = Figures { since_us: now_us(), ..Figures::default() };
        let tally = Arc::new(Mutex::new(figures));
        self.0.push((name, Arc::clone(&tally)));
        tally
    }
}

impl Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<12} {:>8} {:>9} {:>8} {:<8} {:>7} {:>8} {:>8} {:>10}",
            "subscription",
            "matched",
            "delivered",
            "dropped",
            "because",
            "failed",
            "p50 us",
            "p99 us",
            "messages/s"
        )?;
        for (name, tally) in &self.0 {
            let figures = lock(tally);
            let Figures { delivered, dropped, because, failed, .. } = *figures;
            let (p50, p99) = (figures.latency_us(50), figures.latency_us(99));
            let because = because.unwrap_or("-");
            let matched = delivered + dropped;
            writeln!(
                f,
                "{name:<12} {matched:>8} {delivered:>9} {dropped:>8} {because:<8} {failed:>7} \
                 {p50:>8} {p99:>8} {:>10.0}",
                figures.rate()
            )?;
        }
        Ok(())
    }
}
