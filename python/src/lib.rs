//! The native half of the Python package `slipring`: the module `slipring._slipring`.
//!
//! What a user imports is `python/slipring/__init__.py`; the errors, the enums and the part that
//! deals with event loops are written in Python there. This half is one file per noun.
//!
//! Two rules keep it free of deadlocks. Whatever can wait is done detached from the interpreter; and
//! while attached, nothing waits for a shard or a lock whose holder could wait for the interpreter:
//! a publish is only tried, and waits, if it has to, detached.

mod acker;
mod async_messages;
mod batch;
mod broker;
mod buffer;
mod capsule;
mod clock;
mod dedup;
mod errors;
mod fastcall;
mod handled;
mod handler;
mod interpreter;
mod letters;
mod loan;
mod message;
mod metrics;
mod options;
mod publish;
mod receipt;
mod signals;
mod subscribe;
mod subscription;
mod table;
mod ticket;
mod topic;

#[pyo3::pymodule(gil_used = true)]
mod _slipring {
    #[pymodule_export]
    use crate::acker::{Acker, settle};
    #[pymodule_export]
    use crate::batch::{Batch, BatchIterator};
    #[pymodule_export]
    use crate::broker::{Broker, open};
    #[pymodule_export]
    use crate::clock::TestClock;
    #[pymodule_export]
    use crate::dedup::Deduplicator;
    #[pymodule_export]
    use crate::handler::HandlerSubscription;
    #[pymodule_export]
    use crate::letters::DeadLetters;
    #[pymodule_export]
    use crate::loan::Loan;
    #[pymodule_export]
    use crate::message::{Attributes, Message, rebuild_message};
    #[pymodule_export]
    use crate::receipt::{BatchReceipt, CloseReport, Receipt};
    #[pymodule_export]
    use crate::subscription::Subscription;
    #[pymodule_export]
    use crate::ticket::Ticket;
    #[pymodule_export]
    use crate::topic::Topic;

    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        for (name, attribute) in [
            ("DEAD_LETTER_ATTEMPTS", slipring_core::DEAD_LETTER_ATTEMPTS),
            ("DEAD_LETTER_OFFSET", slipring_core::DEAD_LETTER_OFFSET),
            ("DEAD_LETTER_PARTITION", slipring_core::DEAD_LETTER_PARTITION),
            ("DEAD_LETTER_REASON", slipring_core::DEAD_LETTER_REASON),
            ("DEAD_LETTER_SUBSCRIPTION", slipring_core::DEAD_LETTER_SUBSCRIPTION),
            ("DEAD_LETTER_TOPIC", slipring_core::DEAD_LETTER_TOPIC),
        ] {
            module.add(name, attribute)?;
        }
        crate::fastcall::install(module.py())?;
        crate::interpreter::register(module.py())
    }
}
