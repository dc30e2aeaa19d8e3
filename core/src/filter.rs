//! Filters: which messages a subscription wants, told by their attributes.
//!
//! A filter runs on the publishing side, before a message is handed to a subscription, so it must
//! be cheap: evaluation allocates nothing, never recurses and stops at the first condition that
//! decides.
//!
//! There are two ways to write one, and they give the same [`Filter`]:
//!
//! ```
//! use slipring::filter::Filter;
//!
//! let written: Filter = r#"attributes.region = "IN" AND NOT attributes:test"#.parse()?;
//! let built = Filter::equals("region", "IN").and(Filter::has("test").not());
//! assert_eq!(written, built);
//!
//! assert!(written.matches(&[("region", "IN")]));
//! assert!(!written.matches(&[("region", "IN"), ("test", "yes")]));
//! # Ok::<(), slipring::InvalidFilter>(())
//! ```
//!
//! # Grammar
//!
//! The language is the one Google Pub/Sub uses for subscription filters.
//!
//! ```text
//! filter    = operand , ( { "AND" , operand } | { "OR" , operand } ) ;
//! operand   = [ "NOT" | "-" ] , ( condition | "(" , filter , ")" ) ;
//! condition = "attributes" , ":" , key
//!           | "attributes" , "." , key , ( "=" | "!=" ) , string
//!           | "hasPrefix" , "(" , "attributes" , "." , key , "," , string , ")" ;
//! key       = bare , { bare } | string ;
//! bare      = letter | digit | "_" | "-" ;                    (* ASCII *)
//! string    = '"' , { any character but '"' and '\' | escape } , '"' ;
//! escape    = "\" , ( "\" | '"' | "'" | "`" | "?" | "a" | "b" | "f" | "n" | "r" | "t" | "v"
//!           | ( "x" | "X" ) , 2 * hex | "u" , 4 * hex | "U" , 8 * hex
//!           | ( "0" | "1" | "2" | "3" ) , octal , octal ) ;
//! ```
//!
//! Blanks (space, tab, line ends) may stand between any two symbols. Everything is case sensitive,
//! operators too. `NOT` and `-` bind to the one operand that follows. `AND` and `OR` do not mix
//! without parentheses: neither binds tighter than the other. A numeric escape names a Unicode code
//! point, whatever its notation, and must name one that can stand in text (no surrogates).
//!
//! # Meaning
//!
//! | condition | matches a message |
//! |---|---|
//! | `attributes:k` | that has an attribute `k`, also an empty one |
//! | `attributes.k = "v"` | whose attribute `k` is exactly `v` |
//! | `attributes.k != "v"` | that has no attribute `k`, or one that is not `v` |
//! | `hasPrefix(attributes.k, "v")` | whose attribute `k` begins with `v` |
//!
//! An expression is not empty: to want every message, use no filter.
//!
//! # How it is held
//!
//! A filter is flat. Its tokens, in reading order and without a needless parenthesis, are what it
//! prints and compares; its conditions, in the same order, carry for each outcome the index of the
//! condition to try next. Jumps go forward only, and a jump past the end is the verdict. So nothing
//! here, neither parsing nor printing nor dropping, recurses into an expression.

use std::collections::{BTreeMap, HashMap};
use std::fmt::{self, Write as _};
use std::hash::{BuildHasher, Hash};
use std::str::FromStr;

use crate::error::InvalidFilter;

/// Longest expression in bytes that [`Filter::parse`] reads.
pub const MAX_FILTER_BYTES: usize = 4096;

/// Most parentheses open at one place in an expression that [`Filter::parse`] reads.
pub const MAX_FILTER_NESTING: usize = 64;

/// The attributes of a message, as a filter sees them.
///
/// The broker's messages implement it; so do the usual collections of pairs of strings, for tests.
/// In a list of pairs the first pair of a key counts.
///
/// ```
/// use slipring::filter::{Attributes, Filter};
///
/// struct Order { region: String }
///
/// impl Attributes for Order {
///     fn get(&self, key: &str) -> Option<&str> {
///         (key == "region").then_some(self.region.as_str())
///     }
/// }
///
/// let order = Order { region: "IN".to_string() };
/// assert!(Filter::equals("region", "IN").matches(&order));
/// ```
pub trait Attributes {
    /// The value of the attribute named `key`, if there is one.
    fn get(&self, key: &str) -> Option<&str>;

