//! `cargo xtask build images`: writes the images of the relay and the entrypoint as archives for container engines.

use std::fs;
use std::path::PathBuf;

use anyhow::Context as _;

use crate::cluster::images::{archive, script};
use crate::entrypoint;
use crate::run::{cargo, folder, run};

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
        let written = run(script("program").arg(program).arg(name).arg(&layer)).and_then(|()| {
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
