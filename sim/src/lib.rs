//! A disk that loses what a disk may lose, from one seed, and the runs that the durable store must
//! survive on it.
//!
//! [`SimFs`] stands in for the operating system. Until it is synced, a byte or a name is only a
//! promise: [`SimFs::power_cut`] decides for each by the seed. A [`Fault`] can be planned for any
//! call, and whatever happened is found again by running the same seed again.

pub mod cursors;
mod disk;
mod fault;
mod file;
mod history;
mod log_model;
mod log_run;
pub mod metadata;
mod names;
mod run;

pub use disk::{SimFs, SimOptions};
pub use fault::{Fault, Planned, Until};
pub use log_run::{RunReport, run_log, run_log_fault};
pub use run::{Failure, Report, run_seed};
