//! Tools that checks need, in fixed versions.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, ensure};

use crate::run::{cargo, command, remove, retry, run, works};

/// The versions that the checks expect.
pub(crate) const CARGO_DENY: &str = "0.20.2";
pub(crate) const CARGO_MUTANTS: &str = "27.1.0";

/// Installs `program` unless it runs with the arguments `probe`. The build takes minutes, once per machine.
pub(crate) fn install(program: &str, probe: &[&str], version: &str, options: &[&str]) -> anyhow::Result<()> {
    if works(command(program).args(probe)) {
        return Ok(());
    }
    eprintln!("{program} is missing; building it takes some minutes");
    let mut command = cargo();
    // The command runs outside of the repository, so its target folder and settings do not apply.
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

/// Fills `folder` with `make`, unless it is complete for the versions in the file `pins`.
pub(crate) fn installed(pins: &Path, folder: &Path, make: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<()> {
    let expected = fs::read_to_string(pins).with_context(|| pins.display().to_string())?;
    let complete = folder.join("complete");
    if fs::read_to_string(&complete).is_ok_and(|found| found == expected) {
        return Ok(());
    }
    eprintln!("installing {} into {}", pins.display(), folder.display());
    let fill = || {
        // The folder may contain another version, or an incomplete one.
        remove(folder)?;
        fs::create_dir_all(folder)?;
        make()?;
        anyhow::Ok(fs::write(&complete, expected)?)
    };
    fill().with_context(|| format!("cannot install {}", pins.display()))
}

/// Installs the npm packages of `source/package-lock.json` in `folder`, and copies the programs of `source` there, because
/// a program finds its packages beside it.
pub(crate) fn node(source: &Path, folder: &Path) -> anyhow::Result<()> {
    ensure!(works(command("npm").arg("--version")), "npm is missing: install Node.js 20 or newer");
    let copy = || {
        for file in fs::read_dir(source)? {
            let file = file?;
            fs::copy(file.path(), folder.join(file.file_name()))?;
        }
        anyhow::Ok(())
    };
    installed(&source.join("package-lock.json"), folder, || {
        copy()?;
        // A package reports its installation in a script.
        let options = ["ci", "--ignore-scripts", "--no-audit", "--no-fund"];
        retry(command("npm").args(options).current_dir(folder)).context("npm needs its registry")
    })?;
    copy()
}

/// Packages of tests that run scripts.
pub(crate) const TEST_PACKAGES: &[&str] = &["curl", "busybox-static", "podman", "runc", "postgresql"];

/// Installs the missing Debian packages of `packages` with `infra/dev/setup.sh`.
pub(crate) fn packages(packages: &[&str]) -> anyhow::Result<()> {
    run(command("infra/dev/setup.sh").args(packages))
}
