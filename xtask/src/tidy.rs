//! `cargo xtask tidy`: the rules that neither the compiler nor clippy can check.
//!
//! 1. A file of `core/src` uses `crate::x` only from a lower layer (`layers.rs` has the table).
//! 2. `unsafe` stands only in the listed rooms.
//! 3. No words of unfinished work, and no sleeping in a test.
//! 4. No source file beyond [`MAX_LINES`], its tests not counted; [`LONG_FILES`] may not grow.
//! 5. Each `// SYNC name` is written at both its ends.
//! 6. C, C++ and Python have every option of the core (`options.rs`), and what its types offer
//!    (`methods.rs`).

use std::collections::BTreeMap;
use std::path::Path;

use crate::layers::{ALLOWED, LAYERS, LONG_FILES, UNSAFE_ROOMS};
use crate::source::{code_only, lines_with_word, split_tests};
use crate::{methods, options, shell};

const MAX_LINES: usize = 900;
/// Split, so that this file does not contain what it looks for.
const BANNED_CODE: &[&str] = &[concat!("to", "do!"), concat!("unimple", "mented!")];
const BANNED_TEXT: &[&str] = &[concat!("FIX", "ME"), concat!("X", "XX")];
const SLEEP: &str = concat!("thread::", "sleep");
/// The same in Python, C and C++.
const FOREIGN_SLEEPS: &[&str] = &["time.sleep", "nanosleep", "usleep", "sleep_for", "sleep_until"];
const LAYERS_FILE: &str = "xtask/src/layers.rs";

/// One source file: its path from the workspace root, with `/`, and its text.
#[derive(Debug)]
struct File {
    path: String,
    text: String,
}

/// Checks the whole workspace; the error lists every offence.
pub(crate) fn run() -> Result<(), String> {
    let files = read_workspace()?;
    let mut offences = check(&files);
    offences.extend(options::missing()?);
    offences.extend(methods::missing()?);
    if offences.is_empty() {
        println!("tidy: {} files in order", files.len());
        return Ok(());
    }
    Err(format!("{}\ntidy: {} offences", offences.join("\n"), offences.len()))
}

fn read_workspace() -> Result<Vec<File>, String> {
    let root = shell::root();
    let wanted = |path: &Path| {
        path.extension().is_some_and(|e| e == "rs") || is_foreign_test(&path.to_string_lossy())
    };
    let mut files = Vec::new();
    for path in shell::files_below(&root, &wanted)? {
        let text =
            std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        let path = path.strip_prefix(&root).unwrap_or(&path).to_string_lossy().replace('\\', "/");
        files.push(File { path, text });
    }
    Ok(files)
}

fn check(files: &[File]) -> Vec<String> {
    let mut offences = Vec::new();
    for file in files {
        if is_foreign_test(&file.path) {
            check_foreign_sleep(file, &mut offences);
            continue;
        }
        if let Some(name) = file.path.strip_prefix("core/src/") {
            check_layers(name, file, &mut offences);
            check_unsafe(name, file, &mut offences);
        }
        check_words(file, &mut offences);
        check_sleep(file, &mut offences);
        check_length(file, &mut offences);
    }
    check_sync_pairs(files, &mut offences);
    offences
}

/// The room of a file below `core/src`: its own name, or `folder/` for what lies in a folder.
fn room_of(name: &str) -> String {
    match name.split_once('/') {
        Some((folder, _)) if layer_of(&format!("{folder}.rs")).is_some() => format!("{folder}.rs"),
        Some((folder, _)) => format!("{folder}/"),
        None => name.to_owned(),
    }
}

fn layer_of(room: &str) -> Option<usize> {
    LAYERS.iter().position(|rooms| rooms.contains(&room))
}

