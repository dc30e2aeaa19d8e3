//! Compilers, libraries, and running programs with a limit of time.

use std::ffi::OsStr;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// A program that runs longer than this hangs. Compilers, too, and on a machine that does other work.
const LIMIT: Duration = Duration::from_secs(900);
pub(crate) const WARNINGS: [&str; 4] = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"];
const SYSTEM_LIBRARIES: [&str; 3] = ["-lpthread", "-ldl", "-lm"];

/// A language: the compiler and its options.
pub(crate) type Language = &'static [&'static str];
pub(crate) const C99: Language = &["cc", "-std=c99"];
pub(crate) const C11: Language = &["cc", "-std=c11"];
pub(crate) const C17: Language = &["cc", "-std=c17"];
pub(crate) const CXX17: Language = &["c++", "-std=c++17"];
pub(crate) const CXX20: Language = &["c++", "-std=c++20"];
/// C, compiled as C++.
pub(crate) const C_AS_CXX17: Language = &["c++", "-x", "c++", "-std=c++17"];
/// Rust, as a library of C.
pub(crate) const RUST: Language =
    &["rustc", "--edition=2024", "--crate-type=staticlib", "-Cpanic=abort"];
/// C++ without exceptions.
pub(crate) const CXX17_RESULTS: Language =
    &["c++", "-std=c++17", "-DSLIPRING_NO_EXCEPTIONS", "-fno-exceptions"];
pub(crate) const CXX20_RESULTS: Language =
    &["c++", "-std=c++20", "-DSLIPRING_NO_EXCEPTIONS", "-fno-exceptions"];

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_path_buf()
}

/// Where this test's programs go.
pub(crate) fn scratch() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
}

/// A source file of the tests.
pub(crate) fn source(file: &str) -> PathBuf {
    root().join("ffi/tests").join(file)
}

/// A folder with the libraries, the shared one also under its SONAME.
pub(crate) fn libraries() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        // The test links no library of the crate, so cargo does not build one for it.
        let deps = std::env::current_exe().unwrap().parent().unwrap().to_path_buf();
        let profile = if cfg!(debug_assertions) { "dev" } else { "release" };
        let built = Command::new(env!("CARGO"))
            .args(["build", "--quiet", "--package", "slipring-ffi", "--profile", profile])
            .arg("--target-dir")
            .arg(deps.parent().unwrap().parent().unwrap())
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .status();
        assert!(built.unwrap().success(), "the libraries do not build");
        let folder = scratch().join("lib");
        std::fs::create_dir_all(&folder).unwrap();
        let link = |to: &str, name: &str| {
            let to = deps.join(to);
            assert!(to.is_file(), "{} was not built", to.display());
            let link = folder.join(name);
            let _ = std::fs::remove_file(&link);
            std::os::unix::fs::symlink(to, link).unwrap();
        };
        let soname = concat!("libslipring.so.", env!("CARGO_PKG_VERSION_MAJOR"));
        link("libslipring.so", "libslipring.so");
        link("libslipring.so", soname);
        link("libslipring.a", "libslipring.a");
        folder
    })
}

/// Whether a tool is there; a test without one ends early, or fails where nothing may be skipped.
pub(crate) fn has(program: &str) -> bool {
    let there = works(Command::new(program).arg("--version"));
    there || skip(&format!("no {program}"))
}

/// Says what is not tested, and is false.
pub(crate) fn skip(why: &str) -> bool {
    assert!(std::env::var_os("SLIPRING_NO_SKIP").is_none(), "nothing may be skipped: {why}");
    println!("SKIPPED: {why}");
    false
}

pub(crate) fn works(command: &mut Command) -> bool {
    command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Runs a command to its end, at most for [`LIMIT`], and gives its output.
pub(crate) fn run(command: &mut Command, input: &str) -> String {
    let line = format!("{command:?}");
    let output_path = scratch().join(format!("output-{:?}", std::thread::current().id()));
    let output = std::fs::File::create(&output_path).unwrap();
    let errors = output.try_clone().unwrap();
    let mut child =
        command.stdin(Stdio::piped()).stdout(output).stderr(errors).spawn().expect(&line);
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if start.elapsed() > LIMIT {
            child.kill().unwrap();
            break child.wait().unwrap();
        }
        std::thread::park_timeout(Duration::from_millis(5));
    };
    let text = String::from_utf8_lossy(&std::fs::read(output_path).unwrap()).into_owned();
    assert!(status.success(), "{line}: {status}\n{text}");
    text
}

/// Compiles a source file to an object file, whose name tells `kind`s apart.
pub(crate) fn object(source: &Path, kind: &str, language: Language, options: &[&str]) -> PathBuf {
    let name = source.file_name().unwrap().to_string_lossy();
    let object = scratch().join(format!("{name}-{kind}.o"));
    let mut command = Command::new(language[0]);
    command.args(&language[1..]).arg(source).arg("-o").arg(&object);
    if language != RUST {
        command.args(WARNINGS).args(options).arg("-c").arg("-I").arg(root().join("include"));
    }
    run(&mut command, "");
    object
}

/// What a program is linked with.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Library {
    Shared,
    Static,
}

/// Links object files with the library.
pub(crate) fn program(
    name: &str,
    kind: &str,
    linker: &str,
    objects: &[PathBuf],
    options: &[&str],
    library: Library,
) -> PathBuf {
    let program = scratch().join(format!("{name}-{kind}"));
    let folder = libraries();
    let mut command = Command::new(linker);
    command.args(options).args(objects);
    match library {
        Library::Static => command.arg(folder.join("libslipring.a")),
        Library::Shared => command
            .args([OsStr::new("-L"), folder.as_os_str(), OsStr::new("-lslipring")])
            .arg(format!("-Wl,-rpath,{}", folder.display())),
    };
    run(command.args(SYSTEM_LIBRARIES).arg("-o").arg(&program), "");
    program
}
