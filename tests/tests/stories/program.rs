//! The programs under test: `ebb` and `ebb-relay`, as cargo has built them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::SystemTime;

/// Whoever has just built them beside the tests says so by this variable.
const IS_BUILT: &str = "EBB_IS_BUILT";

/// Where `ebb` is. `cargo test --workspace` has built it beside the tests, and `cargo xtask test` says so; whoever runs
/// only this crate's tests gets it built here when it is missing or older than its sources.
pub(crate) fn ebb() -> &'static Path {
    static EBB: OnceLock<PathBuf> = OnceLock::new();
    EBB.get_or_init(|| built("ebb"))
}

/// Where the relay of a cluster is, likewise.
pub(crate) fn relay() -> &'static Path {
    static RELAY: OnceLock<PathBuf> = OnceLock::new();
    RELAY.get_or_init(|| built("ebb-relay"))
}

/// The program of a package, which has the same name.
fn built(name: &str) -> PathBuf {
    // TARGET/PROFILE/deps/stories-HASH
    let own = std::env::current_exe().unwrap();
    let folder = own.parent().and_then(Path::parent).unwrap();
    let program = folder.join(name);
    if std::env::var_os(IS_BUILT).is_none() && !is_fresh(&program) {
        build(name, folder);
    }
    assert!(program.is_file(), "cargo has built {name}, but not as {}", program.display());
    program
}

/// The runner as it is shipped: built here, so that it is never an old one.
pub(crate) fn runner() -> &'static Path {
    static RUNNER: OnceLock<PathBuf> = OnceLock::new();
    RUNNER.get_or_init(|| {
        let mut cargo = Command::new(env!("CARGO"));
        let built = cargo.args(["xtask", "runner"]).current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
        let said = String::from_utf8(built.stdout).unwrap();
        assert!(built.status.success(), "{said}{}", String::from_utf8_lossy(&built.stderr));
        PathBuf::from(said.split_once(": ").expect("the path comes first").0)
    })
}

/// Whether no source that cargo has noted beside the program is newer than it.
fn is_fresh(program: &Path) -> bool {
    let changed = |path: &Path| fs::metadata(path).and_then(|file| file.modified()).ok();
    let (Some(built), Ok(noted)) = (changed(program), fs::read_to_string(program.with_extension("d"))) else {
        return false;
    };
    let sources = noted.split_once(": ").map_or("", |(_, sources)| sources);
    let older = |source: &str| changed(Path::new(source)).is_some_and(|time: SystemTime| time <= built);
    sources.split_whitespace().all(older)
}

fn build(name: &str, folder: &Path) {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--package", name, "--bin", name]).current_dir(env!("CARGO_MANIFEST_DIR"));
    cargo.arg("--target-dir").arg(folder.parent().unwrap());
    if folder.file_name().is_some_and(|name| name == "release") {
        cargo.arg("--release");
    }
    let status = cargo.status().unwrap();
    assert!(status.success(), "`cargo build --package {name}` failed: {status}");
}
