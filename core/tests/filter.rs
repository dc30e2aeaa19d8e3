//! Contracts of filters: what is read, what is refused and where, and what matches.

use std::collections::{BTreeMap, HashMap};

use proptest::prelude::*;
use slipring::Filter;
use slipring::InvalidFilter;
use slipring::filter::{Attributes, FilterLimits, MAX_FILTER_BYTES, MAX_FILTER_NESTING};

fn parse(text: &str) -> Filter {
    Filter::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn refuse(text: &str) -> InvalidFilter {
    match Filter::parse(text) {
        Ok(filter) => panic!("{text} was read as {filter}"),
        Err(error) => error,
    }
}

/// Every form is read, and prints in canonical form.
#[test]
fn accepted_expressions_print_canonically() {
    let table = [
        // The forms of a condition.
        (r#"attributes.region = "IN""#, r#"attributes.region = "IN""#),
        (r#"attributes.region != "IN""#, r#"attributes.region != "IN""#),
        ("attributes:region", "attributes:region"),
        (r#"hasPrefix(attributes.region, "I")"#, r#"hasPrefix(attributes.region, "I")"#),
        // Blanks.
        (r#"attributes.k="v""#, r#"attributes.k = "v""#),
        (" \t\r\nattributes : k\n", "attributes:k"),
        (r#"hasPrefix ( attributes . k , "v" )"#, r#"hasPrefix(attributes.k, "v")"#),
        (
            r#"attributes:a AND(attributes:b OR attributes:c)"#,
            "attributes:a AND (attributes:b OR attributes:c)",
        ),
        // Keys.
        ("attributes:A_z-9", "attributes:A_z-9"),
        (r#"attributes:"plain""#, "attributes:plain"),
        (
            r#"attributes."iana.org/language_tag" = "en""#,
            r#"attributes."iana.org/language_tag" = "en""#,
        ),
        (r#"attributes:"みんな""#, r#"attributes:"みんな""#),
        (r#"attributes:"say \"so\"""#, r#"attributes:"say \"so\"""#),
        ("attributes:123", "attributes:123"),
        // Keys that a reader could take for something else come back in quotes.
        ("attributes:AND", r#"attributes:"AND""#),
        ("attributes.NOT = \"x\"", r#"attributes."NOT" = "x""#),
        ("attributes:-k", r#"attributes:"-k""#),
        ("attributes:attributes", "attributes:attributes"),
        ("attributes:hasPrefix", "attributes:hasPrefix"),
        ("attributes:and", "attributes:and"),
        // Empty strings.
        (r#"attributes.k = """#, r#"attributes.k = """#),
        (r#"hasPrefix(attributes.k, "")"#, r#"hasPrefix(attributes.k, "")"#),
        (r#"attributes:"""#, r#"attributes:"""#),
        // Negation.
        ("NOT attributes:k", "NOT attributes:k"),
        ("-attributes:k", "NOT attributes:k"),
        ("- attributes:k", "NOT attributes:k"),
        ("NOT(attributes:k)", "NOT attributes:k"),
        ("NOT (NOT attributes:k)", "attributes:k"),
        ("-(-(-attributes:k))", "NOT attributes:k"),
        ("NOT (NOT (attributes:a AND attributes:b))", "attributes:a AND attributes:b"),
        ("attributes:a AND -attributes:b", "attributes:a AND NOT attributes:b"),
        ("attributes:a AND-attributes:b", "attributes:a AND NOT attributes:b"),
        ("NOT attributes:a AND attributes:b", "NOT attributes:a AND attributes:b"),
        ("NOT (attributes:a AND attributes:b)", "NOT (attributes:a AND attributes:b)"),
        // Parentheses: those that do nothing go, those that do stay.
        ("((attributes:k))", "attributes:k"),
        (
            "(attributes:a AND attributes:b) AND attributes:c",
            "attributes:a AND attributes:b AND attributes:c",
        ),
        (
            "attributes:a OR (attributes:b OR attributes:c)",
            "attributes:a OR attributes:b OR attributes:c",
        ),
        (
            "(attributes:a OR attributes:b) AND attributes:c",
            "(attributes:a OR attributes:b) AND attributes:c",
        ),
        (
            "attributes:a OR (attributes:b AND attributes:c)",
            "attributes:a OR (attributes:b AND attributes:c)",
        ),
        ("(attributes:a) OR (NOT attributes:b)", "attributes:a OR NOT attributes:b"),
    ];
    for (text, canonical) in table {
        let filter = parse(text);
        assert_eq!(filter.to_string(), canonical, "from {text}");
        assert_eq!(parse(canonical), filter, "from {text}");
    }
}

/// Each refused expression names the byte and says what is wrong in words that help.
#[test]
fn refused_expressions_say_where_and_why() {
    let table = [
        ("", 0, "found the end, expected `attributes`, `hasPrefix`, NOT, `-` or `(`"),
        ("  ", 2, "found the end, expected `attributes`"),
        ("attribute.k = \"v\"", 0, "found `attribute`, expected `attributes`"),
        ("Attributes:k", 0, "found `Attributes`"),
        ("attributes", 10, "found the end, expected `.` and a key, or `:` and a key"),
        ("attributes[k]", 10, "found `[`"),
        ("attributes.", 11, "found the end, expected a key"),
        ("attributes:", 11, "found the end, expected a key"),
        ("attributes:é", 11, "found `é`, expected a key, in double quotes if"),
        ("attributes.k", 12, "found the end, expected `=` or `!=` after the key"),
        ("attributes.a.b = \"v\"", 12, "found `.`, expected `=` or `!=`"),
        ("attributes.k < \"v\"", 13, "found `<`, expected `=` or `!=`"),
        ("attributes.k == \"v\"", 14, "found `=`, expected a value in double quotes"),
        ("attributes.k ! = \"v\"", 13, "found `!`, expected `=` or `!=`"),
        ("attributes.k = v", 15, "found `v`, expected a value in double quotes"),
        ("attributes.k = 'v'", 15, "found `'`, expected a value in double quotes"),
        ("attributes.k = ", 15, "found the end, expected a value in double quotes"),
        ("attributes.k = \"v", 15, "found a string without a closing quote"),
        ("attributes.k = \"v\\\"", 15, "found a string without a closing quote"),
        ("attributes:k = \"v\"", 13, "found `=`, expected AND, OR or the end"),
        ("hasprefix(attributes.k, \"v\")", 0, "found `hasprefix`"),
        ("hasPrefix attributes.k", 10, "found `attributes`, expected `(` after hasPrefix"),
        ("hasPrefix(attributes:k, \"v\")", 20, "found `:`, expected `.` and a key"),
        ("hasPrefix(k, \"v\")", 10, "found `k`, expected `attributes`"),
        ("hasPrefix(attributes.k \"v\")", 23, "found `\"`, expected `,` and a prefix"),
        ("hasPrefix(attributes.k, v)", 24, "found `v`, expected a prefix in double quotes"),
        ("hasPrefix(attributes.k, \"v\"", 27, "found the end, expected `)`"),
        ("attributes:a attributes:b", 13, "found `attributes`, expected AND, OR or the end"),
        ("attributes:a and attributes:b", 13, "operators are upper case: AND"),
        ("attributes:a Or attributes:b", 13, "operators are upper case: OR"),
        ("not attributes:a", 0, "operators are upper case: NOT"),
        ("attributes:a && attributes:b", 13, "found `&`, expected AND, OR or the end"),
        ("attributes:a ANDattributes:b", 13, "found `ANDattributes`"),
        ("NOTattributes:b", 0, "found `NOTattributes`"),
        ("attributes:a AND", 16, "found the end, expected `attributes`"),
        ("attributes:a AND OR attributes:b", 17, "found `OR`, expected `attributes`"),
        ("NOT NOT attributes:a", 4, "found a second negation"),
        ("--attributes:a", 1, "found a second negation"),
        ("NOT -attributes:a", 4, "found a second negation"),
        (
            "attributes:a AND attributes:b OR attributes:c",
            30,
            "found OR after AND: the two do not mix",
        ),
        (
            "attributes:a OR attributes:b AND attributes:c",
            29,
            "found AND after OR: the two do not mix",
        ),
        (
            "attributes:z AND (attributes:a OR attributes:b AND attributes:c)",
            47,
            "found AND after OR",
        ),
        ("()", 1, "found `)`, expected `attributes`"),
        ("(attributes:a", 13, "found the end, expected `)` for the parenthesis at byte 0"),
        ("attributes:a AND (attributes:b", 30, "for the parenthesis at byte 17"),
        ("(attributes:a attributes:b)", 14, "expected AND, OR or `)`"),
        ("attributes:a)", 12, "found `)` that closes no parenthesis"),
        ("(attributes:a))", 14, "found `)` that closes no parenthesis"),
        ("attributes:k\0", 12, "found `\\u{0}`"),
        ("attributes:k\u{a0}", 12, "expected AND, OR or the end"),
        ("a23456789012345678901234567890", 0, "found `a23456789012345678901234...`"),
    ];
    for (text, position, reason) in table {
        let error = refuse(text);
        assert_eq!(error.position, position, "{text}: {error}");
        assert!(error.reason.contains(reason), "{text}: {error}");
    }
}

/// The string in `attributes.k = "<content>"` as it is read.
fn string(content: &str) -> Result<String, InvalidFilter> {
    // The value is seen from outside through the equality it makes: the builder with the same
    // value gives an equal filter, and printing gives it back without escapes to read.
    let filter = Filter::parse(&format!("hasPrefix(attributes.\"{content}\", \"\")"))?;
    let key = filter.keys().next().map(str::to_string);
    Ok(key.unwrap_or_default())
}

/// All escapes of the grammar, in both notations of the case where there are two.
#[test]
fn escapes_name_characters() {
    let table = [
        (r"\\", "\\"),
        (r#"\""#, "\""),
        (r"\'", "'"),
        (r"\`", "`"),
        (r"\?", "?"),
        (r"\a", "\x07"),
        (r"\b", "\x08"),
        (r"\f", "\x0c"),
        (r"\n", "\n"),
        (r"\r", "\r"),
        (r"\t", "\t"),
        (r"\v", "\x0b"),
        (r"\x41\X4f", "AO"),
        (r"\xe9", "é"),
        (r"\101\060\000", "A0\0"),
        (r"\377", "ÿ"),
        (r"\u3042", "あ"),
        (r"\u0041\u00E9", "Aé"),
        (r"\U0001F600", "😀"),
        (r"\x411", "A1"),
        (r"\1011", "A1"),
        (r"\u00411", "A1"),
        (r"a\\nb", "a\\nb"),
        ("raw\nline\tend", "raw\nline\tend"),
        ("", ""),
    ];
    for (content, value) in table {
        assert_eq!(string(content).as_deref(), Ok(value), "{content}");
    }
}

/// A broken escape is refused at its backslash.
#[test]
fn broken_escapes_are_refused_at_the_backslash() {
    let prefix = "hasPrefix(attributes.\"".len();
    let table = [
        (r"ab\q", 2, "found `q` after a `\\`"),
        (r"é\é", 2, "found `é` after a `\\`"),
        (r"\8", 0, "found `8` after a `\\`"),
        (r"\477", 0, "found `4` after a `\\`"),
        (r"\x4", 0, "1 hexadecimal digits, expected 2"),
        (r"\xg0", 0, "0 hexadecimal digits, expected 2"),
        (r"\u12é", 0, "2 hexadecimal digits, expected 4"),
        (r"\u+123", 0, "0 hexadecimal digits, expected 4"),
        (r"\U0001F60", 0, "7 hexadecimal digits, expected 8"),
        (r"\08", 0, "1 octal digits, expected 3"),
        (r"\ud83d\ude00", 0, "no Unicode character"),
        (r"\U00110000", 0, "no Unicode character"),
        (r"\UFFFFFFFF", 0, "no Unicode character"),
    ];
    for (content, position, reason) in table {
        let Err(error) = string(content) else { panic!("{content} was read") };
        assert_eq!(error.position, prefix + position, "{content}: {error}");
        assert!(error.reason.contains(reason), "{content}: {error}");
    }
    assert!(refuse("attributes:\"a\\").reason.contains("escapes nothing"));
}

/// What would not show is printed as an escape, all else as it is.
#[test]
fn strings_print_so_that_they_show() {
    let filter = Filter::equals("a\"b\\c", "\0\t\r\n\x7f\u{85}é😀'");
    assert_eq!(filter.to_string(), r#"attributes."a\"b\\c" = "\u0000\t\r\n\u007f\u0085é😀'""#);
    assert_eq!(parse(&filter.to_string()), filter);
}

#[test]
fn builder_and_expression_give_the_same_filter() {
    let (a, b, c) = (Filter::has("a"), Filter::equals("b", "1"), Filter::prefix("c", "x"));
    let d = Filter::not_equals("d", "2");
    let table = [
        ("attributes:a AND attributes.b = \"1\"", a.clone().and(b.clone())),
        (
            "attributes:a AND (attributes.b = \"1\" OR NOT hasPrefix(attributes.c, \"x\"))",
            a.clone().and(b.clone().or(c.clone().not())),
        ),
        (
            "-(attributes:a OR attributes.d != \"2\") OR attributes.b = \"1\"",
            (!a.clone().or(d.clone())).or(b.clone()),
        ),
        (
            "attributes:a AND attributes.b = \"1\" AND hasPrefix(attributes.c, \"x\")",
            a.clone().and(b.clone().and(c.clone())),
        ),
    ];
    for (text, filter) in table {
        assert_eq!(parse(text), filter);
    }
    assert_eq!("attributes:a".parse::<Filter>(), Ok(a.clone()));
    assert_eq!(Filter::try_from("attributes:a"), Ok(a.clone()));
    assert_eq!(format!("{a:?}"), "Filter(attributes:a)");
    assert_ne!(a.clone().and(b.clone()), b.and(a));
    assert_ne!(parse("attributes.k = \"v\""), parse("attributes.k != \"v\""));
}

#[test]
fn filters_are_values_that_threads_may_share() {
    fn check<T: Clone + std::fmt::Debug + PartialEq + Eq + Send + Sync + 'static>() {}
    check::<Filter>();
}

/// The cases of the meaning table, on messages that have the key, lack it or have it empty.
#[test]
fn conditions_mean_what_the_table_says() {
    let with = [("k", "value"), ("other", "x")];
    let empty = [("k", "")];
    let without = [("other", "value")];
    let table = [
        ("attributes:k", [true, true, false]),
        ("attributes.k = \"value\"", [true, false, false]),
        ("attributes.k = \"Value\"", [false, false, false]),
        ("attributes.K = \"value\"", [false, false, false]),
        ("attributes.k = \"\"", [false, true, false]),
        ("attributes.k != \"value\"", [false, true, true]),
        ("attributes.k != \"\"", [true, false, true]),
        ("hasPrefix(attributes.k, \"val\")", [true, false, false]),
        ("hasPrefix(attributes.k, \"value\")", [true, false, false]),
        ("hasPrefix(attributes.k, \"values\")", [false, false, false]),
        ("hasPrefix(attributes.k, \"\")", [true, true, false]),
        ("NOT attributes:k", [false, false, true]),
        ("NOT attributes.k != \"value\"", [true, false, false]),
        ("NOT hasPrefix(attributes.k, \"val\")", [false, true, true]),
        ("attributes:\"\"", [false, false, false]),
    ];
    for (text, [on_with, on_empty, on_without]) in table {
        let filter = parse(text);
        assert_eq!(filter.matches(&with), on_with, "{text}");
        assert_eq!(filter.matches(&empty), on_empty, "{text}");
        assert_eq!(filter.matches(&without), on_without, "{text}");
    }
}

/// Comparison is by hand for short strings: every length, and a difference at every byte.
#[test]
fn values_compare_at_every_length() {
    for len in 0..40 {
        let value: String = ('A'..='z').take(len).collect();
        let (equals, differs) = (Filter::equals("k", &*value), Filter::not_equals("k", &*value));
        let prefix = Filter::prefix("k", &*value);
        let message = |value: &str| [("k", value.to_string())];
        assert!(equals.matches(&message(&value)) && !differs.matches(&message(&value)));
        assert!(prefix.matches(&message(&value)) && prefix.matches(&message(&format!("{value}!"))));
        assert!(!equals.matches(&message(&format!("{value}!"))), "{len}");
        for at in 0..len {
            let mut other = value.clone();
            other.replace_range(at..=at, "~");
            assert!(!equals.matches(&message(&other)) && differs.matches(&message(&other)));
            assert!(!prefix.matches(&message(&other)), "{len}, {at}");
            assert!(
                !prefix.matches(&message(&value[..at])) && !equals.matches(&message(&value[..at]))
            );
        }
    }
}

/// NOT takes the next operand only: over all four messages of two keys.
#[test]
fn not_binds_tightest() {
    let messages: [&[(&str, &str)]; 4] = [&[], &[("a", "")], &[("b", "")], &[("a", ""), ("b", "")]];
    let table = [
        ("NOT attributes:a AND attributes:b", [false, false, true, false]),
        ("NOT attributes:a OR attributes:b", [true, false, true, true]),
        ("NOT (attributes:a AND attributes:b)", [true, true, true, false]),
        ("-(attributes:a OR attributes:b)", [true, false, false, false]),
        ("attributes:a AND -attributes:b", [false, true, false, false]),
    ];
    for (text, expected) in table {
        let filter = parse(text);
        assert_eq!(messages.map(|message| filter.matches(message)), expected, "{text}");
    }
}

#[test]
fn every_collection_of_pairs_is_attributes() {
    let filter = parse("attributes.k = \"v\"");
    assert!(filter.matches(&[("k", "v"), ("k", "w")]));
    assert!(filter.matches(&vec![("k".to_string(), "v")]));
    assert!(filter.matches(&HashMap::from([("k".to_string(), "v".to_string())])));
    assert!(filter.matches(&BTreeMap::from([("k", "v")])));
    let pairs = [("k", "v")];
    let attributes: &dyn Attributes = &pairs;
    assert!(filter.matches(attributes));
    assert!(filter.matches(&attributes));
}

/// Conditions on one key that follow one another ask for it once; a decided filter asks no more.
#[test]
fn keys_are_asked_for_no_more_than_needed() {
    struct Counted(std::cell::Cell<usize>);
    impl Attributes for Counted {
        fn get(&self, key: &str) -> Option<&str> {
            self.0.set(self.0.get() + 1);
            (key == "k").then_some("v")
        }
    }
    let table = [
        ("attributes.k = \"a\" OR attributes.k = \"b\" OR attributes.k = \"v\"", true, 1),
        ("attributes:k AND hasPrefix(attributes.k, \"v\") AND attributes:z", false, 2),
        ("attributes:z AND attributes:k AND attributes:y", false, 1),
        ("attributes:k OR attributes:z", true, 1),
        ("NOT (attributes:k OR attributes:z) AND attributes:y", false, 1),
    ];
    for (text, matches, asked) in table {
        let counted = Counted(std::cell::Cell::new(0));
        assert_eq!(parse(text).matches(&counted), matches, "{text}");
        assert_eq!(counted.0.get(), asked, "{text}");
    }
}

#[test]
fn length_is_limited_at_the_byte() {
    let longest = format!("attributes:{}", "k".repeat(MAX_FILTER_BYTES - "attributes:".len()));
    assert!(Filter::parse(&longest).is_ok());
    let error = refuse(&format!("{longest}k"));
    assert_eq!(error.position, MAX_FILTER_BYTES);
    assert_eq!(error.reason, "found 4097 bytes, expected at most 4096");
    // A character across the limit: the position is where it begins.
    let error = refuse(&format!("{}é", &longest[1..]));
    assert_eq!(error.position, MAX_FILTER_BYTES - 1);
    let limits = FilterLimits { len_bytes: 12, ..FilterLimits::default() };
    assert!(Filter::parse_within("attributes:k", limits).is_ok());
    assert!(Filter::parse_within("attributes:kk", limits).is_err());
    let limits = FilterLimits { len_bytes: 0, ..FilterLimits::default() };
    assert!(Filter::parse_within("é", limits).is_err());
}

#[test]
fn nesting_is_limited_at_the_parenthesis() {
    let nested = |depth: usize| format!("{}attributes:k{}", "(".repeat(depth), ")".repeat(depth));
    assert_eq!(parse(&nested(MAX_FILTER_NESTING)), Filter::has("k"));
    let error = refuse(&nested(MAX_FILTER_NESTING + 1));
    assert_eq!(error.position, MAX_FILTER_NESTING);
    assert_eq!(error.reason, "more than 64 parentheses are open");
    // Side by side is not nested.
    assert!(Filter::parse(&vec!["(attributes:k)"; 200].join(" AND ")).is_ok());
}

/// Text and builder far beyond the limits: no part of the work may use stack for depth.
#[test]
fn depth_uses_no_stack() {
    let work = || {
        let depth = 1_000_000;
        let text = format!("{}attributes:k{}", "-(".repeat(depth), ")".repeat(depth));
        refuse(&text);
        assert_eq!(Filter::parse_within(&text, FilterLimits::NONE), Ok(Filter::has("k")));
        Filter::parse_within(&"(".repeat(depth), FilterLimits::NONE).unwrap_err();

        let mut deep = Filter::has("a");
        for level in 0..2_000 {
            deep = if level % 2 == 0 {
                deep.and(Filter::has("a"))
            } else {
                !deep.or(Filter::has("b"))
            };
        }
        let text = deep.to_string();
        assert_eq!(Filter::parse_within(&text, FilterLimits::NONE).as_ref(), Ok(&deep));
        assert_eq!(deep.clone(), deep);
        deep.matches(&[("a", "")]);
    };
    let thread = std::thread::Builder::new().stack_size(256 * 1024).spawn(work);
    thread.unwrap().join().unwrap();
}

/// The test's own idea of an expression, evaluated in the most naive way.
#[derive(Debug, Clone)]
enum Oracle {
    Has(String),
    Equals(String, String),
    NotEquals(String, String),
    Prefix(String, String),
    Not(Box<Self>),
    And(Box<Self>, Box<Self>),
    Or(Box<Self>, Box<Self>),
}

impl Oracle {
    fn eval(&self, message: &HashMap<String, String>) -> bool {
        match self {
            Self::Has(k) => message.contains_key(k),
            Self::Equals(k, v) => message.get(k) == Some(v),
            Self::NotEquals(k, v) => message.get(k) != Some(v),
            Self::Prefix(k, v) => message.get(k).is_some_and(|value| value.starts_with(v.as_str())),
            Self::Not(inner) => !inner.eval(message),
            Self::And(left, right) => left.eval(message) & right.eval(message),
            Self::Or(left, right) => left.eval(message) | right.eval(message),
        }
    }

    fn build(&self) -> Filter {
        match self {
            Self::Has(k) => Filter::has(k.as_str()),
            Self::Equals(k, v) => Filter::equals(k.as_str(), v.as_str()),
            Self::NotEquals(k, v) => Filter::not_equals(k.as_str(), v.as_str()),
            Self::Prefix(k, v) => Filter::prefix(k.as_str(), v.as_str()),
            Self::Not(inner) => inner.build().not(),
            Self::And(left, right) => left.build().and(right.build()),
            Self::Or(left, right) => left.build().or(right.build()),
        }
    }

    /// The expression with every parenthesis there can be and all non-ASCII escaped.
    fn write(&self) -> String {
        fn quoted(text: &str) -> String {
            let escaped = text.chars().map(|c| format!("\\U{:08X}", u32::from(c)));
            format!("\"{}\"", escaped.collect::<String>())
        }
        match self {
            Self::Has(k) => format!("(attributes:{})", quoted(k)),
            Self::Equals(k, v) => format!("(attributes.{}={})", quoted(k), quoted(v)),
            Self::NotEquals(k, v) => format!("(attributes.{}!={})", quoted(k), quoted(v)),
            Self::Prefix(k, v) => format!("(hasPrefix(attributes.{},{}))", quoted(k), quoted(v)),
            Self::Not(inner) => format!("(-{})", inner.write()),
            Self::And(left, right) => format!("({} AND {})", left.write(), right.write()),
            Self::Or(left, right) => format!("({} OR {})", left.write(), right.write()),
        }
    }
}

/// Few keys and values, so that conditions meet, and any text, so that printing is tried.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        8 => prop::sample::select(vec!["a", "b", "ab", "abc", ""]).prop_map(String::from),
        1 => prop::sample::select(vec!["AND", "-", "a b", "\"", "\\", "\\n", "\n", "é"])
            .prop_map(String::from),
        1 => any::<String>(),
    ]
}

fn oracle() -> impl Strategy<Value = Oracle> {
    let leaf = prop_oneof![
        text().prop_map(Oracle::Has),
        (text(), text()).prop_map(|(k, v)| Oracle::Equals(k, v)),
        (text(), text()).prop_map(|(k, v)| Oracle::NotEquals(k, v)),
        (text(), text()).prop_map(|(k, v)| Oracle::Prefix(k, v)),
    ];
    leaf.prop_recursive(8, 40, 2, |inner| {
        let pair = (inner.clone(), inner.clone());
        prop_oneof![
            inner.prop_map(|e| Oracle::Not(Box::new(e))),
            pair.clone().prop_map(|(a, b)| Oracle::And(Box::new(a), Box::new(b))),
            pair.prop_map(|(a, b)| Oracle::Or(Box::new(a), Box::new(b))),
        ]
    })
}

fn message() -> impl Strategy<Value = HashMap<String, String>> {
    prop::collection::hash_map(text(), text(), 0..5)
}

/// Text made of the pieces of the language, so that much of it is nearly right.
fn scraps() -> impl Strategy<Value = String> {
    let pieces = vec![
        "attributes",
        "hasPrefix",
        ".",
        ":",
        "=",
        "!=",
        "(",
        ")",
        ",",
        "\"",
        "\"v\"",
        "k",
        " ",
        "AND",
        "OR",
        "NOT",
        "-",
        "\\",
        "\\u00",
        "\\x",
        "\\0",
        "é",
        "attributes:k",
        "attributes.k = \"v\"",
        " AND ",
        " OR ",
        "😀",
        "\n",
    ];
    prop::collection::vec(prop::sample::select(pieces), 0..24).prop_map(|found| found.concat())
}

/// What any text must keep: no panic, a position inside it, and printing that reads back.
fn check_any(text: &str) {
    match Filter::parse(text) {
        Ok(filter) => {
            let again = Filter::parse_within(&filter.to_string(), FilterLimits::NONE);
            assert_eq!(again.as_ref(), Ok(&filter));
        }
        Err(error) => {
            assert!(text.is_char_boundary(error.position), "{text:?}: {error}");
            assert!(!error.reason.is_empty());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn printed_filters_read_back_equal(oracle in oracle()) {
        let filter = oracle.build();
        let printed = filter.to_string();
        let read = Filter::parse_within(&printed, FilterLimits::NONE);
        prop_assert_eq!(read.as_ref(), Ok(&filter));
        // Canonical: what was read prints the same, and needless parentheses do not matter.
        prop_assert_eq!(filter.to_string(), printed);
        let wordy = Filter::parse_within(&oracle.write(), FilterLimits::NONE);
        prop_assert_eq!(wordy.as_ref(), Ok(&filter));
    }

    #[test]
    fn evaluation_agrees_with_the_naive_one(
        oracle in oracle(),
        messages in prop::collection::vec(message(), 1..8),
    ) {
        let filter = oracle.build();
        for message in &messages {
            let expected = oracle.eval(message);
            prop_assert_eq!(filter.matches(message), expected, "{} on {:?}", filter, message);
            let pairs: Vec<_> = message.iter().collect();
            prop_assert_eq!(filter.matches(&pairs), expected);
            prop_assert_eq!(filter.clone().not().matches(message), !expected);
        }
    }

    #[test]
    fn any_text_is_read_or_refused(text in any::<String>()) {
        check_any(&text);
    }

    #[test]
    fn scraps_of_the_language_are_read_or_refused(text in scraps()) {
        check_any(&text);
    }
}

/// Attributes laid out as in a record: two lengths of 16 bits, the key, the value, and so on.
struct Encoded(Vec<u8>);

impl Encoded {
    fn new(pairs: &[(&str, &str)]) -> Self {
        let mut bytes = Vec::new();
        for (key, value) in pairs {
            bytes.extend((key.len() as u16).to_le_bytes());
            bytes.extend((value.len() as u16).to_le_bytes());
            bytes.extend(key.as_bytes());
            bytes.extend(value.as_bytes());
        }
        Self(bytes)
    }
}

impl Attributes for Encoded {
    fn get(&self, key: &str) -> Option<&str> {
        self.value_bytes(key).and_then(|bytes| std::str::from_utf8(bytes).ok())
    }

    #[inline]
    fn value_bytes(&self, key: &str) -> Option<&[u8]> {
        let mut rest = self.0.as_slice();
        while let [k0, k1, v0, v1, pair @ ..] = rest {
            let key_len = usize::from(u16::from_le_bytes([*k0, *k1]));
            let value_len = usize::from(u16::from_le_bytes([*v0, *v1]));
            let (found, after) = pair.split_at_checked(key_len)?;
            let (value, after) = after.split_at_checked(value_len)?;
            if found == key.as_bytes() {
                return Some(value);
            }
            rest = after;
        }
        None
    }
}

#[test]
fn encoded_attributes_match_without_utf8_checks() {
    let message = Encoded::new(&[("tier", "gold"), ("region", "IN")]);
    assert!(parse("attributes.region = \"IN\" AND attributes:tier").matches(&message));
    assert!(!parse("attributes:regio").matches(&message));
}

/// Prints nanoseconds per evaluation. Run it in release:
/// `cargo test --release -p slipring --test filter -- --ignored --nocapture cost`
#[test]
#[ignore = "a measurement: run it in release with --nocapture"]
fn cost_of_an_evaluation() {
    use std::hint::black_box;
    const ROUNDS: u32 = 20_000_000;
    let message = Encoded::new(&[
        ("source", "gateway-7"),
        ("region", "US"),
        ("tier", "gold"),
        ("user", "u-12345"),
    ]);
    let table = [
        ("= rejects, 1st of 4", r#"attributes.source = "gateway-8""#),
        ("= rejects, 2nd of 4", r#"attributes.region = "IN""#),
        ("= rejects, 4th of 4", r#"attributes.user = "u-54321""#),
        ("= rejects, missing", r#"attributes.zone = "IN""#),
        ("= accepts, 2nd of 4", r#"attributes.region = "US""#),
        (
            "AND of 3 rejects at 1st",
            r#"attributes.region = "IN" AND attributes.tier = "gold" AND attributes:user"#,
        ),
        (
            "AND of 3 rejects at 3rd",
            r#"attributes.region = "US" AND attributes.tier = "gold" AND attributes.user = "x""#,
        ),
        (
            "OR of = and prefix rejects",
            r#"attributes.region = "IN" OR hasPrefix(attributes.user, "vip-")"#,
        ),
        (
            "OR of 4 = on one key rejects",
            r#"attributes.region = "A" OR attributes.region = "BB" OR attributes.region = "CC" OR attributes.region = "DD""#,
        ),
    ];
    for (name, text) in table {
        let filter = parse(text);
        let best = (0..5)
            .map(|_| {
                let start = std::time::Instant::now();
                for _ in 0..ROUNDS {
                    black_box(black_box(&filter).matches(black_box(&message)));
                }
                start.elapsed().as_secs_f64() * 1e9 / f64::from(ROUNDS)
            })
            .fold(f64::INFINITY, f64::min);
        println!("{best:6.2} ns  {name}");
    }
}
