//! Whether C, C++ and Python have what the types of the core offer: each public method, and each
//! figure of a struct of results. Mostly it has the same name; where not, [`CHECKS`] says what does
//! the same, or why nothing has to.
//!
//! A type of the core that is not here is in [`ELSEWHERE`], or an error. Structs of results are in C++
//! those of C. In Python an ack id is a `str`, and who polls several subscriptions selects on them,
//! without an `Idle`.

use crate::options::{Place, c, cpp, has, piece};
use crate::shell;

/// What a language has in place of something of the core.
enum Other {
    /// This name.
    Is(&'static str),
    /// Nothing in this place, because of that.
    Not(&'static str),
}

use Other::{Is, Not};

/// A type of the core: the files that have it, and its name.
type Type = (&'static [&'static str], &'static str);
type Others = &'static [(&'static str, Other)];

/// The place where a language is to have all of a type, what it begins each name with, and what is
/// otherwise.
struct Check(Type, Place, &'static str, Others);

const LIB: &str = "core/src/lib.rs";

/// Functions of C.
const FUNCTIONS: Place =
    Place { file: "include/slipring.h", begin: "extern \"C\" {", end: "#endif  /* SLIPRING_H" };

const fn python(begin: &'static str) -> Place {
    Place { file: "python/slipring/_slipring.pyi", begin, end: "\n\n" }
}

const BROKER: Type = (&["core/src/broker.rs", "core/src/roster.rs"], "Broker");
const TOPIC: Type = (&["core/src/publisher.rs", "core/src/ticket.rs"], "Topic");
const LOAN: Type = (&["core/src/publisher.rs"], "Loan");
const TICKET: Type = (&["core/src/ticket.rs"], "Ticket");
const RECEIPT: Type = (&["core/src/receipt.rs"], "Receipt");
const BATCH_RECEIPT: Type = (&["core/src/receipt.rs"], "BatchReceipt");
const SUBSCRIPTION: Type = (&["core/src/subscription.rs"], "Subscription");
const BATCH: Type = (&["core/src/subscription.rs"], "Batch");
const HANDLER: Type = (&["core/src/subscribe.rs"], "HandlerSubscription");
const MESSAGE: Type = (&["core/src/message.rs"], "Message");
const KEPT: Type = (&["core/src/message.rs"], "OwnedMessage");
const ACK_ID: Type = (&["core/src/lease.rs"], "AckId");
const ACKER: Type = (&["core/src/acker.rs"], "Acker");
const LETTERS: Type = (&["core/src/letters.rs"], "DeadLetters");
const DEDUPLICATOR: Type = (&["core/src/dedup.rs"], "Deduplicator");
const IDLE: Type = (&["core/src/idle.rs"], "Idle");
const CLOCK: Type = (&["core/src/clock.rs"], "TestClock");
const HANDLED: Type = (&["core/src/handled.rs"], "Handled");
const CLOSED: Type = (&["core/src/registry.rs"], "CloseReport");
const TOPIC_DESCRIPTION: Type = (&["core/src/broker.rs"], "TopicDescription");
const PARTITION: Type = (&["core/src/broker.rs"], "PartitionDescription");
const DESCRIPTION: Type = (&["core/src/roster.rs"], "SubscriptionDescription");
const METRICS: Type = (&["core/src/metrics.rs"], "Metrics");
const SHARD_METRICS: Type = (&["core/src/metrics.rs"], "ShardMetrics");
const TOPIC_METRICS: Type = (&["core/src/metrics.rs"], "TopicMetrics");
const SUBSCRIPTION_METRICS: Type = (&["core/src/metrics.rs"], "SubscriptionMetrics");

const SETTLE: Other = Not("for bindings, whose handlers return what to do");
const ASKED_FOR: Other = Not("it was asked for by its name");

const CHECKS: &[Check] = &[
    Check(
        BROKER,
        FUNCTIONS,
        "slipring_broker_",
        &[
            ("in_memory", Is("slipring_broker_open")),
            ("builder", Is("slipring_broker_options_init")),
            // Each of its settings has a function, for a topic that is there.
            ("create_topic_with", Is("slipring_broker_set_retention")),
            ("update_topic", Is("slipring_broker_set_dedup_window")),
            ("publish_batch", Is("slipring_topic_publish_batch")),
            ("subscription", Is("slipring_broker_subscribe_handler")),
            ("topic_metrics_of", Is("slipring_broker_topic_metrics")),
            ("subscription_metrics_of", Is("slipring_broker_subscription_metrics")),
        ],
    ),
    Check(
        BROKER,
        cpp("class Broker {"),
        "",
        &[
            ("in_memory", Is("open")),
            ("builder", Is("BrokerOptions")),
            ("create_topic_with", Is("set_retention")),
            ("update_topic", Is("set_dedup_window")),
            ("publish_batch", Not("Topic::publish_batch, of the topic of that name")),
            ("subscription", Is("SubscriptionOptions")),
            ("topic_metrics_of", Is("topic_metrics")),
            ("subscription_metrics_of", Is("subscription_metrics")),
        ],
    ),
    Check(
        BROKER,
        python("class Broker:"),
        "",
        &[
            ("in_memory", Not("the function `open`")),
            ("open", Not("the function `open`")),
            ("builder", Not("keywords of the function `open`")),
            ("create_topic_with", Is("create_topic")),
            ("publish_batch", Is("publish_many")),
            ("subscription", Is("subscribe")),
            ("topic_metrics_of", Is("topic_metrics")),
            ("subscription_metrics_of", Is("subscription_metrics")),
            ("is_durable", Is("durable")),
        ],
    ),
    // What is asked meanwhile is for an interpreter; the limit of time is for everybody.
    Check(
        TOPIC,
        FUNCTIONS,
        "slipring_topic_",
        &[
            ("publish_while", Is("slipring_topic_publish_timeout")),
            ("publish_batch_while", Is("slipring_topic_publish_batch_timeout")),
            ("loan_for", Is("slipring_topic_loan")),
        ],
    ),
    Check(
        TOPIC,
        cpp("class Topic {"),
        "",
        &[
            ("publish_timeout", Is("publish_for")),
            ("publish_while", Is("publish_for")),
            ("publish_batch_while", Is("publish_batch_for")),
            ("loan_for", Is("loan")),
        ],
    ),
    Check(
        TOPIC,
        python("class Topic:"),
        "",
        &[
            ("is_durable", Is("durable")),
            ("publish_timeout", Is("publish")),
            ("publish_while", Is("publish")),
            ("publish_batch", Is("publish_many")),
            ("publish_batch_while", Is("publish_many")),
            ("try_publish_batch", Is("try_publish_many")),
            ("loan_for", Is("loan")),
        ],
    ),
    Check(
        LOAN,
        FUNCTIONS,
        "slipring_loan_",
        &[("commit_while", Is("slipring_loan_commit_timeout"))],
    ),
    Check(LOAN, cpp("class Loan {"), "", &[("commit_while", Is("commit_for"))]),
    Check(
        LOAN,
        python("class Loan:"),
        "",
        &[("commit", Is("__exit__")), ("commit_while", Is("__exit__"))],
    ),
    Check(TICKET, FUNCTIONS, "slipring_ticket_", &[("try_receipt", Is("slipring_ticket_try"))]),
    Check(TICKET, cpp("class Ticket {"), "", &[]),
    Check(TICKET, python("class Ticket:"), "", &[]),
    Check(
        RECEIPT,
        c("typedef struct slipring_receipt {"),
        "",
        &[("id", Not("slipring_topic_message_id: a receipt does not know its broker"))],
    ),
    Check(RECEIPT, python("class Receipt:"), "", &[]),
    Check(
        BATCH_RECEIPT,
        c("typedef struct slipring_batch_receipt {"),
        "",
        &[("first", Is("first_offset"))],
    ),
    Check(BATCH_RECEIPT, python("class BatchReceipt:"), "", &[]),
    Check(
        SUBSCRIPTION,
        FUNCTIONS,
        "slipring_subscription_",
        &[
            ("wait_timeout", Is("slipring_subscription_wait")),
            ("iter", Is("slipring_subscription_recv")),
        ],
    ),
    Check(
        SUBSCRIPTION,
        cpp("class Subscription {"),
        "",
        &[
            ("recv_timeout", Is("recv_for")),
            ("wait_timeout", Is("wait_for")),
            ("iter", Is("begin")),
        ],
    ),
    Check(
        SUBSCRIPTION,
        python("class Subscription:"),
        "",
        &[
            ("recv", Is("get")),
            ("recv_timeout", Is("get")),
            ("try_recv", Is("get_nowait")),
            ("recv_batch", Is("get_many")),
            ("try_recv_batch", Is("get_many")),
            ("poll", Not("a message is an object of its own, and never borrowed")),
            ("is_due", Not("what may wait does so without the interpreter's lock")),
            // With `select`, and a limit of time.
            ("wait", Is("fileno")),
            ("wait_timeout", Is("fileno")),
            ("event_fd", Is("fileno")),
            ("iter", Is("__iter__")),
        ],
    ),
    // An array in C, and in C++.
    Check(
        BATCH,
        python("class Batch:"),
        "",
        &[
            ("len", Is("__len__")),
            ("is_empty", Is("__len__")),
            ("iter", Is("__iter__")),
            ("next", Is("__iter__")),
        ],
    ),
    Check(
        HANDLER,
        FUNCTIONS,
        "slipring_handler_subscription_",
        &[
            ("metrics", Is("slipring_broker_subscription_metrics")),
            ("unsubscribe", Is("slipring_handler_subscription_free")),
            ("unsubscribe_timeout", Is("slipring_handler_subscription_unsubscribe")),
        ],
    ),
    Check(
        HANDLER,
        cpp("class [[nodiscard]] HandlerSubscription {"),
        "",
        &[
            ("metrics", Not("Broker::subscription_metrics, by its number")),
            ("unsubscribe_timeout", Is("unsubscribe_for")),
        ],
    ),
    Check(
        HANDLER,
        // The last one of the file.
        Place { end: "    def __reduce__", ..python("class HandlerSubscription:") },
        "",
        &[
            ("metrics", Not("Broker.subscription_metrics, by its number")),
            ("unsubscribe", Is("close")),
            ("unsubscribe_timeout", Is("close")),
            ("detach", Not("it goes on when the object is forgotten")),
        ],
    ),
    Check(
        MESSAGE,
        FUNCTIONS,
        "slipring_message_",
        &[
            ("ack_id", Is("slipring_ack_ids")),
            ("ack", Is("slipring_ack")),
            ("nack", Is("slipring_nack")),
            ("dead_letter", Is("slipring_dead_letter")),
            ("modify_ack_deadline", Is("slipring_extend")),
        ],
    ),
    Check(
        MESSAGE,
        cpp("class Message {"),
        "",
        &[("published_us", Is("published")), ("modify_ack_deadline", Is("extend"))],
    ),
    Check(
        MESSAGE,
        python("class Message:"),
        "",
        &[
            ("attribute", Is("attributes")),
            ("published_us", Is("published_at")),
            ("keep", Not("every message is kept for as long as somebody has it")),
            ("modify_ack_deadline", Is("extend")),
        ],
    ),
    Check(
        KEPT,
        FUNCTIONS,
        "slipring_kept_",
        &[
            ("view", Is("slipring_kept_message")),
            ("payload", Is("slipring_kept_message")),
            ("topic", Is("slipring_kept_message")),
        ],
    ),
    Check(
        KEPT,
        cpp("class OwnedMessage {"),
        "",
        &[("view", Is("message")), ("payload", Is("message")), ("topic", Is("message"))],
    ),
    Check(
        ACK_ID,
        FUNCTIONS,
        "slipring_ack_id_",
        &[("to_bytes", Is("slipring_ack_id_text")), ("from_bytes", Is("slipring_ack_id_parse"))],
    ),
    Check(
        ACK_ID,
        cpp("class AckId {"),
        "",
        &[("to_bytes", Is("text")), ("from_bytes", Is("parse"))],
    ),
    Check(
        ACKER,
        FUNCTIONS,
        "slipring_acker_",
        &[
            ("modify_ack_deadline", Is("slipring_acker_extend")),
            ("settle", SETTLE),
            ("ack_all", Is("slipring_acker_ack")),
            ("nack_all", Is("slipring_acker_nack")),
            ("modify_ack_deadlines", Is("slipring_acker_extend")),
        ],
    ),
    Check(
        ACKER,
        cpp("class Acker {"),
        "",
        &[
            ("modify_ack_deadline", Is("extend")),
            ("settle", SETTLE),
            ("ack_all", Is("ack")),
            ("nack_all", Is("nack")),
            ("modify_ack_deadlines", Is("extend")),
        ],
    ),
    Check(
        ACKER,
        python("class Acker:"),
        "",
        &[
            ("modify_ack_deadline", Is("extend")),
            ("settle", SETTLE),
            ("modify_ack_deadlines", Is("extend_all")),
        ],
    ),
    Check(
        LETTERS,
        FUNCTIONS,
        "slipring_broker_",
        &[
            ("list", Is("slipring_broker_dead_letters")),
            ("list_by", Is("slipring_broker_dead_letters")),
            ("peek", Is("slipring_broker_dead_letter")),
            ("count", Is("slipring_broker_dead_letters_count")),
            ("redrive_by", Is("slipring_broker_redrive_all")),
            ("purge", Is("slipring_broker_purge_dead_letters")),
        ],
    ),
    Check(
        LETTERS,
        cpp("class DeadLetters {"),
        "",
        &[("list_by", Is("list")), ("redrive_by", Is("redrive_all"))],
    ),
    Check(
        LETTERS,
        python("class DeadLetters:"),
        "",
        &[("list_by", Is("list")), ("redrive_by", Is("redrive_all"))],
    ),
    Check(
        DEDUPLICATOR,
        FUNCTIONS,
        "slipring_deduplicator_",
        &[("is_empty", Is("slipring_deduplicator_len"))],
    ),
    Check(
        DEDUPLICATOR,
        cpp("class Deduplicator {"),
        "",
        &[("new", Is("Deduplicator")), ("len", Is("size")), ("is_empty", Is("size"))],
    ),
    Check(
        DEDUPLICATOR,
        python("class Deduplicator:"),
        "",
        &[("new", Is("__new__")), ("len", Is("__len__")), ("is_empty", Is("__len__"))],
    ),
    Check(IDLE, FUNCTIONS, "slipring_idle_", &[]),
    Check(IDLE, cpp("class Idle {"), "", &[("new", Is("Idle"))]),
    Check(CLOCK, FUNCTIONS, "slipring_test_clock_", &[]),
    Check(CLOCK, cpp("class TestClock {"), "", &[("new", Is("TestClock"))]),
    Check(CLOCK, python("class TestClock:"), "", &[("new", Is("__new__"))]),
    // A number in C, classes of their own in Python.
    Check(HANDLED, cpp("class Handled {"), "", &[]),
    Check(
        CLOSED,
        c("typedef struct slipring_close_report {"),
        "",
        &[("store", Is("store_failed"))],
    ),
    Check(CLOSED, python("class CloseReport:"), "", &[("store", Is("store_failure"))]),
    Check(
        TOPIC_DESCRIPTION,
        c("typedef struct slipring_topic_config {"),
        "",
        &[
            ("name", ASKED_FOR),
            ("partitions", Not("slipring_broker_describe_topic")),
            ("config", Not("it is the settings")),
        ],
    ),
    Check(
        TOPIC_DESCRIPTION,
        python("class _TopicDict(TypedDict):"),
        "",
        &[("config", Not("`update_topic` leaves what is not given as it is"))],
    ),
    Check(PARTITION, c("typedef struct slipring_partition {"), "", &[]),
    Check(PARTITION, python("class _PartitionDict(TypedDict):"), "", &[]),
    Check(
        DESCRIPTION,
        c("typedef struct slipring_subscription_description {"),
        "",
        &[("name", ASKED_FOR), ("patterns", Not("what describes it gives them besides"))],
    ),
    Check(DESCRIPTION, Place { end: "\n};", ..cpp("struct SubscriptionDescription {") }, "", &[]),
    Check(DESCRIPTION, python("class _SubscriptionDict(TypedDict):"), "", &[]),
    Check(
        METRICS,
        c("typedef struct slipring_metrics {"),
        "",
        &[("to_prometheus", Not("slipring_broker_prometheus"))],
    ),
    Check(
        METRICS,
        python("class _Metrics(TypedDict):"),
        "",
        &[("to_prometheus", Not("Broker.prometheus"))],
    ),
    Check(SHARD_METRICS, c("typedef struct slipring_shard_metrics {"), "", &[]),
    Check(SHARD_METRICS, python("class _ShardMetrics(TypedDict):"), "", &[]),
    Check(TOPIC_METRICS, c("typedef struct slipring_topic_metrics {"), "", &[("name", ASKED_FOR)]),
    Check(TOPIC_METRICS, python("class _TopicMetrics(TypedDict):"), "", &[]),
    Check(
        SUBSCRIPTION_METRICS,
        c("typedef struct slipring_subscription_metrics {"),
        "",
        &[
            ("name", Not("slipring_subscription_name")),
            ("patterns", Not("slipring_broker_describe_subscription")),
        ],
    ),
    Check(SUBSCRIPTION_METRICS, python("class _SubscriptionMetrics(TypedDict):"), "", &[]),
];

/// Types of the core that nothing is compared of.
const ELSEWHERE: &[&str] = &[
    // Builders: `options.rs` compares those.
    "BrokerBuilder",
    "SubscriptionBuilder",
    "TopicConfig",
    "NewMessage",
    // Settings that are options, one value each.
    "Backoff",
    "CircuitBreaker",
    "Clock",
    "DeliveryMode",
    "Overflow",
    "Sequencer",
    "Start",
    "WaitStrategy",
    "WhenFull",
    // Parts of what is compared, that are numbers or texts elsewhere.
    "BreakerState",
    "Iter",
    "MessageId",
    "NameRule",
    "UnsubscribeReason",
    // An expression is all that they can say, and C++ has a builder of its own.
    "Filter",
    "FilterLimits",
    // Rules of names: who breaks one is told where.
    "Pattern",
    "TopicName",
    // Saves reference counts of Rust; elsewhere messages are kept one by one.
    "OwnedMessages",
    // Traits, and what a language is bound with.
    "AsMessage",
    "Attributes",
    "HandlerResult",
    "Around",
];

/// The types that `lib` exports, without errors.
fn exported(lib: &str) -> Vec<&str> {
    let lib = lib.split("#[doc(hidden)]").next().unwrap_or(lib);
    let uses = lib.split("pub use ").skip(1).filter_map(|rest| rest.split(';').next());
    let names = uses.flat_map(|path| path.split(['{', '}', ',', ':']).map(str::trim));
    let is_type =
        |name: &&str| name.starts_with(char::is_uppercase) && name.contains(char::is_lowercase);
    let is_error = |name: &&str| {
        name.starts_with("Invalid") || name.ends_with("Error") || name.ends_with("Fault")
    };
    names.filter(is_type).filter(|name| !is_error(name)).collect()
}

/// A line for each method or field of the core that a language lacks, and each type that is not known
/// here.
pub(crate) fn missing() -> Result<Vec<String>, String> {
    let mut missing = Vec::new();
    for name in exported(&shell::read(LIB)?) {
        if !ELSEWHERE.contains(&name) && CHECKS.iter().all(|Check(of, ..)| of.1 != name) {
            missing.push(format!("{LIB}: xtask/src/methods.rs does not know {name}"));
        }
    }
    for Check(of, place, prefix, others) in CHECKS {
        let text = shell::read(place.file)?;
        let piece = piece(&text, *place).ok_or(format!("{}: no `{}`", place.file, place.begin))?;
        let offered = offered(*of)?;
        missing.extend(
            lacking(&offered, piece, prefix, others).map(|name| {
                format!("{}: `{}` lacks `{name}` of {}", place.file, place.begin, of.1)
            }),
        );
    }
    Ok(missing)
}

/// Those of `offered` that are not in `piece`, behind `prefix`, where some are otherwise.
fn lacking<'o>(
    offered: &'o [String],
    piece: &str,
    prefix: &str,
    others: &[(&str, Other)],
) -> impl Iterator<Item = &'o String> {
    offered.iter().filter(move |name| match others.iter().find(|(known, _)| known == name) {
        Some((_, Is(other))) => !has(piece, other),
        Some((_, Not(why))) => why.is_empty(),
        None => !has(piece, &format!("{prefix}{name}")),
    })
}

