//! D: routing. Patterns of 3 to 6 segments, cold topics; nanoseconds a match.

use std::time::{Duration, Instant};

use crate::cpu;
use crate::harness::{Plan, Results, figure, in_turns, pinned};
use crate::patterns::Workload;
use crate::peers::keyexpr::KeyExprTree;
use crate::peers::model_trie::ModelTrie;
use crate::report::{self, Bars, OURS};
use crate::side::{Router, Side};

const MODEL: &str = "model trie";
const ZENOH: &str = "zenoh KeBoxTree";
/// zenoh's tree is that much slower: it gets fewer topics.
const ZENOH_SHARE: usize = 20;
/// Single subscribes timed at each size.
const SUBSCRIBES: usize = 1_000;
const MILLION: usize = 1_000_000;

/// A router with what building it took.
struct Built {
    router: Box<dyn Router>,
    time: Duration,
    megabytes: f64,
}

/// Runs the section.
pub(crate) fn run(plan: &Plan, ours: Option<&dyn Side>, bars: &mut Bars) {
    println!("\n## D. Routing: 70 % exact, 20 % with `*`, 10 % with `**`");
    let topics = if plan.quick { 200_000 } else { MILLION };
    let mut subscribe_ns = Vec::new();
    for (size, bar) in [(1_000, "D1"), (100_000, "D2"), (MILLION, "D3")] {
        let work = Workload::new(size, topics);
        let mut our_router = ours.map(|ours| build(|| ours.router(&work.patterns)));
        let model = build(|| Box::new(ModelTrie::new(&work.patterns)));
        let zenoh = build(|| Box::new(KeyExprTree::new(&work.patterns)));
        let results = matches(plan, &work, our_router.as_ref(), &model, &zenoh);
        report::table(&format!("{size} patterns"), "ns a match", OURS, &results);
        print_builds(our_router.as_ref(), &model, &zenoh);

        bars.at_most(bar, results.ratio(OURS, MODEL), 1.0, "x");
        if size == MILLION {
            bars.at_least("D4", results.ratio(ZENOH, OURS), 25.0, "x");
            bars.at_most("D5", our_router.as_ref().map(|built| built.megabytes), 250.0, "MB");
            let time = our_router.as_ref().map(|built| built.time.as_secs_f64());
            bars.at_most("D6", time, 2.0, "s");
        }
        if let Some(built) = &mut our_router {
            subscribe_ns.push(subscribe_cost(&mut *built.router, size));
        }
    }
    changes(plan, ours, &subscribe_ns, bars);
}

fn build(make: impl FnOnce() -> Box<dyn Router>) -> Built {
    cpu::trim();
    let (before, start) = (cpu::resident_bytes(), Instant::now());
    let router = make();
    let time = start.elapsed();
    cpu::trim();
    let megabytes = cpu::resident_bytes().saturating_sub(before) as f64 / 1e6;
    Built { router, time, megabytes }
}

fn matches(
    plan: &Plan,
    work: &Workload,
    ours: Option<&Built>,
    model: &Built,
    zenoh: &Built,
) -> Results {
    let few = &work.topics[..work.topics.len() / ZENOH_SHARE];
    let expected = count_matches(&*model.router, few);
    let mut entrants = Vec::new();
    for (name, built, topics) in [(OURS, ours, &work.topics[..])]
        .into_iter()
        .chain([(MODEL, Some(model), &work.topics[..]), (ZENOH, Some(zenoh), few)])
    {
        let Some(built) = built else { continue };
        let found = count_matches(&*built.router, few);
        assert_eq!(found, expected, "{name} does not match what the model trie matches");
        entrants.push(figure(name, || time_matches(&*built.router, topics)));
    }
    in_turns(plan, entrants)
}

fn count_matches(router: &dyn Router, topics: &[String]) -> usize {
    topics.iter().map(|topic| router.matches(topic)).sum()
}

fn time_matches(router: &dyn Router, topics: &[String]) -> f64 {
    let start = Instant::now();
    std::hint::black_box(count_matches(router, topics));
    start.elapsed().as_nanos() as f64 / topics.len() as f64
}

fn print_builds(ours: Option<&Built>, model: &Built, zenoh: &Built) {
    println!("\n| built | s | MB |\n|---|---:|---:|");
    for (name, built) in [(OURS, ours), (MODEL, Some(model)), (ZENOH, Some(zenoh))] {
        let Some(built) = built else { continue };
        println!("| {name} | {:.3} | {:.1} |", built.time.as_secs_f64(), built.megabytes);
    }
}

/// The median time of one subscribe to a router that holds `size` patterns.
fn subscribe_cost(router: &mut dyn Router, size: usize) -> f64 {
    let mut times: Vec<f64> = (0..SUBSCRIBES)
        .map(|index| {
            let pattern = format!("site{}/added/n{index}", index % 32);
            let id = u32::try_from(size + index).unwrap_or(u32::MAX);
            let start = Instant::now();
            router.subscribe(&pattern, id);
            start.elapsed().as_nanos() as f64
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[SUBSCRIBES / 2]
}

/// D7 to D9: a hot topic beside many others, and subscribes one by one.
fn changes(plan: &Plan, ours: Option<&dyn Side>, subscribe_ns: &[f64], bars: &mut Bars) {
    let (Some(ours), &[small, .., large]) = (ours, subscribe_ns) else {
        bars.at_most("D7", None, 10.0, "ns");
        bars.at_most("D8", None, 4.0, "x");
        bars.at_most("D9", None, 10.0, "s");
        return;
    };
    let publishes = plan.messages(20.0);
    let strangers = Workload::new(if plan.quick { 1_000 } else { 10_000 }, 1).patterns;
    let time = |patterns: &[String]| {
        let elapsed = pinned(|| ours.hot_publishes(publishes, patterns));
        elapsed.as_nanos() as f64 / publishes as f64
    };
    let results = in_turns(
        plan,
        vec![
            figure("one subscription", || time(&[])),
            figure("beside strangers", || time(&strangers)),
        ],
    );
    report::table("A hot topic, publish and poll", "ns a message", "", &results);
    let hot = results.median("beside strangers").zip(results.median("one subscription"));
    bars.at_most("D7", hot.map(|(beside, alone)| beside - alone), 10.0, "ns");

    println!("\nOne subscribe: {small:.0} ns beside 1,000, {large:.0} ns beside 1,000,000.");
    bars.at_most("D8", Some(large / small), 4.0, "x");
    let work = Workload::new(MILLION, 1);
    let mut router = ours.router(&[]);
    let start = Instant::now();
    for (id, pattern) in (0..).zip(&work.patterns) {
        router.subscribe(pattern, id);
    }
    let seconds = start.elapsed().as_secs_f64();
    println!("A million subscribes, one by one: {seconds:.2} s.");
    bars.at_most("D9", Some(seconds), 10.0, "s");
}
