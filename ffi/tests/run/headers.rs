//! The headers, in every language that they are for.

use crate::toolbox::{
    C_AS_CXX17, C11, C17, C99, CXX17, CXX17_RESULTS, CXX20, CXX20_RESULTS, Language, has, object,
    run, scratch, works,
};
use std::path::PathBuf;
use std::process::Command;

const STRICT: [&str; 2] = ["-Wshadow", "-Wconversion"];

/// Two units that include the header twice, linked to one object: nothing is defined twice.
fn two_units(header: &str, extension: &str, languages: &[(&str, Language)]) {
    for (kind, language) in languages.iter().filter(|(_, language)| has(language[0])) {
        let compilers = match language[0] {
            "c++" => ["c++", "clang++"],
            _ => ["cc", "clang"],
        };
        for compiler in compilers {
            // Another compiler than the system's is welcome, and not asked for.
            if !works(Command::new(compiler).arg("--version")) {
                continue;
            }
            let units: Vec<PathBuf> = (1..=2)
                .map(|number| {
                    let unit = scratch().join(format!("unit{number}.{extension}"));
                    let text = format!(
                        "#include \"{header}\"\n#include \"{header}\"\n\
                         int unit{number}(void);\nint unit{number}(void) {{ return (int)slipring_version(); }}\n"
                    );
                    std::fs::write(&unit, text).unwrap();
                    let kind = format!("{kind}-{compiler}");
                    object(&unit, &kind, language, &STRICT)
                })
                .collect();
            let both = scratch().join(format!("units-{kind}.o"));
            run(Command::new("ld").arg("-r").args(units).arg("-o").arg(both), "");
        }
    }
}

#[test]
fn the_c_header_compiles_in_two_units_of_every_language() {
    two_units(
        "slipring.h",
        "c",
        &[("c99", C99), ("c11", C11), ("c17", C17), ("as-cxx17", C_AS_CXX17)],
    );
}

#[test]
fn the_cxx_header_compiles_in_two_units_with_and_without_exceptions() {
    two_units(
        "slipring.hpp",
        "cpp",
        &[
            ("cxx17", CXX17),
            ("cxx20", CXX20),
            ("cxx17-results", CXX17_RESULTS),
            ("cxx20-results", CXX20_RESULTS),
        ],
    );
}
