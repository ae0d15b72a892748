//! Programs of cargo's that the checks need.

use crate::run::{cargo, command, run, works};

/// The versions that the checks were written for.
const CARGO_DENY: &str = "0.20.2";
const CARGO_MUTANTS: &str = "27.1.0";

/// Builds and installs cargo-deny when it is missing: some minutes, once per machine.
///
/// # Errors
/// When it cannot be built.
pub(crate) fn cargo_deny() -> anyhow::Result<()> {
    // Only the database of advisories needs its default features, and it is not asked.
    installed("cargo-deny", &["--version"], CARGO_DENY, &["--no-default-features"])
}

/// Builds and installs cargo-mutants when it is missing: some minutes, once per machine.
///
/// # Errors
/// When it cannot be built.
pub(crate) fn cargo_mutants() -> anyhow::Result<()> {
    installed("cargo-mutants", &["mutants", "--version"], CARGO_MUTANTS, &[])
}

/// Installs `program` unless it answers to `probe`.
fn installed(program: &str, probe: &[&str], version: &str, options: &[&str]) -> anyhow::Result<()> {
    if works(command(program).args(probe)) {
        return Ok(());
    }
    eprintln!("{program} is missing; building it takes some minutes");
    let mut install = cargo();
    // Outside of the repository, so that neither its target directory nor its settings play a part.
    install
        .args(["install", program, "--locked", "--version", version])
        .args(options)
        .current_dir(std::env::temp_dir())
        .env_remove("CARGO_TARGET_DIR")
        .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1")
        .env("CARGO_PROFILE_RELEASE_LTO", "off")
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16")
        .env("CARGO_PROFILE_RELEASE_DEBUG", "0");
    run(&mut install)
}
