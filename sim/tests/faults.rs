//! A fault at every call to the disk that a fixed run makes.

use slipring_sim::{Fault, Until, cursors, metadata};

const ALL: [Fault; 5] = [Fault::PowerCut, Fault::Kill, Fault::Io, Fault::NoSpace, Fault::Short];

fn each(run: impl Fn(Fault, Until) -> Result<u64, slipring_sim::Failure>) {
    for fault in ALL {
        for until in [Until::Once, Until::Restart] {
            match run(fault, until) {
                Ok(calls) => println!("{fault:?} {until:?}: at each of {calls} calls"),
                Err(failure) => panic!("{fault:?} {until:?}: {failure}"),
            }
        }
    }
}

#[test]
fn a_fault_at_every_call_costs_no_acknowledged_cursor() {
    each(|fault, until| cursors::fault_at_every_call(11, 200, fault, until));
}

#[test]
fn a_fault_at_every_call_costs_no_acknowledged_metadata() {
    each(|fault, until| metadata::fault_at_every_call(5, 6, fault, until));
}
