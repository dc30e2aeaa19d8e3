//! What Python hands over as an option, turned into what the core takes. The classes are those of
//! `slipring/_options.py`.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDelta, PyFloat, PyInt};
use slipring_core::store::{DiskStore, DiskStoreBuilder, OnDamage, SyncPolicy};
use slipring_core::{
    Backoff, CircuitBreaker, DeliveryMode, Overflow, Sequencer, Start, TopicConfig, WaitStrategy,
    WhenFull,
};
use std::num::NonZeroUsize;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A duration: seconds as a number, or a `timedelta`.
pub(crate) struct Seconds(pub(crate) Duration);

impl<'py> FromPyObject<'_, 'py> for Seconds {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let seconds: f64 = if object.is_instance_of::<PyDelta>() {
            object.call_method0("total_seconds")?.extract()?
        } else if is_number(&object) {
            object.extract()?
        } else {
            let found = object.get_type().name()?;
            return Err(PyTypeError::new_err(format!(
                "a duration is a number of seconds or a timedelta, not {found}"
            )));
        };
        Duration::try_from_secs_f64(seconds).map(Self).map_err(|_| {
            PyValueError::new_err(format!("{seconds} is no duration: it is negative or too large"))
        })
    }
}

fn is_number(object: &Bound<'_, PyAny>) -> bool {
    (object.is_instance_of::<PyFloat>() || object.is_instance_of::<PyInt>())
        && !object.is_instance_of::<PyBool>()
}

/// When a wait of that length ends; `None` for one that is longer than clocks can tell.
pub(crate) fn deadline(timeout: Option<Seconds>) -> Option<Instant> {
    timeout.and_then(|Seconds(timeout)| Instant::now().checked_add(timeout))
}

/// The name of an option's class, and of the member if it is an enum's.
fn class_and_member(object: &Bound<'_, PyAny>) -> PyResult<(String, String)> {
    let class = object.get_type().name()?.to_string();
    let member = object.getattr_opt("name")?.and_then(|name| name.extract().ok());
    Ok((class, member.unwrap_or_default()))
}

fn refuse<T>(object: &Bound<'_, PyAny>, wanted: &str) -> PyResult<T> {
    Err(PyTypeError::new_err(format!("{wanted}, not {}", object.repr()?)))
}

pub(crate) fn overflow(object: &Bound<'_, PyAny>) -> PyResult<Overflow> {
    let (class, member) = class_and_member(object)?;
    match (class.as_str(), member.as_str()) {
        ("Overflow", "DROP_NEWEST") => Ok(Overflow::DropNewest),
        ("Overflow", "DROP_OLDEST") => Ok(Overflow::DropOldest),
        ("Overflow", "BLOCK") => Ok(Overflow::Block { timeout: None }),
        ("Block", _) => {
            let timeout: Option<Seconds> = object.getattr("timeout")?.extract()?;
            Ok(Overflow::Block { timeout: timeout.map(|Seconds(timeout)| timeout) })
        }
        ("Disconnect", _) => {
            let Seconds(after) = object.getattr("after")?.extract()?;
            Ok(Overflow::Disconnect { after })
        }
        _ => refuse(object, "overflow is an Overflow, a Block or a Disconnect"),
    }
}

pub(crate) fn delivery(object: &Bound<'_, PyAny>) -> PyResult<DeliveryMode> {
    let (class, member) = class_and_member(object)?;
    match (class.as_str(), member.as_str()) {
        ("DeliveryMode", "AT_LEAST_ONCE") => Ok(DeliveryMode::AtLeastOnce),
        ("DeliveryMode", "AT_MOST_ONCE") => Ok(DeliveryMode::AtMostOnce),
        _ => refuse(object, "delivery is a DeliveryMode"),
    }
}

/// The member of `DeliveryMode` that `delivery` is.
pub(crate) fn delivery_member(
    py: Python<'_>,
    delivery: DeliveryMode,
) -> PyResult<Bound<'_, PyAny>> {
    let member = match delivery {
        DeliveryMode::AtLeastOnce => "AT_LEAST_ONCE",
        DeliveryMode::AtMostOnce => "AT_MOST_ONCE",
    };
    py.import("slipring._options")?.getattr("DeliveryMode")?.getattr(member)
}

/// Settings of a topic: how long its messages are kept, and which are stored once.
pub(crate) fn topic_config(
    retention: Option<&Bound<'_, PyAny>>,
    retention_bytes: Option<u64>,
    dedup_window: Option<Seconds>,
    dedup_ids: Option<usize>,
) -> PyResult<TopicConfig> {
    let config = TopicConfig::default()
        .retention_bytes(retention_bytes)
        .dedup_window(dedup_window.map(|Seconds(window)| window))
        .dedup_ids(dedup_ids);
    let Some(retention) = retention else { return Ok(config) };
    let (class, member) = class_and_member(retention)?;
    if (class.as_str(), member.as_str()) == ("Retention", "FOREVER") {
        return Ok(config.retention(None));
    }
    let Seconds(age) = retention.extract()?;
    Ok(config.retention(Some(age)))
}

/// How much of the disk a directory has, and when it has it back.
pub(crate) struct DiskSizes {
    pub(crate) reserve_bytes: Option<u64>,
    pub(crate) segment_bytes: Option<u64>,
    pub(crate) segment_age: Option<Seconds>,
    pub(crate) preallocate_bytes: Option<u64>,
}

