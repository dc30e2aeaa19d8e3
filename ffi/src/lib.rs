//! The C ABI of slipring: `libslipring.so`, `libslipring.a` and `include/slipring.h`.
//!
//! The header is the manual; `cargo xtask header` makes it from the comments of these files, which
//! is why they are written for a reader of C. Every entry goes through [`panic::entry`], which
//! catches panics and turns errors into a status and the thread's last error; every pointer of the
//! caller is looked at in `handle.rs`, and nowhere else.
#![expect(non_camel_case_types, reason = "the types have the names of the header")]
#![expect(clippy::missing_safety_doc, reason = "the head of the header says it for all functions")]

pub mod callback;
pub mod handle;
pub mod panic;

// What is exported, in the order of the header: one group each, because groups are sorted.
pub mod options;

pub mod clock;

pub mod broker;

pub mod topic;

pub mod loan;

pub mod subscription;

pub mod idle;

pub mod message;

pub mod dedup;

pub mod settle;

pub mod ack_id;

pub mod acker;

pub mod handler;

pub mod handled;

pub mod named;

pub mod letters;

pub mod metrics;

pub mod log;

pub mod text;

pub mod last_error;
pub mod status;

pub mod version;
