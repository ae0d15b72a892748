//! `cargo xtask build images`: writes the images of the relay and the entrypoint as archives for container engines.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use crate::cluster::images::archive;
use crate::entrypoint;
use crate::run::{cargo, command, folder, remove, root, run};

/// The certificates with which programs verify servers.
const CERTIFICATES: &str = "/etc/ssl/certs/ca-certificates.crt";

#[derive(clap::Args)]
pub(crate) struct ImagesArgs {
    /// First part of the images' names
    #[arg(long, default_value = "ebb")]
    repository: String,
    /// Tag of the images' names
    #[arg(long, default_value = env!("CARGO_PKG_VERSION"))]
    tag: String,
    /// Folder of the archives; by default target/images
    #[arg(long)]
    to: Option<PathBuf>,
    /// Build only the image of this relay
    #[arg(long, value_name = "PROGRAM")]
    relay: Option<PathBuf>,
}

pub(crate) fn relay() -> anyhow::Result<PathBuf> {
    run(cargo().args(["build", "--quiet", "--release", "--package", "ebb-relay"]))?;
    Ok(folder().join("release/ebb-relay"))
}

/// Builds the programs and writes one archive each, in the format of `docker save`.
pub(crate) fn all(arguments: &ImagesArgs) -> anyhow::Result<()> {
    let to = arguments.to.clone().unwrap_or_else(|| folder().join("images"));
    fs::create_dir_all(&to).with_context(|| to.display().to_string())?;
    let images = match &arguments.relay {
        Some(program) => vec![("ebb-relay", program.clone())],
        None => vec![("ebb-relay", relay()?), ("ebb-entrypoint", entrypoint::built()?)],
    };
    for (name, program) in images {
        let layer = to.join(format!("{name}.layer"));
        let written = write_layer(&program, name, &layer).and_then(|()| {
            let image = format!("{}/{name}:{}", arguments.repository.trim_end_matches('/'), arguments.tag);
            let file = to.join(format!("{name}.tar"));
            archive(&image, &layer, &[format!("/{name}")], &file)?;
            println!("{}: {image}, {} bytes", file.display(), fs::metadata(&file)?.len());
            Ok(())
        });
        fs::remove_dir_all(&layer).ok();
        written?;
    }
    Ok(())
}

/// Writes a folder with the program and its libraries, and with certificates if the program is dynamic.
fn write_layer(program: &Path, name: &str, layer: &Path) -> anyhow::Result<()> {
    remove(layer)?;
    fs::create_dir_all(layer)?;
    let libraries = libraries(program)?;
    if !libraries.is_empty() && !Path::new(CERTIFICATES).is_file() {
        bail!("{CERTIFICATES} is missing: install ca-certificates");
    }
    // Static programs open no connections to servers outside of the cluster.
    let certificates = (!libraries.is_empty()).then(|| CERTIFICATES.to_owned());
    for file in libraries.into_iter().chain(certificates) {
        let copy = layer.join(file.trim_start_matches('/'));
        fs::create_dir_all(copy.parent().context("every file is in a folder")?)?;
        fs::copy(&file, copy).with_context(|| file.clone())?;
    }
    let copy = layer.join(name);
    fs::copy(root().join(program), &copy).with_context(|| program.display().to_string())?;
    // Without symbols, a development build shrinks to a tenth.
    run(command("strip").arg(copy))
}

fn libraries(program: &Path) -> anyhow::Result<Vec<String>> {
    // `ldd` fails for static programs.
    let output = command("ldd").arg(program).output().context("cannot start ldd")?;
    let output = String::from_utf8_lossy(&output.stdout).into_owned();
    if let Some(missing) = output.lines().find(|line| line.contains("not found")) {
        bail!("{}: {}", program.display(), missing.trim());
    }
    Ok(output.split_whitespace().filter(|word| word.starts_with('/')).map(str::to_owned).collect())
}
