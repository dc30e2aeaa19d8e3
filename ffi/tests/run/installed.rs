//! Programs built against what `cargo xtask install` lays out, moved to another place first.

use crate::toolbox::{has, root, run, scratch, source};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Installs into a fresh folder, and moves that.
fn installed(name: &str, options: &[&str]) -> PathBuf {
    let [first, moved] = ["prefix", "moved"].map(|folder| scratch().join(folder).join(name));
    for folder in [&first, &moved] {
        let _ = std::fs::remove_dir_all(folder);
    }
    std::fs::create_dir_all(moved.parent().unwrap()).unwrap();
    let mut install = Command::new(env!("CARGO"));
    install.args(["run", "--quiet", "--package", "xtask", "--", "install", "--debug"]);
    install.arg("--prefix").arg(&first).args(options).current_dir(root());
    run(&mut install, "");
    std::fs::rename(first, &moved).unwrap();
    moved
}

/// The loader is told nothing: a program finds its library by itself.
fn output_of(program: &Path) -> String {
    run(Command::new(program).env_remove("LD_LIBRARY_PATH"), "")
}

/// `hint` says where the package is to be found.
fn build_with_cmake(name: &str, hint: &str) {
    let build = scratch().join("cmake").join(name);
    let _ = std::fs::remove_dir_all(&build);
    let mut configure = Command::new("cmake");
    configure.arg("-S").arg(source("consumers")).arg("-B").arg(&build);
    configure.arg(hint);
    run(&mut configure, "");
    run(Command::new("cmake").arg("--build").arg(&build), "");
    for program in ["first-c", "first-cxx", "first-c-static", "first-cxx-static"] {
        let program = build.join(program);
        if name == "shared" && program.to_string_lossy().ends_with("static") {
            assert!(!program.exists());
            continue;
        }
        assert_eq!(output_of(&program), "sports/cricket: four!\n");
    }
}

#[test]
fn consumers_build_with_cmake_shared_and_static() {
    if !has("cmake") || !has("c++") {
        return;
    }
    let both = installed("cmake-both", &["--libdir", "lib/else"]);
    build_with_cmake("both", &format!("-Dslipring_DIR={}/lib/else/cmake/slipring", both.display()));
    for only in ["shared", "static"] {
        let prefix = installed(&format!("cmake-{only}"), &["--only", only]);
        build_with_cmake(only, &format!("-DCMAKE_PREFIX_PATH={}", prefix.display()));
    }
}

fn build_with_pkg_config(name: &str, prefix: &Path, libraries: &str) {
    let build = scratch().join("pkg-config").join(name);
    let _ = std::fs::remove_dir_all(&build);
    std::fs::create_dir_all(&build).unwrap();
    let mut make = Command::new("make");
    make.arg("-C").arg(source("consumers")).arg(format!("BUILD={}", build.display()));
    make.arg(format!("LIBRARIES={libraries}"));
    make.env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"));
    make.env("LD_RUN_PATH", prefix.join("lib"));
    run(&mut make, "");
    for program in ["first-c", "first-cxx"] {
        assert_eq!(output_of(&build.join(program)), "sports/cricket: four!\n");
    }
}

#[test]
fn consumers_build_with_pkg_config_shared_and_static() {
    if !has("pkg-config") || !has("make") || !has("c++") {
        return;
    }
    build_with_pkg_config("shared", &installed("pc-both", &[]), "--libs");
    build_with_pkg_config(
        "static",
        &installed("pc-static", &["--only", "static"]),
        "--static --libs",
    );
}

#[test]
fn a_staged_tree_is_complete_and_names_no_place() {
    let stage = scratch().join("stage");
    let _ = std::fs::remove_dir_all(&stage);
    let mut install = Command::new(env!("CARGO"));
    install.args(["run", "--quiet", "--package", "xtask", "--", "install", "--debug"]);
    install.args(["--prefix", "/opt/slipring", "--destdir"]).arg(&stage).current_dir(root());
    run(&mut install, "");
    let prefix = stage.join("opt/slipring");
    let lib = prefix.join("lib");
    for file in [
        "include/slipring.h",
        "include/slipring.hpp",
        "lib/libslipring.a",
        "lib/pkgconfig/slipring.pc",
        "lib/cmake/slipring/slipring-config.cmake",
        "lib/cmake/slipring/slipring-config-version.cmake",
        "share/doc/slipring/LICENSE-MIT",
    ] {
        let path = prefix.join(file);
        assert!(path.is_file(), "{file}");
        if file.contains("pkgconfig") || file.contains("cmake") {
            let text = std::fs::read_to_string(path).unwrap();
            assert!(!text.contains("/opt") && !text.contains("stage"), "{file}: {text}");
        }
    }
    let version = env!("CARGO_PKG_VERSION");
    let soname = concat!("libslipring.so.", env!("CARGO_PKG_VERSION_MAJOR"));
    assert_eq!(std::fs::read_link(lib.join("libslipring.so")).unwrap(), Path::new(soname));
    let file = format!("libslipring.so.{version}");
    assert_eq!(std::fs::read_link(lib.join(soname)).unwrap(), Path::new(&file));
    if has("readelf") {
        let text = run(Command::new("readelf").arg("-d").arg(lib.join(file)), "");
        assert!(text.contains(&format!("Library soname: [{soname}]")), "{text}");
    }
}
