//! `cargo xtask build images`: the images of the relay and of the entrypoint, as archives that every container engine loads.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use crate::cluster::images::archive;
use crate::entrypoint;
use crate::run::{cargo, command, folder, root, run};

/// Who verifies the control plane's certificate looks here.
const CERTIFICATES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// What is made.
#[derive(clap::Args)]
pub(crate) struct ImagesArgs {
    /// What the images' names begin with
    #[arg(long, default_value = "ebb")]
    repository: String,
    /// What they end with
    #[arg(long, default_value = env!("CARGO_PKG_VERSION"))]
    tag: String,
    /// The folder of the archives; without it target/images
    #[arg(long)]
    to: Option<PathBuf>,
    /// A relay that is built already, instead of a release build
    #[arg(long, value_name = "PROGRAM")]
    relay: Option<PathBuf>,
    /// The relay's image alone
    #[arg(long)]
    only_relay: bool,
}

/// Builds the relay as it is shipped. Gives where it is.
///
/// # Errors
/// When it does not compile.
pub(crate) fn relay() -> anyhow::Result<PathBuf> {
    run(cargo().args(["build", "--quiet", "--release", "--package", "ebb-relay"]))?;
    Ok(folder().join("release/ebb-relay"))
}

/// Builds both programs and writes an archive for each, as `docker save` does. Prints where they are.
///
/// # Errors
/// When one does not compile, or something of this machine that belongs into an image is missing.
pub(crate) fn all(arguments: &ImagesArgs) -> anyhow::Result<()> {
    let to = arguments.to.clone().unwrap_or_else(|| folder().join("images"));
    fs::create_dir_all(&to).with_context(|| to.display().to_string())?;
    let relay = match &arguments.relay {
        Some(program) => program.clone(),
        None => relay()?,
    };
    let mut images = vec![("ebb-relay", relay)];
    if !arguments.only_relay {
        images.push(("ebb-entrypoint", entrypoint::built()?));
    }
    for (name, program) in images {
        let layer = to.join(format!("{name}.layer"));
        let made = lay_out(&program, name, &layer).and_then(|()| {
            let (image, file) = (named(arguments, name), to.join(format!("{name}.tar")));
            archive(&image, &layer, &[format!("/{name}")], &file)?;
            println!("{}: {image}, {} bytes", file.display(), fs::metadata(&file)?.len());
            Ok(())
        });
        fs::remove_dir_all(&layer).ok();
        made?;
    }
    Ok(())
}

fn named(arguments: &ImagesArgs, name: &str) -> String {
    format!("{}/{name}:{}", arguments.repository.trim_end_matches('/'), arguments.tag)
}

/// A folder with the program, the libraries that it is linked with, and, where it has any, CA certificates.
fn lay_out(program: &Path, name: &str, layer: &Path) -> anyhow::Result<()> {
    if layer.exists() {
        fs::remove_dir_all(layer)?;
    }
    fs::create_dir_all(layer)?;
    let libraries = libraries(program)?;
    if !libraries.is_empty() && !Path::new(CERTIFICATES).is_file() {
        bail!("{CERTIFICATES} is missing: install ca-certificates");
    }
    // What is static speaks to nobody outside of the cluster.
    let certificates = (!libraries.is_empty()).then(|| CERTIFICATES.to_owned());
    for file in libraries.into_iter().chain(certificates) {
        let copy = layer.join(file.trim_start_matches('/'));
        fs::create_dir_all(copy.parent().context("every file is in a folder")?)?;
        fs::copy(&file, copy).with_context(|| file.clone())?;
    }
    let copy = layer.join(name);
    fs::copy(root().join(program), &copy).with_context(|| program.display().to_string())?;
    // A development build is ten times as large with what only a debugger reads.
    run(command("strip").arg(copy))
}

fn libraries(program: &Path) -> anyhow::Result<Vec<String>> {
    let said = command("ldd").arg(program).output().context("cannot start ldd")?;
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    if let Some(missing) = said.lines().find(|line| line.contains("not found")) {
        bail!("{}: {}", program.display(), missing.trim());
    }
    Ok(said.split_whitespace().filter(|word| word.starts_with('/')).map(str::to_owned).collect())
}
