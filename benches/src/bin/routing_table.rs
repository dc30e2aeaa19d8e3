//! Prints the routing figures (section D of the targets) of slipring and the model trie, side by
//! side, each the median of several runs. Memory is measured in processes of their own.
//!
//! `routing_table [runs]` for all of it, `routing_table match <size>`, `routing_table build` or
//! `routing_table change` for a part.

use std::hint::black_box;
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use slipring::Pattern;
use slipring::internals::{Snapshot, Trie};
use slipring_benches::routing_input::RoutingInput;
use slipring_benches::routing_model::ModelTrie;

const SEED: u64 = 42;
const TOPICS: usize = 1_000_000;
const SIZES: [usize; 3] = [1_000, 100_000, 1_000_000];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["memory", what, size] => {
            return println!("{}", memory_kib(what, size.parse().expect("a number")));
        }
        ["build"] => return building(3),
        ["change"] => return subscribing(5),
        ["match", size] => return matching(size.parse().expect("a number"), 9),
        _ => {}
    }
    let runs = arguments.first().map_or(5, |runs| runs.parse().expect("a number of runs"));
    for size in SIZES {
        matching(size, runs);
    }
    for size in SIZES {
        memory(size);
    }
    building(runs);
    subscribing(runs);
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn model_of(patterns: &[String]) -> ModelTrie {
    let mut model = ModelTrie::default();
    for (id, pattern) in patterns.iter().enumerate() {
        model.insert(pattern, id as u32);
    }
    model
}

fn entries(patterns: &[String]) -> impl Iterator<Item = (Pattern, u64, u32)> {
    patterns
        .iter()
        .enumerate()
        .map(|(id, text)| (Pattern::new(text).expect("a valid pattern"), id as u64, id as u32))
}

/// Nanoseconds per topic, and matches per topic.
fn per_topic(topics: &[String], mut matches: impl FnMut(&str) -> u64) -> (f64, f64) {
    let start = Instant::now();
    let found: u64 = topics.iter().map(|topic| matches(topic)).sum();
    let ns = start.elapsed().as_nanos() as f64 / topics.len() as f64;
    (ns, found as f64 / topics.len() as f64)
}

fn count_in_trie(trie: &Trie<u32>, topic: &str) -> u64 {
    let mut count = 0;
    trie.for_each_match(topic, |id, value| {
        black_box((id, value));
        count += 1;
    });
    count
}

/// D1 to D3: alternating, so that both see the same machine.
fn matching(size: usize, runs: usize) {
    let input = RoutingInput::new(size, TOPICS, SEED);
    let model = model_of(&input.patterns);
    let trie = Trie::bulk(entries(&input.patterns));
    let single = singly(&input.patterns, |trie| trie.needs_merge());
    let (mut ours, mut models, mut singles) = (vec![], vec![], vec![]);
    for _ in 0..=runs {
        let (ns, of_model) = per_topic(&input.topics, |topic| {
            let mut count = 0;
            model.for_each_match(topic, |id| {
                black_box(id);
                count += 1;
            });
            count
        });
        models.push(ns);
        let (ns, of_ours) = per_topic(&input.topics, |topic| count_in_trie(&trie, topic));
        ours.push(ns);
        assert_eq!(of_model, of_ours, "both find the same");
        singles.push(per_topic(&input.topics, |topic| count_in_trie(&single, topic)).0);
    }
    let [ours, model, single_ns] =
        [ours, models, singles].map(|values| median(values[1..].to_vec()));
    println!(
        "match at {size}: {ours:.0} ns, model {model:.0} ns, ratio {:.2}; with {} unmerged changes {single_ns:.0} ns",
        ours / model,
        single.stats().changes,
    );
}

/// A trie made by single inserts, merged when it asks for it.
fn singly(patterns: &[String], needs_merge: impl Fn(&Trie<u32>) -> bool) -> Trie<u32> {
    let mut trie = Trie::new();
    for (pattern, id, value) in entries(patterns) {
        trie = trie.insert(&pattern, id, value);
        if needs_merge(&trie) {
            trie = trie.install(&trie.merge());
        }
    }
    trie
}

fn resident_kib() -> i64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("VmRSS");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("a number")
}

