//! `cargo xtask abi`: what programs that are compiled already rely on, in `ffi/abi.txt`; `--check`
//! compares.
//!
//! The list has the numbers of all constants, the size of every struct with the offset and size of
//! each member as the C compiler lays them out, the types of callbacks, and every function. A line
//! may be added; one that changes or goes breaks those programs, except the size of a struct that
//! may grow. The functions must be those that the shared library exports.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::header::HEADER;
use crate::shell;

const LIST: &str = "ffi/abi.txt";
/// Begins a function that is inline.
const INLINE: &str = "SLIPRING_INLINE ";
const HEAD: &str = "\
# What compiled programs rely on. Written by `cargo xtask abi`; lines are added, not changed.
# struct: size; member: offset, size; in bytes.
";

/// Writes the list, and says which lines are gone.
pub(crate) fn write() -> Result<(), String> {
    let path = shell::root().join(LIST);
    let old = std::fs::read_to_string(&path).unwrap_or_default();
    let new = list()?;
    for line in gone(&old, &new) {
        println!("gone: {line}");
    }
    std::fs::write(&path, new).map_err(|e| format!("{LIST}: {e}"))?;
    println!("wrote {LIST}");
    Ok(())
}

/// Fails where the committed list is not what the header and the library have.
pub(crate) fn check() -> Result<(), String> {
    let old = shell::read(LIST)?;
    let new = list()?;
    if old == new {
        println!("{LIST}: {} lines, and the ABI is the same", new.lines().count());
        return Ok(());
    }
    let lines = |sign: &str, lines: Vec<String>| -> String {
        lines.into_iter().map(|line| format!("{sign} {line}\n")).collect()
    };
    Err(format!(
        "{}{}the ABI is not that of {LIST}: `cargo xtask abi` writes it, and no line should be gone",
        lines("gone: ", gone(&old, &new)),
        lines("added:", gone(&new, &old)),
    ))
}

/// The lines of `old` that `new` has not, members with their struct.
fn gone(old: &str, new: &str) -> Vec<String> {
    let new: BTreeSet<String> = full_lines(new).into_iter().collect();
    full_lines(old).into_iter().filter(|line| !new.contains(line)).collect()
}

fn full_lines(list: &str) -> Vec<String> {
    let mut of = "";
    list.lines()
        .map(|line| match line.strip_prefix("  ") {
            Some(member) => format!("{of}.{member}"),
            None => {
                of = line.split(':').next().unwrap_or(line);
                line.to_owned()
            }
        })
        .collect()
}

fn list() -> Result<String, String> {
    let text = shell::read(HEADER)?;
    let header = parse(&text);
    let functions = names(header.functions.iter().chain(&header.inline));
    let exported = exported()?;
    if functions != exported {
        let only = |a: &BTreeSet<String>, b: &BTreeSet<String>| {
            a.difference(b).cloned().collect::<Vec<_>>().join(" ")
        };
        return Err(format!(
            "the header and the library differ.\nonly in {HEADER}: {}\nonly exported: {}",
            only(&functions, &exported),
            only(&exported, &functions)
        ));
    }
    let mut list = HEAD.to_owned();
    for line in header.constants.iter().chain(&header.callbacks) {
        list.push_str(line);
        list.push('\n');
    }
    list.push_str(&layout(&header.structs)?);
    for line in header.functions.iter().chain(&header.inline) {
        list.push_str(line);
        list.push('\n');
    }
    Ok(list)
}

/// What cbindgen has written.
#[derive(Debug, Default, PartialEq, Eq)]
struct Header {
    constants: Vec<String>,
    callbacks: Vec<String>,
    structs: Vec<(String, Vec<String>)>,
    functions: Vec<String>,
    /// Functions whose bodies are in the header, and compiled into who includes it: what they do is
    /// what the layouts say.
    inline: Vec<String>,
}

fn parse(text: &str) -> Header {
    let mut header = Header::default();
    let mut declaration = String::new();
    let mut is_in_body = false;
    // A macro goes on behind a backslash.
    for line in text.replace("\\\n", " ").lines() {
        if is_in_body {
            is_in_body = line != "}";
            continue;
        }
        let line = line.split("//").next().unwrap_or_default().trim();
        if line.is_empty() || line.starts_with('#') || line.starts_with("extern \"C\"") {
            continue;
        }
        if let Some(function) = line.strip_prefix(INLINE) {
            header.inline.push(function.trim_end_matches(['{', ' ']).to_owned());
            is_in_body = true;
            continue;
        }
        if let Some(name) = line.strip_prefix("typedef struct ").and_then(|l| l.strip_suffix(" {"))
        {
            header.structs.push((name.to_owned(), Vec::new()));
            continue;
        }
        if line.starts_with("SLIPRING_") && line.contains(" = ") {
            header.constants.push(line.trim_end_matches(',').to_owned());
            continue;
        }
        if !declaration.is_empty() {
            declaration.push(' ');
        }
        declaration.push_str(line);
        if !line.ends_with(';') {
            continue;
        }
        let whole = std::mem::take(&mut declaration);
        let whole = whole.trim_end_matches(';').to_owned();
        match (whole.starts_with("typedef "), whole.contains('(')) {
            (true, true) => header.callbacks.push(whole),
            (false, true) => header.functions.push(whole),
            (false, false) if !whole.contains('}') => {
                let name = whole.rsplit([' ', '*']).next().unwrap_or_default().to_owned();
                if let Some((_, members)) = header.structs.last_mut() {
                    members.push(name);
                }
            }
            _ => {}
        }
    }
    header
}

