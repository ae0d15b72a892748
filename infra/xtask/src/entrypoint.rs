//! `cargo xtask build entrypoint`: the program that is copied into pods, static and small.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use object::elf::{DT_NEEDED, FileHeader64, PT_INTERP};
use object::read::elf::{Dyn as _, FileHeader as _, ProgramHeader as _};
use object::{Endianness, elf};

use crate::run::{cargo, command, folder, run};

/// Every pod copies it before it starts: less than a second, even on a slow disk.
const LARGEST: u64 = 3_000_000;

/// Builds the entrypoint and prints its path, its size, and that it needs nothing of an image.
///
/// # Errors
/// When it does not compile, needs a loader or a library, or is too large.
pub(crate) fn all() -> anyhow::Result<()> {
    let program = built()?;
    let bytes = fs::read(&program).with_context(|| program.display().to_string())?;
    let kind = check(&bytes).with_context(|| program.display().to_string())?;
    let size = bytes.len() as u64;
    println!("{}: {size} bytes, {kind}", program.display());
    if size > LARGEST {
        bail!("the entrypoint has {size} bytes; {LARGEST} is the limit");
    }
    Ok(())
}

/// Builds the entrypoint and returns its path.
///
/// # Errors
/// When it does not compile.
pub(crate) fn built() -> anyhow::Result<PathBuf> {
    let target = host()?;
    // Of glibc, so that no target has to be installed. A named target keeps the flag away from what runs at compile time.
    let flags = format!("CARGO_TARGET_{}_RUSTFLAGS", target.to_uppercase().replace('-', "_"));
    let options = ["build", "--quiet", "--package", "ebb-entrypoint", "--profile", "entrypoint", "--target", &target];
    run(cargo().args(options).env(flags, "-C target-feature=+crt-static").env_remove("RUSTFLAGS"))?;
    Ok(folder().join(&target).join("entrypoint/ebb-entrypoint"))
}

/// The platform that we build on and for.
fn host() -> anyhow::Result<String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = command(rustc).arg("-vV").output().context("cannot start rustc")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).context("rustc does not say for which platform it builds")
}

/// Says what kind of program it is.
///
/// # Errors
/// When the kernel alone cannot start it.
fn check(bytes: &[u8]) -> anyhow::Result<&'static str> {
    let header = FileHeader64::<Endianness>::parse(bytes)?;
    let endian = header.endian()?;
    let parts = header.program_headers(endian, bytes)?;
    if parts.iter().any(|part| part.p_type(endian) == PT_INTERP) {
        bail!("it is not static: it names a loader (PT_INTERP)");
    }
    for part in parts {
        let entries = part.dynamic(endian, bytes)?.unwrap_or_default();
        if entries.iter().any(|entry| entry.tag32(endian) == Some(DT_NEEDED)) {
            bail!("it is not static: it names libraries (DT_NEEDED)");
        }
    }
    Ok(match header.e_type(endian) {
        elf::ET_DYN => "static-pie, no PT_INTERP, no DT_NEEDED",
        _ => "static, no PT_INTERP, no DT_NEEDED",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_with_a_loader_is_noticed() {
        let ours = fs::read("/proc/self/exe").unwrap();
        assert!(check(&ours).unwrap_err().to_string().contains("PT_INTERP"));
        assert!(check(b"#!/bin/sh").is_err());
    }
}
