//! C: latency. Round trips between two pinned threads that spin, waking, and publishing while the
//! subscriptions change. Nanoseconds.

use crate::harness::{Latencies, Plan, Results, Series};
use crate::peers::{crossbeam, disruptor, iceoryx2, park, rtrb, tokio_broadcast, zenoh};
use crate::report::{self, Bars, OURS};
use crate::side::Side;

const CHURN_PER_SECOND: u64 = 10_000;
const QUANTILES: [(&str, f64); 3] = [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)];

/// One entrant: a name and one run.
pub(crate) type Entrant<'a> = (&'a str, Box<dyn Fn() -> Latencies + 'a>);

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

/// Runs the entrants in turns and prints their table; gives the results by quantile.
pub(crate) fn measure(plan: &Plan, title: &str, entrants: &[Entrant<'_>]) -> [Results; 3] {
    let mut values = vec![[const { Vec::new() }; 3]; entrants.len()];
    for turn in 0..=plan.runs {
        for ((_, run), values) in entrants.iter().zip(&mut values) {
            let latencies = run();
            if turn > 0 {
                for (values, (_, quantile)) in values.iter_mut().zip(QUANTILES) {
                    values.push(latencies.at(quantile));
                }
            }
        }
    }
    let by_quantile: [Results; 3] = std::array::from_fn(|quantile| {
        let series = entrants.iter().zip(&mut values);
        let series = series
            .map(|((name, _), values)| Series::new(*name, std::mem::take(&mut values[quantile])));
        Results(series.collect())
    });
    print_table(title, entrants, &by_quantile);
    by_quantile
}

fn print_table(title: &str, entrants: &[Entrant<'_>], by_quantile: &[Results; 3]) {
    let header: Vec<&str> = QUANTILES.iter().map(|(name, _)| *name).collect();
    println!("\n### {title} (ns: median of the runs, min to max)\n");
    println!("| contender | {} |\n|---|---:|---:|---:|", header.join(" | "));
    for (index, (name, _)) in entrants.iter().enumerate() {
        let cells = by_quantile.iter().map(|results| {
            let series = &results.0[index];
            let [median, min, max] =
                [series.median(), series.min(), series.max()].map(report::number);
            format!("{median} ({min} to {max})")
        });
        println!("| {name} | {} |", cells.collect::<Vec<_>>().join(" | "));
    }
}