fn check_layers(name: &str, file: &File, offences: &mut Vec<String>) {
    let path = &file.path;
    let room = room_of(name);
    let Some(layer) = layer_of(&room) else {
        offences.push(format!(
            "{path}: `{room}` is in no layer; add it to LAYERS in {LAYERS_FILE}, and to its picture in the docs"
        ));
        return;
    };
    if room == "lib.rs" {
        return;
    }
    let code = code_only(split_tests(&file.text).0);
    for (line, module) in crate_uses(&code, room.ends_with('/')) {
        let (as_file, as_folder) = (format!("{module}.rs"), format!("{module}/"));
        if as_file == room || as_folder == room {
            continue;
        }
        let used = if layer_of(&as_file).is_some() { as_file } else { as_folder };
        let Some(used_layer) = layer_of(&used) else {
            offences.push(format!(
                "{path}:{line}: `crate::{module}` is no module of LAYERS ({LAYERS_FILE}); name the module, not a re-export of lib.rs"
            ));
            continue;
        };
        let excepted = ALLOWED.iter().any(|(who, whom, _)| *who == room && *whom == used);
        if used_layer >= layer && !excepted {
            offences.push(format!(
                "{path}:{line}: layer {layer} uses `{used}` of layer {used_layer}; only lower layers may be used ({LAYERS_FILE})"
            ));
        }
    }
}

/// Every first segment behind `crate::`, with its line; `crate::{a::X, b}` gives `a` and `b`. In a
/// top-level file a `use super::` at the left margin is `crate::` by another name; `in_folder` it
/// stays in the room.
fn crate_uses(code: &str, in_folder: bool) -> Vec<(usize, String)> {
    let mut uses = Vec::new();
    for (start, prefix) in [("crate::", ""), ("\nuse super::", "\n")] {
        if in_folder && !prefix.is_empty() {
            continue;
        }
        for (at, _) in code.match_indices(start) {
            let line = code[..at + prefix.len()].matches('\n').count() + 1;
            let before = code[..at].chars().next_back();
            if prefix.is_empty() && before.is_some_and(|c| c.is_alphanumeric() || "_:$".contains(c))
            {
                continue;
            }
            let rest = &code[at + start.len()..];
            let names = match rest.strip_prefix('{') {
                Some(group) => group_heads(group),
                None => vec![identifier(rest)],
            };
            uses.extend(names.into_iter().filter(|n| !n.is_empty()).map(|name| (line, name)));
        }
    }
    uses
}

/// The first identifier of each entry of a `{...}` use group, nested groups skipped.
fn group_heads(group: &str) -> Vec<String> {
    let mut heads = Vec::new();
    let (mut depth, mut entry_starts) = (0_usize, true);
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => entry_starts = true,
            c if entry_starts && !c.is_whitespace() => {
                heads.push(identifier(&group[at..]));
                entry_starts = false;
            }
            _ => {}
        }
    }
    heads
}

fn identifier(text: &str) -> String {
    text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}

fn check_unsafe(name: &str, file: &File, offences: &mut Vec<String>) {
    if UNSAFE_ROOMS.contains(&name) {
        return;
    }
    for line in lines_with_word(&code_only(split_tests(&file.text).0), "unsafe") {
        offences.push(format!(
            "{}:{line}: `unsafe` outside the unsafe rooms (UNSAFE_ROOMS in {LAYERS_FILE})",
            file.path
        ));
    }
}

fn check_words(file: &File, offences: &mut Vec<String>) {
    let code = code_only(&file.text);
    let hits = BANNED_CODE
        .iter()
        .map(|word| (word, lines_with_word(&code, word)))
        .chain(BANNED_TEXT.iter().map(|word| (word, lines_with_word(&file.text, word))));
    for (word, lines) in hits {
        for line in lines {
            offences.push(format!("{}:{line}: `{word}` is unfinished work", file.path));
        }
    }
}

fn check_sleep(file: &File, offences: &mut Vec<String>) {
    let whole = file.path.contains("/tests/") || file.path.starts_with("loom-tests/");
    let (code, tests) = split_tests(&file.text);
    let (first_line, text) =
        if whole { (0, file.text.as_str()) } else { (code.lines().count(), tests) };
    for line in lines_with_word(&code_only(text), SLEEP) {
        offences.push(sleeps(file, first_line + line));
    }
}

