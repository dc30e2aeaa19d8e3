//! The test programs: in every language that they are written in, under the sanitizers and under
//! valgrind.

use crate::toolbox::{
    C_AS_CXX17, C11, C17, C99, CXX17, CXX17_RESULTS, CXX20, Language, Library, RUST, has, object,
    program, run, scratch, skip, source, works,
};
use std::path::PathBuf;
use std::process::Command;

/// A program, and the files that it is made of with the language of each.
struct Program {
    name: &'static str,
    files: &'static [(&'static str, Language)],
}

const C_PROGRAMS: [Program; 7] = [
    Program { name: "tour", files: &[("tour.c", C11)] },
    Program { name: "wrong", files: &[("wrong.c", C11)] },
    Program { name: "callbacks", files: &[("callbacks.c", C11)] },
    Program { name: "acks", files: &[("acks.c", C11)] },
    Program { name: "durable", files: &[("durable.c", C11)] },
    Program { name: "parity", files: &[("parity.c", C11)] },
    Program { name: "threads", files: &[("threads.c", C11), ("other_unit.c", C11)] },
];
const CXX_PROGRAMS: [Program; 8] = [
    Program {
        name: "wrapper",
        files: &[("wrapper.cpp", CXX17), ("other_unit.cpp", CXX17_RESULTS)],
    },
    Program { name: "handlers", files: &[("handlers.cpp", CXX17)] },
    Program { name: "acks-cxx", files: &[("acks.cpp", CXX17)] },
    Program { name: "durable-cxx", files: &[("durable.cpp", CXX17)] },
    Program { name: "parity-cxx", files: &[("parity.cpp", CXX17)] },
    Program {
        name: "results",
        files: &[("results.cpp", CXX17_RESULTS), ("other_unit.cpp", CXX17)],
    },
    Program { name: "coroutines", files: &[("coroutines.cpp", CXX20)] },
    Program {
        name: "mixed",
        files: &[("mixed/main.cpp", CXX17), ("mixed/producer.c", C99), ("mixed/consumer.rs", RUST)],
    },
];

impl Program {
    /// Builds it; `language` takes the place of its own where given.
    fn build(
        &self,
        kind: &str,
        language: Option<Language>,
        options: &[&str],
        library: Library,
    ) -> PathBuf {
        let objects: Vec<PathBuf> = self
            .files
            .iter()
            .map(|(file, own)| {
                let kind = format!("{}-{kind}", self.name);
                object(&source(file), &kind, language.unwrap_or(own), options)
            })
            .collect();
        let is_cxx = self.files.iter().any(|(_, own)| language.unwrap_or(own)[0] == "c++");
        program(self.name, kind, if is_cxx { "c++" } else { "cc" }, &objects, options, library)
    }

    fn expected(&self) -> String {
        format!("{}: ok\n", self.name)
    }

    fn is_cxx(&self) -> bool {
        self.files.iter().any(|(_, language)| language[0] == "c++")
    }
}

/// All programs that can be built here.
fn programs() -> impl Iterator<Item = &'static Program> {
    let cxx = has("c++");
    C_PROGRAMS.iter().chain(&CXX_PROGRAMS).filter(move |program| cxx || !program.is_cxx())
}

fn all_in_c(kind: &str, language: Language) {
    if !has(language[0]) {
        return;
    }
    for program in &C_PROGRAMS {
        let built = program.build(kind, Some(language), &[], Library::Shared);
        assert_eq!(run(&mut Command::new(built), ""), program.expected());
    }
}

#[test]
fn programs_in_c_run_as_c99() {
    all_in_c("c99", C99);
}

#[test]
fn programs_in_c_run_as_c17() {
    all_in_c("c17", C17);
}

#[test]
fn programs_in_c_run_as_cxx17() {
    all_in_c("cxx17", C_AS_CXX17);
}

#[test]
fn programs_in_cxx_run() {
    if !has("c++") {
        return;
    }
    for program in &CXX_PROGRAMS {
        let built = program.build("plain", None, &["-Wshadow", "-O1"], Library::Shared);
        assert_eq!(run(&mut Command::new(built), ""), program.expected());
    }
}

#[test]
fn the_static_library_is_enough() {
    for program in programs().filter(|program| ["tour", "wrapper"].contains(&program.name)) {
        let built = program.build("static", None, &[], Library::Static);
        assert_eq!(run(&mut Command::new(built), ""), program.expected());
    }
}

#[test]
fn programs_run_under_the_sanitizers() {
    const OPTIONS: [&str; 3] = ["-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"];
    let probe = scratch().join("probe.c");
    std::fs::write(&probe, "int main(void) { return 0; }\n").unwrap();
    let mut cc = Command::new("cc");
    if !works(cc.args(OPTIONS).arg(&probe).arg("-o").arg(scratch().join("probe"))) {
        skip("no runtime of AddressSanitizer and UndefinedBehaviorSanitizer");
        return;
    }
    for program in programs() {
        let built = program.build("sanitized", None, &OPTIONS, Library::Shared);
        let mut command = Command::new(built);
        // The full unwinder, because Rust keeps no frame pointers.
        command.env("ASAN_OPTIONS", "detect_leaks=1:fast_unwind_on_malloc=0");
        command.env("LSAN_OPTIONS", suppressions());
        assert_eq!(run(&mut command, ""), program.expected());
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
        return;
    }
    for program in programs() {
        let built = program.build("valgrind", None, &["-g"], Library::Shared);
        let mut command = Command::new("valgrind");
        command.args(["--quiet", "--error-exitcode=99", "--fair-sched=yes"]);
        command.args(["--leak-check=full", "--errors-for-leak-kinds=definite,indirect"]);
        command.args(["--show-leak-kinds=definite,indirect"]);
        let text = run(command.arg(built), "");
        assert!(text.contains(&program.expected()), "{text}");
    }
}
