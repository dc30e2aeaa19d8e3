//! `cargo xtask crash-sim`, `kill-loop`, `store-sweep` and `sabotage`: what the durable
//! store must survive, and the proof that these runs notice when it would not.

use crate::shell;
use std::path::Path;
use std::process::Command;

/// Each is a step that the store can leave out (`sabotaged` in `core/src/store`).
const STEPS: &[&str] = &[
    "body_crc",
    "carry_sync",
    "carry_tails",
    "chain",
    "evidence",
    "frontier",
    "give_up",
    "header_crc",
    "heal_sync",
    "low_first",
    "recovery_drop_cache",
    "recovery_sync",
    "sealed_sync",
    "segment_crc",
    "segment_dir_sync",
    "segment_sync",
    "superblock_crc",
    "superblock_sync",
    "sync",
    "watermark",
];
const SABOTAGE_SEEDS: &str = "10000";

/// Runs one of the programs of the simulation, optimised.
pub(crate) fn program(name: &str, options: &[&str]) -> Result<(), String> {
    let mut command = shell::cargo(&["run", "--quiet", "--profile", "sim"]);
    command.args(["--package", "slipring-sim", "--bin", name, "--"]).args(options);
    shell::run(command)
}

/// Damages every bit of a segment, and fails every call of a workload.
pub(crate) fn sweep() -> Result<(), String> {
    for (package, test) in [("slipring", "store_corruption"), ("slipring-sim", "log")] {
        let mut command = shell::cargo(&["test", "--profile", "sim", "--package", package]);
        command.args(["--test", test]).env("SLIPRING_SWEEP", "full");
        shell::run(command)?;
    }
    Ok(())
}

/// Leaves out one step of the store at a time: the runs must fail.
pub(crate) fn sabotage(only: Option<&str>) -> Result<(), String> {
    let target = shell::root().join("target/sabotage");
    for package in ["slipring", "slipring-sim"] {
        let mut build = sabotaged(&["test", "--no-run", "--package", package], &target);
        build.args(["--test", if package == "slipring" { "store_corruption" } else { "log" }]);
        shell::run(build)?;
    }
    let mut missed = vec![];
    for &step in STEPS.iter().filter(|step| only.is_none_or(|only| only == **step)) {
        let runs: [(&str, fn(&Path) -> Command); 3] = [
            ("damage sweep", sweep_under),
            ("crash simulation", crash_under),
            ("fault at every call", faults_under),
        ];
        let noticed = |(_, command): &(&str, fn(&Path) -> Command)| {
            let mut command = command(&target);
            command.env("SLIPRING_SABOTAGE", step);
            !shell::succeeds(command)
        };
        let by = runs.into_iter().find(noticed);
        match by {
            Some((run, _)) => println!("SABOTAGE {step} CAUGHT by the {run}"),
            None => {
                println!("SABOTAGE {step} MISSED");
                missed.push(step);
            }
        }
    }
    println!("{} of {} steps missed", missed.len(), STEPS.len());
    if missed.is_empty() { Ok(()) } else { Err(format!("missed: {}", missed.join(" "))) }
}

fn sabotaged(args: &[&str], target: &Path) -> Command {
    let mut command = shell::without_rustflags(shell::cargo(&[
        "--config",
        "build.rustflags=['--cfg','slipring_sabotage']",
    ]));
    command.args(args).args(["--profile", "sim", "--target-dir"]).arg(target);
    command
}

fn sweep_under(target: &Path) -> Command {
    let mut command = sabotaged(&["test", "--package", "slipring"], target);
    command.args(["--test", "store_corruption"]);
    command
}

fn crash_under(target: &Path) -> Command {
    let mut command =
        sabotaged(&["run", "--package", "slipring-sim", "--bin", "crash-sim"], target);
    command.args(["--", "--seeds", SABOTAGE_SEEDS]);
    command
}

fn faults_under(target: &Path) -> Command {
    let mut command = sabotaged(&["test", "--package", "slipring-sim", "--test", "log"], target);
    command.env("SLIPRING_SWEEP", "full");
    command
}
