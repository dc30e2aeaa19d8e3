//! `cargo xtask bench-compare`: slipring beside its peers, into `docs/benchmarks.md`.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::{python, shell};

const MANIFEST: &str = "benches/compare/Cargo.toml";
const PAGE: &str = "docs/benchmarks.md";
/// The section of the Python package, which has a program of its own.
const PYTHON: &str = "H";
/// The sections that no peer in Rust takes part in.
const WITHOUT_PEERS: &[&str] = &["E", "F", "G"];
/// The section that has a server beside it, and its client in Rust.
const WITH_SERVER: &str = "E";

/// Builds and runs the comparison and streams it: all sections but that of the Python package, or
/// those that `--only` asks for. Writes them to the page, where the others stay as they are. `--check`
/// turns a failed bar into an error. `--dir` is where section E has its files, by default the target
/// directory.
pub(crate) fn run(options: &[&str]) -> Result<(), String> {
    let check = options.contains(&"--check");
    let (mut only, mut dir) = (None, None);
    let mut passed_on = Vec::new();
    let mut rest = options.iter().copied();
    while let Some(option) = rest.next() {
        match option {
            "--check" => {}
            "--only" => only = Some(rest.next().ok_or("--only needs a list of sections")?),
            "--dir" => dir = Some(rest.next().ok_or("--dir needs a directory")?),
            option => passed_on.push(option),
        }
    }
    let wanted: Vec<&str> = only.map(|list| list.split(',').collect()).unwrap_or_default();
    let native: Vec<&str> = wanted.iter().copied().filter(|name| *name != PYTHON).collect();
    let mut reports = Vec::new();
    if only.is_none() || !native.is_empty() {
        let target = shell::target_folder();
        let mut command = program(&native, &passed_on)?;
        command.arg("--dir").arg(dir.map_or(&*target, Path::new));
        reports.push(stream(command)?);
    }
    if wanted.contains(&PYTHON) {
        reports.push(stream(python::comparison(&passed_on)?)?);
    }
    let mut page = shell::read(PAGE).unwrap_or_else(|_| EMPTY.to_owned());
    for report in &reports {
        page = with(&page, report, &origin(options));
    }
    std::fs::write(shell::root().join(PAGE), page).map_err(|e| format!("{PAGE}: {e}"))?;
    println!("\nwritten: {PAGE}");
    let report = reports.concat();
    let failed = failed_bars(&report);
    println!("{}", summary(&report));
    if check && !failed.is_empty() {
        return Err(format!("bars missed: {}", failed.join(" ")));
    }
    Ok(())
}

/// Builds the program and runs it for these sections; for all if there are none.
fn program(sections: &[&str], options: &[&str]) -> Result<Command, String> {
    // Section G links the shared library.
    shell::run(shell::cargo(&["build", "--release", "--package", "slipring-ffi"]))?;
    let features: &[&str] =
        if !sections.is_empty() && sections.iter().all(|name| WITHOUT_PEERS.contains(name)) {
            let is_beside = sections.contains(&WITH_SERVER);
            let ours = if is_beside { "slipring,jetstream" } else { "slipring" };
            &["--no-default-features", "--features", ours]
        } else {
            &[]
        };
    let what = [&["--release", "--manifest-path", MANIFEST], features].concat();
    shell::run(shell::cargo(&[&["build"], &what[..]].concat()))?;
    let mut command = shell::cargo(&[&["run", "--quiet"], &what[..], &["--"]].concat());
    if !sections.is_empty() {
        command.args(["--only", &sections.join(",")]);
    }
    command.args(options);
    Ok(command)
}

fn stream(mut command: Command) -> Result<String, String> {
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| format!("cannot run the comparison: {e}"))?;
    let output = child.stdout.take().ok_or("the comparison has no output")?;
    let mut report = String::new();
    for line in BufReader::new(output).lines() {
        let line = line.map_err(|e| e.to_string())?;
        println!("{line}");
        report.push_str(&line);
        report.push('\n');
    }
    let status = child.wait().map_err(|e| e.to_string())?;
    if status.success() { Ok(report) } else { Err(format!("the comparison failed: {status}")) }
}

/// The page before anything was measured.
const EMPTY: &str = "# slipring beside its peers\n\n\
    Written by `cargo xtask bench-compare`. Both sides of a bar run in turns in one process; a ratio \
    is\none of medians. `benches/compare` is the program, `python/bench` that of section H.\n";

/// How and where a section was measured.
fn origin(options: &[&str]) -> String {
    let fact = |program: &str, args: &[&str]| {
        shell::output(shell::command(program, args)).unwrap_or_else(|_| "unknown".to_owned())
    };
    let command = ["cargo xtask bench-compare"].iter().chain(options).copied().collect::<Vec<_>>();
    format!(
        "Measured by `{}` at commit {}: {}, {}, {}.",
        command.join(" "),
        fact("git", &["describe", "--always", "--dirty"]),
        processor(),
        fact("uname", &["-srm"]),
        fact("rustc", &["--version"]),
    )
}

fn processor() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let models: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("model name"))
        .filter_map(|line| Some(line.split_once(':')?.1.trim()))
        .collect();
    models.first().map_or("unknown".to_owned(), |model| format!("{} x {model}", models.len()))
}

