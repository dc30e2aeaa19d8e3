//! slipring: the publish/subscribe broker that lives inside your program.

pub mod error;
mod sync;