    /// The same value as bytes, which is all a filter asks for.
    ///
    /// An implementation over encoded bytes overrides this so as not to check UTF-8 each time.
    #[inline]
    fn value_bytes(&self, key: &str) -> Option<&[u8]> {
        self.get(key).map(str::as_bytes)
    }
}

impl<A: Attributes + ?Sized> Attributes for &A {
    #[inline]
    fn get(&self, key: &str) -> Option<&str> {
        (**self).get(key)
    }

    #[inline]
    fn value_bytes(&self, key: &str) -> Option<&[u8]> {
        (**self).value_bytes(key)
    }
}

impl<K: AsRef<str>, V: AsRef<str>> Attributes for [(K, V)] {
    fn get(&self, key: &str) -> Option<&str> {
        self.iter().find(|(k, _)| k.as_ref() == key).map(|(_, v)| v.as_ref())
    }
}

impl<K: AsRef<str>, V: AsRef<str>, const N: usize> Attributes for [(K, V); N] {
    fn get(&self, key: &str) -> Option<&str> {
        Attributes::get(self.as_slice(), key)
    }
}

impl<K: AsRef<str>, V: AsRef<str>> Attributes for Vec<(K, V)> {
    fn get(&self, key: &str) -> Option<&str> {
        Attributes::get(self.as_slice(), key)
    }
}

impl<K, V, S> Attributes for HashMap<K, V, S>
where
    K: std::borrow::Borrow<str> + Eq + Hash,
    V: AsRef<str>,
    S: BuildHasher,
{
    fn get(&self, key: &str) -> Option<&str> {
        Self::get(self, key).map(V::as_ref)
    }
}

impl<K, V> Attributes for BTreeMap<K, V>
where
    K: std::borrow::Borrow<str> + Ord,
    V: AsRef<str>,
{
    fn get(&self, key: &str) -> Option<&str> {
        Self::get(self, key).map(V::as_ref)
    }
}

/// A condition on the attributes of a message. See the [module](self) for the language.
///
/// It prints as an expression that reads back as an equal filter, with as few parentheses as there
/// can be. Two filters are equal if they print the same: conjunctions are flat (so `and` is
/// associative), a double negation is none, but no law of logic beyond that is applied.
///
/// Building one is not limited, reading one is: a filter built larger than
/// [`MAX_FILTER_BYTES`] or deeper than [`MAX_FILTER_NESTING`] needs [`FilterLimits::NONE`] to be
/// read back.
///
/// ```
/// use slipring::filter::Filter;
///
/// let filter = Filter::equals("tier", "gold").or(Filter::prefix("user", "vip-"));
/// assert_eq!(
///     filter.to_string(),
///     r#"attributes.tier = "gold" OR hasPrefix(attributes.user, "vip-")"#
/// );
/// assert_eq!(filter.to_string().parse(), Ok(filter));
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Filter {
    /// The expression in reading order; each [`Token::Test`] stands for the next of `steps`.
    tokens: Vec<Token>,
    /// The conditions in reading order, never empty. Evaluation begins at the first.
    steps: Vec<Step>,
}

/// One symbol of an expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Token {
    Test,
    Not,
    And,
    Or,
    Open,
    Close,
}

/// One condition, and where to go from it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Step {
    test: Test,
    key: Box<str>,
    /// Compared with the attribute; empty for [`Test::Has`].
    value: Box<str>,
    /// Index of the first step with the same key: equal exactly if the keys are.
    slot: usize,
    /// Next step if the condition holds: a greater index than this one's, [`ACCEPT`] or [`REJECT`].
    if_true: usize,
    /// Next step if it does not.
    if_false: usize,
}

/// What a condition asks of one attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Test {
    Has,
    Equals,
    NotEquals,
    Prefix,
}

/// The verdict "matches", as the index of a step that cannot exist.
const ACCEPT: usize = usize::MAX;

/// The verdict "does not match", likewise.
const REJECT: usize = usize::MAX - 1;

