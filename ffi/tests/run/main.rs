//! Compiles the programs in C and C++ of the folder above, the examples and the consumers, and runs
//! them. A tool that is missing is named and skipped, or fails the test where SLIPRING_NO_SKIP is
//! set; the C compiler is not one of those.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod examples;
mod headers;
mod installed;
mod programs;
mod toolbox;
