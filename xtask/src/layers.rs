//! The tables that `tidy` checks: who may use whom, and who may be unsafe. Edit them here.

/// The files of `core/src`, lowest layer first. A file uses `crate::x` only from lower layers. A
/// name that ends in `/` is a folder: one room, whose files may use each other.
pub(crate) const LAYERS: &[&[&str]] = &[
    &["sync.rs"],
    &[
        "error.rs",
        "event.rs",
        "fork.rs",
        "fs.rs",
        "prefetch.rs",
        "copy.rs",
        "contain.rs",
        "outage.rs",
        "config.rs",
        "handled.rs",
        "pin.rs",
        "threads.rs",
        "pages.rs",
        "tree.rs",
        "agenda.rs",
        "clock.rs",
        "inside.rs",
    ],
    &["around.rs", "backoff.rs", "settled.rs", "slab.rs", "wheel.rs", "lease.rs", "message_id.rs"],
    &["index.rs"],
    &["fresh.rs"],
    &["ledger.rs"],
    &[
        "kind.rs",
        "terms.rs",
        "topic.rs",
        "filter.rs",
        "wait.rs",
        "overlay.rs",
        "snapshot.rs",
        "runs.rs",
    ],
    &["path.rs", "leaf.rs", "table.rs", "recent.rs", "chunk.rs", "ring.rs", "lossy.rs", "idle.rs"],
    &["message.rs", "baton.rs", "leaves.rs"],
    &["batch.rs"],
    &["interest.rs", "store/", "kept.rs", "trie.rs", "dedup.rs", "dedup_window.rs"],
    &["backing.rs", "backing_none.rs", "archive.rs"],
    &["origin.rs", "suspects.rs", "suspects_none.rs"],
    &["log.rs"],
    &["catch_up.rs", "tally.rs"],
    &["queue.rs"],
    &["lane.rs"],
    &["inbox.rs"],
    &["ledgers.rs", "partition.rs", "followers.rs", "waits.rs", "outcome.rs", "errands.rs"],
    &["shard.rs", "receipt.rs"],
    &["once.rs", "next_chunk.rs", "sequencer.rs", "alarm.rs", "keeper.rs"],
    &["publisher.rs", "publisher_none.rs", "breaker.rs", "handler_error.rs"],
    &["dead_letter.rs", "ticket.rs"],
    &["acks.rs"],
    &["acked.rs", "acker.rs"],
    &["receiver.rs"],
    &["subscription.rs", "handler.rs"],
    &["worker.rs"],
    &["metrics.rs"],
    &["registry.rs"],
    &["durable.rs"],
    &["subscribe.rs"],
    &["letters.rs"],
    &["broker.rs", "model.rs"],
    &["roster.rs"],
    &["lib.rs"],
];

/// Uses within one layer that are allowed all the same: (file, file it uses, reason).
pub(crate) const ALLOWED: &[(&str, &str, &str)] = &[];

/// The only files of `core/src` that may contain `unsafe`. Each says why where it allows that.
pub(crate) const UNSAFE_ROOMS: &[&str] = &[
    "sync.rs",
    "event.rs",
    "fork.rs",
    "prefetch.rs",
    "copy.rs",
    "pages.rs",
    "chunk.rs",
    "baton.rs",
    "message.rs",
    "batch.rs",
    "kept.rs",
    "log.rs",
    "lane.rs",
    "partition.rs",
    "shard.rs",
    "model.rs",
];

/// Files that are longer than the limit already, with the length they must not exceed.
pub(crate) const LONG_FILES: &[(&str, usize)] =
    &[("core/src/filter.rs", 1000), ("core/src/lane.rs", 1180)];
