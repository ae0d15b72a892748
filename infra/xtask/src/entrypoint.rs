//! `cargo xtask build entrypoint`: builds the static program that is copied into pods.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use object::elf::{DT_NEEDED, FileHeader64, PT_INTERP};
use object::read::elf::{Dyn as _, FileHeader as _, ProgramHeader as _};
use object::{Endianness, elf};

use crate::run::{cargo, folder, host, run};

/// The largest size, in bytes. Every pod copies the program at its start, within a second on a slow disk.
const MAX_SIZE: u64 = 3_000_000;

/// Builds the entrypoint and prints its path and size. Fails if it is not static or too large.
pub(crate) fn all() -> anyhow::Result<()> {
    let program = built()?;
    let bytes = fs::read(&program).with_context(|| program.display().to_string())?;
    let kind = check(&bytes).with_context(|| program.display().to_string())?;
    let size = bytes.len() as u64;
    println!("{}: {size} bytes, {kind}", program.display());
    if size > MAX_SIZE {
        bail!("the entrypoint has {size} bytes, more than {MAX_SIZE}");
    }
    Ok(())
}

/// Builds the entrypoint and returns its path.
pub(crate) fn built() -> anyhow::Result<PathBuf> {
    let target = host()?;
    // The target is the host's, so none has to be installed. With a named target, build scripts are compiled without
    // the flag.
    let flags = format!("CARGO_TARGET_{}_RUSTFLAGS", target.to_uppercase().replace('-', "_"));
    let options = ["build", "--quiet", "--package", "ebb-entrypoint", "--profile", "entrypoint", "--target", &target];
    run(cargo().args(options).env(flags, "-C target-feature=+crt-static").env_remove("RUSTFLAGS"))?;
    Ok(folder().join(&target).join("entrypoint/ebb-entrypoint"))
}

/// Returns a description of a static program. Fails if the program needs a loader or a library.
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