/// All that a type offers.
fn offered((files, name): Type) -> Result<Vec<String>, String> {
    let mut all = Vec::new();
    for file in files {
        all.extend(offered_in(&shell::read(file)?, name));
    }
    if all.is_empty() { Err(format!("{files:?}: nothing of {name}")) } else { Ok(all) }
}

/// The public methods and fields of the type `name` in `text`.
fn offered_in(text: &str, name: &str) -> Vec<String> {
    let mut found = Vec::new();
    let (mut is_inside, mut is_hidden) = (false, false);
    for line in text.lines() {
        if line.starts_with("impl") || line.starts_with("pub struct ") {
            is_inside = type_of(line) == Some(name);
        } else if line == "}" {
            is_inside = false;
        }
        is_hidden |= line == "    #[doc(hidden)]";
        let Some(item) = line.strip_prefix("    pub ") else { continue };
        let item = item.trim_start_matches("const ").trim_start_matches("unsafe ");
        let end = if item.starts_with("fn ") { ['(', '<'] } else { [':', ':'] };
        let item = item.trim_start_matches("fn ").split(end).next().unwrap_or_default();
        if !std::mem::take(&mut is_hidden) && is_inside {
            found.push(item.to_owned());
        }
    }
    found
}

/// The type that `line` begins a struct, or an `impl` without a trait, of.
fn type_of(line: &str) -> Option<&str> {
    let rest = match line.strip_prefix("impl") {
        Some(rest) if !line.contains(" for ") => match rest.strip_prefix('<') {
            Some(generics) => generics.split_once("> ")?.1,
            None => rest.strip_prefix(' ')?,
        },
        Some(_) => return None,
        None => line.strip_prefix("pub struct ")?,
    };
    rest.split(['<', ' ', '(', ';']).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CORE: &str = "pub struct Thing<'a> {\n    pub size: u64,\n    pub(crate) own: u64,\n}\n\n\
                        impl<'a> Thing<'a> {\n    pub const fn new() -> Self {\n    }\n\n    \
                        #[doc(hidden)]\n    pub fn inner<F: Fn()>(&self) {\n    }\n\n    \
                        pub fn all<'m>(\n        &self,\n    ) {\n    }\n\n    fn own(&self) {\n    \
                        }\n}\n\nimpl Thing<'_> {\n    pub fn next(&self) {\n    }\n}\n\n\
                        impl Drop for Thing<'_> {\n    pub fn drop() {\n    }\n}\n\n\
                        impl Other {\n    pub fn other(&self) {\n    }\n}\n";

    #[test]
    fn public_methods_and_fields_are_offered() {
        assert_eq!(offered_in(CORE, "Thing"), ["size", "new", "all", "next"]);
        assert_eq!(offered_in(CORE, "Other"), ["other"]);
    }

    #[test]
    fn types_are_exported() {
        let lib = "pub use a::{One, LIMIT, one};\npub use b::Two;\npub use c::{BadError, InvalidOne};\n\
                   #[doc(hidden)]\npub mod internals {\n    pub use d::Three;\n}\n";
        assert_eq!(exported(lib), ["One", "Two"]);
    }

    #[test]
    fn what_is_lacking_is_named() {
        let offered = offered_in(CORE, "Thing");
        let lacking =
            |piece, others| lacking(&offered, piece, "thing_", others).cloned().collect::<Vec<_>>();
        let c = "thing_size_bytes();\n// thing_all();\nthing_new(); things_next;";
        assert_eq!(lacking(c, &[]), ["all", "next"]);
        assert_eq!(lacking(c, &[("all", Is("thing_new")), ("next", Not("why"))]), [""; 0]);
        assert_eq!(lacking(c, &[("all", Is("all")), ("next", Not("why"))]), ["all"]);
        assert_eq!(lacking(c, &[("all", Not("why")), ("next", Not(""))]), ["next"]);
    }

    #[test]
    fn what_is_otherwise_is_offered() {
        for Check(of, place, _, others) in CHECKS {
            let offered = offered(*of).unwrap();
            for (name, _) in *others {
                let is_known = offered.iter().any(|known| known == name);
                assert!(is_known, "{} in {}: {name}", of.1, place.file);
            }
        }
    }

    #[test]
    fn every_language_has_everything() {
        assert_eq!(missing(), Ok(Vec::new()));
    }
}
