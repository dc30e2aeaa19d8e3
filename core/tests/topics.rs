//! The contract of topic names and patterns: the shared vectors, and oracles that have nothing of
//! the library's code.

mod common;

use std::collections::HashMap;
use std::time::{Duration, Instant};

use common::{means, sequences};
use proptest::prelude::*;
use serde_json::Value as Json;
use slipring::{Pattern, TopicName};

const VECTORS: &str = include_str!("vectors/topics.jsonl");

/// Goal: every vector holds, and every line of the file is one of the known kinds.
#[test]
fn vectors_hold() {
    let mut lines = 0;
    for line in VECTORS.lines().filter(|line| !line.trim().is_empty()) {
        let vector: Json = serde_json::from_str(line).unwrap();
        let text = |key: &str| vector.get(key).and_then(Json::as_str);
        if let Some(pattern) = text("bad_pattern") {
            assert!(Pattern::new(pattern).is_err(), "{line}");
        } else if let Some(topic) = text("bad_topic") {
            assert!(TopicName::new(topic).is_err(), "{line}");
        } else if let Some(canonical) = text("canonical") {
            assert_eq!(Pattern::new(text("pattern").unwrap()).unwrap().as_str(), canonical);
        } else {
            let pattern = Pattern::new(text("pattern").unwrap()).unwrap();
            let topic = TopicName::new(text("topic").unwrap()).unwrap();
            let expected = vector["match"].as_bool().unwrap();
            assert_eq!(pattern.matches(topic.as_str()), expected, "{line}");
        }
        lines += 1;
    }
    assert!(lines > 500, "only {lines} vectors");
}

fn means_for_names(pattern: &str, topic: &str) -> bool {
    let is_kept_apart = pattern.starts_with('*') && topic.starts_with('$');
    let (pattern, topic) = (pattern.split('/'), topic.split('/'));
    !is_kept_apart && means(&pattern.collect::<Vec<_>>(), &topic.collect::<Vec<_>>())
}

/// Goal: on a small alphabet, patterns have the same canonical text exactly if they match the same
/// sequences, and `matches` is right. Method: all patterns up to 5 segments, all topics up to 6.
/// The sequence of no segments is counted in: no name is that short, and it is all that tells `**`
/// from `*/**`.
#[test]
fn equal_sets_have_equal_text() {
    let topics = sequences(&["a", "b", "c"], 6);
    let names: Vec<String> = topics.iter().map(|topic| topic.join("/")).collect();
    let mut by_set = HashMap::new();
    let mut by_text = HashMap::new();
    for segments in sequences(&["a", "b", "*", "**"], 5) {
        let pattern = Pattern::new(&segments.join("/")).unwrap();
        let mut set: Vec<bool> = topics.iter().map(|topic| means(&segments, topic)).collect();
        for (name, expected) in names.iter().zip(&set) {
            assert_eq!(pattern.matches(name), *expected, "{pattern} and {name}");
        }
        set.push(means(&segments, &[]));
        let text = pattern.as_str().to_owned();
        assert_eq!(Pattern::new(&text).unwrap(), pattern, "canonical text is stable");
        assert_eq!(*by_set.entry(set.clone()).or_insert(text.clone()), text);
        assert_eq!(*by_text.entry(text).or_insert(set.clone()), set);
    }
}

fn segment() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => prop::sample::select(vec!["a", "b", "aa", "ü", "$s", "long-segment-1", "long-segment-2"])
            .prop_map(str::to_owned),
        1 => "[^/*\\pC]{1,9}",
    ]
}

fn name() -> impl Strategy<Value = String> {
    prop::collection::vec(segment(), 1..9).prop_map(|segments| segments.join("/"))
}

fn pattern() -> impl Strategy<Value = String> {
    let segment = prop_oneof![3 => segment(), 2 => Just("*".into()), 2 => Just("**".into())];
    prop::collection::vec(segment, 1..9).prop_map(|segments| segments.join("/"))
}

/// A pattern made of a name, so that it is likely to match.
fn pattern_for(name: String) -> impl Strategy<Value = (String, String)> {
    let len = name.split('/').count();
    prop::collection::vec(0..5u8, len).prop_map(move |choices| {
        let segments = name.split('/').zip(choices).map(|(segment, choice)| match choice {
            0 => "*",
            1 => "**",
            2 => "**/*",
            _ => segment,
        });
        (segments.collect::<Vec<_>>().join("/"), name.clone())
    })
}

proptest! {
    /// Goal: `matches` means what the definition says, on any text.
    #[test]
    fn matches_as_defined(pattern in pattern(), name in name()) {
        let parsed = Pattern::new(&pattern).unwrap();
        prop_assert_eq!(parsed.matches(&name), means_for_names(&pattern, &name));
        prop_assert_eq!(parsed.is_exact(), !pattern.contains('*'));
    }

    /// Goal: the same where most pairs match.
    #[test]
    fn matches_as_defined_when_likely((pattern, name) in name().prop_flat_map(pattern_for)) {
        let parsed = Pattern::new(&pattern).unwrap();
        prop_assert_eq!(parsed.matches(&name), means_for_names(&pattern, &name));
    }

    /// Goal: any text is either refused inside itself, or is canonical after one reading.
    #[test]
    fn any_text_is_refused_or_stable(text in "(\\PC|[/*$\u{0}-\u{20}]){0,40}") {
        match Pattern::new(&text) {
            Ok(pattern) => prop_assert_eq!(&Pattern::new(pattern.as_str()).unwrap(), &pattern),
            Err(refusal) => prop_assert!(refusal.position <= text.len()),
        }
        match TopicName::new(&text) {
            Ok(name) => {
                prop_assert!(Pattern::from(name.clone()).matches(&text));
                prop_assert_eq!(Pattern::new(&text).unwrap(), Pattern::from(name));
            }
            Err(refusal) => prop_assert!(text.is_char_boundary(refusal.position)),
        }
    }
}

/// Goal: no pattern makes a single comparison slow. Method: the known bad ones, many times over.
#[test]
fn pathological_patterns_are_matched_in_bounded_time() {
    let many_any = Pattern::new("**/a/**/a/**/a/**/b").unwrap();
    let longest_any = Pattern::new(&format!("{}/b", ["**/a"; 15].join("/"))).unwrap();
    let topic = ["a"; 32].join("/");
    let start = Instant::now();
    for _ in 0..10_000 {
        assert!(!many_any.matches(&topic) && !longest_any.matches(&topic));
    }
    assert!(start.elapsed() < Duration::from_secs(10), "took {:?}", start.elapsed());
}