/// Whether `path` is that of a test in another language than Rust.
fn is_foreign_test(path: &str) -> bool {
    let endings = [".py", ".c", ".h", ".cpp", ".hpp"];
    path.contains("/tests/") && endings.iter().any(|ending| path.ends_with(ending))
}

fn check_foreign_sleep(file: &File, offences: &mut Vec<String>) {
    for word in FOREIGN_SLEEPS {
        offences.extend(lines_with_word(&file.text, word).into_iter().map(|l| sleeps(file, l)));
    }
}

fn sleeps(file: &File, line: usize) -> String {
    format!(
        "{}:{line}: a test waits for an event, or steps the test clock; it does not sleep",
        file.path
    )
}

fn check_length(file: &File, offences: &mut Vec<String>) {
    let lines = split_tests(&file.text).0.lines().count();
    let known = LONG_FILES.iter().find(|(path, _)| *path == file.path);
    let limit = known.map_or(MAX_LINES, |(_, lines)| *lines);
    if file.path.contains("/src/") && lines > limit {
        offences.push(format!(
            "{}: {lines} lines without its tests, more than {limit}; split it by noun",
            file.path
        ));
    }
}

/// A comment `// SYNC name` (also as a list item of a module head) must have a partner.
fn check_sync_pairs(files: &[File], offences: &mut Vec<String>) {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in files.iter().filter(|file| file.path.starts_with("core/src/")) {
        for (index, line) in file.text.lines().enumerate() {
            for name in sync_names(line) {
                places.entry(name).or_default().push(format!("{}:{}", file.path, index + 1));
            }
        }
    }
    for (name, places) in places.iter().filter(|(_, places)| places.len() < 2) {
        offences.push(format!("{}: `SYNC {name}` has no other end", places.concat()));
    }
}

