//! Section G where there is no C++ compiler, or no `target/release/libslipring.so`.

use crate::harness::Plan;
use crate::report::Bars;
use crate::side::Side;

/// Skips the section.
pub(crate) fn run(_: &Plan, _: Option<&dyn Side>, bars: &mut Bars) {
    for id in ["G1", "G2", "G3", "G4", "G5", "G6"] {
        bars.skip(id, "no C++ compiler or no libslipring.so");
    }
}
