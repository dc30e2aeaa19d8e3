//! slipring: the publish/subscribe broker that lives inside your program.

pub mod error;
pub mod filter;
mod sync;

pub use filter::{Attributes, Filter};
