//! `cargo xtask tsan`: the stress tests under ThreadSanitizer, with a nightly toolchain.
//!
//! ThreadSanitizer sees no fences. With `--cfg slipring_tsan` a chunk's last token is given back
//! with a load instead of one, as the standard library does it; crossbeam's build scripts notice
//! by themselves. std is built with it as well: of one that is not instrumented, no lock is seen to
//! order anything, and programs without unsafe code are told to have races.

use std::path::Path;
use std::process::Command;

use crate::shell;

/// What hands messages between threads in every way.
const TESTS: [&str; 3] = ["stress_conservation", "life_of_a_message", "contract_publish"];
const SUPPRESSIONS: &str = "xtask/tsan-suppressions.txt";

pub(crate) fn run() -> Result<(), String> {
    let version = shell::output(nightly("rustc", &["-vV"]))
        .map_err(|error| format!("ThreadSanitizer needs a nightly toolchain: {error}"))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    let host = host.ok_or("rustc does not tell its host")?;
    let sysroot = shell::output(nightly("rustc", &["--print", "sysroot"]))?;
    if !Path::new(&sysroot).join("lib/rustlib/src/rust/library").is_dir() {
        let install = "rustup component add rust-src --toolchain nightly";
        return Err(format!(
            "ThreadSanitizer needs the source of std, to build it with: {install}"
        ));
    }
    let mut args = vec!["test", "--package", "slipring", "--target", host, "-Zbuild-std"];
    let folder = shell::target_folder().join("tsan");
    let folder = folder.to_string_lossy();
    args.extend(["--target-dir", &folder]);
    TESTS.iter().for_each(|test| args.extend(["--test", test]));
    let flags = ["-Zsanitizer=thread", "--cfg", "slipring_tsan"];
    let mut command = shell::without_rustflags(nightly("cargo", &args));
    let suppressions = shell::root().join(SUPPRESSIONS);
    command
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"))
        // Instrumented code is slow enough; the checks that only tests have stay in.
        .env("CARGO_PROFILE_TEST_OPT_LEVEL", "1")
        .env("CARGO_PROFILE_DEV_OPT_LEVEL", "1")
        .env("TSAN_OPTIONS", format!("suppressions={}", suppressions.display()));
    shell::run(command)
}

/// rustup's proxy: the cargo that runs us is of another toolchain.
fn nightly(program: &str, args: &[&str]) -> Command {
    let mut all = vec!["+nightly"];
    all.extend(args);
    let mut command = shell::command(program, &all);
    command.env_remove("RUSTC").env_remove("RUSTDOC");
    command
}
