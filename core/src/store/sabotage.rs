//! Steps that the proof of the store's tests leaves out, one at a time, to see that they notice.
//!
//! Built with `--cfg slipring_sabotage`, the step that `SLIPRING_SABOTAGE` names is left out.
//! `cargo xtask sabotage` has the list and goes through it. Otherwise nothing of it is there.

#[cfg(not(slipring_sabotage))]
#[inline(always)]
pub(crate) const fn sabotaged(_step: &str) -> bool {
    false
}

#[cfg(slipring_sabotage)]
pub(crate) fn sabotaged(step: &str) -> bool {
    static STEP: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    STEP.get_or_init(|| std::env::var("SLIPRING_SABOTAGE").ok()).as_deref() == Some(step)
}
