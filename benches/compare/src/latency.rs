//! C: latency. Round trips between two pinned threads that spin, waking, and publishing while the
//! subscriptions change. Nanoseconds.

use crate::harness::Plan;
use crate::peers::{crossbeam, disruptor, iceoryx2, park, rtrb, tokio_broadcast, zenoh};
use crate::quantiles::{Entrant, measure};
use crate::report::{Bars, OURS};
use crate::side::Side;

const CHURN_PER_SECOND: u64 = 10_000;

/// Runs the section.
pub(crate) fn run(plan: &Plan, ours: Option<&dyn Side>, bars: &mut Bars) {
    println!("\n## C. Latency");
    let rounds = if plan.quick { 100_000 } else { 500_000 };
    let slow_rounds = rounds / 5;
    let mut entrants: Vec<Entrant<'_>> = Vec::new();
    if let Some(ours) = ours {
        entrants.push((OURS, Box::new(move || ours.ping_pong(rounds))));
    }
    entrants.push(("rtrb", Box::new(|| rtrb::round_trips(rounds))));
    entrants.push(("disruptor", Box::new(|| disruptor::round_trips(rounds))));
    entrants.push(("crossbeam-channel", Box::new(|| crossbeam::round_trips(rounds))));
    entrants.push(("tokio broadcast", Box::new(|| tokio_broadcast::round_trips(slow_rounds))));
    entrants.push(("iceoryx2 local", Box::new(|| iceoryx2::round_trips(slow_rounds))));
    entrants.push(("zenoh queue", Box::new(|| zenoh::round_trips(slow_rounds))));
    let [p50, p99, p999] = measure(plan, "Round trip, 64 bytes each way", &entrants);
    bars.at_most("C1", p50.ratio(OURS, "rtrb"), 1.3, "x");
    bars.at_most("C2", p99.ratio(OURS, "rtrb"), 1.5, "x");
    bars.at_most("C3", p999.ratio(OURS, "rtrb"), 1.5, "x");

    let wakes = if plan.quick { 300 } else { 2_000 };
    let mut entrants: Vec<Entrant<'_>> = Vec::new();
    if let Some(ours) = ours {
        entrants.push((OURS, Box::new(move || ours.wake(wakes))));
    }
    entrants.push(("park and unpark", Box::new(move || park::wake(wakes))));
    let [p50, ..] = measure(plan, "Waking a parked consumer, one way", &entrants);
    bars.at_most("C4", p50.ratio(OURS, "park and unpark"), 1.2, "x");

    let Some(ours) = ours else {
        bars.at_most("C5", None, 3.0, "x");
        return;
    };
    let publishes = plan.messages(10.0);
    let entrants: Vec<Entrant<'_>> = vec![
        ("quiet", Box::new(|| ours.publish_times(publishes, 0))),
        ("10,000 changes a second", Box::new(|| ours.publish_times(publishes, CHURN_PER_SECOND))),
    ];
    let [.., p999] = measure(plan, "One publish while subscriptions come and go", &entrants);
    bars.at_most("C5", p999.ratio("10,000 changes a second", "quiet"), 3.0, "x");
}
