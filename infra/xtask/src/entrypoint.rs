//! `cargo xtask build entrypoint`: builds the static program that is copied into pods.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};

use crate::run::{cargo, command, folder, host, output, run};

/// The maximum size, in bytes. Every pod copies the program at its start, within a second on a slow disk.
const MAX_SIZE: u64 = 3_000_000;

/// Builds the entrypoint and prints its path and size. Fails if it is not static or too large.
pub(crate) fn all() -> anyhow::Result<()> {
    let program = built()?;
    check(&program)?;
    let size = fs::metadata(&program).with_context(|| program.display().to_string())?.len();
    println!("{}: {size} bytes, static", program.display());
    ensure!(size <= MAX_SIZE, "the entrypoint has {size} bytes, more than {MAX_SIZE}");
    Ok(())
}

pub(crate) fn built() -> anyhow::Result<PathBuf> {
    let target = host()?;
    // The target is that of the host, so no other target has to be installed. With a named target, build scripts are
    // compiled without the flag.
    let flags = format!("CARGO_TARGET_{}_RUSTFLAGS", target.to_uppercase().replace('-', "_"));
    let options = ["build", "--quiet", "--package", "ebb-entrypoint", "--profile", "entrypoint", "--target", &target];
    run(cargo().args(options).env(flags, "-C target-feature=+crt-static").env_remove("RUSTFLAGS"))?;
    Ok(folder().join(&target).join("entrypoint/ebb-entrypoint"))
}

fn check(program: &Path) -> anyhow::Result<()> {
    let headers = output(command("readelf").args(["--program-headers", "--dynamic", "--wide"]).arg(program))?;
    for (part, what) in [(" INTERP ", "a loader (PT_INTERP)"), ("(NEEDED)", "libraries (DT_NEEDED)")] {
        ensure!(!headers.contains(part), "{} is not static: it names {what}", program.display());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_with_a_loader_is_rejected() {
        assert!(check(&std::env::current_exe().unwrap()).unwrap_err().to_string().contains("PT_INTERP"));
        assert!(check(Path::new("Cargo.toml")).is_err());
    }
}
