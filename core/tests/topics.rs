//! The contract of topic names and patterns: the shared vectors, and oracles that have nothing of
//! the library's code.

use serde_json::Value;
use slipring::{Pattern, TopicName};

const VECTORS: &str = include_str!("vectors/topics.jsonl");

/// Goal: every vector holds, and every line of the file is one of the known kinds.
#[test]
fn vectors_hold() {
    let mut lines = 0;
    for line in VECTORS.lines().filter(|line| !line.trim().is_empty()) {
        let vector: Value = serde_json::from_str(line).unwrap();
        let text = |key: &str| vector.get(key).and_then(Value::as_str);
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
