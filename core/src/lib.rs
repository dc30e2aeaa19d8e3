//! slipring: the publish/subscribe broker that lives inside your program.

pub mod error;
pub mod chunk;
pub mod lossy;
pub mod ring;
mod sync;
