//! slipring: the publish/subscribe broker that lives inside your program.

mod baton;
mod chunk;
mod clock;
mod config;
pub mod error;
mod event;
mod log;
mod lossy;
mod message;
mod ring;
mod sync;
mod wait;
pub use message::NewMessage;
