//! Whether C, C++ and Python have every option of the core: each public method of its builders is a
//! member of a struct, a method of a class, or a keyword. Mostly it has the same name, and where not,
//! [`CHECKS`] has the other.

use crate::shell;

/// A builder of the core: its file, and its type with its lifetime.
type Builder = (&'static str, &'static str);

const BROKER: Builder = ("core/src/broker.rs", "BrokerBuilder");
const DISK: Builder = ("core/src/store/disk.rs", "DiskStoreBuilder");
const TOPIC: Builder = ("core/src/config.rs", "TopicConfig");
const SUBSCRIPTION: Builder = ("core/src/subscribe.rs", "SubscriptionBuilder<'a>");
const MESSAGE: Builder = ("core/src/message.rs", "NewMessage<'a>");

/// A piece of a file, where a language has its options: from `begin` to the next `end`.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub(crate) file: &'static str,
    pub(crate) begin: &'static str,
    pub(crate) end: &'static str,
}

pub(crate) const fn c(begin: &'static str) -> Place {
    Place { file: "include/slipring.h", begin, end: "\n}" }
}

pub(crate) const fn cpp(begin: &'static str) -> Place {
    Place { file: "include/slipring.hpp", begin, end: "\n  private:" }
}

const fn python(begin: &'static str) -> Place {
    Place { file: "python/slipring/_slipring.pyi", begin, end: ") ->" }
}

const C_BROKER: Place = c("typedef struct slipring_broker_options {");
const CPP_BROKER: Place = cpp("class BrokerOptions {");
const PYTHON_BROKER: Place = python("def open(");

/// Options of the core that are for Rust alone: a trait of it, and what a language is bound with.
const OF_RUST: &[&str] = &["store", "around_waits", "around"];

/// The options of a builder, the place where all of them are to be, and what some are called there: an
/// empty name says that it is elsewhere, or never changes.
struct Check(Builder, Place, &'static [(&'static str, &'static str)]);

const CHECKS: &[Check] = &[
    // What `disk` and `default_topic` take are options of their own there.
    Check(
        BROKER,
        C_BROKER,
        &[("auto_create", "create_topics"), ("disk", "dir"), ("default_topic", "retention")],
    ),
    Check(
        BROKER,
        CPP_BROKER,
        &[
            ("auto_create", "create_topics"),
            ("disk", "dir"),
            ("default_topic", "retention"),
            ("sequencer", "pinned_sequencer"),
        ],
    ),
    Check(BROKER, PYTHON_BROKER, &[("disk", "path"), ("default_topic", "retention")]),
    Check(DISK, C_BROKER, &[]),
    Check(DISK, CPP_BROKER, &[]),
    Check(DISK, PYTHON_BROKER, &[]),
    // Topics that are created by publishing.
    Check(TOPIC, C_BROKER, &[("partitions", "default_partitions")]),
    Check(
        TOPIC,
        CPP_BROKER,
        &[
            ("partitions", "default_partitions"),
            ("retention_bytes", "retention"),
            ("dedup_ids", "dedup_window"),
        ],
    ),
    Check(TOPIC, PYTHON_BROKER, &[("partitions", "default_partitions")]),
    // One topic: in C and C++ there is a function for what belongs together.
    Check(TOPIC, python("def create_topic("), &[]),
    Check(TOPIC, python("def update_topic("), &[("partitions", "")]),
    // Where C has functions, they are in `slipring_handler`.
    Check(
        SUBSCRIPTION,
        c("typedef struct slipring_subscription_options {"),
        &[
            ("pattern", "patterns"),
            ("filter_by", "filter"),
            ("circuit_breaker", "breaker_failures"),
            ("backoff", "backoff_min"),
            ("on_error", ""),
            ("on_lagged", ""),
        ],
    ),
    Check(
        SUBSCRIPTION,
        cpp("class SubscriptionOptions {"),
        &[("filter_by", "filter"), ("filter_fn", "filter"), ("on_error", "on_failure")],
    ),
    // What is for handlers, `subscribe` has in one of its overloads.
    Check(
        SUBSCRIPTION,
        python("def on("),
        &[("pattern", "patterns"), ("filter_by", "filter"), ("filter_fn", "filter")],
    ),
    Check(MESSAGE, c("typedef struct slipring_new_message {"), &[]),
    Check(MESSAGE, cpp("class NewMessage {"), &[]),
    Check(MESSAGE, python("def publish("), &[]),
];

/// A line for each option of the core that a language lacks.
pub(crate) fn missing() -> Result<Vec<String>, String> {
    let mut missing = Vec::new();
    for Check((file, builder), place, others) in CHECKS {
        let options = options_of(&shell::read(file)?, builder);
        if options.is_empty() {
            return Err(format!("{file}: no options of {builder}"));
        }
        let text = shell::read(place.file)?;
        let piece = piece(&text, *place).ok_or(format!("{}: no `{}`", place.file, place.begin))?;
        missing.extend(lacking(&options, piece, others).map(|option| {
            format!("{}: `{}` lacks `{option}` of {builder}", place.file, place.begin)
        }));
    }
    Ok(missing)
}

pub(crate) fn piece(text: &str, place: Place) -> Option<&str> {
    let from = &text[text.find(place.begin)?..];
    Some(&from[..from.find(place.end)?])
}

/// Those of `options` that are not in `piece`, where some have other names.
fn lacking<'o>(
    options: &'o [String],
    piece: &str,
    others: &[(&str, &str)],
) -> impl Iterator<Item = &'o String> {
    options.iter().filter(move |option| {
        let other = others.iter().find(|(known, _)| known == option);
        let name = other.map_or(option.as_str(), |(_, other)| other);
        let is_wanted = !name.is_empty() && !OF_RUST.contains(&option.as_str());
        is_wanted && !has(piece, name)
    })
}

