//! The routing trie from outside: against the definition of patterns, at sizes and shapes that
//! break naive ones, and through merges that other changes interleave with.

mod common;

use std::collections::BTreeSet;
use std::ops::Add;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{means, sequences};
use slipring::Pattern;
use slipring::internals::{RECENT_CHANGES, Trie, TrieStats};

fn pattern(text: &str) -> Pattern {
    Pattern::new(text).expect("a valid pattern")
}

fn ids<V: Clone>(trie: &Trie<V>, topic: &str) -> Vec<u64> {
    let mut ids = vec![];
    trie.for_each_match(topic, |id, _| ids.push(id));
    ids.sort_unstable();
    assert!(ids.windows(2).all(|pair| pair[0] < pair[1]), "an id was reported twice: {ids:?}");
    ids
}

/// Merges are where the trie asks for them, as the broker does it.
fn grown(patterns: &[Pattern]) -> Trie<()> {
    patterns.iter().zip(0..).fold(Trie::new(), |trie, (pattern, id)| {
        let trie = trie.insert(pattern, id, ());
        if trie.needs_merge() { trie.install(&trie.merge()) } else { trie }
    })
}

/// Goal: the trie is right about every small pattern, all subscribed at once, whether it was built,
/// grown or cut back. Method: all patterns up to 4 segments, all topics up to 5.
#[test]
fn finds_what_the_definition_says() {
    let sequences_of_patterns = sequences(&["a", "b", "*", "**"], 4);
    let patterns: Vec<_> = sequences_of_patterns.iter().map(|s| pattern(&s.join("/"))).collect();
    let built = Trie::bulk(patterns.iter().cloned().zip(0..).map(|(p, id)| (p, id, ())));
    let grown = grown(&patterns);
    let odd = patterns.iter().zip(0..).filter(|(_, id)| id % 2 == 1);
    let halves = [&built, &grown]
        .map(|trie| odd.clone().fold(trie.clone(), |trie, (pattern, id)| trie.remove(pattern, id)));
    for topic in sequences(&["a", "b", "c"], 5) {
        let expected: Vec<u64> = sequences_of_patterns
            .iter()
            .zip(0..)
            .filter(|(pattern, _)| means(pattern, &topic))
            .map(|(_, id)| id)
            .collect();
        let name = topic.join("/");
        assert_eq!(ids(&built, &name), expected, "{name}");
        assert_eq!(ids(&grown, &name), expected, "{name}");
        let even: Vec<u64> = expected.into_iter().filter(|id| id % 2 == 0).collect();
        for half in &halves {
            assert_eq!(ids(half, &name), even, "{name}");
        }
    }
    assert_eq!(ids(&built, "$s/a"), [], "a wildcard in front does not match the system's names");
}

/// Goal: an id with several matching patterns is reported once, and one pattern may have many ids.
#[test]
fn each_id_once() {
    let mut trie = Trie::new();
    for text in ["a/b", "a/*", "*/b", "**", "a/**", "**/b", "*/**", "a/**/b", "**/a/**", "*/*"] {
        trie = trie.insert(&pattern(text), 7, "seven");
    }
    assert_eq!(ids(&trie, "a/b"), [7]);
    for id in 0..1000 {
        trie = trie.insert(&pattern("a/*"), id, "many").insert(&pattern("a/b"), id, "many");
    }
    assert_eq!(ids(&trie, "a/b"), (0..1000).collect::<Vec<_>>());
    assert_eq!(trie.len(), 10 + 2 * 999);
    for id in 0..1000 {
        trie = trie.remove(&pattern("a/*"), id);
    }
    assert_eq!(ids(&trie, "a/c"), [7], "by another pattern");
    assert_eq!(ids(&trie, "a/b").len(), 1000);
}

fn assert_quick<T>(what: &str, f: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = f();
    assert!(start.elapsed() < Duration::from_secs(20), "{what} took {:?}", start.elapsed());
    result
}

/// Goal: many states stay many, and do not multiply.
#[test]
fn pathological_patterns_are_found_in_bounded_time() {
    let deep = ["a"; 32].join("/");
    let many = [
        "**/a/**/a/**/a/**/b".to_owned(),
        ["**/a"; 15].join("/") + "/b",
        ["**/a/*"; 10].join("/") + "/**",
        ["*"; 31].join("/") + "/**",
        ["a"; 31].join("/") + "/**",
        "**".to_owned(),
    ];
    let patterns: Vec<_> = many.iter().map(|text| pattern(text)).collect();
    let trie = grown(&patterns);
    assert_quick("1,000 matches of bad patterns", || {
        for _ in 0..1000 {
            let expected: Vec<u64> =
                (0..).zip(&patterns).filter(|(_, p)| p.matches(&deep)).map(|(id, _)| id).collect();
            assert_eq!(ids(&trie, &deep), expected);
        }
    });

    // Every subset of the topic's segments, in order, with `**` between: 2^13 live anchors.
    let words: Vec<String> = (0..13).map(|n| format!("w{n}")).collect();
    let subsets: Vec<Pattern> = (1..1u32 << words.len())
        .map(|subset| {
            let chosen = words.iter().enumerate().filter(|(n, _)| subset >> n & 1 == 1);
            pattern(&chosen.map(|(_, word)| format!("**/{word}/")).collect::<String>().add("**"))
        })
        .collect();
    let trie = grown(&subsets);
    assert_quick("a match with 8,000 live anchors", || {
        assert_eq!(ids(&trie, &words.join("/")).len(), subsets.len());
    });

    let by_end: Vec<_> = (0..10_000).map(|n| pattern(&format!("**/x{n}/**/y{n}"))).collect();
    let trie = grown(&by_end);
    assert_quick("10,000 matches among 10,000 patterns that begin with **", || {
        for n in 0..10_000 {
            assert_eq!(ids(&trie, &format!("a/x{n}/b/c/y{n}")), [n]);
        }
    });
}

