//! `cargo xtask bench-compare`: slipring beside its peers, into `docs/benchmarks.md`.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use crate::shell;

const MANIFEST: &str = "benches/compare/Cargo.toml";
const PAGE: &str = "docs/benchmarks.md";

/// Builds and runs the comparison and streams it. Writes the page, unless `--only` asked for a
/// part: a part must not replace the whole. `--check` turns a failed bar into an error.
pub(crate) fn run(options: &[&str]) -> Result<(), String> {
    let check = options.contains(&"--check");
    let passed_on: Vec<&str> = options.iter().copied().filter(|o| *o != "--check").collect();
    // Section G links the shared library.
    shell::run(shell::cargo(&["build", "--release", "--package", "slipring-ffi"]))?;
    shell::run(shell::cargo(&["build", "--release", "--manifest-path", MANIFEST]))?;
    let report = stream(&passed_on)?;
    if options.contains(&"--only") {
        println!("\n{PAGE} is left as it is: this was a part");
    } else {
        let page = page(&report, &passed_on);
        std::fs::write(shell::root().join(PAGE), page).map_err(|e| format!("{PAGE}: {e}"))?;
        println!("\nwritten: {PAGE}");
    }
    let failed = failed_bars(&report);
    println!("{}", summary(&report));
    if check && !failed.is_empty() {
        return Err(format!("bars missed: {}", failed.join(" ")));
    }
    Ok(())
}

fn stream(options: &[&str]) -> Result<String, String> {
    let mut command =
        shell::cargo(&["run", "--quiet", "--release", "--manifest-path", MANIFEST, "--"]);
    let mut child = command
        .args(options)
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

fn page(report: &str, options: &[&str]) -> String {
    let fact = |program: &str, args: &[&str]| {
        shell::output(shell::command(program, args)).unwrap_or_else(|_| "unknown".to_owned())
    };
    let command = ["cargo xtask bench-compare"].iter().chain(options).copied().collect::<Vec<_>>();
    let (bars, tables): (Vec<&str>, Vec<&str>) =
        report.lines().partition(|line| line.starts_with("BAR "));
    format!(
        "# slipring beside its peers\n\n\
         Written by `{}`; do not edit. Both sides of a bar run in turns in one process; a ratio is\n\
         one of medians. `benches/compare` is the program.\n\n\
         - processor: {}\n- kernel: {}\n- compiler: {}\n- commit: {}\n\n{}\n\n## Bars\n\n```text\n{}\n```\n",
        command.join(" "),
        processor(),
        fact("uname", &["-srm"]),
        fact("rustc", &["--version"]),
        fact("git", &["describe", "--always", "--dirty"]),
        tables.join("\n").trim(),
        bars.join("\n"),
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

/// The ids of the bars that failed: `BAR A1 0.93x >=0.90x PASS`.
fn failed_bars(report: &str) -> Vec<&str> {
    report
        .lines()
        .filter(|line| line.starts_with("BAR ") && line.split(' ').any(|word| word == "FAIL"))
        .filter_map(|line| line.split(' ').nth(1))
        .collect()
}

fn summary(report: &str) -> String {
    let count = |word: &str| {
        report
            .lines()
            .filter(|line| line.starts_with("BAR ") && line.split(' ').any(|w| w == word))
            .count()
    };
    format!("bars: {} passed, {} failed, {} skipped", count("PASS"), count("FAIL"), count("SKIP"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_tables_then_bars_and_says_how_it_was_made() {
        let page = page("## A\n| x |\n\nBAR A1 0.93x >=0.90x PASS\n", &["--quick"]);
        let place = |text: &str| page.find(text).unwrap_or_else(|| panic!("no {text} in {page}"));
        assert!(place("`cargo xtask bench-compare --quick`") < place("- kernel: "));
        assert!(place("- kernel: ") < place("## A\n| x |"));
        assert!(place("| x |") < place("## Bars\n\n```text\nBAR A1 0.93x >=0.90x PASS\n```"));
    }

    #[test]
    fn failed_bars_are_found() {
        let report = "| x |\nBAR A1 0.93x >=0.90x PASS\nBAR A2 0.80x >=1.20x FAIL\nBAR A5 - - SKIP no peer\n";
        assert_eq!(failed_bars(report), ["A2"]);
        assert_eq!(summary(report), "bars: 1 passed, 1 failed, 1 skipped");
    }
}
