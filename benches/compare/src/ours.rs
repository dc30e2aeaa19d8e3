//! slipring's side of every comparison: the only file here that knows its API.

use crate::side::Side;

/// slipring.
pub(crate) fn side() -> Option<&'static dyn Side> {
    None
}
