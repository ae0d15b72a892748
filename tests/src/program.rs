//! The programs under test: `ebb` and `ebb-relay`, as cargo has built them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Returns the path of `ebb`, beside this program. `cargo xtask verify` builds it first.
pub fn ebb() -> &'static Path {
    static EBB: OnceLock<PathBuf> = OnceLock::new();
    EBB.get_or_init(|| built("ebb"))
}

/// Returns the path of the relay, likewise.
pub fn relay() -> &'static Path {
    static RELAY: OnceLock<PathBuf> = OnceLock::new();
    RELAY.get_or_init(|| built("ebb-relay"))
}

/// Returns the program of a package, which has the same name.
fn built(name: &str) -> PathBuf {
    // Of a program in TARGET/PROFILE, or a test in TARGET/PROFILE/deps.
    let own = std::env::current_exe().unwrap();
    let found = own.ancestors().skip(1).take(2).map(|folder| folder.join(name)).find(|program| program.is_file());
    found.unwrap_or_else(|| panic!("{name} does not exist: run `cargo build -p {name}`"))
}

/// Returns the entrypoint as it is shipped. It is built here, so that it is never stale.
pub fn entrypoint() -> &'static Path {
    static ENTRYPOINT: OnceLock<PathBuf> = OnceLock::new();
    ENTRYPOINT.get_or_init(|| {
        let mut cargo = Command::new(env!("CARGO"));
        let built =
            cargo.args(["xtask", "build", "entrypoint"]).current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
        let said = String::from_utf8(built.stdout).unwrap();
        assert!(built.status.success(), "{said}{}", String::from_utf8_lossy(&built.stderr));
        PathBuf::from(said.split_once(": ").expect("the path comes first").0)
    })
}
