//! Compiles the contenders in C++ of `native/`, with the peers whose headers are on this machine.
//!
//! They link the shared library that `cargo build --release -p slipring-ffi` makes. Without it, or
//! without a C++ compiler, there is no section G.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn main() {
    println!("cargo:rustc-check-cfg=cfg(native, native_zmq, native_boost)");
    println!("cargo:rerun-if-changed=native");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let libraries = root.join("target/release");
    let library = libraries.join("libslipring.so");
    println!("cargo:rerun-if-changed={}", library.display());
    println!("cargo:rerun-if-changed={}", root.join("include").display());
    if !library.is_file() || !compiles("cstddef") {
        return;
    }
    let mut build = cc::Build::new();
    build.cpp(true).std("c++17").opt_level(2).include(root.join("include"));
    build.file("native/ours.cpp").file("native/peers.cpp");
    let peers = [
        ("native_zmq", "HAVE_ZMQ", "zmq.h"),
        ("native_boost", "HAVE_BOOST", "boost/lockfree/spsc_queue.hpp"),
    ];
    for (cfg, define, header) in peers {
        if compiles(header) {
            build.define(define, None);
            println!("cargo:rustc-cfg={cfg}");
        }
    }
    build.compile("native");
    // Found at run time by its SONAME.
    let folder = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it"));
    let soname = folder.join("libslipring.so.0");
    let _ = std::fs::remove_file(&soname);
    let library = library.canonicalize().expect("it is there");
    std::os::unix::fs::symlink(library, soname).expect("the library is linked to");
    println!("cargo:rustc-link-search=native={}", libraries.display());
    println!("cargo:rustc-link-arg=-Wl,-rpath,{}", folder.display());
    println!("cargo:rustc-link-lib=dylib=slipring");
    if compiles("zmq.h") {
        println!("cargo:rustc-link-lib=dylib=zmq");
    }
    println!("cargo:rustc-cfg=native");
}

/// Whether there is a C++ compiler that finds this header.
fn compiles(header: &str) -> bool {
    Command::new("c++")
        .args(["-std=c++17", "-x", "c++", "-fsyntax-only", "-include", header, "/dev/null"])
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}