fn is_bar(line: &str) -> bool {
    line.starts_with("BAR ")
}

/// The letter of a section, told by its heading: `## G. C and C++`.
fn letter(heading: &str) -> Option<char> {
    let mut letters = heading.strip_prefix("## ")?.chars();
    letters.next().filter(|_| letters.next() == Some('.'))
}

/// A text that is cut before each heading of a section: what is before the first, and the sections.
fn sections(text: &str) -> (String, Vec<(char, String)>) {
    let (mut head, mut sections) = (String::new(), Vec::<(char, String)>::new());
    for line in text.lines() {
        if let Some(letter) = letter(line) {
            sections.push((letter, String::new()));
        }
        let place = sections.last_mut().map_or(&mut head, |(_, section)| section);
        place.push_str(line);
        place.push('\n');
    }
    (head, sections)
}

/// The page with the sections and bars of `report` in place of its own.
fn with(page: &str, report: &str, origin: &str) -> String {
    let (bars, tables): (Vec<&str>, Vec<&str>) = report.lines().partition(|line| is_bar(line));
    let (remarks, measured) = sections(&tables.join("\n"));
    let is_old = |line: &str| {
        let of = line.split(' ').nth(1).and_then(|id| id.chars().next());
        measured.iter().any(|(letter, _)| of == Some(*letter))
    };
    let (head, mut all) = sections(page);
    let mut listed: Vec<&str> =
        head.lines().filter(|line| is_bar(line) && !is_old(line)).chain(bars).collect();
    listed.sort_by_key(|bar| place(bar));
    for (letter, section) in &measured {
        let (heading, rest) = section.split_once('\n').unwrap_or((section, ""));
        let notes = [origin, remarks.trim()].join("\n");
        let section = format!("{heading}\n\n{}\n\n{}\n\n", notes.trim(), rest.trim());
        all.retain(|(old, _)| old != letter);
        let at = all.iter().position(|(other, _)| other > letter).unwrap_or(all.len());
        all.insert(at, (*letter, section));
    }
    let (before, after) = match head.split_once("```\n") {
        Some((before, fenced)) => (before, fenced.split_once("```\n").map_or("", |(_, rest)| rest)),
        None => (&*head, ""),
    };
    let body: String = all.iter().map(|(_, section)| format!("{}\n\n", section.trim())).collect();
    let (head, rest) = (before.trim(), after.trim());
    let bars = format!("```\n{}\n```", listed.join("\n"));
    let parts = [head, &bars, rest, body.trim()];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n\n") + "\n"
}

/// Where a bar stands: by section and number.
fn place(bar: &str) -> (Option<char>, u32) {
    let id = bar.split(' ').nth(1).unwrap_or_default();
    (id.chars().next(), id.get(1..).and_then(|number| number.parse().ok()).unwrap_or(0))
}

/// The ids of the bars that failed: `BAR A1 0.93x >=0.90x PASS`.
fn failed_bars(report: &str) -> Vec<&str> {
    report
        .lines()
        .filter(|line| is_bar(line) && line.split(' ').any(|word| word == "FAIL"))
        .filter_map(|line| line.split(' ').nth(1))
        .collect()
}

fn summary(report: &str) -> String {
    let count = |word: &str| {
        report.lines().filter(|line| is_bar(line) && line.split(' ').any(|w| w == word)).count()
    };
    format!("bars: {} passed, {} failed, {} skipped", count("PASS"), count("FAIL"), count("SKIP"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = "Quiet.\n\n## G. C\n| x |\n\nBAR G1 3.00ns <=10.00ns PASS\n";

    #[test]
    fn a_section_says_how_it_was_measured() {
        let page = with(EMPTY, REPORT, "Measured by hand.");
        assert_eq!(
            page,
            format!(
                "{EMPTY}\n```\nBAR G1 3.00ns <=10.00ns PASS\n```\n\n\
                 ## G. C\n\nMeasured by hand.\nQuiet.\n\n| x |\n"
            )
        );
    }

    #[test]
    fn what_was_measured_takes_its_place_and_the_rest_stays() {
        let page = "# Page\n\nBy hand.\n\n```\nBAR A1 1x >=1x PASS\nBAR G1 9ns <=8ns FAIL\n\
                    BAR G10 1x >=1x PASS\n```\n\nAfter.\n\n## A. First\n\n| a |\n\n## G. Old\n\n\
                    | old |\n\n## H. Last\n\n| h |\n";
        let once = with(page, REPORT, "Here.");
        assert_eq!(
            once,
            "# Page\n\nBy hand.\n\n```\nBAR A1 1x >=1x PASS\nBAR G1 3.00ns <=10.00ns PASS\n```\n\n\
             After.\n\n## A. First\n\n| a |\n\n## G. C\n\nHere.\nQuiet.\n\n| x |\n\n## H. Last\n\n\
             | h |\n"
        );
        assert_eq!(with(&once, REPORT, "Here."), once);
    }

    #[test]
    fn failed_bars_are_found() {
        let report = "| x |\nBAR A1 0.93x >=0.90x PASS\nBAR A2 0.80x >=1.20x FAIL\nBAR A5 - - SKIP no peer\n";
        assert_eq!(failed_bars(report), ["A2"]);
        assert_eq!(summary(report), "bars: 1 passed, 1 failed, 1 skipped");
    }
}