impl Filter {
    /// Reads an expression of at most [`MAX_FILTER_BYTES`] and [`MAX_FILTER_NESTING`].
    ///
    /// # Errors
    ///
    /// [`InvalidFilter`] says at which byte reading stopped, what was found there and what was
    /// expected.
    ///
    /// ```
    /// use slipring::filter::Filter;
    ///
    /// let error = Filter::parse("attributes.region = IN").unwrap_err();
    /// assert_eq!(error.position, 20);
    /// assert_eq!(error.reason, "found `IN`, expected a value in double quotes");
    /// ```
    pub fn parse(text: &str) -> Result<Self, InvalidFilter> {
        Self::parse_within(text, FilterLimits::default())
    }

    /// Reads an expression under other limits: a server may allow less, a store that reads back
    /// what it wrote may allow anything.
    ///
    /// # Errors
    ///
    /// As [`Filter::parse`].
    ///
    /// ```
    /// use slipring::filter::{Filter, FilterLimits};
    ///
    /// let google = FilterLimits { len_bytes: 256, ..FilterLimits::default() };
    /// assert!(Filter::parse_within("attributes:k", google).is_ok());
    /// assert!(Filter::parse_within(&format!("attributes:{}", "k".repeat(256)), google).is_err());
    /// ```
    pub fn parse_within(text: &str, limits: FilterLimits) -> Result<Self, InvalidFilter> {
        Parser { text, position: 0 }.filter(limits)
    }

    /// Matches a message that has an attribute `key`: `attributes:key`.
    pub fn has(key: impl Into<Box<str>>) -> Self {
        Self::single(Test::Has, key.into(), Box::default())
    }

    /// Matches a message whose attribute `key` is `value`: `attributes.key = "value"`.
    pub fn equals(key: impl Into<Box<str>>, value: impl Into<Box<str>>) -> Self {
        Self::single(Test::Equals, key.into(), value.into())
    }

    /// Matches a message whose attribute `key` is missing or not `value`:
    /// `attributes.key != "value"`.
    pub fn not_equals(key: impl Into<Box<str>>, value: impl Into<Box<str>>) -> Self {
        Self::single(Test::NotEquals, key.into(), value.into())
    }

    /// Matches a message whose attribute `key` begins with `prefix`:
    /// `hasPrefix(attributes.key, "prefix")`.
    pub fn prefix(key: impl Into<Box<str>>, prefix: impl Into<Box<str>>) -> Self {
        Self::single(Test::Prefix, key.into(), prefix.into())
    }

    /// Matches what both filters match.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        self.joined(Token::And, other)
    }

    /// Matches what either filter matches.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        self.joined(Token::Or, other)
    }

    /// Matches what this filter does not. The operator `!` does the same.
    #[must_use]
    #[expect(
        clippy::should_implement_trait,
        reason = "the trait is implemented; this spares builders its import"
    )]
    pub fn not(mut self) -> Self {
        let joint = self.joint();
        if joint.is_none() && self.tokens[0] == Token::Not {
            self.tokens.remove(0);
            if self.tokens[0] == Token::Open {
                self.tokens.remove(0);
                self.tokens.pop();
            }
        } else {
            if joint.is_some() {
                self.parenthesize();
            }
            self.tokens.insert(0, Token::Not);
        }
        self.retarget(|target| match target {
            ACCEPT => REJECT,
            REJECT => ACCEPT,
            step => step,
        });
        self
    }

    /// Whether a message with these attributes matches.
    ///
    /// Neither allocates nor blocks. Asks for one attribute per condition tried, and not again
    /// while the conditions tried one after another are about the same key.
    #[inline]
    pub fn matches<A: Attributes + ?Sized>(&self, attributes: &A) -> bool {
        let mut next = 0;
        let mut slot = usize::MAX;
        let mut value = None;
        while let Some(step) = self.steps.get(next) {
            if slot != step.slot {
                slot = step.slot;
                value = attributes.value_bytes(&step.key);
            }
            next = if step.holds(value) { step.if_true } else { step.if_false };
        }
        next == ACCEPT
    }

    /// The keys that the filter asks for, each once, in reading order.
    ///
    /// ```
    /// use slipring::filter::Filter;
    ///
    /// let filter: Filter = r#"attributes.b = "1" OR attributes:a OR attributes.b = "2""#.parse()?;
    /// assert_eq!(filter.keys().collect::<Vec<_>>(), ["b", "a"]);
    /// # Ok::<(), slipring::InvalidFilter>(())
    /// ```
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        let first_of_key = |&(index, step): &(usize, &Step)| step.slot == index;
        self.steps.iter().enumerate().filter(first_of_key).map(|(_, step)| &*step.key)
    }

    fn single(test: Test, key: Box<str>, value: Box<str>) -> Self {
        let step = Step { test, key, value, slot: 0, if_true: ACCEPT, if_false: REJECT };
        Self { tokens: vec![Token::Test], steps: vec![step] }
    }

    /// Both filters with `operator` between them; the outcome that does not decide goes on to the
    /// second.
    fn joined(mut self, operator: Token, mut other: Self) -> Self {
        for side in [&mut self, &mut other] {
            if side.joint().is_some_and(|joint| joint != operator) {
                side.parenthesize();
            }
        }
        let base = self.steps.len();
        let undecided = if operator == Token::And { ACCEPT } else { REJECT };
        self.retarget(|target| if target == undecided { base } else { target });
        other.retarget(|target| if target < REJECT { target + base } else { target });
        for step in &mut other.steps {
            let known = self.steps.iter().find(|earlier| earlier.key == step.key);
            step.slot = known.map_or(step.slot + base, |earlier| earlier.slot);
        }
        self.tokens.push(operator);
        self.tokens.append(&mut other.tokens);
        self.steps.append(&mut other.steps);
        self
    }

    /// The operator that holds the expression together, if it is not a single operand.
    fn joint(&self) -> Option<Token> {
        let mut open = 0_usize;
        for &token in &self.tokens {
            match token {
                Token::Open => open += 1,
                Token::Close => open -= 1,
                Token::And | Token::Or if open == 0 => return Some(token),
                Token::And | Token::Or | Token::Not | Token::Test => {}
            }
        }
        None
    }

    fn parenthesize(&mut self) {
        self.tokens.insert(0, Token::Open);
        self.tokens.push(Token::Close);
    }

    fn retarget(&mut self, change: impl Fn(usize) -> usize) {
        for step in &mut self.steps {
            step.if_true = change(step.if_true);
            step.if_false = change(step.if_false);
        }
    }
}

