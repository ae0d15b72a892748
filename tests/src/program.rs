//! The built programs `ebb`, `ebb-relay` and the entrypoint.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Returns the path of `ebb`. `cargo xtask verify` builds it first.
pub fn ebb() -> &'static Path {
    static EBB: OnceLock<PathBuf> = OnceLock::new();
    EBB.get_or_init(|| built("ebb"))
}

/// Returns the path of the relay. `cargo xtask verify` builds it first.
pub fn relay() -> &'static Path {
    static RELAY: OnceLock<PathBuf> = OnceLock::new();
    RELAY.get_or_init(|| built("ebb-relay"))
}

fn built(name: &str) -> PathBuf {
    // This executable is a program in TARGET/PROFILE or a test in TARGET/PROFILE/deps.
    let own = std::env::current_exe().unwrap();
    let found = own.ancestors().skip(1).take(2).map(|folder| folder.join(name)).find(|program| program.is_file());
    found.unwrap_or_else(|| panic!("{name} does not exist: run `cargo build -p {name}`"))
}

/// Returns addresses that no process uses. All are bound at the same time, so they differ.
pub fn free_addresses<const N: usize>() -> [SocketAddr; N] {
    let listeners = [(); N].map(|()| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
    listeners.map(|listener| listener.local_addr().unwrap())
}

/// Builds the entrypoint like a release and returns its path.
pub fn entrypoint() -> &'static Path {
    static ENTRYPOINT: OnceLock<PathBuf> = OnceLock::new();
    ENTRYPOINT.get_or_init(|| {
        let mut cargo = Command::new(env!("CARGO"));
        let built =
            cargo.args(["xtask", "build", "entrypoint"]).current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
        let printed = String::from_utf8(built.stdout).unwrap();
        assert!(built.status.success(), "{printed}{}", String::from_utf8_lossy(&built.stderr));
        PathBuf::from(printed.split_once(": ").expect("the output begins with the path").0)
    })
}
