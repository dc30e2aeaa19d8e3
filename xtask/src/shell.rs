//! Running processes from the workspace root, with errors that say what was run.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How often a running child is looked at while it has a time limit.
const POLL: Duration = Duration::from_millis(20);

/// The workspace root: the folder that holds `xtask`.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

/// Where cargo builds.
pub(crate) fn target_folder() -> PathBuf {
    let folder = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    root().join(folder)
}

/// The text of a file of the workspace.
pub(crate) fn read(name: &str) -> Result<String, String> {
    std::fs::read_to_string(root().join(name)).map_err(|e| format!("{name}: {e}"))
}

/// A command that runs in the workspace root with nothing on its standard input.
pub(crate) fn command(program: &str, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(args).current_dir(root()).stdin(Stdio::null());
    command
}

/// A cargo command; the cargo that runs us, where there is one.
pub(crate) fn cargo(args: &[&str]) -> Command {
    let program = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    command(&program, args)
}

/// Takes away every variable that would replace the `build.rustflags` a command line gives.
///
/// With one of them set the loom models are built without their cfg, model nothing, and pass.
pub(crate) fn without_rustflags(mut command: Command) -> Command {
    for name in ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "CARGO_BUILD_RUSTFLAGS"] {
        command.env_remove(name);
    }
    command
}

/// Runs the command with our output streams; an error names it.
pub(crate) fn run(mut command: Command) -> Result<(), String> {
    let line = line_of(&command);
    println!("$ {line}");
    let status = command.status().map_err(|e| format!("cannot run `{line}`: {e}"))?;
    if status.success() { Ok(()) } else { Err(format!("`{line}` failed: {status}")) }
}

/// Runs the command and gives its standard output; an error names it.
pub(crate) fn output(mut command: Command) -> Result<String, String> {
    let line = line_of(&command);
    let output = command.output().map_err(|e| format!("cannot run `{line}`: {e}"))?;
    if !output.status.success() {
        return Err(format!("`{line}` failed: {}", output.status));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Does the command start and end well, its output thrown away?
pub(crate) fn succeeds(mut command: Command) -> bool {
    command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Runs the command; `None` when it had to be ended at the limit, with all it had started.
pub(crate) fn run_at_most(
    mut command: Command,
    limit: Duration,
) -> Result<Option<ExitStatus>, String> {
    let line = line_of(&command);
    let mut child =
        command.process_group(0).spawn().map_err(|e| format!("cannot run `{line}`: {e}"))?;
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait().map_err(|e| e.to_string())? {
            return Ok(Some(status));
        }
        if start.elapsed() > limit {
            let group = format!("-{}", child.id());
            succeeds(self::command("kill", &["-KILL", "--", &group]));
            child.wait().map_err(|e| e.to_string())?;
            return Ok(None);
        }
        std::thread::sleep(POLL);
    }
}

/// Every file below `folder` whose path `wanted` accepts, sorted; build output and hidden folders
/// are not entered.
pub(crate) fn files_below(
    folder: &Path,
    wanted: &dyn Fn(&Path) -> bool,
) -> Result<Vec<PathBuf>, String> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let entries =
            std::fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        for entry in entries {
            let path = entry.map_err(|e| e.to_string())?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() {
                if name != "target" && !name.starts_with('.') {
                    folders.push(path);
                }
            } else if wanted(&path) {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

fn line_of(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    let mut words = vec![program.to_string_lossy().into_owned()];
    words.extend(command.get_args().map(|word| word.to_string_lossy().into_owned()));
    words.join(" ")
}
