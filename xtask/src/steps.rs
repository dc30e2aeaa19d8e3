//! `cargo xtask test`: the steps a change must pass, in order, with a closing table.
//!
//! A step whose tool is not on this machine is skipped by name; `--no-skip` makes that a failure.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::{abi, header, python, shell, store, tidy};

/// What a missing tool means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Missing {
    /// The step is skipped and named in the table.
    Skip,
    /// The run fails.
    Fail,
}

/// A tool that not every machine has.
struct Tool {
    name: &'static str,
    probe: fn() -> Command,
    install: &'static str,
}

struct Step {
    name: &'static str,
    needs: Option<&'static Tool>,
    run: fn(Missing) -> Result<(), String>,
}

const RUSTFMT: Tool = Tool {
    name: "rustfmt",
    probe: || shell::cargo(&["fmt", "--version"]),
    install: "rustup component add rustfmt",
};
const CLIPPY: Tool = Tool {
    name: "clippy",
    probe: || shell::cargo(&["clippy", "--version"]),
    install: "rustup component add clippy",
};

const PYTHON: Tool = Tool {
    name: "Python 3.11 with venv",
    probe: python::probe,
    install: "apt-get install python3-venv python3-dev",
};

const TMPFS: Tool = Tool {
    name: "right to mount a tmpfs",
    probe: || {
        let mut command = Command::new("sh");
        let mount =
            "dir=$(mktemp -d) && mount -t tmpfs -o size=1m none \"$dir\" && umount \"$dir\"";
        command.args(["-c", mount]);
        command
    },
    install: "run it as root",
};

/// An example that runs longer than this hangs.
const EXAMPLE_LIMIT: Duration = Duration::from_secs(120);
/// Preemptions a loom model explores, unless LOOM_MAX_PREEMPTIONS says otherwise.
const LOOM_PREEMPTIONS: &str = "2";

/// A new step is one line here.
const STEPS: &[Step] = &[
    step("fmt", Some(&RUSTFMT), |_| cargo(&["fmt", "--all", "--check"])),
    step("fmt benches/compare", Some(&RUSTFMT), |_| {
        cargo(&["fmt", "--manifest-path", "benches/compare/Cargo.toml", "--check"])
    }),
    step("tidy", None, |_| tidy::run()),
    step("header", None, |_| header::check()),
    step("abi", None, |_| abi::check()),
    step("clippy", Some(&CLIPPY), |_| {
        cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"])
    }),
    // With its peers, some of which take minutes to build, this is for who compares.
    step("check benches/compare", None, |_| {
        let compare = ["--manifest-path", "benches/compare/Cargo.toml"];
        cargo(
            &[&["check"], &compare[..], &["--no-default-features", "--features", "slipring"]]
                .concat(),
        )
    }),
    step("tests and doc tests", None, tests),
    step("long contracts", None, |_| long()),
    step("store: sweeps", None, |_| store::sweep()),
    step("store: crash-sim", None, |_| store::program("crash-sim", &["--seeds", "20000"])),
    step("store: kill-loop", None, |_| store::program("kill-loop", &["--cycles", "200"])),
    step("store: full-disk", Some(&TMPFS), |_| store::full_disk()),
    step("benches, once each", None, |_| benches()),
    step("examples", None, |_| examples()),
    step("docs", None, |_| docs()),
    step("python package", Some(&PYTHON), |_| python::test()),
    step("loom models", None, |_| loom()),
];

const fn step(
    name: &'static str,
    needs: Option<&'static Tool>,
    run: fn(Missing) -> Result<(), String>,
) -> Step {
    Step { name, needs, run }
}

/// Runs every step; stops at the first failure.
pub(crate) fn run(missing: Missing) -> Result<(), String> {
    let mut rows = Vec::new();
    for step in STEPS {
        println!("\n=== {} ===", step.name);
        let start = Instant::now();
        let absent = step.needs.filter(|tool| !shell::succeeds((tool.probe)()));
        let outcome = match (absent, missing) {
            (None, _) => (step.run)(missing).map(|()| "ok".to_owned()),
            (Some(tool), Missing::Skip) => {
                Ok(format!("SKIPPED: no {} ({})", tool.name, tool.install))
            }
            (Some(tool), Missing::Fail) => {
                Err(format!("no {} on this machine ({})", tool.name, tool.install))
            }
        };
        let failure = outcome.as_ref().err().map(|why| format!("step `{}`: {why}", step.name));
        rows.push((step.name, start.elapsed(), outcome.unwrap_or_else(|_| "FAILED".to_owned())));
        if let Some(message) = failure {
            print_table(&rows);
            return Err(message);
        }
    }
    print_table(&rows);
    Ok(())
}