impl Step {
    #[inline]
    fn holds(&self, value: Option<&[u8]>) -> bool {
        let wanted = self.value.as_bytes();
        match self.test {
            Test::Equals => value.is_some_and(|value| same_bytes(value, wanted)),
            Test::NotEquals => !value.is_some_and(|value| same_bytes(value, wanted)),
            Test::Has => value.is_some(),
            Test::Prefix => value
                .and_then(|value| value.get(..wanted.len()))
                .is_some_and(|start| same_bytes(start, wanted)),
        }
    }
}

/// Whether two byte strings are equal, for strings that are mostly short.
///
/// Up to 16 bytes are compared as two words that may overlap, which spares the call into the
/// library's comparison; that call is most of the cost of a short one.
#[inline]
pub(crate) fn same_bytes(left: &[u8], right: &[u8]) -> bool {
    if left.len() != right.len() {
        return false;
    }
    match left.len() {
        0..=1 => left.first() == right.first(),
        2..=3 => same_ends::<2>(left, right),
        4..=7 => same_ends::<4>(left, right),
        8..=16 => same_ends::<8>(left, right),
        _ => left == right,
    }
}

/// Whether the first `N` and the last `N` bytes are equal.
#[inline]
fn same_ends<const N: usize>(left: &[u8], right: &[u8]) -> bool {
    left.first_chunk::<N>() == right.first_chunk() && left.last_chunk::<N>() == right.last_chunk()
}

impl std::ops::Not for Filter {
    type Output = Self;

    fn not(self) -> Self {
        Self::not(self)
    }
}

impl FromStr for Filter {
    type Err = InvalidFilter;

    fn from_str(text: &str) -> Result<Self, InvalidFilter> {
        Self::parse(text)
    }
}

impl TryFrom<&str> for Filter {
    type Error = InvalidFilter;

    fn try_from(text: &str) -> Result<Self, InvalidFilter> {
        Self::parse(text)
    }
}

