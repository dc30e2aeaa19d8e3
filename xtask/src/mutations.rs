//! `cargo xtask mutations`: proof that the loom models can fail.
//!
//! `loom-tests/mutations.txt` lists one weakening of the production source a line:
//! `name | file | exact source text | replacement | loom test filter`. Each is applied to a copy of
//! the workspace, which must still compile, and whose model must then fail. `\n` in a text is a
//! line break. A line that starts with `#` is a comment.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::shell;

const TABLE: &str = "loom-tests/mutations.txt";
const FORM: &str = "name | file | exact source text | replacement | loom test filter";
/// A model that has not failed by then is taken to have missed the mutation.
const MODEL_LIMIT: Duration = Duration::from_secs(600);
const BUILD_LIMIT: Duration = Duration::from_secs(900);
const PREEMPTIONS: &str = "3";
/// A mutation takes as long as compiling it: models that fail do so in seconds. So what did not change
/// is not compiled again, and our own code is optimised a little; loom itself as it is in `cargo loom`.
const PROFILE: [&str; 6] = [
    "profile.loom.incremental=true",
    "profile.loom.opt-level=1",
    "profile.loom.package.'*'.opt-level=3",
    "profile.loom.codegen-units=64",
    "profile.loom.lto='off'",
    "profile.loom.debug=0",
];
/// What the copy leaves out: not needed to build the models.
const LEFT_OUT: &[&str] = &["benches/compare", "docs", "examples/data"];

#[derive(Debug, PartialEq, Eq)]
struct Mutation {
    name: String,
    file: String,
    from: String,
    to: String,
    filter: String,
}

#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Caught,
    Survived,
}

/// Which mutations of the table to run.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Lines<'a> {
    All,
    Only(&'a str),
    /// The one named and all behind it: goes on where a run was ended.
    From(&'a str),
}

/// Runs the mutations asked for; fails if one survives, cannot be judged, or none ran.
pub(crate) fn run(lines: Lines<'_>) -> Result<(), String> {
    let path = shell::root().join(TABLE);
    let text = fs::read_to_string(&path).map_err(|e| format!("{TABLE}: {e}"))?;
    let mutations = select(parse(&text)?, lines);
    if mutations.is_empty() {
        return Err(format!("{TABLE}: no mutation to run"));
    }
    let mut failures = Vec::new();
    for mutation in &mutations {
        let name = &mutation.name;
        match judge(mutation) {
            Ok(Verdict::Caught) => println!("MUTATION {name} CAUGHT"),
            Ok(Verdict::Survived) => {
                println!("MUTATION {name} SURVIVED");
                failures.push(format!("{name} survived"));
            }
            Err(why) => {
                println!("MUTATION {name} BROKEN: {why}");
                failures.push(format!("{name} could not be judged"));
            }
        }
    }
    println!("{} of {} mutations caught", mutations.len() - failures.len(), mutations.len());
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n")) }
}

fn select(mutations: Vec<Mutation>, lines: Lines<'_>) -> Vec<Mutation> {
    let all = mutations.into_iter();
    match lines {
        Lines::All => all.collect(),
        Lines::Only(name) => all.filter(|m| m.name == name).collect(),
        Lines::From(name) => all.skip_while(|m| m.name != name).collect(),
    }
}

fn parse(text: &str) -> Result<Vec<Mutation>, String> {
    let mut mutations: Vec<Mutation> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        let fields: Vec<&str> = line.split(" | ").map(str::trim).collect();
        let at = format!("{TABLE}:{}", index + 1);
        let [name, file, from, to, filter] = fields.as_slice() else {
            return Err(format!("{at}: {} fields where `{FORM}` has 5", fields.len()));
        };
        if [name, file, from, filter].iter().any(|field| field.is_empty()) {
            return Err(format!("{at}: an empty field; the form is `{FORM}`"));
        }
        if mutations.iter().any(|m| m.name == *name) {
            return Err(format!("{at}: `{name}` is there twice"));
        }
        mutations.push(Mutation {
            name: (*name).to_owned(),
            file: (*file).to_owned(),
            from: from.replace("\\n", "\n"),
            to: to.replace("\\n", "\n"),
            filter: (*filter).to_owned(),
        });
    }
    Ok(mutations)
}

