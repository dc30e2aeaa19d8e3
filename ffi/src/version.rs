//! The library's version.
#![expect(unsafe_code, reason = "exported names")]

use std::ffi::c_char;

const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");

const fn number(digits: &str) -> u32 {
    let (mut number, mut at) = (0, 0);
    while at < digits.len() {
        number = number * 10 + (digits.as_bytes()[at] - b'0') as u32;
        at += 1;
    }
    number
}

/// The version of the library that is linked: `major << 16 | minor << 8 | patch`, to be compared
/// with SLIPRING_VERSION, which is that of the header. Never fails.
#[unsafe(no_mangle)]
pub extern "C" fn slipring_version() -> u32 {
    number(env!("CARGO_PKG_VERSION_MAJOR")) << 16
        | number(env!("CARGO_PKG_VERSION_MINOR")) << 8
        | number(env!("CARGO_PKG_VERSION_PATCH"))
}

/// The same as text, "0.1.0": static, ends in NUL. Never fails.
#[unsafe(no_mangle)]
pub extern "C" fn slipring_version_str() -> *const c_char {
    VERSION.as_ptr().cast()
}
