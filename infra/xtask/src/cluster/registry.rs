//! `cargo xtask cluster registry`: images in place of those that Signadot's plugins name, as the files of a registry.
//!
//! Nothing is pulled from outside of this machine. A test serves the files, and containerd pulls from it.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use anyhow::Context as _;
use serde_json::{Value, json};

use super::build::BinarySet;
use super::folder;
use super::images::{config, debian, digest_of, pack};
use crate::run::{command, remove, run};

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";

/// Writes the images to a folder that is empty or missing. The paths below it are those of requests to a registry.
pub(crate) fn write(to: &Path) -> anyhow::Result<()> {
    let blobs = to.join("blobs");
    fs::create_dir_all(&blobs).with_context(|| format!("cannot make {}", blobs.display()))?;
    let to = fs::canonicalize(to)?;
    let layer = to.join("layer.tar");
    let mut extract = command("tar");
    extract.arg("--extract").arg("--file").arg(debian()?).arg("--directory").arg(&to);
    run(extract.arg("layer.tar"))?;
    let system = blob(&to, &layer, LAYER)?;
    pack(&folder::sources().join("stand-ins/aws-cli"), &layer)?;
    let aws = blob(&to, &layer, LAYER)?;
    let root = to.join("terraform");
    let programs = root.join("usr/local/bin");
    fs::create_dir_all(&programs)?;
    fs::copy(BinarySet::Opentofu.built()?.join("tofu"), programs.join("terraform"))?;
    pack(&root, &layer)?;
    remove(&root)?;
    let terraform = blob(&to, &layer, LAYER)?;
    image(&to, "library/ubuntu", "latest", &[&system])?;
    image(&to, "library/python", "3", &[&system])?;
    image(&to, "amazon/aws-cli", "latest", &[&system, &aws])?;
    image(&to, "hashicorp/terraform", "1.4.2", &[&system, &terraform])
}

/// Moves a file to the blobs. Returns its descriptor.
fn blob(to: &Path, file: &Path, media_type: &str) -> anyhow::Result<Value> {
    let (digest, size) = (digest_of(file)?, fs::metadata(file)?.len());
    fs::rename(file, to.join("blobs").join(&digest))?;
    Ok(json!({ "mediaType": media_type, "digest": digest, "size": size }))
}

/// Writes the manifest of an image, by tag and by digest.
fn image(to: &Path, name: &str, tag: &str, layers: &[&Value]) -> anyhow::Result<()> {
    let digests: Vec<_> = layers.iter().filter_map(|layer| Some(layer["digest"].as_str()?.to_owned())).collect();
    let file = to.join("config.json");
    folder::write(&file, &config(&[], &digests).to_string())?;
    let config = blob(to, &file, CONFIG)?;
    let manifest = json!({ "schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": layers });
    let repository = to.join("v2").join(name);
    let file = repository.join("manifests").join(tag);
    folder::write(&file, &manifest.to_string())?;
    symlink(tag, file.with_file_name(digest_of(&file)?))?;
    Ok(symlink(to.join("blobs"), repository.join("blobs"))?)
}