impl fmt::Debug for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Filter({self})")
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut steps = self.steps.iter();
        for token in &self.tokens {
            match token {
                Token::Test => steps.next().map_or(Ok(()), |step| step.fmt(f))?,
                Token::Not => f.write_str("NOT ")?,
                Token::And => f.write_str(" AND ")?,
                Token::Or => f.write_str(" OR ")?,
                Token::Open => f.write_char('(')?,
                Token::Close => f.write_char(')')?,
            }
        }
        Ok(())
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (key, value) = (Key(&self.key), Quoted(&self.value));
        match self.test {
            Test::Has => write!(f, "attributes:{key}"),
            Test::Equals => write!(f, "attributes.{key} = {value}"),
            Test::NotEquals => write!(f, "attributes.{key} != {value}"),
            Test::Prefix => write!(f, "hasPrefix(attributes.{key}, {value})"),
        }
    }
}

/// A key as it is printed: bare where no reader could take it for something else.
struct Key<'a>(&'a str);

impl fmt::Display for Key<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = self.0;
        let plain = !key.is_empty() && !key.starts_with('-') && key.chars().all(is_bare);
        if plain && !OPERATORS.contains(&key) { f.write_str(key) } else { Quoted(key).fmt(f) }
    }
}

/// A string as it is printed: in quotes, with what would not show escaped.
struct Quoted<'a>(&'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for character in self.0.chars() {
            match character {
                '"' | '\\' => write!(f, "\\{character}")?,
                '\n' => f.write_str("\\n")?,
                '\r' => f.write_str("\\r")?,
                '\t' => f.write_str("\\t")?,
                c if c.is_control() => write!(f, "\\u{:04x}", u32::from(c))?,
                c => f.write_char(c)?,
            }
        }
        f.write_char('"')
    }
}

/// How large an expression may be to be read at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilterLimits {
    /// Longest expression in bytes.
    pub len_bytes: usize,
    /// Most parentheses open at one place.
    pub nesting: usize,
}

impl FilterLimits {
    /// No limit, for text from a trusted place. Deep nesting costs memory, never stack.
    pub const NONE: Self = Self { len_bytes: usize::MAX, nesting: usize::MAX };
}

impl Default for FilterLimits {
    fn default() -> Self {
        Self { len_bytes: MAX_FILTER_BYTES, nesting: MAX_FILTER_NESTING }
    }
}

/// The words that join operands, which a reader may want quoted when they are keys.
const OPERATORS: [&str; 3] = ["AND", "OR", "NOT"];

/// A reader that goes once over the text. `position` is always on a character boundary.
struct Parser<'a> {
    text: &'a str,
    position: usize,
}

/// What has been read between one parenthesis, or the beginning, and here.
struct Level {
    /// Where the parenthesis is.
    open: usize,
    /// Whether the parenthesis as a whole is negated.
    negated: bool,
    /// What joins the operands: the first operator decides.
    operator: Option<Token>,
    filter: Option<Filter>,
}

impl Level {
    fn new(open: usize, negated: bool) -> Self {
        Self { open, negated, operator: None, filter: None }
    }

    fn push(&mut self, operand: Filter) {
        self.filter = Some(match (self.filter.take(), self.operator) {
            (Some(filter), Some(operator)) => filter.joined(operator, operand),
            _ => operand,
        });
    }
}

impl<'a> Parser<'a> {
    /// The whole text. The levels of parentheses are a list, not a recursion.
    fn filter(mut self, limits: FilterLimits) -> Result<Filter, InvalidFilter> {
        if self.text.len() > limits.len_bytes {
            return Err(self.too_long(limits.len_bytes));
        }
        let mut outer: Vec<Level> = Vec::new();
        let mut level = Level::new(0, false);
        loop {
            let negated = self.negation()?;
            let open = self.position;
            if self.eat("(") {
                if outer.len() >= limits.nesting {
                    let reason = format!("more than {} parentheses are open", limits.nesting);
                    return Err(InvalidFilter { position: open, reason });
                }
                outer.push(std::mem::replace(&mut level, Level::new(open, negated)));
                continue;
            }
            let mut operand = self.condition()?;
            if negated {
                operand = operand.not();
            }
            level.push(operand);
            while self.eat(")") {
                let Some(parent) = outer.pop() else {
                    self.position -= 1;
                    return Err(self.error("found `)` that closes no parenthesis"));
                };
                let closed = std::mem::replace(&mut level, parent);
                // A parenthesis is closed only after an operand, so there is a filter in it.
                if let Some(filter) = closed.filter {
                    level.push(if closed.negated { filter.not() } else { filter });
                }
            }
            if self.at_end() {
                return match (level.filter, outer.is_empty()) {
                    (Some(filter), true) => Ok(filter),
                    _ => Err(InvalidFilter {
                        position: self.position,
                        reason: format!(
                            "found the end, expected `)` for the parenthesis at byte {}",
                            level.open
                        ),
                    }),
                };
            }
            self.operator(&mut level, !outer.is_empty())?;
        }
    }

