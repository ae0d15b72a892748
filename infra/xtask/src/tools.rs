//! Programs of cargo's that the checks need.

use crate::run::{cargo, command, run, works};

/// The version that the checks were written for.
const CARGO_DENY: &str = "0.20.2";

/// Builds and installs cargo-deny when it is missing: some minutes, once per machine.
///
/// # Errors
/// When it cannot be built.
pub(crate) fn cargo_deny() -> anyhow::Result<()> {
    if works(command("cargo-deny").arg("--version")) {
        return Ok(());
    }
    eprintln!("cargo-deny is missing; building it takes some minutes");
    let mut install = cargo();
    // No default features: only the database of advisories needs them, and it is not asked. Outside of the
    // repository, so that neither its target directory nor its settings play a part.
    install
        .args(["install", "cargo-deny", "--locked", "--no-default-features", "--version", CARGO_DENY])
        .current_dir(std::env::temp_dir())
        .env_remove("CARGO_TARGET_DIR")
        .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1")
        .env("CARGO_PROFILE_RELEASE_LTO", "off")
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16")
        .env("CARGO_PROFILE_RELEASE_DEBUG", "0");
    run(&mut install)
}