fn memory_kib(what: &str, size: usize) -> i64 {
    let input = RoutingInput::new(size, 1, SEED);
    let before = resident_kib();
    let after = match what {
        "model" => {
            let model = model_of(&input.patterns);
            let after = resident_kib();
            drop(black_box(model));
            after
        }
        "bulk" => {
            let trie = Trie::bulk(entries(&input.patterns));
            let after = resident_kib();
            drop(black_box(trie));
            after
        }
        _ => {
            let trie = singly(&input.patterns, Trie::needs_merge);
            let after = resident_kib();
            drop(black_box(trie));
            after
        }
    };
    after - before
}

/// D5.
fn memory(size: usize) {
    let program = std::env::current_exe().expect("a path");
    let mib = ["bulk", "single", "model"].map(|what| {
        let output = Command::new(&program).args(["memory", what, &size.to_string()]).output();
        let text = String::from_utf8(output.expect("it runs").stdout).expect("text");
        text.trim().parse::<f64>().expect("a number") / 1024.0
    });
    println!(
        "memory at {size}: {:.1} MiB in bulk, {:.1} MiB after single inserts and merges, model {:.1} MiB",
        mib[0], mib[1], mib[2]
    );
}

fn seconds(mut f: impl FnMut()) -> f64 {
    let start = Instant::now();
    f();
    start.elapsed().as_secs_f64()
}

/// D6.
fn building(runs: usize) {
    let input = RoutingInput::new(1_000_000, 1, SEED);
    let ours = (0..runs)
        .map(|_| {
            let mut trie = None;
            let time = seconds(|| trie = Some(Trie::bulk(entries(&input.patterns))));
            drop(trie);
            time
        })
        .collect();
    let model = (0..runs)
        .map(|_| {
            let mut model = None;
            let time = seconds(|| model = Some(model_of(&input.patterns)));
            drop(model);
            time
        })
        .collect();
    println!("build 1000000: {:.3} s, model {:.3} s", median(ours), median(model));
}

/// D8 and D9.
fn subscribing(runs: usize) {
    const AT_ONCE: usize = 1_000;
    let input = RoutingInput::new(1_000_000 + AT_ONCE, 1, SEED);
    let mut costs = vec![];
    for size in [1_000, 1_000_000] {
        let base = Arc::new(Trie::bulk(entries(&input.patterns[..size])));
        let new: Vec<_> = entries(&input.patterns[input.patterns.len() - AT_ONCE..]).collect();
        let snapshot = Snapshot::new(Arc::clone(&base));
        let (mut insert, mut remove, mut first) = (vec![], vec![], vec![]);
        for _ in 0..runs {
            snapshot.store(Arc::clone(&base));
            let change = |trie: Trie<u32>| snapshot.store(Arc::new(trie));
            for (pattern, id, value) in &new {
                let id = *id + 5_000_000;
                insert.push(seconds(|| change(snapshot.load().insert(pattern, id, *value))));
            }
            for (pattern, id, _) in &new {
                let id = *id + 5_000_000;
                remove.push(seconds(|| change(snapshot.load().remove(pattern, id))));
            }
            // One subscribe onto a trie without changes.
            for (pattern, id, value) in &new {
                let id = *id + 5_000_000;
                snapshot.store(Arc::clone(&base));
                first.push(seconds(|| change(snapshot.load().insert(pattern, id, *value))));
            }
        }
        let [insert, remove, first] = [insert, remove, first].map(|times| median(times) * 1e9);
        println!(
            "at {size}: subscribe {insert:.0} ns, unsubscribe {remove:.0} ns, first subscribe {first:.0} ns"
        );
        costs.push((insert, remove, first));
    }
    println!(
        "ratio 1000000/1000: subscribe {:.2}, unsubscribe {:.2}, first {:.2}",
        costs[1].0 / costs[0].0,
        costs[1].1 / costs[0].1,
        costs[1].2 / costs[0].2,
    );
    for _ in 0..runs.min(3) {
        let snapshot = Snapshot::new(Arc::new(Trie::new()));
        let mut merges = 0;
        let mut merging = 0.0;
        let mut longest: f64 = 0.0;
        let time = seconds(|| {
            for (pattern, id, value) in entries(&input.patterns[..1_000_000]) {
                snapshot.store(Arc::new(snapshot.load().insert(&pattern, id, value)));
                let trie = snapshot.load();
                if trie.needs_merge() {
                    let one = seconds(|| snapshot.store(Arc::new(trie.install(&trie.merge()))));
                    merging += one;
                    longest = longest.max(one);
                    merges += 1;
                }
            }
        });
        println!(
            "1000000 single subscribes: {time:.2} s, of it {merging:.2} s in {merges} merges, the longest {longest:.3} s"
        );
    }
}
