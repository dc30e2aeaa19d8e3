//! The project's own commands, run as `cargo xtask <command>`.
//!
//! Each command is one file: `steps` (test), `tidy`, `header`, `abi`, `install`, `mutations`,
//! `compare` (bench-compare), `python`, `tsan`, `store` (crash-sim, kill-loop, store-sweep,
//! store-reopen, full-disk, sabotage).

mod abi;
mod compare;
mod header;
mod install;
mod layers;
mod methods;
mod mutations;
mod options;
mod python;
mod shell;
mod source;
mod steps;
mod store;
mod tidy;
mod tsan;

use mutations::Lines;
use std::process::ExitCode;

const USAGE: &str = "\
cargo xtask test [--no-skip]      everything a change must pass; --no-skip: a missing tool is a failure
cargo xtask tidy                  layering, unsafe rooms, banned words, file lengths, SYNC pairs,
                                  options and methods in every language
cargo xtask header [--check]       make include/slipring.h of ffi/src; --check: fail on a difference
cargo xtask abi [--check]          list in ffi/abi.txt what compiled programs rely on; --check: compare
cargo xtask install --prefix P     headers, libraries, pkg-config and CMake packages below P
cargo xtask mutations [--only N | --from N]
                                  weaken one ordering at a time: the loom model must notice;
                                  --from: those from N to the end of the list
cargo xtask tsan                  the stress tests under ThreadSanitizer, on nightly with rust-src
cargo xtask crash-sim [--seeds N] [--first-seed S]
                                  the durable log on a simulated disk that crashes, from N seeds
cargo xtask kill-loop [--cycles N] [--dir DIR]
                                  kill -9 a real process that appends, N times for each policy
cargo xtask store-sweep           every bit of a segment flipped, a fault at every call
cargo xtask store-reopen [--mib N] [--dir DIR]
                                  open a store of a GiB whose process was killed, five times
cargo xtask full-disk             fill a small tmpfs and free it again, 20 times; needs root
cargo xtask sabotage [--only STEP]
                                  leave out one step of the store at a time: those must notice
cargo xtask bench-compare [--only A,B] [--quick] [--check] [--dir DIR]
                                  slipring beside its peers, into docs/benchmarks.md; --only:
                                  those sections, where H is the Python package, else all but H;
                                  --quick: about six minutes; --check: exit 1 when a bar fails
cargo xtask python                build, install and test the Python package: a step of `test`;
                                  SLIPRING_PYTHON names another interpreter than python3";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let outcome = match words.as_slice() {
        ["test"] => steps::run(steps::Missing::Skip),
        ["test", "--no-skip"] => steps::run(steps::Missing::Fail),
        ["tidy"] => tidy::run(),
        ["header"] => header::write(),
        ["header", "--check"] => header::check(),
        ["abi"] => abi::write(),
        ["abi", "--check"] => abi::check(),
        ["install", options @ ..] => install::run(options),
        ["mutations"] => mutations::run(Lines::All),
        ["mutations", "--only", name] => mutations::run(Lines::Only(name)),
        ["mutations", "--from", name] => mutations::run(Lines::From(name)),
        ["tsan"] => tsan::run(),
        ["crash-sim", options @ ..] => store::program("crash-sim", options),
        ["kill-loop", options @ ..] => store::program("kill-loop", options),
        ["store-reopen", options @ ..] => store::program("reopen", options),
        ["store-sweep"] => store::sweep(),
        ["full-disk"] => store::full_disk(),
        ["sabotage"] => store::sabotage(None),
        ["sabotage", "--only", step] => store::sabotage(Some(step)),
        ["python"] => python::test(),
        ["bench-compare", options @ ..] => compare::run(options),
        _ => Err(format!("usage:\n{USAGE}")),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}
