//! Compiles the programs in C of this folder and runs them: as C99, C11 and C++17, against the
//! shared and the static library, under the sanitizers and under valgrind. A tool that is missing
//! is named and skipped; the C compiler is not one of those.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::ffi::OsStr;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// A program that runs longer than this hangs.
const LIMIT: Duration = Duration::from_secs(120);
const PROGRAMS: [&str; 4] = ["tour", "wrong", "callbacks", "threads"];
const WARNINGS: [&str; 4] = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"];
const SYSTEM_LIBRARIES: [&str; 3] = ["-lpthread", "-ldl", "-lm"];

/// A language: the compiler and its options.
type Language = &'static [&'static str];
const C99: Language = &["cc", "-std=c99"];
const C11: Language = &["cc", "-std=c11"];
const CXX17: Language = &["c++", "-x", "c++", "-std=c++17"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_path_buf()
}

/// Where this test's programs go.
fn scratch() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
}

/// A folder with the libraries, the shared one also under its SONAME.
fn libraries() -> &'static Path {
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

fn has(program: &str) -> bool {
    Command::new(program)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Runs a command to its end, at most for [`LIMIT`], and gives its output.
fn run(command: &mut Command, input: &str) -> String {
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

/// Compiles sources; the program's name tells `kind`s apart.
fn compile(
    name: &str,
    kind: &str,
    language: Language,
    sources: &[PathBuf],
    options: &[&str],
    library: &[&OsStr],
) -> PathBuf {
    let program = scratch().join(format!("{name}-{kind}"));
    let mut command = Command::new(language[0]);
    command.args(&language[1..]).args(WARNINGS).args(options);
    command.arg("-I").arg(root().join("include")).args(sources);
    command.args(["-x", "none"]).args(library).args(SYSTEM_LIBRARIES).arg("-o").arg(&program);
    run(&mut command, "");
    program
}

fn sources(name: &str) -> Vec<PathBuf> {
    let folder = root().join("ffi/tests");
    [format!("{name}.c"), "other_unit.c".to_owned()].map(|file| folder.join(file)).to_vec()
}

fn shared(name: &str, kind: &str, language: Language, options: &[&str]) -> PathBuf {
    let folder = libraries();
    let rpath = format!("-Wl,-rpath,{}", folder.display());
    let library =
        [OsStr::new("-L"), folder.as_os_str(), OsStr::new("-lslipring"), OsStr::new(&rpath)];
    compile(name, kind, language, &sources(name), options, &library)
}

fn all_in(kind: &str, language: Language) {
    if !has(language[0]) {
        println!("SKIPPED: no {}", language[0]);
        return;
    }
    for name in PROGRAMS {
        let program = shared(name, kind, language, &[]);
        assert_eq!(run(&mut Command::new(program), ""), format!("{name}: ok\n"));
    }
}

#[test]
fn programs_run_as_c99() {
    all_in("c99", C99);
}

#[test]
fn programs_run_as_c11() {
    all_in("c11", C11);
}

#[test]
fn programs_run_as_cxx17() {
    all_in("cxx17", CXX17);
}

#[test]
fn the_static_library_is_enough() {
    let library = libraries().join("libslipring.a");
    let program = compile("tour", "static", C11, &sources("tour"), &[], &[library.as_os_str()]);
    assert_eq!(run(&mut Command::new(program), ""), "tour: ok\n");
}

#[test]
fn programs_run_under_the_sanitizers() {
    const OPTIONS: [&str; 3] = ["-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"];
    let probe = scratch().join("probe.c");
    std::fs::write(&probe, "int main(void) { return 0; }\n").unwrap();
    let works = Command::new("cc")
        .args(OPTIONS)
        .arg(&probe)
        .arg("-o")
        .arg(scratch().join("probe"))
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if !works {
        println!("SKIPPED: no runtime of AddressSanitizer and UndefinedBehaviorSanitizer");
        return;
    }
    for name in PROGRAMS {
        let program = shared(name, "sanitized", C11, &OPTIONS);
        let mut command = Command::new(program);
        // The full unwinder, because Rust keeps no frame pointers.
        command.env("ASAN_OPTIONS", "detect_leaks=1:fast_unwind_on_malloc=0");
        command.env("LSAN_OPTIONS", suppressions());
        assert_eq!(run(&mut command, ""), format!("{name}: ok\n"));
    }
}

/// The last chunks of a broker are given back when the epoch of crossbeam moves on, which it need
/// not do before the process ends. Until then they hold their pool; they are mapped memory, which
/// the leak checker does not look at, so that it takes the pool for lost.
fn suppressions() -> String {
    let path = scratch().join("lsan.supp");
    std::fs::write(&path, "leak:slipring::chunk::Pool\n").unwrap();
    format!("suppressions={}:print_suppressions=0", path.display())
}

#[test]
fn programs_run_under_valgrind() {
    if !has("valgrind") {
        println!("SKIPPED: no valgrind");
        return;
    }
    for name in PROGRAMS {
        let program = shared(name, "valgrind", C11, &["-g"]);
        let mut command = Command::new("valgrind");
        command.args(["--quiet", "--error-exitcode=99", "--fair-sched=yes"]);
        command.args(["--leak-check=full", "--errors-for-leak-kinds=definite,indirect"]);
        command.args(["--show-leak-kinds=definite,indirect"]);
        let text = run(command.arg(program), "");
        assert!(text.contains(&format!("{name}: ok\n")), "{text}");
    }
}

/// The names that the shared library exports are those of the header.
#[test]
fn the_header_has_every_exported_name() {
    if !has("nm") {
        println!("SKIPPED: no nm");
        return;
    }
    let mut nm = Command::new("nm");
    let text = run(
        nm.args(["-D", "--defined-only", "--format=posix"]).arg(libraries().join("libslipring.so")),
        "",
    );
    let exported: Vec<_> = text.lines().filter_map(|line| line.split(' ').next()).collect();
    assert!(exported.len() > 60, "{exported:?}");
    let header = std::fs::read_to_string(root().join("include/slipring.h")).unwrap();
    for name in exported {
        assert!(name.starts_with("slipring_"), "{name} is exported");
        assert!(header.contains(&format!("{name}(")), "{name} is not in the header");
    }
}

#[test]
fn the_example_runs() {
    let folder = libraries();
    let rpath = format!("-Wl,-rpath,{}", folder.display());
    let library =
        [OsStr::new("-L"), folder.as_os_str(), OsStr::new("-lslipring"), OsStr::new(&rpath)];
    let source = root().join("examples/c/tailer.c");
    for (kind, language) in [("c99", C99), ("cxx17", CXX17)] {
        if !has(language[0]) {
            println!("SKIPPED: no {}", language[0]);
            continue;
        }
        let program =
            compile("tailer", kind, language, std::slice::from_ref(&source), &[], &library);
        let log = "INFO all is well\nWARN getting warm\n\nERROR too hot\nDEBUG 1\nWARN cooler\n";
        let told = "WARN getting warm\nERROR too hot\nWARN cooler\n0 lines lost\n";
        assert_eq!(run(&mut Command::new(program), log), told);
    }
}
