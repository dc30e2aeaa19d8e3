//! Routing: cold matches, the build, and single changes, beside the model trie.

use std::hint::black_box;

use criterion::{BatchSize, Criterion, Throughput};
use slipring::Pattern;
use slipring::internals::Trie;
use slipring_benches::routing_input::RoutingInput;
use slipring_benches::routing_model::ModelTrie;

const TOPICS: usize = 100_000;
const ENDLESS: &str = "a cycle has no end";

fn hold(id: u64) {
    black_box(id);
}

fn entries(patterns: &[String]) -> impl Iterator<Item = (Pattern, u64, u32)> {
    patterns
        .iter()
        .enumerate()
        .map(|(id, text)| (Pattern::new(text).expect("a valid pattern"), id as u64, id as u32))
}

fn cold_match(c: &mut Criterion) {
    for size in [1_000, 100_000, 1_000_000] {
        let input = RoutingInput::new(size, TOPICS, 42);
        let trie = Trie::bulk(entries(&input.patterns));
        let mut model = ModelTrie::default();
        for (id, pattern) in input.patterns.iter().enumerate() {
            model.insert(pattern, id as u32);
        }
        let mut group = c.benchmark_group(format!("match/{size}"));
        group.throughput(Throughput::Elements(1));
        let mut topics = input.topics.iter().cycle();
        group.bench_function("slipring", |b| {
            b.iter(|| trie.for_each_match(topics.next().expect(ENDLESS), |id, _| hold(id)));
        });
        group.bench_function("model", |b| {
            b.iter(|| {
                model.for_each_match(topics.next().expect(ENDLESS), |id| hold(u64::from(id)))
            });
        });
    }
}

fn change(c: &mut Criterion) {
    for size in [1_000, 100_000, 1_000_000] {
        let input = RoutingInput::new(size + 1_000, 1, 42);
        let (old, new) = input.patterns.split_at(size);
        let trie = Trie::bulk(entries(old));
        let new: Vec<_> = entries(new).map(|(pattern, ..)| pattern).collect();
        let mut next = new.iter().cycle();
        let mut group = c.benchmark_group(format!("change/{size}"));
        group.bench_function("subscribe", |b| {
            b.iter(|| trie.insert(next.next().expect(ENDLESS), u64::MAX, 0));
        });
        let old: Vec<_> = entries(old).take(10_000).collect();
        let mut next = old.iter().cycle();
        group.bench_function("unsubscribe", |b| {
            b.iter(|| {
                let (pattern, id, _) = next.next().expect(ENDLESS);
                trie.remove(pattern, *id)
            });
        });
    }
}

fn build(c: &mut Criterion) {
    let input = RoutingInput::new(100_000, 1, 42);
    let mut group = c.benchmark_group("build/100000");
    group.sample_size(10);
    group.bench_function("bulk", |b| {
        b.iter_batched(
            || entries(&input.patterns).collect::<Vec<_>>(),
            Trie::bulk,
            BatchSize::PerIteration,
        );
    });
    let trie = Trie::bulk(entries(&input.patterns[..90_000]));
    let trie = entries(&input.patterns[90_000..])
        .fold(trie, |trie, (pattern, id, value)| trie.insert(&pattern, id + 1_000_000, value));
    group.bench_function("merge a tenth", |b| b.iter(|| trie.merge()));
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    cold_match(&mut criterion);
    change(&mut criterion);
    build(&mut criterion);
    criterion.final_summary();
}