fn judge(mutation: &Mutation) -> Result<Verdict, String> {
    let folder = shell::root().join("target/mutations");
    // One place for all of them, or each would be compiled from the start.
    let copy = folder.join("workspace");
    copy_workspace(&copy)?;
    let path = copy.join(&mutation.file);
    let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", mutation.file))?;
    fs::write(&path, apply(mutation, &text)?).map_err(|e| e.to_string())?;

    let log = folder.join(format!("{}.log", mutation.name));
    let built = run_logged(models(&copy, &["--no-run"]), &log, BUILD_LIMIT)?;
    if built != Some(true) {
        return Err(format!("it does not compile, see {}", log.display()));
    }
    let ended_well = run_logged(
        models(&copy, &["--no-fail-fast", "--", "--include-ignored", &mutation.filter]),
        &log,
        MODEL_LIMIT,
    )?;
    verdict(ended_well, &fs::read_to_string(&log).map_err(|e| e.to_string())?)
        .map_err(|why| format!("{why}, see {}", log.display()))
}

fn apply(mutation: &Mutation, text: &str) -> Result<String, String> {
    match text.matches(&mutation.from).count() {
        1 => Ok(text.replacen(&mutation.from, &mutation.to, 1)),
        n => Err(format!("`{}` is {n} times in {}, not once", mutation.from, mutation.file)),
    }
}

/// `ended_well` is `None` when the time limit ended the run.
fn verdict(ended_well: Option<bool>, log: &str) -> Result<Verdict, String> {
    let failed = count(log, " failed;");
    let passed = count(log, " passed;");
    match ended_well {
        Some(true) if passed == 0 => Err("no model matches the filter".to_owned()),
        Some(true) | None => Ok(Verdict::Survived),
        Some(false) if failed > 0 || log.contains("panicked at") => Ok(Verdict::Caught),
        Some(false) => Err("the models ended badly, but none failed".to_owned()),
    }
}

/// The sum of the numbers in front of `label` on the test runners' closing lines.
fn count(log: &str, label: &str) -> usize {
    log.lines()
        .filter(|line| line.starts_with("test result:"))
        .filter_map(|line| line.split_once(label)?.0.rsplit(' ').next()?.parse::<usize>().ok())
        .sum()
}

/// The models of the copy. Not the `cargo loom` alias: its build folder would be the copy's own.
fn models(copy: &Path, rest: &[&str]) -> Command {
    let target = shell::root().join("target/mutations-build");
    let mut command = shell::without_rustflags(shell::cargo(&[
        "--config",
        "build.rustflags=['--cfg','slipring_loom']",
    ]));
    // Before `test`: behind it, they would be all the settings there are.
    PROFILE.iter().for_each(|setting| _ = command.args(["--config", setting]));
    command.args(["test", "--package", "slipring-loom-tests", "--profile", "loom", "--target-dir"]);
    command.arg(target).args(rest).current_dir(copy);
    if std::env::var_os("LOOM_MAX_PREEMPTIONS").is_none() {
        command.env("LOOM_MAX_PREEMPTIONS", PREEMPTIONS);
    }
    command
}

fn run_logged(mut command: Command, log: &Path, limit: Duration) -> Result<Option<bool>, String> {
    let file = File::create(log).map_err(|e| format!("{}: {e}", log.display()))?;
    let also = file.try_clone().map_err(|e| e.to_string())?;
    command.stdout(Stdio::from(file)).stderr(Stdio::from(also));
    Ok(shell::run_at_most(command, limit)?.map(|status| status.success()))
}

