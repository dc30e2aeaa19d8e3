//! slipring beside its peers, in one process, on one machine, in turns.
//!
//! `cargo xtask bench-compare` runs it. Sections: A throughput, B fan-out, C latency, D routing,
//! E durable log, F guarantees, G C and C++.

#![cfg_attr(
    not(feature = "peers"),
    expect(dead_code, reason = "much is for the sections with peers in Rust")
)]

#[cfg(native)]
mod boundary;
#[cfg(not(native))]
#[path = "boundary_absent.rs"]
mod boundary;
mod cpu;
mod disk;
mod distance;
mod durable;
#[cfg(feature = "peers")]
mod fanout;
mod guarantees;
mod harness;
#[cfg(feature = "peers")]
mod latency;
#[cfg(native)]
mod native;
#[cfg(feature = "slipring")]
mod ours;
#[cfg(not(feature = "slipring"))]
#[path = "ours_absent.rs"]
mod ours;
#[cfg(feature = "peers")]
mod patterns;
mod peers;
mod quantiles;
mod report;
#[cfg(feature = "peers")]
mod routing;
mod side;
#[cfg(feature = "peers")]
mod throughput;

use std::path::Path;
use std::process::ExitCode;

use harness::Plan;
use report::Bars;
use side::Side;

type Section = fn(&Plan, Option<&dyn Side>, &mut Bars);

#[cfg(feature = "peers")]
const BESIDE_RUST: &[(&str, Section)] =
    &[("A", throughput::run), ("B", fanout::run), ("C", latency::run), ("D", routing::run)];
#[cfg(not(feature = "peers"))]
const BESIDE_RUST: &[(&str, Section)] = &[];
/// Beside peers in C and C++, or none.
const OTHERS: &[(&str, Section)] =
    &[("E", durable::run), ("F", guarantees::run), ("G", boundary::run)];

fn sections() -> impl Iterator<Item = &'static (&'static str, Section)> {
    BESIDE_RUST.iter().chain(OTHERS)
}

/// What another process of this program is started with; not for users.
const REOPEN: &str = "--reopen";
/// A load above this before we have started comes from others.
const QUIET_LOAD: f64 = 0.5;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let ([REOPEN, dir], Some(ours)) =
        (&*args.iter().map(|arg| &**arg).collect::<Vec<_>>(), ours::side())
    {
        ours.reopen(Path::new(dir));
    }
    let (plan, only) = match options(&args) {
        Ok(options) => options,
        Err(message) => {
            eprintln!(
                "{message}\nusage: slipring-compare [--quick] [--only A,B,C,D,E,F,G] [--dir DIR]"
            );
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
    for (name, section) in sections() {
        if only.is_empty() || only.iter().any(|wanted| wanted == name) {
            section(&plan, ours, &mut bars);
        }
    }
    if let Some(summary) = distance::summary() {
        println!("\n{summary}");
    }
    bars.print();
    ExitCode::SUCCESS
}

fn options(args: &[String]) -> Result<(Plan, Vec<String>), String> {
    let mut only = Vec::new();
    let mut plan = Plan { runs: 5, run_seconds: 0.3, quick: false, dir: Path::new("target") };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--quick" => plan = Plan { runs: 3, run_seconds: 0.08, quick: true, ..plan },
            "--dir" => {
                let dir = args.next().ok_or("--dir needs a directory")?;
                plan.dir = Path::new(String::leak(dir.clone()));
            }
            "--only" => {
                let list = args.next().ok_or("--only needs a list of sections")?;
                only = list.split(',').map(str::to_uppercase).collect();
                let known = |name: &String| sections().any(|(section, _)| section == name);
                if let Some(unknown) = only.iter().find(|name| !known(name)) {
                    return Err(format!("no section {unknown}, or built without its peers"));
                }
            }
            other => return Err(format!("unknown option {other}")),
        }
    }
    Ok((plan, only))
}
