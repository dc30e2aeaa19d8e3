//! What patterns mean, for tests to compare with.

/// What a pattern means, said directly; shares nothing with the library.
pub(crate) fn means(pattern: &[&str], topic: &[&str]) -> bool {
    match (pattern, topic) {
        ([], []) => true,
        (["**", rest @ ..], _) => (0..=topic.len()).any(|eaten| means(rest, &topic[eaten..])),
        (["*", pattern @ ..], [_, topic @ ..]) => means(pattern, topic),
        ([wanted, pattern @ ..], [found, topic @ ..]) => wanted == found && means(pattern, topic),
        _ => false,
    }
}

/// Every sequence of 1 to `longest` of the words.
pub(crate) fn sequences<'w>(words: &[&'w str], longest: usize) -> Vec<Vec<&'w str>> {
    let mut all: Vec<Vec<&str>> = vec![];
    let mut last: Vec<Vec<&str>> = vec![vec![]];
    for _ in 0..longest {
        last = last
            .iter()
            .flat_map(|start| words.iter().map(|word| [start.as_slice(), &[*word]].concat()))
            .collect();
        all.extend(last.iter().cloned());
    }
    all
}