fn print_table(rows: &[(&str, Duration, String)]) {
    println!("\n{:<22} {:>8}  result", "step", "seconds");
    for (name, time, result) in rows {
        println!("{name:<22} {:>8.1}  {result}", time.as_secs_f64());
    }
    for step in STEPS.iter().skip(rows.len()) {
        println!("{:<22} {:>8}  not reached", step.name, "-");
    }
}

fn cargo(args: &[&str]) -> Result<(), String> {
    shell::run(shell::cargo(args))
}

/// Those of `ffi` skip by name what they have no tool for, unless they are told not to. Those of the
/// simulation are the sweeps' step, which has them optimised.
fn tests(missing: Missing) -> Result<(), String> {
    let mut command = shell::cargo(&["test", "--workspace", "--exclude", "slipring-sim"]);
    if missing == Missing::Fail {
        command.env("SLIPRING_NO_SKIP", "1");
    }
    shell::run(command)
}

/// The contracts that count: optimised, they go as far as they say, and unoptimised a tenth of it.
fn long() -> Result<(), String> {
    let tests = ["--test", "contract_lifecycle", "--test", "routing", "--test", "no_allocation"];
    let names = ["--", "leave_no_memory", "a_million_cycles", "allocate"];
    let all =
        [&["test", "--profile", "long", "--package", "slipring"][..], &tests, &names].concat();
    cargo(&all)
}

/// Without optimisation; those of routing would build their large tables for minutes.
fn benches() -> Result<(), String> {
    cargo(&["test", "--package", "slipring-benches", "--bench", "publish", "--bench", "delivery"])
}

fn docs() -> Result<(), String> {
    let mut command = shell::cargo(&["doc", "--workspace", "--no-deps"]);
    command.env("RUSTDOCFLAGS", "-D warnings");
    shell::run(command)
}

/// `cargo loom` is an alias of `.cargo/config.toml`; its cfg must arrive, so no RUSTFLAGS here.
fn loom() -> Result<(), String> {
    let mut command = shell::without_rustflags(shell::cargo(&["loom"]));
    if std::env::var_os("LOOM_MAX_PREEMPTIONS").is_none() {
        command.env("LOOM_MAX_PREEMPTIONS", LOOM_PREEMPTIONS);
    }
    shell::run(command)
}

/// Runs every example of core to its end; none reads its input or takes arguments.
fn examples() -> Result<(), String> {
    let folder = shell::root().join("core/examples");
    let mut names = Vec::new();
    if folder.is_dir() {
        for entry in std::fs::read_dir(&folder).map_err(|e| e.to_string())? {
            names.extend(example_name(&entry.map_err(|e| e.to_string())?.path()));
        }
    }
    names.sort();
    if names.is_empty() {
        println!("no examples");
        return Ok(());
    }
    cargo(&["build", "--package", "slipring", "--examples"])?;
    for name in &names {
        let mut command =
            shell::cargo(&["run", "--quiet", "--package", "slipring", "--example", name]);
        command.stdout(Stdio::null());
        match shell::run_at_most(command, EXAMPLE_LIMIT)? {
            Some(status) if status.success() => println!("example {name} ... ok"),
            Some(status) => return Err(format!("example {name} failed: {status}")),
            None => {
                return Err(format!("example {name} ran for more than {EXAMPLE_LIMIT:?}"));
            }
        }
    }
    Ok(())
}

fn example_name(path: &Path) -> Option<String> {
    let is_example = path.extension().is_some_and(|e| e == "rs") || path.join("main.rs").is_file();
    is_example.then(|| path.file_stem().unwrap_or_default().to_string_lossy().into_owned())
}