    /// `NOT`, `-` or nothing.
    fn negation(&mut self) -> Result<bool, InvalidFilter> {
        let negated = self.eat("-") || self.eat_word("NOT");
        self.skip_blanks();
        if negated && (self.rest().starts_with('-') || self.word() == "NOT") {
            return Err(self.error("found a second negation, expected one: write NOT (NOT ...)"));
        }
        Ok(negated)
    }

    /// `AND` or `OR`, the same as before in this level.
    fn operator(&mut self, level: &mut Level, inside: bool) -> Result<(), InvalidFilter> {
        let start = self.position;
        let operator = match self.word() {
            "AND" => Token::And,
            "OR" => Token::Or,
            _ if inside => return Err(self.expected("AND, OR or `)`")),
            _ => return Err(self.expected("AND, OR or the end")),
        };
        self.position += self.word().len();
        if level.operator.is_some_and(|first| first != operator) {
            let (found, first) = if operator == Token::And { ("AND", "OR") } else { ("OR", "AND") };
            let reason = format!(
                "found {found} after {first}: the two do not mix, put parentheses around one"
            );
            return Err(InvalidFilter { position: start, reason });
        }
        level.operator = Some(operator);
        Ok(())
    }

    fn condition(&mut self) -> Result<Filter, InvalidFilter> {
        if self.eat_word("hasPrefix") {
            self.expect("(", "`(` after hasPrefix")?;
            if !self.eat_word("attributes") {
                return Err(self.expected("`attributes`"));
            }
            self.expect(".", "`.` and a key")?;
            let key = self.key()?;
            self.expect(",", "`,` and a prefix")?;
            let prefix = self.value("a prefix in double quotes")?;
            self.expect(")", "`)`")?;
            return Ok(Filter::prefix(key, prefix));
        }
        if !self.eat_word("attributes") {
            return Err(self.expected("`attributes`, `hasPrefix`, NOT, `-` or `(`"));
        }
        if self.eat(":") {
            return Ok(Filter::has(self.key()?));
        }
        self.expect(".", "`.` and a key, or `:` and a key")?;
        let key = self.key()?;
        if self.eat("!=") {
            Ok(Filter::not_equals(key, self.value("a value in double quotes")?))
        } else if self.eat("=") {
            Ok(Filter::equals(key, self.value("a value in double quotes")?))
        } else {
            Err(self.expected("`=` or `!=` after the key"))
        }
    }

    /// A bare or quoted key.
    fn key(&mut self) -> Result<String, InvalidFilter> {
        self.skip_blanks();
        if self.rest().starts_with('"') {
            return self.string();
        }
        let rest = self.rest();
        let bare = &rest[..rest.find(|c| !is_bare(c)).unwrap_or(rest.len())];
        if bare.is_empty() {
            return Err(self.expected("a key, in double quotes if it is more than A-Z a-z 0-9 _ -"));
        }
        self.position += bare.len();
        Ok(bare.to_string())
    }

    fn value(&mut self, what: &str) -> Result<String, InvalidFilter> {
        self.skip_blanks();
        if self.rest().starts_with('"') { self.string() } else { Err(self.expected(what)) }
    }

    /// A quoted string; the opening quote is here.
    fn string(&mut self) -> Result<String, InvalidFilter> {
        let start = self.position;
        self.position += 1;
        let mut content = String::new();
        loop {
            let rest = self.rest();
            let Some(plain) = rest.find(['"', '\\']) else {
                self.position = start;
                return Err(self.error("found a string without a closing quote"));
            };
            content.push_str(&rest[..plain]);
            self.position += plain;
            if self.eat_here("\"") {
                return Ok(content);
            }
            content.push(self.escape()?);
        }
    }