/// The names of a line `// SYNC one, two: why`; none for the heading `SYNC pairs:`.
fn sync_names(line: &str) -> Vec<String> {
    let Some(comment) = line.find("//").map(|at| &line[at..]) else {
        return Vec::new();
    };
    let text = comment.trim_start_matches(|c: char| "/!-*` ".contains(c));
    let Some(names) = text.strip_prefix("SYNC ") else {
        return Vec::new();
    };
    let end = names.find(|c: char| !(c.is_ascii_alphanumeric() || "-_`, ".contains(c)));
    let names = &names[..end.unwrap_or(names.len())];
    let first_words = names.split(',').filter_map(|name| name.split_whitespace().next());
    first_words.map(|name| name.replace('`', "")).filter(|name| name != "pairs").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offences_of(path: &str, text: &str) -> Vec<String> {
        check(&[File { path: path.to_owned(), text: text.to_owned() }])
    }

    fn assert_caught(path: &str, text: &str, message: &str) {
        let offences = offences_of(path, text);
        assert!(offences.iter().any(|o| o.contains(message)), "{offences:?}");
    }

    #[test]
    fn an_upward_use_is_caught() {
        assert_caught(
            "core/src/ring.rs",
            "use crate::broker::Broker;\n",
            "uses `broker.rs` of layer",
        );
        assert_caught("core/src/ring.rs", "fn f(x: &crate::lane::Lane) {}\n", "uses `lane.rs`");
        assert_caught("core/src/ring.rs", "\nuse super::lane::Lane;\n", "uses `lane.rs`");
        assert_caught("core/src/ring.rs", "use crate::{sync::Arc, shard};\n", "uses `shard.rs`");
    }

    #[test]
    fn a_sideways_use_is_caught_and_the_line_is_named() {
        assert_caught(
            "core/src/ring.rs",
            "\n\nuse crate::lossy::Producer;\n",
            "core/src/ring.rs:3:",
        );
    }

    #[test]
    fn lower_layers_docs_tests_and_own_folder_pass() {
        let text = "//! See [`crate::broker::Broker`].\nuse crate::{error::Error, sync::{Arc, Mutex}};\n\
                    use crate::ring::full;\n#[cfg(test)]\nmod tests {\n    use crate::broker::Broker;\n}\n";
        assert_eq!(offences_of("core/src/ring.rs", text), [""; 0]);
        assert_eq!(offences_of("core/src/fork.rs", "use crate::sync::Arc;\n"), [""; 0]);
    }

    #[test]
    fn a_reexport_and_an_unknown_file_are_caught() {
        assert_caught("core/src/shard.rs", "use crate::Broker;\n", "name the module");
        assert_caught("core/src/helpers.rs", "", "add it to LAYERS");
    }

    #[test]
    fn unsafe_outside_its_rooms_is_caught() {
        assert_caught(
            "core/src/broker.rs",
            "fn f() { unsafe { g() } }\n",
            "outside the unsafe rooms",
        );
        assert_eq!(offences_of("core/src/lane.rs", "fn f() { unsafe { g() } }\n"), [""; 0]);
        assert_eq!(
            offences_of("core/src/broker.rs", "// unsafe\n#![deny(unsafe_code)]\n"),
            [""; 0]
        );
    }

    #[test]
    fn unfinished_work_and_sleeping_tests_are_caught() {
        for word in BANNED_CODE {
            assert_caught("core/src/ring.rs", &format!("fn f() {{ {word}() }}\n"), "unfinished");
        }
        for word in BANNED_TEXT {
            assert_caught("xtask/src/main.rs", &format!("// {word}: later\n"), "unfinished");
        }
        assert_caught("core/tests/a.rs", &format!("std::{SLEEP}(x);\n"), "core/tests/a.rs:1:");
        let text = format!("fn a() {{}}\n#[cfg(test)]\nmod tests {{\n    std::{SLEEP}(x);\n}}\n");
        assert_caught("core/src/wait.rs", &text, "core/src/wait.rs:4:");
        assert_caught("python/tests/a.py", "time.sleep(1)\n", "python/tests/a.py:1:");
        assert_caught("ffi/tests/a.c", "\nnanosleep(&period, NULL);\n", "ffi/tests/a.c:2:");
        assert_eq!(offences_of("python/tests/a.py", "await asyncio.sleep(0)\n"), [""; 0]);
    }

    #[test]
    fn a_long_file_is_caught_but_not_for_its_tests() {
        let long = "fn f() {}\n".repeat(MAX_LINES + 1);
        assert_caught("core/src/ring.rs", &long, "split it");
        let tested = format!("#[cfg(test)]\nmod tests {{\n{long}}}\n");
        assert_eq!(offences_of("core/src/ring.rs", &tested), [""; 0]);
    }

    #[test]
    fn a_sync_name_without_partner_is_caught() {
        let one = "x.store(1, Release); // SYNC slot-filled: pairs with Ring::read\n";
        assert_caught("core/src/ring.rs", one, "`SYNC slot-filled` has no other end");
        let both = format!("//! - `SYNC slot-filled`: the slot's bytes\n{one}");
        assert_eq!(offences_of("core/src/ring.rs", &both), [""; 0]);
        let list = format!("//! SYNC pairs:\n// SYNC slot-filled, slot-free: both\n{one}");
        assert_caught("core/src/ring.rs", &list, "`SYNC slot-free` has no other end");
    }

    #[test]
    fn the_tables_name_each_file_once() {
        let mut all: Vec<_> = LAYERS.concat();
        all.sort_unstable();
        let count = all.len();
        all.dedup();
        assert_eq!(all.len(), count);
        assert!(UNSAFE_ROOMS.iter().all(|room| layer_of(room).is_some()));
        assert!(ALLOWED.iter().all(|(a, b, why)| layer_of(a) == layer_of(b) && !why.is_empty()));
    }
}
