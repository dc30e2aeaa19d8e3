//! slipring beside its peers, in one process, on one machine, in turns.
//!
//! `cargo xtask bench-compare` runs it. Sections: A throughput, B fan-out, C latency, D routing,
//! F guarantees, G C and C++.

#[cfg(native)]
mod boundary;
#[cfg(not(native))]
#[path = "boundary_absent.rs"]
mod boundary;
mod cpu;
mod fanout;
mod guarantees;
mod harness;
mod latency;
#[cfg(native)]
mod native;
#[cfg(feature = "slipring")]
mod ours;
#[cfg(not(feature = "slipring"))]
#[path = "ours_absent.rs"]
mod ours;
mod patterns;
mod peers;
mod report;
mod routing;
mod side;
mod throughput;

use std::process::ExitCode;

use harness::Plan;
use report::Bars;
use side::Side;

type Section = fn(&Plan, Option<&dyn Side>, &mut Bars);

const SECTIONS: [(&str, Section); 6] = [
    ("A", throughput::run),
    ("B", fanout::run),
    ("C", latency::run),
    ("D", routing::run),
    ("F", guarantees::run),
    ("G", boundary::run),
];
const FULL: Plan = Plan { runs: 5, run_seconds: 0.3, quick: false };
const QUICK: Plan = Plan { runs: 3, run_seconds: 0.08, quick: true };
/// A load above this before we have started comes from others.
const QUIET_LOAD: f64 = 0.5;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (plan, only) = match options(&args) {
        Ok(options) => options,
        Err(message) => {
            eprintln!("{message}\nusage: slipring-compare [--quick] [--only A,B,C,D,F,G]");
            return ExitCode::FAILURE;
        }
    };
    // A thread that spins for one that has panicked would spin for ever.
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        print(info);
        std::process::exit(101);
    }));
    println!("Processors {:?}; {} runs each after a warm-up.", cpu::allowed(), plan.runs);
    if cpu::allowed().len() < 2 {
        println!("Only one processor is allowed: no figure below means anything.");
    }
    if cpu::load() > QUIET_LOAD {
        println!(
            "**The machine is busy (load {:.2}): spinning threads were interrupted, and",
            cpu::load()
        );
        println!("every figure below may be wrong by any factor.**");
    }
    let ours = ours::side();
    let mut bars = Bars::default();
    for (name, section) in SECTIONS {
        if only.is_empty() || only.iter().any(|wanted| wanted == name) {
            section(&plan, ours, &mut bars);
        }
    }
    bars.print();
    ExitCode::SUCCESS
}

fn options(args: &[String]) -> Result<(Plan, Vec<String>), String> {
    let (mut plan, mut only) = (FULL, Vec::new());
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--quick" => plan = QUICK,
            "--only" => {
                let list = args.next().ok_or("--only needs a list of sections")?;
                only = list.split(',').map(str::to_uppercase).collect();
                let known = |name: &String| SECTIONS.iter().any(|(section, _)| section == name);
                if let Some(unknown) = only.iter().find(|name| !known(name)) {
                    return Err(format!("no section {unknown}"));
                }
            }
            other => return Err(format!("unknown option {other}")),
        }
    }
    Ok((plan, only))
}
