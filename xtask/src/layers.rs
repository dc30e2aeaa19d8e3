//! The tables that `tidy` checks: who may use whom, and who may be unsafe. Edit them here.

/// The files of `core/src`, lowest layer first. A file uses `crate::x` only from lower layers. A
/// name that ends in `/` is a folder: one room, whose files may use each other.
pub(crate) const LAYERS: &[&[&str]] = &[
    &["sync.rs", "error.rs", "event.rs", "fork.rs"],
    &[
        "config.rs",
        "clock.rs",
        "topic.rs",
        "filter.rs",
        "overlay.rs",
        "chunk.rs",
        "baton.rs",
        "pin.rs",
    ],
    &["message.rs", "ring.rs", "lossy.rs", "snapshot.rs", "wait.rs", "idle.rs"],
    &["trie.rs", "store/", "log.rs", "interest.rs"],
    &["ledger.rs", "lane.rs"],
    &["inbox.rs"],
    &["shard.rs"],
    &["publisher.rs", "breaker.rs", "catchup.rs"],
    &["subscription.rs", "group.rs"],
    &["worker.rs"],
    &["broker.rs", "metrics.rs"],
    &["lib.rs"],
];

/// Uses within one layer that are allowed all the same: (file, file it uses, reason).
pub(crate) const ALLOWED: &[(&str, &str, &str)] =
    &[("fork.rs", "sync.rs", "sync.rs alone names atomics, so it is below its own layer")];

/// The only files of `core/src` that may contain `unsafe`. Each has a model or a Miri run.
pub(crate) const UNSAFE_ROOMS: &[&str] = &[
    "sync.rs",
    "event.rs",
    "fork.rs",
    "chunk.rs",
    "baton.rs",
    "message.rs",
    "ring.rs",
    "lossy.rs",
    "snapshot.rs",
    "wait.rs",
    "log.rs",
    "shard.rs",
    "lane.rs",
    "publisher.rs",
    "subscription.rs",
];

/// Files that are longer than the limit already, with the length they must not exceed.
pub(crate) const LONG_FILES: &[(&str, usize)] =
    &[("core/src/broker.rs", 1040), ("core/src/filter.rs", 1000), ("core/src/trie.rs", 1200)];