/// Copies every file but hidden ones, build output and what [`LEFT_OUT`] names. The hidden
/// `.cargo/config.toml` is found from inside the copy all the same: cargo looks in the parents.
fn copy_workspace(to: &Path) -> Result<(), String> {
    let root = shell::root();
    if to.exists() {
        fs::remove_dir_all(to).map_err(|e| format!("{}: {e}", to.display()))?;
    }
    let wanted = |path: &Path| {
        let inside = path.strip_prefix(&root).unwrap_or(path);
        !LEFT_OUT.iter().any(|left_out| inside.starts_with(left_out))
    };
    for from in shell::files_below(&root, &wanted)? {
        let target: PathBuf = to.join(from.strip_prefix(&root).unwrap_or(&from));
        if let Some(folder) = target.parent() {
            fs::create_dir_all(folder).map_err(|e| e.to_string())?;
        }
        fs::copy(&from, &target).map_err(|e| format!("{}: {e}", from.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "fill | core/src/ring.rs | head, Release | head, Relaxed | ring_";

    #[test]
    fn a_line_is_read_and_a_bad_one_refused() {
        let all = parse(&format!("# comment\n\n{LINE}\n")).unwrap();
        assert_eq!((all.len(), all[0].from.as_str()), (1, "head, Release"));
        assert!(parse("fill | core/src/ring.rs | only").unwrap_err().contains("3 fields"));
        assert!(parse(&format!("{LINE}\n{LINE}")).unwrap_err().contains("twice"));
    }

    #[test]
    fn a_run_begins_where_it_is_told_to() {
        let text: Vec<_> = ["a", "b", "c"].map(|name| LINE.replacen("fill", name, 1)).into();
        let names = |lines| {
            let chosen = select(parse(&text.join("\n")).unwrap(), lines);
            chosen.iter().map(|m| m.name.as_str()).collect::<String>()
        };
        assert_eq!(names(Lines::All), "abc");
        assert_eq!((names(Lines::Only("b")), names(Lines::From("b"))), ("b".into(), "bc".into()));
        assert_eq!((names(Lines::Only("d")), names(Lines::From("d"))), ("".into(), "".into()));
    }

    #[test]
    fn the_text_must_be_there_exactly_once() {
        let mutation = &parse(LINE).unwrap()[0];
        assert_eq!(apply(mutation, "s(head, Release)").unwrap(), "s(head, Relaxed)");
        assert!(apply(mutation, "s(tail, Release)").unwrap_err().contains("0 times"));
        assert!(apply(mutation, "head, Release head, Release").unwrap_err().contains("2 times"));
    }

    #[test]
    fn every_line_of_the_table_has_its_text() {
        let root = shell::root();
        let table = fs::read_to_string(root.join(TABLE)).unwrap();
        let wrong = |mutation: &Mutation| {
            let source = fs::read_to_string(root.join(&mutation.file)).unwrap();
            match apply(mutation, &source) {
                Ok(mutated) => (mutated == source).then(|| "it changes nothing".to_owned()),
                Err(why) => Some(why),
            }
        };
        let wrong: Vec<_> = parse(&table)
            .unwrap()
            .iter()
            .filter_map(|m| Some((m.name.clone(), wrong(m)?)))
            .collect();
        assert!(wrong.is_empty(), "{wrong:#?}");
    }

    #[test]
    fn only_a_failing_model_catches() {
        let ok =
            "test result: ok. 3 passed; 0 failed; 0 ignored\ntest result: ok. 0 passed; 0 failed;";
        let bad = "test result: FAILED. 2 passed; 1 failed; 0 ignored";
        let none = "test result: ok. 0 passed; 0 failed; 0 ignored";
        assert_eq!(verdict(Some(true), ok), Ok(Verdict::Survived));
        assert_eq!(verdict(None, ""), Ok(Verdict::Survived));
        assert_eq!(verdict(Some(false), bad), Ok(Verdict::Caught));
        assert!(verdict(Some(true), none).is_err());
        assert!(verdict(Some(false), "error: could not compile").is_err());
    }
}
