//! An eventfd: a descriptor that is readable exactly while it is set.
#![expect(unsafe_code, reason = "system calls")]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// A settable, readable descriptor for `poll`, `epoll` and event loops.
#[derive(Debug)]
pub struct EventFd(OwnedFd);

impl EventFd {
    /// A new one, not set.
    ///
    /// # Errors
    /// What the system says, for instance that the process has no descriptors left.
    pub fn new() -> io::Result<Self> {
        // SAFETY: eventfd(2) takes two integers.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and nobody else's.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Makes it readable. Setting it twice is setting it once.
    pub fn set(&self) {
        let one = 1u64.to_ne_bytes();
        // The counter is cleared long before it can be full, and the descriptor is open: there is
        // nothing to handle.
        // SAFETY: eight readable bytes, as eventfd(2) wants them.
        unsafe { libc::write(self.0.as_raw_fd(), one.as_ptr().cast(), 8) };
    }

    /// Makes it unreadable.
    pub fn clear(&self) {
        let mut count = [0u8; 8];
        // EAGAIN says that it was clear already.
        // SAFETY: eight writable bytes.
        unsafe { libc::read(self.0.as_raw_fd(), count.as_mut_ptr().cast(), 8) };
    }

    /// The descriptor; valid as long as this lives.
    pub fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
