//! The examples in C and C++: their output is checked.

use crate::toolbox::{C99, CXX17, Language, Library, has, object, program, root, run, scratch};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;

/// Builds an example of `examples/`, once for all tests that ask for it.
fn example(file: &str, kind: &str, language: Language) -> Option<PathBuf> {
    static BUILT: Mutex<BTreeMap<String, PathBuf>> = Mutex::new(BTreeMap::new());
    if !has(language[0]) {
        return None;
    }
    let mut built = BUILT.lock().unwrap();
    let build = || {
        let name = file.replace(['/', '.'], "-");
        let kind = format!("example-{kind}");
        let object = object(&root().join("examples").join(file), &kind, language, &["-O1"]);
        program(&name, &kind, language[0], &[object], &[], Library::Shared)
    };
    Some(built.entry(file.to_owned()).or_insert_with(build).clone())
}

/// Both of an example: in C, and in C++.
fn both(name: &str) -> impl Iterator<Item = PathBuf> {
    let c = example(&format!("c/{name}.c"), "c99", C99);
    c.into_iter().chain(example(&format!("cpp/{name}.cpp"), "cxx17", CXX17))
}

#[test]
fn tailers_tell_what_is_worth_it() {
    let log = "INFO all is well\nWARN getting warm\n\nERROR too hot\nDEBUG 1\nWARN cooler\n";
    let told = "WARN getting warm\nERROR too hot\nWARN cooler\n0 lines lost\n";
    for tailer in both("tailer") {
        assert_eq!(run(&mut Command::new(tailer), log), told);
    }
}

#[test]
fn loan_producers_write_frames_in_place() {
    for producer in both("loan") {
        assert_eq!(
            run(Command::new(producer).arg("20"), ""),
            "published 20 frames of 64 x 48, gave up 2\nreceived 20 frames, every pixel as drawn\n"
        );
    }
}

#[test]
fn workers_send_every_mail_whoever_is_gone() {
    // One directory for all: what was done there before is done.
    let directory = scratch().join("worker-directory");
    let _ = std::fs::remove_dir_all(&directory);
    let told = "the first worker: 7 sent, 1 delayed, gone with 8\n\
                the second worker: 31 sent, 3 delayed, 2 given up, 12 not for the first time\n\
                dead letter: jobs/mail to customer-20: no such address, attempts: 1\n\
                dead letter: jobs/mail to customer-40: no such address, attempts: 1\n\
                sent back: 2, sent in all: 40\n";
    for worker in both("worker") {
        assert_eq!(run(&mut Command::new(&worker), ""), told);
        assert_eq!(run(Command::new(worker).arg(&directory), ""), told);
    }
}

/// What the table says, without the figures that are of one machine and one moment.
fn rows(table: &str) -> Vec<Vec<&str>> {
    let rows = table.lines().skip(1).take_while(|line| !line.is_empty());
    rows.map(|line| line.split_whitespace().take(6).collect()).collect()
}

#[test]
fn flights_are_the_same_in_every_language() {
    for flights in both("flights") {
        let data = root().join("examples/data/flights-2013-01.ndjson");
        let text = run(Command::new(flights).arg("--file").arg(data), "");
        let rows = rows(&text);
        assert_eq!(rows.len(), 6, "{text}");
        assert_eq!(rows[0], ["jfk", "9161", "9161", "0", "-", "0"], "{text}");
        assert_eq!(rows[1], ["cancelled", "521", "521", "0", "-", "0"], "{text}");
        assert_eq!(rows[2], ["one-topic", "309", "309", "0", "-", "0"], "{text}");
        assert_eq!(rows[3][..2], ["board", "27004"], "{text}");
        assert_eq!(rows[4], ["on-time", "27004", "27004", "0", "-", "593"], "{text}");
        assert_eq!(rows[5], ["late", "100", "100", "0", "-", "0"], "{text}");
        assert!(text.contains("published 27004 in"), "{text}");
        assert!(text.contains("bad lines: 0"), "{text}");
    }
}

#[test]
fn flights_name_the_lines_that_they_cannot_use() {
    let good = r#"{"topic":"flights/JFK/LAX/UA","payload":{}}"#;
    let input = format!("{good}\n \t\n\0{good}\n{{\n[]\n \0\n{good}\n   ");
    for flights in both("flights") {
        let text = run(Command::new(flights).args(["--file", "-"]), &input);
        for line in [3, 4, 5, 6] {
            assert!(text.contains(&format!("flights: line {line}: ")), "{text}");
        }
        assert!(text.contains("published 2 in"), "{text}");
        assert!(text.contains("bad lines: 4"), "{text}");
    }
}