    /// One escape; the backslash is here, and an error points at it.
    fn escape(&mut self) -> Result<char, InvalidFilter> {
        let mut following = self.rest()[1..].chars();
        let letter = following.next();
        let (digits, radix, skipped) = match letter {
            Some('x' | 'X') => (2, 16, 2),
            Some('u') => (4, 16, 2),
            Some('U') => (8, 16, 2),
            Some('0'..='3') => (3, 8, 1),
            _ => {
                let character = match letter {
                    Some('a') => '\x07',
                    Some('b') => '\x08',
                    Some('f') => '\x0c',
                    Some('n') => '\n',
                    Some('r') => '\r',
                    Some('t') => '\t',
                    Some('v') => '\x0b',
                    Some(c @ ('\\' | '"' | '\'' | '`' | '?')) => c,
                    Some(c) => {
                        let reason =
                            format!("found {} after a `\\`, which escapes nothing known", Shown(c));
                        return Err(self.error(&reason));
                    }
                    None => return Err(self.error("found a `\\` that escapes nothing")),
                };
                self.position += 2;
                return Ok(character);
            }
        };
        let number = self.rest()[skipped..].chars().take(digits);
        let number: String = number.take_while(|c| c.is_digit(radix)).collect();
        if number.len() < digits {
            let kind = if radix == 8 { "octal" } else { "hexadecimal" };
            return Err(self.error(&format!(
                "found an escape with {} {kind} digits, expected {digits}",
                number.len()
            )));
        }
        let code = u32::from_str_radix(&number, radix).ok();
        let Some(character) = code.and_then(char::from_u32) else {
            return Err(self.error("found an escape that is no Unicode character"));
        };
        self.position += skipped + digits;
        Ok(character)
    }

    fn rest(&self) -> &'a str {
        &self.text[self.position..]
    }

    fn skip_blanks(&mut self) {
        let rest = self.rest();
        self.position += rest.len() - rest.trim_start_matches([' ', '\t', '\r', '\n']).len();
    }

    fn at_end(&mut self) -> bool {
        self.skip_blanks();
        self.rest().is_empty()
    }

    /// The letters, digits and underscores here, perhaps none.
    fn word(&self) -> &'a str {
        let rest = self.rest();
        &rest[..rest.find(|c| !is_bare(c) || c == '-').unwrap_or(rest.len())]
    }

    fn eat_here(&mut self, symbol: &str) -> bool {
        let found = self.rest().starts_with(symbol);
        if found {
            self.position += symbol.len();
        }
        found
    }

    fn eat(&mut self, symbol: &str) -> bool {
        self.skip_blanks();
        self.eat_here(symbol)
    }

    fn eat_word(&mut self, word: &str) -> bool {
        self.skip_blanks();
        self.word() == word && self.eat_here(word)
    }

    fn expect(&mut self, symbol: &str, what: &str) -> Result<(), InvalidFilter> {
        if self.eat(symbol) { Ok(()) } else { Err(self.expected(what)) }
    }

    fn error(&self, reason: &str) -> InvalidFilter {
        InvalidFilter { position: self.position, reason: reason.to_string() }
    }

    /// The error that something else is here than `what`.
    fn expected(&self, what: &str) -> InvalidFilter {
        const SHOWN_CHARS: usize = 24;
        let word = self.word();
        let upper = word.to_ascii_uppercase();
        let reason = if word != upper && OPERATORS.contains(&upper.as_str()) {
            format!("found `{word}`, expected {what}; operators are upper case: {upper}")
        } else if word.len() > SHOWN_CHARS {
            format!("found `{}...`, expected {what}", &word[..SHOWN_CHARS])
        } else if !word.is_empty() {
            format!("found `{word}`, expected {what}")
        } else if let Some(character) = self.rest().chars().next() {
            format!("found {}, expected {what}", Shown(character))
        } else {
            format!("found the end, expected {what}")
        };
        InvalidFilter { position: self.position, reason }
    }

    fn too_long(&self, len_bytes: usize) -> InvalidFilter {
        let mut position = len_bytes;
        while !self.text.is_char_boundary(position) {
            position -= 1;
        }
        let reason = format!("found {} bytes, expected at most {len_bytes}", self.text.len());
        InvalidFilter { position, reason }
    }
}

/// A character as an error shows it.
struct Shown(char);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_control() {
            write!(f, "`{}`", self.0.escape_default())
        } else {
            write!(f, "`{}`", self.0)
        }
    }
}

fn is_bare(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '_' | '-')
}
