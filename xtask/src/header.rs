//! `cargo xtask header`: makes `include/slipring.h` of the sources of `ffi`, and
//! `include/slipring_python.h` of the table of `python`; `--check` compares.

use crate::{abi, shell};

pub(crate) const HEADER: &str = "include/slipring.h";
const HEAD: &str = include_str!("header.md");
/// Functions that are inline, which cbindgen cannot make.
const INLINE: &str = include_str!("inline.h");
const PYTHON_HEADER: &str = "include/slipring_python.h";
const PYTHON_HEAD: &str = include_str!("python_header.h");
const TABLE: &str = "python/src/table.rs";
/// Has the number of the ABI.
const CAPSULE: &str = "python/src/capsule.rs";

/// Writes the headers.
pub(crate) fn write() -> Result<(), String> {
    for (name, made) in made()? {
        let path = shell::root().join(name);
        std::fs::write(&path, made).map_err(|e| format!("{name}: {e}"))?;
        println!("wrote {name}");
    }
    Ok(())
}

/// Fails where a committed header is not what the sources make.
pub(crate) fn check() -> Result<(), String> {
    for (name, made) in made()? {
        let committed = shell::read(name)?;
        if committed != made {
            let line = committed.lines().zip(made.lines()).position(|(old, new)| old != new);
            let line = line.unwrap_or(committed.lines().count().min(made.lines().count())) + 1;
            return Err(format!(
                "{name}:{line}: not what the sources make; run `cargo xtask header` and commit it"
            ));
        }
        println!("{name} is what the sources make");
    }
    Ok(())
}

fn made() -> Result<[(&'static str, String); 2], String> {
    let header = generate()?;
    let python = python_header(&header)?;
    Ok([(HEADER, header), (PYTHON_HEADER, python)])
}

/// The header for native code that gets a broker from Python: the functions of the table, which has
/// to have all of `header`.
fn python_header(header: &str) -> Result<String, String> {
    let table = shell::read(TABLE)?;
    let (_, list) = table.split_once("functions! {").ok_or(format!("{TABLE}: no list"))?;
    let names: Vec<_> = list.lines().filter_map(|line| line.trim().strip_suffix(',')).collect();
    let missing = abi::functions(header).into_iter().find(|name| !names.contains(&name.as_str()));
    if let Some(name) = missing {
        return Err(format!("{TABLE}: add `{name}` to the end of the list"));
    }
    let short = |name: &str| name.trim_start_matches("slipring_").to_owned();
    let capsule = shell::read(CAPSULE)?;
    let (_, abi) = capsule.split_once("const ABI: u32 = ").ok_or(format!("{CAPSULE}: no ABI"))?;
    let (abi, _) = abi.split_once(';').ok_or(format!("{CAPSULE}: no ABI"))?;
    let mut text = PYTHON_HEAD.replace("@COUNT@", &names.len().to_string()).replace("@ABI@", abi);
    let (mut members, mut macros) = (String::new(), String::new());
    for name in names {
        members += &format!("    __typeof__(&{name}) {};\n", short(name));
        macros += &format!("#define {name} (slipring_python_api->functions->{})\n", short(name));
    }
    text = text.replace("@MEMBERS@\n", &members).replace("@MACROS@\n", &macros);
    Ok(text)
}

fn generate() -> Result<String, String> {
    let folder = shell::root().join("ffi");
    let mut config = cbindgen::Config::from_file(folder.join("cbindgen.toml"))?;
    config.header = Some(head());
    config.after_includes = Some(macros());
    let bindings = cbindgen::Builder::new()
        .with_crate(&folder)
        .with_config(config)
        .generate()
        .map_err(|e| format!("cbindgen: {e}"))?;
    let mut text = Vec::new();
    bindings.write(&mut text);
    let text = String::from_utf8(text).map_err(|e| e.to_string())?;
    let (all, end) = text.rsplit_once("\n#endif").ok_or("cbindgen: no include guard")?;
    Ok(format!("{all}{INLINE}\n#endif{end}"))
}

fn head() -> String {
    let mut text = String::from("// SPDX-License-Identifier: MIT OR Apache-2.0\n//\n");
    for line in HEAD.lines() {
        text.push_str(format!("// {line}").trim_end());
        text.push('\n');
    }
    text.push_str("//\n// Made by `cargo xtask header`: do not edit.\n");
    text
}

fn macros() -> String {
    let [major, minor, patch] = [
        env!("CARGO_PKG_VERSION_MAJOR"),
        env!("CARGO_PKG_VERSION_MINOR"),
        env!("CARGO_PKG_VERSION_PATCH"),
    ];
    format!(
        "
// Version of this header; `slipring_version()` is that of the library.
#define SLIPRING_VERSION_MAJOR {major}
#define SLIPRING_VERSION_MINOR {minor}
#define SLIPRING_VERSION_PATCH {patch}
#define SLIPRING_VERSION_STRING \"{major}.{minor}.{patch}\"
#define SLIPRING_VERSION                                                                    \\
    ((SLIPRING_VERSION_MAJOR + 0u) << 16 | (SLIPRING_VERSION_MINOR + 0u) << 8 |             \\
     (SLIPRING_VERSION_PATCH + 0u))

// Times are in nanoseconds.
#define SLIPRING_FOREVER UINT64_MAX
#define SLIPRING_MILLISECONDS(n) ((uint64_t)(n) * 1000000u)
#define SLIPRING_SECONDS(n) ((uint64_t)(n) * 1000000000u)

// For `slipring_nack`: as long as the subscription's backoff has it.
#define SLIPRING_BACKOFF UINT64_MAX

// What a batch handler makes of one of its messages: what it returns.
#define SLIPRING_AS_RETURNED INT32_MIN

// Attributes of a dead letter: the subscription that gave up on it, topic, partition and offset of
// the message, how often it was delivered, and why it was given up.
#define SLIPRING_DEAD_LETTER_SUBSCRIPTION \"dead-letter-subscription\"
#define SLIPRING_DEAD_LETTER_TOPIC \"dead-letter-topic\"
#define SLIPRING_DEAD_LETTER_PARTITION \"dead-letter-partition\"
#define SLIPRING_DEAD_LETTER_OFFSET \"dead-letter-offset\"
#define SLIPRING_DEAD_LETTER_ATTEMPTS \"dead-letter-attempts\"
#define SLIPRING_DEAD_LETTER_REASON \"dead-letter-reason\"

// The two arguments, pointer and length, of a literal as a text, and as bytes.
#define SLIPRING_TEXT(literal) (\"\" literal), (sizeof(literal) - 1)
#define SLIPRING_BYTES(literal) ((const uint8_t *)(\"\" literal)), (sizeof(literal) - 1)
"
    )
}
