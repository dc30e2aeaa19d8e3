//! Topic names and patterns: what is allowed, what is equal, what matches what.
//!
//! Everything here is pure text. The broker checks a name or pattern once, where it enters, and
//! holds the checked types from then on; the routing trie asks [`Pattern::matches`] for the last
//! word on every candidate it finds by hash.
//!
//! Names are `/`-separated UTF-8: 1 to 32 segments, at most 1,024 bytes, no empty segment, no
//! control character, no `*`. In a pattern a segment that is exactly `*` stands for one segment,
//! and one that is exactly `**` for any number of them, none included. A pattern that begins with
//! a wildcard does not match names that begin with `$`: those belong to the system.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc; // shared immutable text, nothing that a model would have to watch

use crate::error::{InvalidName, NameRule};

/// The longest topic name or pattern, in bytes of the text as given.
pub const MAX_NAME_LEN_BYTES: usize = 1024;

/// The most segments a topic name or pattern may have, as given.
pub const MAX_NAME_SEGMENTS: usize = 32;

const ONE: &str = "*";
const ANY: &str = "**";

/// Checks that `name` is a topic name; `$` names pass, see [`TopicName::is_system`].
///
/// # Errors
///
/// The leftmost place where a rule is broken, and which. An empty segment's place is where it
/// begins, so that of a trailing `/` is the length of the text.
///
/// ```
/// use slipring::NameRule;
///
/// assert!(slipring::validate_name("sports/cricket").is_ok());
/// let refusal = slipring::validate_name("sports//cricket").unwrap_err();
/// assert_eq!((refusal.position, refusal.reason), (7, NameRule::EmptySegment));
/// ```
pub fn validate_name(name: &str) -> Result<(), InvalidName> {
    check(name, false)
}

/// A checked topic name; cheap to clone.
///
/// ```
/// let name = slipring::TopicName::new("sports/cricket").unwrap();
/// assert_eq!(name.segments().collect::<Vec<_>>(), ["sports", "cricket"]);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicName(Arc<str>);

impl TopicName {
    /// Checks `name` and copies it.
    ///
    /// # Errors
    ///
    /// As [`validate_name`].
    pub fn new(name: &str) -> Result<Self, InvalidName> {
        validate_name(name)?;
        Ok(Self(name.into()))
    }

    /// As [`TopicName::new`], for bytes that come from another language.
    ///
    /// # Errors
    ///
    /// As [`validate_name`]; also [`NameRule::NotUtf8`] at the first byte that is not UTF-8.
    pub fn from_bytes(name: &[u8]) -> Result<Self, InvalidName> {
        Self::new(utf8(name)?)
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The parts between the `/`s, at least one.
    pub fn segments(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.0.split('/')
    }

    /// Whether the name belongs to the system: its first segment begins with `$`. Users may
    /// subscribe to such names but not create them.
    pub fn is_system(&self) -> bool {
        is_system(&self.0)
    }
}

/// A checked pattern in canonical form; cheap to clone.
///
/// Patterns that match the same names have the same text, so they are compared as text: `**/**`
/// becomes `**`, and in a run of wildcards every `*` goes before the `**`. (`**` and `*/**` differ
/// only in the name of no segments, which does not exist; they stay two patterns.)
///
/// ```
/// use slipring::Pattern;
///
/// let pattern = Pattern::new("sports/**").unwrap();
/// assert!(pattern.matches("sports") && pattern.matches("sports/cricket/live"));
/// assert_eq!(Pattern::new("a/**/*/**").unwrap().as_str(), "a/*/**");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pattern(Arc<str>);

impl Pattern {
    /// Checks `pattern` and brings it into canonical form.
    ///
    /// # Errors
    ///
    /// The leftmost place in the text as given where a rule is broken, and which. The place of a
    /// `*` that is not a whole segment is the first `*` of that segment.
    pub fn new(pattern: &str) -> Result<Self, InvalidName> {
        check(pattern, true)?;
        if pattern.contains('*') && pattern.contains(ANY) {
            Ok(Self(canonical(pattern).into()))
        } else {
            Ok(Self(pattern.into()))
        }
    }

