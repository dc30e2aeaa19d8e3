//! The tables that `tidy` checks: who may use whom, and who may be unsafe. Edit them here.

/// The files of `core/src`, lowest layer first. A file uses `crate::x` only from lower layers. A
/// name that ends in `/` is a folder: one room, whose files may use each other.
pub(crate) const LAYERS: &[&[&str]] = &[
    &["sync.rs", "error.rs", "fork.rs"],
    &[
        "config.rs",
        "clock.rs",
        "topic.rs",
        "filter.rs",
        "message.rs",
    ],
    &[
        "chunk.rs",
        "ring.rs",
        "lossy.rs",
        "snapshot.rs",
        "wait.rs",
        "idle.rs",
    ],
    &["trie.rs", "store/", "log.rs"],
    &["ledger.rs", "shard.rs", "lane.rs"],
    &[
        "publisher.rs",
        "subscription.rs",
        "worker.rs",
        "group.rs",
        "catchup.rs",
        "breaker.rs",
    ],
    &["broker.rs", "metrics.rs"],
    &["lib.rs"],
];

/// Uses within one layer that are allowed all the same: (file, file it uses, reason).
pub(crate) const ALLOWED: &[(&str, &str, &str)] = &[
    (
        "error.rs",
        "sync.rs",
        "an error may hold what sync.rs names; sync.rs never names an error",
    ),
    (
        "fork.rs",
        "sync.rs",
        "sync.rs is below everything: it alone names atomics",
    ),
];

/// The only files of `core/src` that may contain `unsafe`. Each has a model or a Miri run.
pub(crate) const UNSAFE_ROOMS: &[&str] = &[
    "sync.rs",
    "fork.rs",
    "message.rs",
    "chunk.rs",
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
