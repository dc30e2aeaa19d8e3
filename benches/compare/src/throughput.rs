//! A: one publisher, one subscriber, 64 bytes, nothing lost. Millions of messages a second.

use crate::harness::{Contender, PAYLOAD, Plan, Results, figure, in_steady_turns, rate};
use crate::peers::{
    crossbeam, disruptor, flume, iceoryx2, kanal, rtrb, std_channel, tokio_broadcast, zenoh,
};
use crate::report::{self, Bars, OURS};
use crate::side::Side;

const UNIT: &str = "M msg/s";
const LOAN_LENS: [usize; 5] = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];
const SWEEP_LENS: [usize; 6] = [16, 256, 1 << 10, 16 << 10, 128 << 10, 1 << 20];
const ZENOH: [&str; 2] = ["zenoh callback", "zenoh queue"];
const DISRUPTOR: [&str; 2] = ["disruptor managed", "disruptor polled"];

/// Runs the section.
pub(crate) fn run(plan: &Plan, ours: Option<&dyn Side>, bars: &mut Bars) {
    println!("\n## A. Throughput, 1 to 1, 64 bytes, 1024 slots, nothing lost");
    batches(plan, ours, bars);
    singles(plan, ours, bars);
    producers(plan, ours, bars);
    if let Some(ours) = ours {
        loans(plan, ours, bars);
        sweep(plan, ours);
    }
}

fn batches(plan: &Plan, ours: Option<&dyn Side>, bars: &mut Bars) {
    let millions = plan.messages(60.0);
    let mut entrants = Vec::new();
    if let Some(ours) = ours {
        entrants.push(rate(OURS, millions, move |n| ours.one_to_one(n, 64, PAYLOAD)));
        entrants.push(rate("slipring handler", millions, move |n| ours.to_handler(n, false)));
    }
    entrants.push(rate("rtrb", millions, |n| rtrb::chunks(n, 64)));
    entrants.push(rate("disruptor", millions, |n| disruptor::managed(n, 64)));
    let results = in_steady_turns(plan, entrants);
    report::table("Batches of 64", UNIT, OURS, &results);
    bars.at_least("A1", results.ratio(OURS, "rtrb"), 0.9, "x");
    bars.at_least("A8", results.ratio("slipring handler", OURS), 0.8, "x");

    if !plan.quick {
        let mut entrants = Vec::new();
        if let Some(ours) = ours {
            entrants.push(rate(OURS, millions, move |n| ours.one_to_one(n, 16, PAYLOAD)));
        }
        entrants.push(rate("rtrb", millions, |n| rtrb::chunks(n, 16)));
        entrants.push(rate("disruptor", millions, |n| disruptor::managed(n, 16)));
        report::table("Batches of 16", UNIT, OURS, &in_steady_turns(plan, entrants));
    }
}

fn singles(plan: &Plan, ours: Option<&dyn Side>, bars: &mut Bars) {
    let (fast, middle, slow) = (plan.messages(30.0), plan.messages(8.0), plan.messages(2.0));
    let mut entrants: Vec<Contender<'_>> = Vec::new();
    if let Some(ours) = ours {
        entrants.push(rate(OURS, fast, move |n| ours.one_to_one(n, 1, PAYLOAD)));
    }
    entrants.push(rate("rtrb", fast, rtrb::single));
    entrants.push(rate(DISRUPTOR[0], fast, |n| disruptor::managed(n, 1)));
    entrants.push(rate(DISRUPTOR[1], fast, disruptor::polled));
    entrants.push(rate("tokio broadcast", middle, tokio_broadcast::single));
    entrants.push(rate(ZENOH[0], slow, |n| zenoh::callbacks(n, 1)));
    entrants.push(rate(ZENOH[1], slow, |n| zenoh::queues(n, 1)));
    entrants.push(rate("iceoryx2 local", slow, |n| iceoryx2::fan_out(n, 1)));
    if !plan.quick {
        entrants.push(rate("crossbeam-channel", middle, crossbeam::single));
        entrants.push(rate("std sync_channel", middle, std_channel::single));
        entrants.push(rate("kanal", middle, kanal::single));
        entrants.push(rate("flume", middle, flume::single));
        entrants.push(rate("crossbeam-channel, Arc", slow, |n| crossbeam::shared(n, PAYLOAD)));
    }
    let results = in_steady_turns(plan, entrants);
    report::table("One message at a time", UNIT, OURS, &results);

    let over = |peers: &[&str]| Some(results.median(OURS)? / results.best(peers)?);
    let worst = results.series(OURS).map(|series| series.min() / series.median());
    bars.at_least("A2", over(&DISRUPTOR), 1.2, "x");
    bars.at_least("A3", over(&["rtrb"]), 1.0, "x");
    bars.at_least("A4", worst, 0.6, "x");
    bars.at_least("A5", over(&["tokio broadcast"]), 5.0, "x");
    bars.at_least("A6", over(&ZENOH), 8.0, "x");
    bars.at_least("A7", over(&["iceoryx2 local"]), 15.0, "x");
}

fn producers(plan: &Plan, ours: Option<&dyn Side>, bars: &mut Bars) {
    let messages = plan.messages(6.0);
    let mut worst: Option<f64> = None;
    for producers in [2, 4] {
        let mut entrants = Vec::new();
        if let Some(ours) = ours {
            entrants.push(rate(OURS, messages, move |n| ours.many_producers(n, producers)));
        }
        entrants.push(rate("crossbeam-channel", messages, move |n| {
            crossbeam::many_producers(n, producers)
        }));
        let results = in_steady_turns(plan, entrants);
        let title = format!("{producers} producers, one topic, nothing pinned");
        report::table(&title, UNIT, OURS, &results);
        if let Some(ratio) = results.ratio(OURS, "crossbeam-channel") {
            worst = Some(worst.map_or(ratio, |worst| worst.min(ratio)));
        }
    }
    bars.at_least("A9", worst, 1.5, "x");
}

/// Messages of `len` bytes that fill a run: by count while they are small, by bytes when large.
fn messages_of(plan: &Plan, len: usize) -> u64 {
    (plan.messages(4000.0 / len as f64)).clamp(1024, plan.messages(4.0).max(1024))
}

fn loans(plan: &Plan, ours: &dyn Side, bars: &mut Bars) {
    let messages = plan.messages(1.0);
    let name = |len: usize| format!("loan of {} KiB", len >> 10);
    let entrants = LOAN_LENS
        .into_iter()
        .map(|len| {
            let run = move || ours.loans(messages, len).as_nanos() as f64 / messages as f64;
            figure(name(len), run)
        })
        .collect();
    let results: Results = in_steady_turns(plan, entrants);
    report::table("Loans, both ends written", "ns a message", "", &results);
    bars.at_most("A10", results.ratio(&name(1 << 20), &name(4 << 10)), 1.2, "x");
}

fn sweep(plan: &Plan, ours: &dyn Side) {
    for len in SWEEP_LENS.into_iter().filter(|len| !plan.quick || *len <= 1 << 10) {
        let messages = messages_of(plan, len);
        let entrants = vec![
            rate(OURS, messages, |n| ours.one_to_one(n, 1, len)),
            rate("crossbeam-channel, Arc", messages, |n| crossbeam::shared(n, len)),
        ];
        let title = format!("{len} bytes, one message at a time");
        report::table(&title, UNIT, OURS, &in_steady_turns(plan, entrants));
    }
}
