//! `cargo xtask install`: lays out what a C or C++ program needs, below a prefix.
//!
//! ```text
//! include/slipring.h slipring.hpp
//! lib/libslipring.so -> libslipring.so.<major> -> libslipring.so.<version>
//! lib/libslipring.a
//! lib/pkgconfig/slipring.pc
//! lib/cmake/slipring/slipring-config.cmake slipring-config-version.cmake
//! share/doc/slipring/LICENSE-APACHE LICENSE-MIT
//! ```
//!
//! Nothing in it names the prefix: the tree may be moved, and staged with `--destdir`.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Component, Path, PathBuf};

use crate::shell;

pub(crate) const USAGE: &str = "\
cargo xtask install --prefix P [--destdir D] [--libdir L] [--only shared|static] [--debug]
  --prefix P    where the library will be; an absolute path
  --destdir D   put everything below D, as packages do; P is where it will be in the end
  --libdir L    folder of libraries below P (default: lib)
  --only KIND   only the shared or only the static library
  --debug       the build without optimisation";

const VERSION: &str = env!("CARGO_PKG_VERSION");
const MAJOR: &str = env!("CARGO_PKG_VERSION_MAJOR");
const HEADERS: [&str; 2] = ["slipring.h", "slipring.hpp"];
const LICENSES: [&str; 2] = ["LICENSE-APACHE", "LICENSE-MIT"];
/// What the static library needs besides the C library.
const SYSTEM_LIBRARIES: [&str; 4] = ["gcc_s", "pthread", "dl", "m"];
const PC: &str = include_str!("install/slipring.pc.in");
const CONFIG: &str = include_str!("install/slipring-config.cmake.in");
const CONFIG_VERSION: &str = include_str!("install/slipring-config-version.cmake.in");

#[derive(Debug)]
struct Options {
    /// Where the files are written to: the prefix below `--destdir`.
    root: PathBuf,
    libdir: PathBuf,
    shared: bool,
    archive: bool,
    profile: &'static str,
}

/// Builds the libraries and installs everything.
pub(crate) fn run(arguments: &[&str]) -> Result<(), String> {
    let options = parse(arguments).map_err(|why| format!("{why}\n{USAGE}"))?;
    let mut build = vec!["build", "--package", "slipring-ffi"];
    if options.profile == "release" {
        build.push("--release");
    }
    shell::run(shell::cargo(&build))?;
    let built = shell::target_folder().join(options.profile);

    for name in HEADERS {
        let header = shell::root().join("include").join(name);
        copy(&header, &options.root.join("include").join(name), 0o644)?;
    }
    for name in LICENSES {
        let place = options.root.join("share/doc/slipring").join(name);
        copy(&shell::root().join(name), &place, 0o644)?;
    }
    let libraries = options.root.join(&options.libdir);
    if options.shared {
        let (file, soname) =
            (format!("libslipring.so.{VERSION}"), format!("libslipring.so.{MAJOR}"));
        copy(&built.join("libslipring.so"), &libraries.join(&file), 0o755)?;
        link(&file, &libraries.join(&soname))?;
        link(&soname, &libraries.join("libslipring.so"))?;
    }
    if options.archive {
        copy(&built.join("libslipring.a"), &libraries.join("libslipring.a"), 0o644)?;
    }
    write(&libraries.join("pkgconfig/slipring.pc"), &fill(PC, &options))?;
    let cmake = libraries.join("cmake/slipring");
    write(&cmake.join("slipring-config.cmake"), &fill(CONFIG, &options))?;
    write(&cmake.join("slipring-config-version.cmake"), &fill(CONFIG_VERSION, &options))
}

