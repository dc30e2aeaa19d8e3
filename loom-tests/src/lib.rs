//! Loom models of slipring's lock-free structures, run on the production source by `cargo loom`.

#[cfg(slipring_loom)]
use std::sync::atomic::{AtomicU64, Ordering};

/// Runs `model` in every order of its threads' steps that has at most `preemptions` switches away
/// from a thread that could have gone on (fewer, if `LOOM_MAX_PREEMPTIONS` says so).
#[cfg(slipring_loom)]
pub fn check(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    let most = builder.preemption_bound.unwrap_or(preemptions);
    builder.preemption_bound = Some(most.min(preemptions));
    builder.max_branches = builder.max_branches.max(20_000);
    let count = std::sync::Arc::new(AtomicU64::new(0));
    let runs = std::sync::Arc::clone(&count);
    let start = std::time::Instant::now();
    builder.check(move || {
        runs.fetch_add(1, Ordering::Relaxed);
        model();
    });
    println!("{} orders in {:.1?}", count.load(Ordering::Relaxed), start.elapsed());
}