    /// As [`Pattern::new`], for bytes that come from another language.
    ///
    /// # Errors
    ///
    /// As [`Pattern::new`]; also [`NameRule::NotUtf8`] at the first byte that is not UTF-8.
    pub fn from_bytes(pattern: &[u8]) -> Result<Self, InvalidName> {
        Self::new(utf8(pattern)?)
    }

    /// The canonical text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The canonical segments, wildcards included.
    pub fn segments(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.0.split('/')
    }

    /// Whether there is no wildcard, so that the pattern matches the one topic of the same name.
    pub fn is_exact(&self) -> bool {
        !self.0.as_bytes().contains(&b'*')
    }

    /// Whether the pattern matches `topic`, which must be a valid name (else the answer is
    /// arbitrary). Takes at most (segments of the pattern) x (segments of the topic) comparisons
    /// of one segment; does not allocate.
    #[inline]
    pub fn matches(&self, topic: &str) -> bool {
        matches(self.as_str().as_bytes(), topic)
    }

    /// The pattern with this text, which is that of a pattern.
    pub(crate) fn of_canonical(text: &str) -> Self {
        debug_assert_eq!(Self::new(text).as_ref().map(Self::as_str), Ok(text));
        Self(text.into())
    }
}

/// As [`Pattern::matches`], for a pattern's text.
#[inline]
pub(crate) fn matches(pattern: &[u8], topic: &str) -> bool {
    if pattern == topic.as_bytes() {
        return true;
    }
    if pattern.first() == Some(&b'*') && is_system(topic) {
        return false;
    }
    matches_from_the_left(pattern, topic.as_bytes())
}

macro_rules! text_type {
    ($type:ident) => {
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl AsRef<str> for $type {
            fn as_ref(&self) -> &str {
                self.as_str()
            }
        }

        impl FromStr for $type {
            type Err = InvalidName;

            fn from_str(text: &str) -> Result<Self, InvalidName> {
                Self::new(text)
            }
        }

        impl TryFrom<&str> for $type {
            type Error = InvalidName;

            fn try_from(text: &str) -> Result<Self, InvalidName> {
                Self::new(text)
            }
        }
    };
}

text_type!(TopicName);
text_type!(Pattern);

impl From<TopicName> for Pattern {
    /// The pattern that matches exactly this topic.
    fn from(name: TopicName) -> Self {
        Self(name.0)
    }
}

fn is_system(topic: &str) -> bool {
    topic.starts_with('$')
}

fn utf8(bytes: &[u8]) -> Result<&str, InvalidName> {
    std::str::from_utf8(bytes).map_err(|error| refuse(error.valid_up_to(), NameRule::NotUtf8))
}

fn refuse(position: usize, reason: NameRule) -> InvalidName {
    InvalidName { position, reason }
}

/// Finds the leftmost broken rule; looks at no more than the allowed length.
#[inline]
fn check(text: &str, wildcards: bool) -> Result<(), InvalidName> {
    if is_plain(text, wildcards) { Ok(()) } else { check_thoroughly(text, wildcards) }
}

/// Whether `text` is in order and all ASCII, as most are: quick to say of bytes.
fn is_plain(text: &str, wildcards: bool) -> bool {
    if text.len() > MAX_NAME_LEN_BYTES {
        return false;
    }
    let (mut segments, mut segment_start) = (1, 0);
    for (at, &byte) in text.as_bytes().iter().enumerate() {
        match byte {
            b'/' if at == segment_start => return false,
            b'/' => (segments, segment_start) = (segments + 1, at + 1),
            b'*' if !wildcards || !is_whole_wildcard(text, segment_start) => return false,
            b' '..=b'~' => {}
            _ => return false,
        }
    }
    segment_start < text.len() && segments <= MAX_NAME_SEGMENTS
}

fn check_thoroughly(text: &str, wildcards: bool) -> Result<(), InvalidName> {
    if text.is_empty() {
        return Err(refuse(0, NameRule::Empty));
    }
    let mut segments = 1;
    let mut segment_start = 0;
    for (at, character) in text.char_indices() {
        if at + character.len_utf8() > MAX_NAME_LEN_BYTES {
            break;
        }
        match character {
            '/' if at == segment_start => return Err(refuse(at, NameRule::EmptySegment)),
            '/' => {
                segment_start = at + 1;
                segments += 1;
                if segments > MAX_NAME_SEGMENTS && segment_start < text.len() {
                    return Err(refuse(segment_start, NameRule::TooManySegments));
                }
            }
            '*' if !wildcards => return Err(refuse(at, NameRule::WildcardInName)),
            '*' if !is_whole_wildcard(text, segment_start) => {
                return Err(refuse(at, NameRule::PartialWildcard));
            }
            _ if character.is_control() => return Err(refuse(at, NameRule::ControlCharacter)),
            _ => {}
        }
    }
    if text.len() > MAX_NAME_LEN_BYTES {
        return Err(refuse(MAX_NAME_LEN_BYTES, NameRule::TooLong));
    }
    if segment_start == text.len() {
        return Err(refuse(segment_start, NameRule::EmptySegment));
    }
    Ok(())
}

/// Whether the segment that begins at `start` is `*` or `**`.
fn is_whole_wildcard(text: &str, start: usize) -> bool {
    let rest = &text.as_bytes()[start..];
    let stars = rest.iter().take(3).take_while(|&&byte| byte == b'*').count();
    (stars == 1 || stars == 2) && matches!(rest.get(stars), None | Some(b'/'))
}

/// Moves the `**`s of each run of wildcards behind its `*`s and keeps one of them.
fn canonical(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len());
    let mut push = |segment: &str| {
        if !out.is_empty() {
            out.push('/');
        }
        out.push_str(segment);
    };
    let mut any_is_due = false;
    for segment in pattern.split('/') {
        if segment == ANY {
            any_is_due = true;
            continue;
        }
        if any_is_due && segment != ONE {
            push(ANY);
            any_is_due = false;
        }
        push(segment);
    }
    if any_is_due {
        push(ANY);
    }
    out
}

