//! `cargo xtask crash-sim`, `kill-loop`, `store-sweep`, `full-disk` and `sabotage`: what the durable
//! store must survive, and the proof that these runs notice when it would not.

use crate::shell;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

const TABLE: &str = "sim/sabotage.txt";
const SABOTAGE_SEEDS: &str = "10000";

/// Runs one of the programs of the simulation, optimised.
pub(crate) fn program(name: &str, options: &[&str]) -> Result<(), String> {
    let mut command = shell::cargo(&["run", "--quiet", "--profile", "sim"]);
    command.args(["--package", "slipring-sim", "--bin", name, "--"]).args(options);
    shell::run(command)
}

/// Fills a small disk, again and again; needs root to mount it.
pub(crate) fn full_disk() -> Result<(), String> {
    let test = ["test", "--profile", "sim", "--package", "slipring", "--test", "store_full_disk"];
    let mut command = shell::cargo(&test);
    command.args(["--", "--ignored", "--nocapture"]);
    shell::run(command)
}

/// Damages every bit of a segment, fails every call of a workload, and runs what else the simulation
/// has of tests.
pub(crate) fn sweep() -> Result<(), String> {
    let all: [&[&str]; 2] =
        [&["--package", "slipring", "--test", "store_corruption"], &["--package", "slipring-sim"]];
    for of in all {
        let mut command = shell::cargo(&["test", "--profile", "sim"]);
        command.args(of).env("SLIPRING_SWEEP", "full");
        shell::run(command)?;
    }
    Ok(())
}

/// Leaves out one step of the store at a time: what is behind it in the table must fail.
pub(crate) fn sabotage(only: Option<&str>) -> Result<(), String> {
    let path = shell::root().join(TABLE);
    let text = std::fs::read_to_string(path).map_err(|e| format!("{TABLE}: {e}"))?;
    let target = shell::root().join("target/sabotage");
    let (mut missed, mut count) = (vec![], 0);
    let mut sound = BTreeSet::new();
    for (step, catcher) in parse(&text)? {
        if only.is_some_and(|only| only != step) {
            continue;
        }
        count += 1;
        // It must build and pass with nothing left out, or its failing would say nothing.
        if sound.insert(catcher) {
            shell::run(catcher_command(catcher, &target))?;
        }
        let mut command = catcher_command(catcher, &target);
        command.env("SLIPRING_SABOTAGE", step);
        if shell::succeeds(command) {
            println!("SABOTAGE {step} MISSED by {catcher}");
            missed.push(step);
        } else {
            println!("SABOTAGE {step} CAUGHT by {catcher}");
        }
    }
    println!("{} of {count} steps caught", count - missed.len());
    match (missed.is_empty(), count) {
        (_, 0) => Err(format!("{TABLE}: no step to leave out")),
        (true, _) => Ok(()),
        (false, _) => Err(format!("missed: {}", missed.join(" "))),
    }
}

/// Each step, and what catches that it is left out.
fn parse(text: &str) -> Result<Vec<(&str, &str)>, String> {
    let lines = text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
    lines
        .map(|line| match line.split('|').map(str::trim).collect::<Vec<_>>().as_slice() {
            [step, _, catcher] => Ok((*step, *catcher)),
            _ => Err(format!("{TABLE}: `{line}` has not three fields")),
        })
        .collect()
}

fn catcher_command(catcher: &str, target: &Path) -> Command {
    let args: &[&str] = match catcher {
        "crash-sim" => &["run", "--package", "slipring-sim", "--bin", "crash-sim"],
        "lib" => &["test", "--package", "slipring", "--lib"],
        core if core.starts_with("store_") => &["test", "--package", "slipring", "--test", core],
        sim => &["test", "--package", "slipring-sim", "--test", sim],
    };
    let mut command = sabotaged(args, target);
    match catcher {
        "crash-sim" => command.args(["--", "--seeds", SABOTAGE_SEEDS]),
        "lib" => command.args(["--", "store::"]),
        _ => &mut command,
    };
    command
}

fn sabotaged(args: &[&str], target: &Path) -> Command {
    let mut command = shell::without_rustflags(shell::cargo(&[
        "--config",
        "build.rustflags=['--cfg','slipring_sabotage']",
    ]));
    command.args(args).args(["--profile", "sim", "--target-dir"]).arg(target);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_and_a_bad_one_refused() {
        let text = "# comment\n\nsync | the log is not synced | log\n";
        assert_eq!(parse(text), Ok(vec![("sync", "log")]));
        assert!(parse("sync | log").unwrap_err().contains("three fields"));
    }
}