fn parse(arguments: &[&str]) -> Result<Options, String> {
    let (mut prefix, mut destdir, mut libdir) = (None, None, "lib");
    let (mut only, mut profile) = (None, "release");
    let mut rest = arguments.iter();
    while let Some(&argument) = rest.next() {
        let mut value = || rest.next().copied().ok_or(format!("{argument} wants a value"));
        match argument {
            "--prefix" => prefix = Some(value()?),
            "--destdir" => destdir = Some(value()?),
            "--libdir" => libdir = value()?,
            "--only" => only = Some(value()?),
            "--debug" => profile = "debug",
            other => return Err(format!("unknown argument {other}")),
        }
    }
    let prefix = Path::new(prefix.ok_or("--prefix is missing")?);
    let below_root =
        prefix.strip_prefix("/").map_err(|_| "--prefix is to be an absolute path".to_owned())?;
    let libdir = PathBuf::from(libdir);
    if libdir.components().any(|part| !matches!(part, Component::Normal(_))) {
        return Err("--libdir is to be a path below the prefix".to_owned());
    }
    let root = destdir.map_or(prefix.to_path_buf(), |destdir| Path::new(destdir).join(below_root));
    let (shared, archive) = match only {
        None => (true, true),
        Some("shared") => (true, false),
        Some("static") => (false, true),
        Some(other) => return Err(format!("--only {other}: there is no such library")),
    };
    Ok(Options { root, libdir, shared, archive, profile })
}

fn fill(template: &str, options: &Options) -> String {
    let up = vec![".."; options.libdir.components().count()].join("/");
    let flags = SYSTEM_LIBRARIES.map(|name| format!("-l{name}")).join(" ");
    template
        .replace("@VERSION@", VERSION)
        .replace("@MAJOR@", MAJOR)
        .replace("@LIBDIR@", &options.libdir.to_string_lossy())
        .replace("@UP@", &up)
        .replace("@SYSTEM_FLAGS@", &flags)
        .replace("@SYSTEM_LIBRARIES@", &SYSTEM_LIBRARIES.join(";"))
}

fn make_folder_of(path: &Path) -> Result<(), String> {
    let folder = path.parent().unwrap_or(path);
    fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))
}

/// Replaces, never overwrites: a program may be running with the old library.
fn copy(from: &Path, to: &Path, mode: u32) -> Result<(), String> {
    make_folder_of(to)?;
    let _ = fs::remove_file(to);
    fs::copy(from, to)
        .and_then(|_| fs::set_permissions(to, fs::Permissions::from_mode(mode)))
        .map_err(|e| format!("{} to {}: {e}", from.display(), to.display()))?;
    println!("{}", to.display());
    Ok(())
}

fn link(to: &str, place: &Path) -> Result<(), String> {
    let _ = fs::remove_file(place);
    symlink(to, place).map_err(|e| format!("{}: {e}", place.display()))?;
    println!("{} -> {to}", place.display());
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    make_folder_of(path)?;
    fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()))?;
    println!("{}", path.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_staged_tree_is_below_destdir() {
        let options = parse(&["--prefix", "/usr", "--destdir", "/tmp/stage"]).unwrap();
        assert_eq!(options.root, Path::new("/tmp/stage/usr"));
        let options = parse(&["--prefix", "/opt/s", "--only", "static"]).unwrap();
        assert_eq!(options.root, Path::new("/opt/s"));
        assert!(options.archive && !options.shared);
    }

    #[test]
    fn the_packages_find_the_prefix_from_where_they_are() {
        let options = parse(&["--prefix", "/usr", "--libdir", "lib/multi"]).unwrap();
        assert!(fill(PC, &options).contains("prefix=${pcfiledir}/../../..\n"));
        assert!(fill(CONFIG, &options).contains("/../../../..\""));
        for template in [PC, CONFIG, CONFIG_VERSION] {
            assert!(!fill(template, &options).contains('@'));
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for bad in [
            &["--prefix", "relative"][..],
            &[],
            &["--prefix"],
            &["--prefix", "/usr", "--libdir", "../lib"],
            &["--prefix", "/usr", "--only", "both"],
            &["--prefix", "/usr", "--what"],
        ] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
    }
}
