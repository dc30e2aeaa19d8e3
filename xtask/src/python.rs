//! The Python package: built as the wheel that users get, installed into a virtual environment of
//! its own, and tested there.

use crate::shell;
use std::path::PathBuf;
use std::process::Command;

/// Does what a fit interpreter can do.
const FIT: &str = "import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))";

/// Whether there is an interpreter to test with.
pub(crate) fn probe() -> Command {
    shell::command("python3", &["-c", FIT])
}

fn environment() -> PathBuf {
    shell::target_folder().join("python-test")
}

/// A program of the environment, run in `folder`.
fn program(name: &str, args: &[&str], folder: &str) -> Command {
    let path = environment().join("bin").join(name);
    let mut command = shell::command(&path.to_string_lossy(), args);
    command.current_dir(shell::root().join(folder));
    command
}

/// Builds the package and installs it, with what is needed for `what`.
fn install(what: &str) -> Result<(), String> {
    let folder = environment();
    shell::run(shell::command("python3", &["-m", "venv", &folder.to_string_lossy()]))?;
    shell::run(program("pip", &["install", "--quiet", &format!("./python[{what}]")], "."))
}

/// Measures the package beside its peers; nothing is written.
pub(crate) fn compare(options: &[&str]) -> Result<(), String> {
    install("bench")?;
    let program_and_options: Vec<_> = ["compare.py"].iter().chain(options).copied().collect();
    shell::run(program("python", &program_and_options, "python/bench"))
}

/// Builds and installs the package, and runs its tests, its doc tests and the checks of its types.
pub(crate) fn test() -> Result<(), String> {
    install("test")?;
    // Not `python -m`: the folder it is run in would hide the package that was installed.
    shell::run(program("pytest", &[], "python"))?;
    shell::run(program("mypy", &["slipring", "tests", "examples"], "python"))?;
    let allowed = ["slipring", "--allowlist", "stubtest-allowlist.txt"];
    shell::run(program("stubtest", &allowed, "python/tests"))
}
