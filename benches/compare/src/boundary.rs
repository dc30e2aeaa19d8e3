//! G: C and C++. What the boundary costs against the Rust API, and peers of C and C++.

use std::time::Duration;

use crate::harness::{Plan, figure, in_steady_turns, pinned, rate};
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

/// More turns than elsewhere, of shorter runs: differences of a few hundredths are asked for.
fn many_turns(plan: &Plan, times: usize) -> Plan {
    Plan { runs: plan.runs * times, ..*plan }
}

/// One thread publishes until the queue is full, and then polls until it is empty, or lets a handler do
/// that on the same processor.
fn boundary(plan: &Plan, ours: &dyn Side, bars: &mut Bars) {
    let messages = plan.messages(4.0);
    let each = |time: Duration| time.as_nanos() as f64 / messages as f64;
    let names = [
        "publish, Rust",
        "publish, C",
        "batch of 64, Rust",
        "batch of 64, C",
        "poll, Rust",
        "poll, C",
        "handler, Rust",
        "handler of batches, C",
        "handler, C",
    ];
    let threads = [
        "to a handler on another processor, Rust",
        "to a handler of batches on another processor, C",
    ];
    let results = in_steady_turns(
        &many_turns(plan, 7),
        vec![
            figure(names[0], || each(ours.boundary(messages, 1).0)),
            figure(names[1], || each(pinned(|| native::boundary(messages, 1).0))),
            figure(names[2], || each(ours.boundary(messages, 64).0)),
            figure(names[3], || each(pinned(|| native::boundary(messages, 64).0))),
            figure(names[4], || each(ours.boundary(messages, 64).1)),
            figure(names[5], || each(pinned(|| native::boundary(messages, 64).1))),
            figure(names[6], || each(ours.drain_by_handler(messages))),
            figure(names[7], || each(pinned(|| native::drain_by_handler(messages, 64)))),
            figure(names[8], || each(pinned(|| native::drain_by_handler(messages, 1)))),
            figure(threads[0], || each(ours.to_handler(messages, true))),
            figure(threads[1], || each(native::to_handler(messages))),
        ],
    );
    report::table("The boundary", "ns a message", "", &results);
    let more = |c: &str, rust: &str| results.of_turns(c, rust, |c, rust| (c / rust - 1.0) * 100.0);
    bars.at_most("G1", results.of_turns(names[1], names[0], |c, rust| c - rust), 10.0, "ns");
    bars.at_most("G2", more(names[3], names[2]), 2.0, "%");
    let received = more(names[5], names[4]).zip(more(names[7], names[6]));
    if let Some((poll, handler)) = received {
        println!("\nOf G3: polls {poll:.1} %, handlers {handler:.1} %.");
    }
    bars.at_most("G3", received.map(|(poll, handler)| poll.max(handler)), 5.0, "%");
}

fn peers(plan: &Plan, bars: &mut Bars) {
    let batches = format!("{OURS}, batches");
    // Whole batches to each subscriber.
    let messages = |millions: f64| plan.messages(millions / SUBSCRIBERS as f64);
    let entrant = |name: &str, millions: f64, run: fn(u64, u64) -> Duration| {
        rate(name, messages(millions) * SUBSCRIBERS, move |n| run(n / SUBSCRIBERS, SUBSCRIBERS))
    };
    let mut entrants = vec![
        entrant(OURS, 100.0, native::fan_out),
        entrant(&batches, 100.0, native::fan_out_batches),
    ];
    for peer in native::PEERS {
        entrants.extend(peer.run.map(|run| entrant(peer.name, peer.millions, run)));
    }
    let results = in_steady_turns(&many_turns(plan, 5), entrants);
    let title = format!("N = {SUBSCRIBERS}, in C++, one message at a time and in batches of 64");
    report::table(&title, "M deliveries/s", OURS, &results);
    for id in ["G4", "G5", "G6"] {
        let modes: Vec<_> = native::PEERS.into_iter().filter(|peer| peer.bar == id).collect();
        // Each mode of a peer beside ours in the same; the nearer counts.
        let times = modes.iter().filter_map(|peer| {
            let ours = if peer.batches { &*batches } else { OURS };
            results.of_turns(ours, peer.name, |ours, peer| ours / peer)
        });
        match times.min_by(f64::total_cmp) {
            Some(times) => bars.at_least(id, Some(times), 5.0, "x"),
            None => bars.skip(id, &format!("no headers of {}", modes[0].name)),
        }
    }
}
