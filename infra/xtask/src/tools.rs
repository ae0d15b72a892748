//! Subcommands of cargo that checks need.

use crate::run::{cargo, command, run, works};

/// The versions that the checks expect.
const CARGO_DENY: &str = "0.20.2";
const CARGO_MUTANTS: &str = "27.1.0";

/// Installs cargo-deny if it is missing. The build takes minutes, once per machine.
pub(crate) fn cargo_deny() -> anyhow::Result<()> {
    // The default features serve the database of advisories, which is not used.
    install("cargo-deny", &["--version"], CARGO_DENY, &["--no-default-features"])
}

/// Installs cargo-mutants if it is missing. The build takes minutes, once per machine.
pub(crate) fn cargo_mutants() -> anyhow::Result<()> {
    install("cargo-mutants", &["mutants", "--version"], CARGO_MUTANTS, &[])
}

/// Installs `program` unless it runs with the arguments `probe`.
fn install(program: &str, probe: &[&str], version: &str, options: &[&str]) -> anyhow::Result<()> {
    if works(command(program).args(probe)) {
        return Ok(());
    }
    eprintln!("{program} is missing; building it takes some minutes");
    let mut command = cargo();
    // Outside of the repository, its target folder and settings do not apply.
    command
        .args(["install", program, "--locked", "--version", version])
        .args(options)
        .current_dir(std::env::temp_dir())
        .env_remove("CARGO_TARGET_DIR")
        .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1")
        .env("CARGO_PROFILE_RELEASE_LTO", "off")
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16")
        .env("CARGO_PROFILE_RELEASE_DEBUG", "0");
    run(&mut command)
}
