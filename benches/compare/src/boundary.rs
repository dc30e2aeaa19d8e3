//! G: C and C++. What the boundary costs against the Rust API, and peers of C and C++.

use std::time::Duration;

use crate::harness::{Plan, figure, in_steady_turns, rate};
use crate::native;
use crate::report::{self, Bars, OURS};
use crate::side::Side;

const SUBSCRIBERS: u64 = 16;

/// Runs the section.
pub(crate) fn run(plan: &Plan, ours: Option<&dyn Side>, bars: &mut Bars) {
    println!("\n## G. C and C++");
    match ours {
        Some(ours) => boundary(plan, ours, bars),
        None => ["G1", "G2", "G3"].iter().for_each(|id| bars.skip(id, "built without slipring")),
    }
    peers(plan, bars);
}

/// One thread publishes until the queue is full, and then polls until it is empty.
fn boundary(plan: &Plan, ours: &dyn Side, bars: &mut Bars) {
    let messages = plan.messages(10.0);
    let each = |time: Duration| time.as_nanos() as f64 / messages as f64;
    let names = [
        "publish, Rust",
        "publish, C",
        "batch of 64, Rust",
        "batch of 64, C",
        "poll, Rust",
        "poll, C",
        "handler, Rust",
        "handler, C",
    ];
    let results = in_steady_turns(
        plan,
        vec![
            figure(names[0], || each(ours.boundary(messages, 1).0)),
            figure(names[1], || each(native::boundary(messages, 1).0)),
            figure(names[2], || each(ours.boundary(messages, 64).0)),
            figure(names[3], || each(native::boundary(messages, 64).0)),
            figure(names[4], || each(ours.boundary(messages, 64).1)),
            figure(names[5], || each(native::boundary(messages, 64).1)),
            figure(names[6], || each(ours.to_handler(messages, true))),
            figure(names[7], || each(native::to_handler(messages))),
        ],
    );
    report::table("The boundary", "ns a message", "", &results);
    let more = |c: &str, rust: &str| results.ratio(c, rust).map(|ratio| (ratio - 1.0) * 100.0);
    let single = results.median(names[1]).zip(results.median(names[0]));
    bars.at_most("G1", single.map(|(c, rust)| c - rust), 10.0, "ns");
    bars.at_most("G2", more(names[3], names[2]), 2.0, "%");
    let received = more(names[5], names[4]).zip(more(names[7], names[6]));
    bars.at_most("G3", received.map(|(poll, handler)| poll.max(handler)), 5.0, "%");
}

fn peers(plan: &Plan, bars: &mut Bars) {
    let deliveries = |millions: f64| plan.messages(millions / SUBSCRIBERS as f64) * SUBSCRIBERS;
    let (fast, slow) = (deliveries(100.0), deliveries(4.0));
    let mut entrants = vec![rate(OURS, fast, |n| native::fan_out(n / SUBSCRIBERS, SUBSCRIBERS))];
    for (_, name, peer) in native::PEERS {
        if let Some(peer) = peer {
            entrants.push(rate(name, slow, move |n| peer(n / SUBSCRIBERS, SUBSCRIBERS)));
        }
    }
    let results = in_steady_turns(plan, entrants);
    let title = format!("N = {SUBSCRIBERS}, one message at a time, in C++");
    report::table(&title, "M deliveries/s", OURS, &results);
    for (id, name, peer) in native::PEERS {
        match peer {
            Some(_) => bars.at_least(id, results.ratio(OURS, name), 5.0, "x"),
            None => bars.skip(id, &format!("no headers of {name}")),
        }
    }
}
