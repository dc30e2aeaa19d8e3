//! slipring: the publish/subscribe broker that lives inside your program.

mod baton;
mod chunk;
mod clock;
mod config;
pub mod error;
mod event;
mod filter;
mod log;
mod lossy;
mod message;
mod ring;
mod snapshot;
mod sync;
mod topic;
mod trie;
mod wait;
pub use filter::Filter;
pub use message::NewMessage;
