//! Gives the shared library its SONAME: programs ask for the major version they were built with.

fn main() {
    let major = env!("CARGO_PKG_VERSION_MAJOR");
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libslipring.so.{major}");
}
