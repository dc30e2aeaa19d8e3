//! The durable store.

pub(crate) mod cursor;
pub(crate) mod cursor_file;
pub(crate) mod cursor_journal;
pub(crate) mod meta;
pub(crate) mod meta_db;
mod meta_file;
mod sabotage;
mod wire;
