//! What publishing and closing tell.

use pyo3::prelude::*;

/// As Python writes it.
fn truth(value: bool) -> &'static str {
    if value { "True" } else { "False" }
}

/// What became of a published message.
///
/// >>> import slipring
/// >>> broker = slipring.open()
/// >>> scores = broker.subscribe("sports/*")
/// >>> receipt = broker.publish("sports/cricket", b"four!")
/// >>> receipt.offset, receipt.matched, receipt.enqueued, receipt.dropped
/// (0, 1, 1, 0)
#[pyclass(frozen, module = "slipring")]
pub(crate) struct Receipt(pub(crate) slipring_core::Receipt);

#[pymethods]
impl Receipt {
    /// The message's id, derived from its place: a UUID as text.
    #[getter]
    fn id(&self) -> String {
        self.0.id().to_string()
    }

    /// Number of the partition, unique in the broker.
    #[getter]
    fn partition(&self) -> u32 {
        self.0.partition
    }

    /// Position in the partition.
    #[getter]
    fn offset(&self) -> u64 {
        self.0.offset
    }

    /// Whether it would survive a power cut.
    #[getter]
    fn durable(&self) -> bool {
        self.0.durable
    }

    /// Whether a message with its id was published within the topic's `dedup_window` before, so that it
    /// was not stored again. Then this is where that one is, and nothing came to any subscription.
    #[getter]
    fn duplicate(&self) -> bool {
        self.0.duplicate
    }

    /// Subscriptions that it was for.
    #[getter]
    fn matched(&self) -> u64 {
        self.0.matched
    }

    /// Of those, how many it was queued for.
    #[getter]
    fn enqueued(&self) -> u64 {
        self.0.enqueued
    }

    /// Messages dropped to the account of this publish.
    #[getter]
    fn dropped(&self) -> u64 {
        self.0.dropped
    }

    fn __repr__(&self) -> String {
        let slipring_core::Receipt { partition, offset, matched, enqueued, dropped, .. } = self.0;
        let durable = truth(self.0.durable);
        let duplicate = if self.0.duplicate { ", duplicate=True" } else { "" };
        format!(
            "Receipt(partition={partition}, offset={offset}, durable={durable}, \
             matched={matched}, enqueued={enqueued}, dropped={dropped}{duplicate})"
        )
    }
}

/// What became of a batch.
///
/// >>> import slipring
/// >>> broker = slipring.open()
/// >>> once = slipring.DeliveryMode.AT_MOST_ONCE
/// >>> few = broker.subscribe("a", delivery=once, capacity=2)
/// >>> receipt = broker.publish_many("a", [b"1", b"2", b"3"])
/// >>> receipt.published, receipt.enqueued, receipt.dropped
/// (3, 2, 1)
#[pyclass(frozen, module = "slipring")]
pub(crate) struct BatchReceipt(pub(crate) slipring_core::BatchReceipt);

#[pymethods]
impl BatchReceipt {
    /// Messages published: always the first ones of the batch.
    #[getter]
    fn published(&self) -> usize {
        self.0.published
    }

    /// Of those, how many were not stored because they were published before: see `Receipt.duplicate`.
    #[getter]
    fn duplicates(&self) -> usize {
        self.0.duplicates
    }

    /// Partition and offset of the first that was stored, or `None` if none was.
    #[getter]
    fn first(&self) -> Option<(u32, u64)> {
        self.0.first
    }

    /// Sum over the messages of the subscriptions that each was for.
    #[getter]
    fn matched(&self) -> u64 {
        self.0.matched
    }

    /// Of those, how often one was queued.
    #[getter]
    fn enqueued(&self) -> u64 {
        self.0.enqueued
    }

    /// Messages dropped to the account of this batch.
    #[getter]
    fn dropped(&self) -> u64 {
        self.0.dropped
    }

    /// Whether all that was published would survive a power cut. `False` in memory.
    #[getter]
    fn durable(&self) -> bool {
        self.0.durable
    }

    fn __repr__(&self) -> String {
        let slipring_core::BatchReceipt { published, matched, enqueued, dropped, .. } = self.0;
        let durable = truth(self.0.durable);
        format!(
            "BatchReceipt(published={published}, durable={durable}, matched={matched}, \
             enqueued={enqueued}, dropped={dropped})"
        )
    }
}

/// What closing a broker left.
///
/// >>> import slipring
/// >>> broker = slipring.open()
/// >>> jobs = broker.subscribe("jobs")
/// >>> receipt = broker.publish_many("jobs", [b"1", b"2"])
/// >>> first = jobs.get()
/// >>> report = broker.close()
/// >>> report.unhandled, report.unreceived, report.unsettled
/// (0, 1, 1)
#[pyclass(frozen, module = "slipring")]
pub(crate) struct CloseReport(pub(crate) slipring_core::CloseReport);

#[pymethods]
impl CloseReport {
    /// Messages that were queued for handlers and not handled in time. They are lost, but those of a
    /// named subscription in a directory, which come when that is opened again.
    #[getter]
    fn unhandled(&self) -> u64 {
        self.0.unhandled
    }

    /// Messages that are queued for subscriptions that are pulled. They can still be received, but
    /// those of a named subscription in a directory, which come when that is opened again.
    #[getter]
    fn unreceived(&self) -> u64 {
        self.0.unreceived
    }

    /// Messages that were delivered and are not settled: failed and waiting for another attempt, or
    /// not acknowledged yet. What has been received can still be acknowledged.
    #[getter]
    fn unsettled(&self) -> u64 {
        self.0.unsettled
    }

    /// Whether a handler was still running. It runs to its end, and is then not called again.
    #[getter]
    fn handler_running(&self) -> bool {
        self.0.handler_running
    }

    /// Why the directory could not be closed in order, if it could not. What was acknowledged is on the
    /// disk as far as the receipts said; what was settled last may be delivered again.
    #[getter]
    fn store_failure(&self) -> Option<String> {
        self.0.store.map(|fault| fault.to_string())
    }

    fn __repr__(&self) -> String {
        let report = self.0;
        let (unhandled, unreceived) = (report.unhandled, report.unreceived);
        let (unsettled, running) = (report.unsettled, truth(report.handler_running));
        let failure = report.store.map_or_else(|| "None".into(), |fault| format!("'{fault}'"));
        format!(
            "CloseReport(unhandled={unhandled}, unreceived={unreceived}, unsettled={unsettled}, \
             handler_running={running}, store_failure={failure})"
        )
    }
}
