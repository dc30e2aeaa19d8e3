//! What a run tells, and all runs of one seed.

use std::fmt;

use crate::{SimFs, cursors, metadata};

/// What happened in runs that went well.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Calls to the disk.
    pub calls: u64,
    /// Power cuts and deaths of the process.
    pub crashes: u64,
    /// Of those, while a store was being opened.
    pub crashes_in_open: u64,
    /// Times that a store was opened.
    pub opens: u64,
    /// Acknowledged changes.
    pub acknowledged: u64,
    /// Errors that were told, and rightly so.
    pub errors: u64,
}

impl Report {
    /// Adds another run.
    pub fn add(&mut self, other: &Self) {
        self.calls += other.calls;
        self.crashes += other.crashes;
        self.crashes_in_open += other.crashes_in_open;
        self.opens += other.opens;
        self.acknowledged += other.acknowledged;
        self.errors += other.errors;
    }
}

/// A promise that was broken.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Failure {
    /// Running it again breaks the same promise.
    pub seed: u64,
    /// What was wrong.
    pub what: String,
    /// The calls that led there, oldest first.
    pub trace: Vec<String>,
}

impl Failure {
    pub(crate) fn new(seed: u64, what: String, fs: &SimFs) -> Self {
        Self { seed, what, trace: fs.trace() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.trace {
            writeln!(f, "  {line}")?;
        }
        write!(f, "seed {}: {}", self.seed, self.what)
    }
}

impl std::error::Error for Failure {}

/// Everything that one seed drives: the cursor journal and the metadata, each on a disk of its own.
///
/// # Errors
///
/// The first promise that was broken.
pub fn run_seed(seed: u64) -> Result<Report, Failure> {
    let mut report = cursors::run(seed)?;
    report.add(&metadata::run(seed)?);
    Ok(report)
}