/// Compares from the left; a mismatch lets the last `**` eat one more segment.
///
/// Only the last `**` ever needs to: whatever an earlier one could eat, the last one can too.
fn matches_from_the_left(pattern: &[u8], topic: &[u8]) -> bool {
    let (mut in_pattern, mut in_topic) = (0, 0);
    // Where the pattern goes on behind the last `**`, and where that `**` ends in the topic.
    let mut retry: Option<(usize, usize)> = None;
    loop {
        let common = common_len(&pattern[in_pattern..], &topic[in_topic..]);
        in_pattern += common;
        in_topic += common;
        match (&pattern[in_pattern..], in_topic == topic.len()) {
            ([], true) | (b"**", _) | (b"/**", true) => return true,
            ([b'*', b'*', ..], _) => {
                in_pattern += b"**/".len();
                retry = Some((in_pattern, in_topic));
                continue;
            }
            // A name has no empty segment, so there is one here unless the topic has ended.
            ([b'*', ..], false) => {
                in_pattern += 1;
                in_topic = segment_end(topic, in_topic);
                continue;
            }
            // The topic is too short already, and the `**` would leave less of it.
            (_, true) => return false,
            _ => {}
        }
        let Some((after, eaten)) = retry else {
            return false;
        };
        in_pattern = after;
        in_topic = segment_end(topic, eaten) + 1;
        if in_topic >= topic.len() {
            return false;
        }
        retry = Some((after, in_topic));
    }
}

/// Where the segment that has a byte at `from` ends.
#[inline]
fn segment_end(text: &[u8], from: usize) -> usize {
    text[from..].iter().position(|&byte| byte == b'/').map_or(text.len(), |len| from + len)
}

