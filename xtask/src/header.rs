//! `cargo xtask header`: makes `include/slipring.h` of the sources of `ffi`; `--check` compares.

use crate::shell;

const HEADER: &str = "include/slipring.h";
const HEAD: &str = include_str!("header.md");

/// Writes the header.
pub(crate) fn write() -> Result<(), String> {
    let path = shell::root().join(HEADER);
    std::fs::write(&path, generate()?).map_err(|e| format!("{HEADER}: {e}"))?;
    println!("wrote {HEADER}");
    Ok(())
}

/// Fails where the committed header is not what the sources make.
pub(crate) fn check() -> Result<(), String> {
    let committed = std::fs::read_to_string(shell::root().join(HEADER))
        .map_err(|e| format!("{HEADER}: {e}"))?;
    let made = generate()?;
    if committed == made {
        println!("{HEADER} is what ffi/src makes");
        return Ok(());
    }
    let line = committed.lines().zip(made.lines()).position(|(old, new)| old != new);
    let line = line.unwrap_or(committed.lines().count().min(made.lines().count())) + 1;
    Err(format!("{HEADER}:{line}: not what ffi/src makes; run `cargo xtask header` and commit it"))
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
    String::from_utf8(text).map_err(|e| e.to_string())
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

// The two arguments, pointer and length, of a literal as a text, and as bytes.
#define SLIPRING_TEXT(literal) (\"\" literal), (sizeof(literal) - 1)
#define SLIPRING_BYTES(literal) ((const uint8_t *)(\"\" literal)), (sizeof(literal) - 1)
"
    )
}
