//! Any bytes as lines, patterns and topics in turns: refused inside the text or canonical, and
//! the trie, the matcher and a slow oracle agree on every pair.
#![no_main]

use std::collections::BTreeSet;

use libfuzzer_sys::fuzz_target;
use slipring::internals::Trie;
use slipring::{Pattern, TopicName};

/// Which positions of the topic every part of the pattern can reach, segment by segment.
fn oracle(pattern: &str, topic: &str) -> bool {
    if pattern.starts_with('*') && topic.starts_with('$') {
        return false;
    }
    let topic: Vec<&str> = topic.split('/').collect();
    let mut reached = BTreeSet::from([0]);
    for segment in pattern.split('/') {
        reached = match segment {
            "**" => (reached.first().copied().unwrap_or(usize::MAX)..=topic.len()).collect(),
            segment => reached
                .into_iter()
                .filter(|&at| at < topic.len() && (segment == "*" || segment == topic[at]))
                .map(|at| at + 1)
                .collect(),
        };
    }
    reached.contains(&topic.len())
}

fuzz_target!(|bytes: &[u8]| {
    let mut patterns = vec![];
    let mut topics = vec![];
    for (at, line) in bytes.split(|&byte| byte == b'\n').take(64).enumerate() {
        if at % 2 == 0 {
            match Pattern::from_bytes(line) {
                Ok(pattern) => {
                    assert_eq!(Pattern::new(pattern.as_str()).as_ref(), Ok(&pattern));
                    patterns.push((std::str::from_utf8(line).unwrap(), pattern));
                }
                Err(refusal) => assert!(refusal.position <= line.len(), "{refusal}"),
            }
        } else {
            match TopicName::from_bytes(line) {
                Ok(topic) => topics.push(topic),
                Err(refusal) => assert!(refusal.position <= line.len(), "{refusal}"),
            }
        }
    }
    let entries = patterns.iter().zip(0..).map(|((_, pattern), id)| (pattern.clone(), id, ()));
    let built = Trie::bulk(entries.clone());
    let mut grown = Trie::new();
    for (pattern, id, ()) in entries {
        grown = grown.insert(&pattern, id, ());
        if id % 4 == 3 {
            grown = grown.install(&grown.merge());
        }
    }
    for topic in &topics {
        let topic = topic.as_str();
        let mut expected = BTreeSet::new();
        for ((text, pattern), id) in patterns.iter().zip(0..) {
            assert_eq!(pattern.matches(topic), oracle(text, topic), "{text} and {topic}");
            if oracle(text, topic) {
                expected.insert(id);
            }
        }
        for trie in [&built, &grown] {
            let mut found = BTreeSet::new();
            trie.for_each_match(topic, |id, _| assert!(found.insert(id), "{id} twice"));
            assert_eq!(found, expected, "{topic}");
        }
    }
    for ((_, pattern), id) in patterns.iter().zip(0..) {
        grown = grown.remove(pattern, id);
    }
    assert_eq!((grown.len(), grown.stats().leaves, grown.stats().counters), (0, 0, 0));
});