/// The names of the functions that a header declares, without those that are inline.
pub(crate) fn functions(header: &str) -> BTreeSet<String> {
    names(parse(header).functions.iter())
}

fn names<'a>(functions: impl Iterator<Item = &'a String>) -> BTreeSet<String> {
    functions.filter_map(|function| name_of(function)).collect()
}

/// The name of a function that is declared like this.
fn name_of(function: &str) -> Option<String> {
    let before = function.split('(').next()?;
    Some(before.rsplit([' ', '*']).next()?.to_owned())
}

fn exported() -> Result<BTreeSet<String>, String> {
    shell::run(shell::cargo(&["build", "--quiet", "--package", "slipring-ffi"]))?;
    let library = shell::target_folder().join("debug/libslipring.so");
    let mut nm = shell::command("nm", &["-D", "--defined-only", "--format=posix"]);
    nm.arg(library);
    let text = shell::output(nm)?;
    Ok(text.lines().filter_map(|line| Some(line.split(' ').next()?.to_owned())).collect())
}

/// Asks the compiler.
fn layout(structs: &[(String, Vec<String>)]) -> Result<String, String> {
    let mut program =
        String::from("#include \"slipring.h\"\n#include <stdio.h>\nint main(void) {\n");
    for (name, members) in structs {
        // Writing to a String cannot fail.
        let _ = writeln!(program, "printf(\"struct {name}: %zu\\n\", sizeof({name}));");
        for member in members {
            let _ = writeln!(
                program,
                "printf(\"  {member}: %zu, %zu\\n\", offsetof({name}, {member}), sizeof((({name} *)0)->{member}));"
            );
        }
    }
    program.push_str("return 0;\n}\n");
    let folder = shell::target_folder().join("abi");
    std::fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let (source, binary) = (folder.join("layout.c"), folder.join("layout"));
    std::fs::write(&source, program).map_err(|e| format!("{}: {e}", source.display()))?;
    let mut cc = shell::command("cc", &["-std=c99", "-Iinclude"]);
    cc.arg(&source).arg("-o").arg(&binary);
    shell::run(cc)?;
    let text = shell::output(std::process::Command::new(binary))?;
    Ok(format!("{text}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
#define X \\
    (1)
enum slipring_status
{
    // Done.
    SLIPRING_OK = 0,
};
typedef struct slipring_broker slipring_broker;
typedef int32_t (*slipring_fn)(void *user,
                               const char *text);
typedef struct slipring_view {
    // Its first byte.
    const char *data;
    struct slipring_other other;
} slipring_view;
// Does it.
slipring_status slipring_do(const slipring_broker *broker,
                            size_t len);
const char *slipring_text(void);
SLIPRING_INLINE size_t slipring_len(const slipring_view *view) {
    return view->len;
}
";

    #[test]
    fn a_header_is_read() {
        let header = parse(TEXT);
        assert_eq!(header.constants, ["SLIPRING_OK = 0"]);
        assert_eq!(
            header.callbacks,
            ["typedef int32_t (*slipring_fn)(void *user, const char *text)"]
        );
        assert_eq!(
            header.structs,
            [("slipring_view".to_owned(), vec!["data".to_owned(), "other".to_owned()])]
        );
        assert!(functions(TEXT).iter().eq(["slipring_do", "slipring_text"]));
        assert_eq!(header.inline, ["size_t slipring_len(const slipring_view *view)"]);
    }

    #[test]
    fn what_is_gone_is_told_with_its_struct() {
        let old = "A = 1\nstruct s: 8\n  a: 0, 4\n  b: 4, 4\n";
        assert!(gone(old, old).is_empty());
        assert_eq!(gone(old, "A = 1\nstruct s: 8\n  a: 0, 4\n  b: 4, 2\n"), ["struct s.b: 4, 4"]);
        assert_eq!(gone(old, "struct s: 8\n  a: 0, 4\n  b: 4, 4\nA = 2\n"), ["A = 1"]);
    }
}