/// How many bytes both begin with.
#[inline]
fn common_len(one: &[u8], other: &[u8]) -> usize {
    let mut len = 0;
    while let (Some(one), Some(other)) = (one[len..].first_chunk(), other[len..].first_chunk()) {
        let different = u64::from_le_bytes(*one) ^ u64::from_le_bytes(*other);
        if different != 0 {
            return len + (different.trailing_zeros() / 8) as usize;
        }
        len += size_of::<u64>();
    }
    len + one[len..].iter().zip(&other[len..]).take_while(|(one, other)| one == other).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> (usize, NameRule) {
        let refusal = Pattern::new(text).unwrap_err();
        (refusal.position, refusal.reason)
    }

    /// Goal: the refusal points at the leftmost broken rule in the text as given.
    #[test]
    fn refusals_point_at_the_place() {
        assert_eq!(refusal(""), (0, NameRule::Empty));
        assert_eq!(refusal("/"), (0, NameRule::EmptySegment));
        assert_eq!(refusal("a//b"), (2, NameRule::EmptySegment));
        assert_eq!(refusal("a/"), (2, NameRule::EmptySegment));
        assert_eq!(refusal("a/b*"), (3, NameRule::PartialWildcard));
        assert_eq!(refusal("**/**/***"), (6, NameRule::PartialWildcard));
        assert_eq!(refusal("**a"), (0, NameRule::PartialWildcard));
        assert_eq!(refusal("ü/\u{85}"), (3, NameRule::ControlCharacter));
        assert_eq!(refusal(&["a"; 33].join("/")), (64, NameRule::TooManySegments));
        assert_eq!(refusal(&"ü".repeat(513)), (1024, NameRule::TooLong));
        assert_eq!(refusal(&format!("x{}", "ü".repeat(512))), (1024, NameRule::TooLong));
        assert_eq!(refusal(&format!("{}//", "a".repeat(1023))), (1024, NameRule::TooLong));
        assert_eq!(refusal(&format!("{}/", ["a"; 32].join("/"))), (64, NameRule::EmptySegment));
        let star = validate_name("a/b*").unwrap_err();
        assert_eq!((star.position, star.reason), (3, NameRule::WildcardInName));
        let bytes = Pattern::from_bytes(b"a/\xff").unwrap_err();
        assert_eq!((bytes.position, bytes.reason), (2, NameRule::NotUtf8));
        let bytes = TopicName::from_bytes(b"\xc3/a").unwrap_err();
        assert_eq!((bytes.position, bytes.reason), (0, NameRule::NotUtf8));
    }

    /// Goal: what the quick check lets pass, the thorough one does. Method: all texts of up to six
    /// of the bytes that the rules speak of.
    #[test]
    fn the_quick_check_passes_what_the_thorough_one_does() {
        let mut texts = vec![String::new()];
        for _ in 0..6 {
            for wildcards in [false, true] {
                for text in &texts {
                    let thorough = check_thoroughly(text, wildcards).is_ok();
                    assert_eq!(is_plain(text, wildcards), thorough, "{text:?}");
                }
            }
            let longer =
                |text: &String| ["/", "*", "a", "\u{7f}"].map(|more| format!("{text}{more}"));
            texts = texts.iter().flat_map(longer).collect();
        }
        for segments in [MAX_NAME_SEGMENTS, MAX_NAME_SEGMENTS + 1] {
            let text = vec!["a"; segments].join("/");
            assert_eq!(is_plain(&text, false), check_thoroughly(&text, false).is_ok());
        }
        assert!(!is_plain("\u{e4}", false), "left to the thorough check");
    }

    /// Goal: the longest allowed texts pass.
    #[test]
    fn limits_are_inclusive() {
        assert!(validate_name(&"x".repeat(MAX_NAME_LEN_BYTES)).is_ok());
        assert!(validate_name(&["a"; MAX_NAME_SEGMENTS].join("/")).is_ok());
        assert!(Pattern::new(&["**"; MAX_NAME_SEGMENTS].join("/")).is_ok());
    }
}