/// Goal: one node may have very many children.
#[test]
fn siblings_are_found_by_hash() {
    let siblings: Vec<_> = (0..100_000).map(|n| pattern(&format!("plant/sensor{n}"))).collect();
    let trie = assert_quick("100,000 subscribes", || grown(&siblings));
    assert_quick("100,000 matches", || {
        for n in 0..100_000 {
            assert_eq!(ids(&trie, &format!("plant/sensor{n}")), [n]);
        }
    });
    assert_eq!(ids(&trie, "plant/sensor100000"), []);
}

/// Goal: subscribing and unsubscribing leaves nothing behind, merged in between or not.
#[test]
fn a_million_cycles_leave_nothing_behind() {
    let cycles = if cfg!(debug_assertions) { 100_000u64 } else { 1_000_000 };
    let texts = ["a/b/c", "a/*/c", "**/c", "a/**", "a/**/x/*", "*/*/**", "**/a/**/b/*/c"];
    for merges in [false, true] {
        let value = Arc::new(());
        let mut trie = Trie::new();
        for cycle in 0..cycles {
            let text = texts[(cycle % 7) as usize];
            let pattern = match cycle % 3 {
                0 => pattern(text),
                _ => pattern(&format!("{}/{text}/{}", cycle % 100, cycle % 1000)),
            };
            trie = trie.insert(&pattern, cycle, Arc::clone(&value));
            if merges && cycle % (cycles / 10) == 0 {
                trie = trie.install(&trie.merge());
            }
            trie = trie.remove(&pattern, cycle);
        }
        if merges {
            trie = trie.install(&trie.merge());
        }
        assert_eq!((trie.len(), trie.stats()), (0, TrieStats::default()));
        assert_eq!(Arc::strong_count(&value), 1, "no removed value is kept");
    }
}

/// Goal: a merge that began before other changes keeps them; one that was overtaken by another
/// merge does nothing; the replaced base is not freed by whoever happens to drop a trie.
#[test]
fn merging_interleaves_with_changes() {
    let start: Vec<_> = (0..100).map(|n| pattern(&format!("a/{n}/*"))).collect();
    let mut trie = Trie::bulk(start.iter().cloned().zip(0..).map(|(p, id)| (p, id, ())));
    trie = trie.insert(&pattern("new/before"), 200, ()).remove(&start[0], 0);
    assert!(!trie.is_merged());
    let (merged, late) = (trie.merge(), trie.merge());
    let changed = trie
        .insert(&pattern("new/*"), 201, ())
        .insert(&start[0], 0, ()) // undoes a change that is in the merge
        .remove(&pattern("new/before"), 200) // and another
        .remove(&start[1], 1);
    drop(trie);
    let installed = changed.install(&merged);
    for (topic, expected) in
        [("new/before", vec![201]), ("a/0/x", vec![0]), ("a/1/x", vec![]), ("a/2/x", vec![2])]
    {
        assert_eq!(ids(&changed, topic), expected, "{topic}");
        assert_eq!(ids(&installed, topic), expected, "{topic}");
    }
    assert_eq!((installed.len(), installed.version()), (100, changed.version()));
    let again = installed.install(&late).insert(&pattern("z"), 300, ());
    assert_eq!((again.len(), ids(&again, "z"), ids(&again, "a/1/x")), (101, vec![300], vec![]));
    drop((changed, late));
    assert!(merged.replaced_is_unused());
    let merged_again = again.install(&again.merge());
    assert!(merged_again.is_merged() && merged_again.len() == 101);
    assert!(Trie::<()>::new().is_merged());
}

/// Goal: what a shard must match again is known exactly for the latest changes, and otherwise
/// assumed.
#[test]
fn recent_changes_tell_which_topics_they_concern() {
    let mut trie = Trie::bulk([(pattern("old/**"), 0, ())]);
    let resolved_at = trie.version();
    assert!(!trie.concerns(resolved_at, "old/x"), "nothing has changed");
    trie = trie.insert(&pattern("a/*"), 1, ());
    assert!(trie.concerns(resolved_at, "a/b") && !trie.concerns(resolved_at, "b/a"));
    let between = trie.version();
    trie = trie.remove(&pattern("a/*"), 1).remove(&pattern("a/*"), 1).remove(&pattern("b"), 9);
    assert_eq!(trie.version(), between + 1, "removing what is not there is no change");
    assert!(trie.concerns(between, "a/b"));
    trie = trie.install(&trie.merge());
    assert!(!trie.concerns(trie.version(), "a/b"), "merging is no change");
    for n in 0..RECENT_CHANGES - 2 {
        trie = trie.insert(&pattern(&format!("c/{n}")), n, ());
    }
    let known: BTreeSet<bool> =
        ["a/b", "b/a", "c/0"].map(|topic| trie.concerns(resolved_at, topic)).into();
    assert_eq!(known, [false, true].into());
    for n in 0..RECENT_CHANGES * 2 {
        trie = trie.insert(&pattern(&format!("d/{n}")), n, ());
        let recently = trie.version() - RECENT_CHANGES.min(n + 1);
        assert!(!trie.concerns(recently, "e") && trie.concerns(recently, &format!("d/{n}")));
    }
    assert!(trie.concerns(resolved_at, "e"), "too long ago to know");
    assert!(trie.concerns(trie.version() + 1, "e"), "not of this trie");
}
