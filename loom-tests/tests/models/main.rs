//! The models. `cargo loom` runs them; each file is about one structure, or one meeting of several.
#![cfg_attr(slipring_loom, expect(unsafe_code, reason = "cells that loom watches"))]

#[cfg(not(slipring_loom))]
#[test]
#[ignore = "loom is off: run `cargo loom`"]
fn loom_is_off() {
    panic!("built without --cfg slipring_loom: nothing was modelled");
}

#[cfg(slipring_loom)]
mod baton;
#[cfg(slipring_loom)]
mod chunk;
#[cfg(slipring_loom)]
mod commit;
#[cfg(slipring_loom)]
mod credits;
#[cfg(slipring_loom)]
mod disk;
#[cfg(slipring_loom)]
mod fall_back;
#[cfg(slipring_loom)]
mod grace;
#[cfg(slipring_loom)]
mod ledger;
#[cfg(slipring_loom)]
mod log;
#[cfg(slipring_loom)]
mod lossy;
#[cfg(slipring_loom)]
mod replay;
#[cfg(slipring_loom)]
mod ring;
#[cfg(slipring_loom)]
mod roll;
#[cfg(slipring_loom)]
mod snapshot;
#[cfg(slipring_loom)]
mod wait;
