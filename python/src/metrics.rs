//! The broker's figures as plain dicts, with the names that they have in Rust.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use slipring_core::{BreakerState, Metrics, ShardMetrics, SubscriptionMetrics, TopicMetrics};

pub(crate) fn dict<'py>(py: Python<'py>, metrics: &Metrics) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("chunk_bytes", metrics.chunk_bytes)?;
    dict.set_item("budget_bytes", metrics.budget_bytes)?;
    let shards = metrics.shards.iter().map(|shard| shard_dict(py, shard));
    dict.set_item("shards", shards.collect::<PyResult<Vec<_>>>()?)?;
    let topics = metrics.topics.iter().map(|topic| topic_dict(py, topic));
    dict.set_item("topics", topics.collect::<PyResult<Vec<_>>>()?)?;
    let subscriptions = metrics.subscriptions.iter().map(|known| subscription_dict(py, known));
    dict.set_item("subscriptions", subscriptions.collect::<PyResult<Vec<_>>>()?)?;
    Ok(dict)
}

fn shard_dict<'py>(py: Python<'py>, shard: &ShardMetrics) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("published", shard.published)?;
    dict.set_item("retained", shard.retained)?;
    dict.set_item("retained_bytes", shard.retained_bytes)?;
    dict.set_item("expired", shard.expired)?;
    dict.set_item("index_bytes", shard.index_bytes)?;
    dict.set_item("stored_bytes", shard.stored_bytes)?;
    dict.set_item("stored", shard.stored)?;
    dict.set_item("unsynced", shard.unsynced)?;
    Ok(dict)
}

pub(crate) fn topic_dict<'py>(
    py: Python<'py>,
    topic: &TopicMetrics,
) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("name", &topic.name)?;
    dict.set_item("published", topic.published)?;
    dict.set_item("duplicates", topic.duplicates)?;
    Ok(dict)
}

pub(crate) fn subscription_dict<'py>(
    py: Python<'py>,
    known: &SubscriptionMetrics,
) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("id", known.id)?;
    dict.set_item("name", &known.name)?;
    dict.set_item("patterns", &known.patterns)?;
    dict.set_item("matched", known.matched)?;
    dict.set_item("replayed", known.replayed)?;
    dict.set_item("delivered", known.delivered)?;
    dict.set_item("dropped_newest", known.dropped_newest)?;
    dict.set_item("dropped_oldest", known.dropped_oldest)?;
    dict.set_item("dropped_timeout", known.dropped_timeout)?;
    dict.set_item("expired", known.expired)?;
    dict.set_item("discarded", known.discarded)?;
    dict.set_item("queued", known.queued)?;
    dict.set_item("lag", known.lag)?;
    dict.set_item("oldest_age_us", known.oldest_age_us)?;
    dict.set_item("unsettled", known.unsettled)?;
    dict.set_item("acked", known.acked)?;
    dict.set_item("redelivered", known.redelivered)?;
    dict.set_item("dead_lettered", known.dead_lettered)?;
    dict.set_item("expired_unsettled", known.expired_unsettled)?;
    dict.set_item("handler_failures", known.handler_failures)?;
    dict.set_item("handler_panics", known.handler_panics)?;
    dict.set_item("filter_panics", known.filter_panics)?;
    dict.set_item("breaker", breaker(py, known.breaker)?)?;
    Ok(dict)
}

fn breaker(py: Python<'_>, state: BreakerState) -> PyResult<Bound<'_, PyAny>> {
    let member = match state {
        BreakerState::Open => "OPEN",
        BreakerState::HalfOpen => "HALF_OPEN",
        _ => "CLOSED",
    };
    py.import("slipring._options")?.getattr("BreakerState")?.getattr(member)
}
