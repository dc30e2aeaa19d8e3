//! F: what it costs that nothing is lost. A message is delivered until it is settled.

use crate::harness::{PAYLOAD, Plan, figure, in_steady_turns, rate};
use crate::quantiles::{Entrant, measure};
use crate::report::{self, Bars};
use crate::side::Side;

/// Messages that are delivered and not settled.
const LEASES: u64 = 1 << 20;

/// Runs the section.
pub(crate) fn run(plan: &Plan, ours: Option<&dyn Side>, bars: &mut Bars) {
    println!("\n## F. Guarantees");
    let Some(ours) = ours else {
        bars.at_least("F1", None, 0.7, "x");
        bars.at_most("F2", None, 100.0, "ns");
        bars.at_most("F3", None, 64.0, "B");
        bars.at_most("F4", None, 3.0, "x");
        return;
    };
    handlers(plan, ours, bars);
    acks(plan, ours, bars);
    redelivery(plan, ours, bars);
}

fn handlers(plan: &Plan, ours: &dyn Side, bars: &mut Bars) {
    let messages = plan.messages(60.0);
    let names = ["at least once, handler", "at most once, handler", "at most once, polled"];
    let entrants = vec![
        rate(names[0], messages, |n| ours.to_settling_handler(n)),
        rate(names[1], messages, |n| ours.to_handler(n, false)),
        rate(names[2], messages, |n| ours.one_to_one(n, 64, PAYLOAD)),
    ];
    let results = in_steady_turns(plan, entrants);
    report::table("In order, batches of 64", "M msg/s", "", &results);
    bars.at_least("F1", results.ratio(names[0], names[1]), 0.7, "x");
}

fn acks(plan: &Plan, ours: &dyn Side, bars: &mut Bars) {
    let names = ["one at a time", "batches of 64"];
    let each =
        |batch: usize| move || ours.ack_randomly(LEASES, batch).as_nanos() as f64 / LEASES as f64;
    let entrants = vec![figure(names[0], each(1)), figure(names[1], each(64))];
    let results = in_steady_turns(plan, entrants);
    report::table("Acknowledged in random order, of 1M", "ns a message", "", &results);
    bars.at_most("F2", results.median(names[0]), 100.0, "ns");

    let bytes = ours.lease_bytes(LEASES);
    println!("\nEach of 1M takes {:.1} bytes while it is leased, ", bytes.leased);
    println!("and {:.1} when its deadline was moved.", bytes.extended);
    bars.at_most("F3", Some(bytes.leased.max(bytes.extended)), 64.0, "B");
}

fn redelivery(plan: &Plan, ours: &dyn Side, bars: &mut Bars) {
    let publishes = LEASES;
    let entrants: Vec<Entrant<'_>> = vec![
        ("beside 1M leases", Box::new(|| ours.publish_beside_leases(publishes, LEASES, false))),
        (
            "they are delivered again",
            Box::new(|| ours.publish_beside_leases(publishes, LEASES, true)),
        ),
    ];
    let [.., p999] = measure(plan, "One publish while 1M expired leases are given anew", &entrants);
    bars.at_most("F4", p999.ratio(entrants[1].0, entrants[0].0), 3.0, "x");
}