/// What C adds to the name of a number.
const UNITS: &[&str] = &["", "_ns", "_bytes", "_messages"];

/// Whether a member, a method, a parameter or a keyword has that name, with a unit or without.
pub(crate) fn has(piece: &str, name: &str) -> bool {
    let code = piece.lines().filter(|line| !line.trim_start().starts_with("//"));
    let words = code.flat_map(|line| line.split(|c: char| !(c.is_alphanumeric() || c == '_')));
    words.filter_map(|word| word.strip_prefix(name)).any(|unit| UNITS.contains(&unit))
}

/// The public methods of `builder` in `text` that take it and give it back.
fn options_of(text: &str, builder: &str) -> Vec<String> {
    let mut options = Vec::new();
    let generics = if builder.contains('<') { "<'a>" } else { "" };
    let Some(from) = text.find(&format!("\nimpl{generics} {builder} {{")) else { return options };
    let code = &text[from..];
    let code = &code[..code.find("\n}").unwrap_or(code.len())];
    let mut is_hidden = false;
    for (at, line) in code.lines().enumerate() {
        is_hidden |= line.trim() == "#[doc(hidden)]";
        let Some(head) = line.trim().strip_prefix("pub fn ") else { continue };
        let signature: String = code.lines().skip(at).take_while(|l| !l.is_empty()).collect();
        let signature = signature.split('{').next().unwrap_or_default();
        let (takes, gives) = (signature.contains("self,"), signature.contains("-> Self"));
        let takes = takes || signature.contains("(self)") || signature.contains("(mut self)");
        if takes && gives && !is_hidden {
            options.push(head.split(['(', '<']).next().unwrap_or_default().to_owned());
        }
        is_hidden = false;
    }
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    const CORE: &str = "\nimpl Builder {\n    pub fn new() -> Self {\n    }\n\n    /// Text.\n    \
                        #[must_use]\n    pub fn age(mut self, age: Duration) -> Self {\n    }\n\n    \
                        pub fn called(\n        self,\n        f: F,\n    ) -> Self {\n    }\n\n    \
                        #[doc(hidden)]\n    pub fn seed(self, seed: u64) -> Self {\n    }\n\n    \
                        pub fn many(self) -> Self {\n    }\n\n    \
                        pub fn build(self) -> Thing {\n    }\n}\n";

    #[test]
    fn options_are_the_public_methods_that_give_the_builder_back() {
        assert_eq!(options_of(CORE, "Builder"), ["age", "called", "many"]);
    }

    #[test]
    fn an_option_is_found_under_its_name_and_a_missing_one_is_named() {
        let options = options_of(CORE, "Builder");
        let lacking = |piece, others| lacking(&options, piece, others).cloned().collect::<Vec<_>>();
        let c = "struct options {\n  // many\n  uint64_t age_ns;\n  text called;\n";
        assert_eq!(lacking(c, &[]), ["many"]);
        assert_eq!(lacking(c, &[("many", "called")]), [""; 0]);
        assert_eq!(lacking("uint64_t the_age, ages, called, many", &[]), ["age"]);
    }

    #[test]
    fn what_is_called_otherwise_is_an_option() {
        for Check((file, builder), _, others) in CHECKS {
            let options = options_of(&shell::read(file).unwrap_or_default(), builder);
            for (option, _) in *others {
                assert!(options.iter().any(|known| known == option), "{builder}: {option}");
            }
        }
    }

    #[test]
    fn every_language_has_every_option() {
        assert_eq!(missing(), Ok(Vec::new()));
    }
}
