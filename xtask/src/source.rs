//! Reading Rust source as text: code without comments and strings, and without its tests.

/// The same text with comments, string and character literals blanked; lines keep their numbers.
pub(crate) fn code_only(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while at < chars.len() {
        let end = literal_or_comment_end(&chars, at);
        if end == at {
            out.push(chars[at]);
            at += 1;
        } else {
            out.extend(chars[at..end].iter().map(|&c| if c == '\n' { '\n' } else { ' ' }));
            at = end;
        }
    }
    out
}

/// Where the comment or literal that starts at `at` ends; `at` itself when none starts there.
fn literal_or_comment_end(chars: &[char], at: usize) -> usize {
    let next = chars.get(at + 1).copied();
    match chars[at] {
        '/' if next == Some('/') => find(chars, at, |c| c == '\n'),
        '/' if next == Some('*') => block_comment_end(chars, at),
        '"' => quoted_end(chars, at + 1, '"'),
        '\'' if is_character(chars, at) => quoted_end(chars, at + 1, '\''),
        'r' if !continues_word(chars, at) => raw_string_end(chars, at),
        _ => at,
    }
}

fn find(chars: &[char], from: usize, wanted: impl Fn(char) -> bool) -> usize {
    chars[from..].iter().position(|&c| wanted(c)).map_or(chars.len(), |n| from + n)
}

fn block_comment_end(chars: &[char], from: usize) -> usize {
    let (mut at, mut depth) = (from + 2, 1);
    while at < chars.len() && depth > 0 {
        match (chars[at], chars.get(at + 1)) {
            ('/', Some('*')) => (depth, at) = (depth + 1, at + 2),
            ('*', Some('/')) => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
    }
    at
}

fn quoted_end(chars: &[char], mut at: usize, quote: char) -> usize {
    while at < chars.len() && chars[at] != quote {
        at += if chars[at] == '\\' { 2 } else { 1 };
    }
    (at + 1).min(chars.len())
}

/// A quote opens a character literal, and not a lifetime, when one closes it right behind.
fn is_character(chars: &[char], at: usize) -> bool {
    chars.get(at + 1) == Some(&'\\') || chars.get(at + 2) == Some(&'\'')
}

/// Is `at` inside a word, so that an `r` there opens no raw string? (`br"` does.)
fn continues_word(chars: &[char], at: usize) -> bool {
    let word = |c: char| c.is_alphanumeric() || c == '_';
    match at.checked_sub(1).map(|i| chars[i]) {
        Some('b') => at >= 2 && word(chars[at - 2]),
        Some(c) => word(c),
        None => false,
    }
}

fn raw_string_end(chars: &[char], from: usize) -> usize {
    let open = find(chars, from + 1, |c| c != '#');
    if chars.get(open) != Some(&'"') {
        return from;
    }
    let hashes = open - from - 1;
    let mut at = open + 1;
    while at < chars.len() {
        if chars[at] == '"' && chars[at + 1..].iter().take_while(|&&c| c == '#').count() >= hashes {
            return at + 1 + hashes;
        }
        at += 1;
    }
    at
}

/// The text before, and from, the tests module that closes a file (`#[cfg(test)] mod ...`).
pub(crate) fn split_tests(text: &str) -> (&str, &str) {
    let mut start = 0;
    let mut candidate = None;
    for line in text.split_inclusive('\n') {
        let trimmed = line.trim();
        if line.starts_with("#[cfg(") && trimmed.contains("test") {
            candidate = candidate.or(Some(start));
        } else if let Some(from) = candidate {
            if trimmed.starts_with("mod ") && trimmed.ends_with('{') {
                return text.split_at(from);
            }
            if !trimmed.starts_with('#') && !trimmed.starts_with("//") {
                candidate = None;
            }
        }
        start += line.len();
    }
    (text, "")
}

/// Each place of `word` in `code` as a whole word, as a line number counted from 1.
pub(crate) fn lines_with_word(code: &str, word: &str) -> Vec<usize> {
    let part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    let mut lines = Vec::new();
    for (index, line) in code.lines().enumerate() {
        let found = line.match_indices(word).any(|(at, _)| {
            let before = part(line[..at].chars().next_back());
            let ends_in_part = part(word.chars().next_back());
            let after = ends_in_part && part(line[at + word.len()..].chars().next());
            !before && !after
        });
        if found {
            lines.push(index + 1);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_blanked() {
        let text =
            "let a = \"unsafe\\\"\"; // unsafe\n/* unsafe /* */ unsafe */ b('\"', r#\"unsafe\"#)\n";
        let code = code_only(text);
        assert!(!code.contains("unsafe"), "{code}");
        assert!(code.contains("let a") && code.contains("b("), "{code}");
        assert_eq!(code.lines().count(), text.lines().count());
    }

    #[test]
    fn lifetimes_are_not_characters() {
        let code = code_only("fn f<'a>(x: &'a str) { unsafe { g(x, '\\'', b'x') } } // 'end");
        assert_eq!(lines_with_word(&code, "unsafe"), [1]);
        assert!(code.contains("str)"), "{code}");
    }

    #[test]
    fn the_tests_module_is_split_off() {
        let text = "fn a() {}\n#[cfg(test)]\nfn only_here() {}\n#[cfg(test)]\n#[expect(x)]\nmod tests {\n}\n";
        let (code, tests) = split_tests(text);
        assert!(code.ends_with("fn only_here() {}\n"), "{code}");
        assert!(tests.starts_with("#[cfg(test)]\n#[expect(x)]\nmod"), "{tests}");
    }

    #[test]
    fn words_are_whole() {
        assert_eq!(lines_with_word("unsafe_code\nunsafe {\n(unsafe)", "unsafe"), [2, 3]);
    }
}
