//! What can go wrong at a call.

use std::io;

/// What happens at a call instead of what should.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a run goes through all of them")]
pub enum Fault {
    /// The power goes: what was not synced survives or not, and all calls fail until
    /// [`SimFs::restart`](crate::SimFs::restart).
    PowerCut,
    /// The process dies, the operating system does not: everything written stays, still unsynced.
    Kill,
    /// `EIO`. Whether a call that changes something has changed it, nobody knows; of what a sync
    /// should have made durable, some is lost and counts as clean.
    Io,
    /// `ENOSPC`, at calls that need room; a sync that finds none loses bytes as with `EIO`. Ignored
    /// by other calls.
    NoSpace,
    /// A read or a write does part of what it was asked. Ignored by other calls.
    Short,
}

/// How long a fault lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a run goes through both")]
pub enum Until {
    /// That call alone fails.
    Once,
    /// That call and all behind it fail, until the restart.
    Restart,
}

/// A fault at a call, counted from 0 since the start or the last restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "made by whoever plans")]
pub struct Planned {
    /// The call's number.
    pub at: u64,
    /// What happens.
    pub fault: Fault,
    /// How long.
    pub until: Until,
}

impl Planned {
    pub(crate) fn hits(&self, call: u64) -> bool {
        match self.until {
            Until::Once => self.at == call,
            Until::Restart => self.at <= call,
        }
    }
}

pub(crate) fn down() -> io::Error {
    io::Error::other("the machine is down")
}

pub(crate) fn io_error() -> io::Error {
    io::Error::other("simulated EIO")
}

pub(crate) fn no_space() -> io::Error {
    io::ErrorKind::StorageFull.into()
}
