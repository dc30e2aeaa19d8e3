//! The Python package: built as the wheel that users get, installed into a virtual environment of
//! its own, and tested there.

use crate::shell;
use std::path::PathBuf;
use std::process::Command;

/// Does what a fit interpreter can do.
const FIT: &str = "import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))";

/// The interpreter: `python3`, or what `SLIPRING_PYTHON` names, such as a debug build.
fn interpreter() -> String {
    std::env::var("SLIPRING_PYTHON").unwrap_or_else(|_| "python3".to_owned())
}

/// Whether there is an interpreter to test with.
pub(crate) fn probe() -> Command {
    shell::command(&interpreter(), &["-c", FIT])
}

/// Each interpreter has one of its own.
fn environment() -> PathBuf {
    let interpreter = interpreter().replace('/', "-");
    shell::target_folder().join(format!("python-test{}", interpreter.trim_start_matches("python3")))
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
    shell::run(shell::command(&interpreter(), &["-m", "venv", &folder.to_string_lossy()]))?;
    shell::run(program("pip", &["install", "--quiet", &format!("./python[{what}]")], "."))
}

/// What measures the package beside its peers; installs it.
pub(crate) fn comparison(options: &[&str]) -> Result<Command, String> {
    install("bench")?;
    let program_and_options: Vec<_> = ["compare.py"].iter().chain(options).copied().collect();
    Ok(program("python", &program_and_options, "python/bench"))
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