/// How messages are kept in a directory.
pub(crate) fn disk(
    sync: Option<&Bound<'_, PyAny>>,
    on_damage: Option<&Bound<'_, PyAny>>,
    sizes: DiskSizes,
) -> PyResult<DiskStoreBuilder> {
    let mut disk = DiskStore::builder();
    if let Some(bytes) = sizes.reserve_bytes {
        disk = disk.reserve_bytes(bytes);
    }
    if let Some(bytes) = sizes.segment_bytes {
        disk = disk.segment_bytes(bytes);
    }
    if let Some(Seconds(age)) = sizes.segment_age {
        disk = disk.segment_age(age);
    }
    if let Some(bytes) = sizes.preallocate_bytes {
        disk = disk.preallocate_bytes(bytes);
    }
    if let Some(sync) = sync {
        let (class, member) = class_and_member(sync)?;
        disk = disk.sync(match (class.as_str(), member.as_str()) {
            ("Sync", "ALWAYS") => SyncPolicy::Always,
            ("Sync", "OS") => SyncPolicy::Os,
            _ => {
                let Seconds(interval) = sync.extract()?;
                SyncPolicy::Interval(interval)
            }
        });
    }
    if let Some(on_damage) = on_damage {
        let (class, member) = class_and_member(on_damage)?;
        disk = disk.on_damage(match (class.as_str(), member.as_str()) {
            ("OnDamage", "REFUSE") => OnDamage::Refuse,
            ("OnDamage", "SKIP") => OnDamage::Skip,
            _ => return refuse(on_damage, "on_damage is an OnDamage"),
        });
    }
    Ok(disk)
}

pub(crate) fn backoff(object: &Bound<'_, PyAny>) -> PyResult<Backoff> {
    let (class, _) = class_and_member(object)?;
    if class != "Backoff" {
        return refuse(object, "backoff is a Backoff");
    }
    let Seconds(min) = object.getattr("min")?.extract()?;
    let Seconds(max) = object.getattr("max")?.extract()?;
    let backoff = Backoff::new(min, max);
    Ok(if object.getattr("jitter")?.is_truthy()? { backoff.jitter() } else { backoff })
}

pub(crate) fn start(object: &Bound<'_, PyAny>) -> PyResult<Start> {
    let (class, member) = class_and_member(object)?;
    match (class.as_str(), member.as_str()) {
        ("Start", "NOW") => Ok(Start::Now),
        ("Start", "EARLIEST") => Ok(Start::Earliest),
        ("Last", _) => Ok(Start::Last(object.getattr("count")?.extract()?)),
        ("Offset", _) => Ok(Start::Offset(object.getattr("offset")?.extract()?)),
        ("Time", _) => Ok(Start::Time(microseconds(&object.getattr("time")?)?)),
        _ => refuse(object, "start is a Start, a Last, an Offset or a Time"),
    }
}

/// A point in time, as an aware `datetime` or seconds since the Unix epoch.
fn microseconds(time: &Bound<'_, PyAny>) -> PyResult<u64> {
    let since = if is_number(time) {
        time.extract::<Seconds>()?.0
    } else {
        time.extract::<SystemTime>()?.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO)
    };
    u64::try_from(since.as_micros())
        .map_err(|_| PyValueError::new_err("a time after the end of all clocks"))
}

pub(crate) fn wait(object: &Bound<'_, PyAny>) -> PyResult<WaitStrategy> {
    let (class, member) = class_and_member(object)?;
    match (class.as_str(), member.as_str()) {
        ("WaitStrategy", "ADAPTIVE") => Ok(WaitStrategy::Adaptive),
        ("WaitStrategy", "BUSY_SPIN") => Ok(WaitStrategy::BusySpin),
        ("WaitStrategy", "YIELD") => Ok(WaitStrategy::Yield),
        ("WaitStrategy", "PARK") => Ok(WaitStrategy::Park),
        _ => refuse(object, "wait is a WaitStrategy"),
    }
}

pub(crate) fn when_full(object: &Bound<'_, PyAny>) -> PyResult<WhenFull> {
    let (class, member) = class_and_member(object)?;
    match (class.as_str(), member.as_str()) {
        ("WhenFull", "EXPIRE") => Ok(WhenFull::Expire),
        ("WhenFull", "REFUSE") => Ok(WhenFull::Refuse),
        _ => refuse(object, "when_full is a WhenFull"),
    }
}

pub(crate) fn sequencer(object: &Bound<'_, PyAny>) -> PyResult<Sequencer> {
    let (class, member) = class_and_member(object)?;
    match (class.as_str(), member.as_str()) {
        ("Sequencer", "PUBLISHERS") => Ok(Sequencer::Publishers),
        ("Pinned", _) => Ok(Sequencer::Pinned { first: object.getattr("first")?.extract()? }),
        _ => refuse(object, "sequencer is a Sequencer or a Pinned"),
    }
}

pub(crate) fn circuit_breaker(object: &Bound<'_, PyAny>) -> PyResult<CircuitBreaker> {
    let (class, _) = class_and_member(object)?;
    if class != "CircuitBreaker" {
        return refuse(object, "circuit_breaker is a CircuitBreaker");
    }
    let failures: usize = object.getattr("failures")?.extract()?;
    let Seconds(cool_down) = object.getattr("cool_down")?.extract()?;
    let Some(failures) = NonZeroUsize::new(failures) else {
        return Err(PyValueError::new_err("a circuit breaker opens after at least 1 failure"));
    };
    Ok(CircuitBreaker { failures, cool_down })
}
