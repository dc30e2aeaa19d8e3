//! B: one publisher, N subscriptions drained by one thread. Millions of deliveries a second.

use std::time::Duration;

use crate::harness::{Contender, Plan, Results, figure, in_steady_turns, rate};
use crate::peers::{bus, crossbeam, disruptor, iceoryx2, tokio_broadcast, zenoh};
use crate::report::{self, Bars, OURS};
use crate::side::{Side, Stalled};

const UNIT: &str = "M deliveries/s";
const ZENOH: [&str; 2] = ["zenoh callback", "zenoh queue"];
const STRANGERS: u64 = 10_000;

/// Runs the section.
pub(crate) fn run(plan: &Plan, ours: Option<&dyn Side>, bars: &mut Bars) {
    println!("\n## B. Fan-out, one publisher, N subscriptions drained by one thread");
    let counts: &[u64] = if plan.quick { &[4, 16, 64] } else { &[1, 4, 16, 64] };
    for &subscribers in counts {
        let batched = batches(plan, ours, subscribers);
        let ratio = batched.ratio(OURS, "disruptor");
        match subscribers {
            4 => bars.at_least("B1", ratio, 0.9, "x"),
            16 => bars.at_least("B2", ratio, 0.9, "x"),
            64 => bars.at_least("B3", ratio, 0.7, "x"),
            _ => {}
        }
        if !plan.quick || subscribers == 16 {
            let singles = singles(plan, ours, subscribers);
            if subscribers == 16 {
                single_bars(&singles, bars);
            }
        }
    }
    beside_others(plan, ours, bars);
}

/// The rate of deliveries, not of messages.
fn deliveries<'a>(
    name: &str,
    messages: u64,
    subscribers: u64,
    run: impl Fn(u64) -> Duration + 'a,
) -> Contender<'a> {
    rate(name, messages * subscribers, move |deliveries| run(deliveries / subscribers))
}

fn batches(plan: &Plan, ours: Option<&dyn Side>, subscribers: u64) -> Results {
    let messages = plan.messages(200.0 / subscribers as f64);
    let mut entrants = Vec::new();
    if let Some(ours) = ours {
        let run = move |n| ours.fan_out(n, subscribers, 16, 0);
        entrants.push(deliveries(OURS, messages, subscribers, run));
    }
    let run = move |n| disruptor::fan_out(n, subscribers, 16);
    entrants.push(deliveries("disruptor", messages, subscribers, run));
    let results = in_steady_turns(plan, entrants);
    report::table(&format!("N = {subscribers}, batches of 16"), UNIT, OURS, &results);
    results
}

fn singles(plan: &Plan, ours: Option<&dyn Side>, n: u64) -> Results {
    let messages = |millions: f64| plan.messages(millions / n as f64);
    let (fast, middle, slow) = (messages(150.0), messages(20.0), messages(4.0));
    let mut entrants = Vec::new();
    if let Some(ours) = ours {
        entrants.push(deliveries(OURS, fast, n, move |m| ours.fan_out(m, n, 1, 0)));
    }
    entrants.push(deliveries("disruptor", fast, n, move |m| disruptor::fan_out(m, n, 1)));
    entrants
        .push(deliveries("tokio broadcast", middle, n, move |m| tokio_broadcast::fan_out(m, n)));
    entrants.push(deliveries(ZENOH[0], slow, n, move |m| zenoh::callbacks(m, n)));
    entrants.push(deliveries(ZENOH[1], slow, n, move |m| zenoh::queues(m, n)));
    if n <= 16 {
        entrants.push(deliveries("iceoryx2 local", slow, n, move |m| iceoryx2::fan_out(m, n)));
    }
    if !plan.quick {
        entrants.push(deliveries("bus, Arc", middle, n, move |m| bus::fan_out(m, n)));
        entrants
            .push(deliveries("crossbeam-channel, Arc", slow, n, move |m| crossbeam::fan_out(m, n)));
    }
    let results = in_steady_turns(plan, entrants);
    report::table(&format!("N = {n}, one message at a time"), UNIT, OURS, &results);
    results
}

fn single_bars(results: &Results, bars: &mut Bars) {
    let over = |peers: &[&str]| Some(results.median(OURS)? / results.best(peers)?);
    bars.at_least("B4", over(&["disruptor"]), 0.5, "x");
    bars.at_least("B5", over(&["tokio broadcast"]), 8.0, "x");
    bars.at_least("B6", over(&ZENOH), 25.0, "x");
    bars.at_least("B7", over(&["iceoryx2 local"]), 25.0, "x");
}

/// What others on the broker cost: strangers, a filter that rejects, a subscriber that stalls.
fn beside_others(plan: &Plan, ours: Option<&dyn Side>, bars: &mut Bars) {
    let Some(ours) = ours else {
        bars.at_most("B8", None, 1.1, "x");
        bars.at_most("B9", None, 15.0, "ns");
        bars.at_most("B10", None, 5.0, "%");
        return;
    };
    let per_message = |time: Duration, messages: u64| time.as_nanos() as f64 / messages as f64;
    let (fan, single, pair) = (plan.messages(9.0), plan.messages(20.0), plan.messages(60.0));
    let strangers = |count| move || per_message(ours.fan_out(fan, 16, 16, count), fan);
    let rejected = |filter| move || per_message(ours.rejected(single, filter), single);
    let stalled = |how| move || per_message(ours.beside_stalled(pair, how), pair);
    let names = ["16 alone", "16 beside 10,000", "no subscription", "one that rejects"];
    let pairs = ["1 alone", "beside DropNewest", "beside DropOldest"];
    let results = in_steady_turns(
        plan,
        vec![
            figure(names[0], strangers(0)),
            figure(names[1], strangers(STRANGERS)),
            figure(names[2], rejected(false)),
            figure(names[3], rejected(true)),
            figure(pairs[0], stalled(Stalled::Absent)),
            figure(pairs[1], stalled(Stalled::DropNewest)),
            figure(pairs[2], stalled(Stalled::DropOldest)),
        ],
    );
    report::table("Beside others", "ns a message", "", &results);
    bars.at_most("B8", results.ratio(names[1], names[0]), 1.1, "x");
    let filter = results.median(names[3]).zip(results.median(names[2]));
    bars.at_most("B9", filter.map(|(with, without)| with - without), 15.0, "ns");
    let slowest = results.best(&pairs[1..]).zip(results.median(pairs[0]));
    bars.at_most("B10", slowest.map(|(with, without)| (with / without - 1.0) * 100.0), 5.0, "%");
}
