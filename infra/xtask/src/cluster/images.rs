//! Images without a registry: archives with one layer, written from folders and imported into containerd.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::Context as _;
use serde_json::{Value, json};

use super::build::{BinarySet, digest};
use super::folder;
use super::netns::ClusterNetns;
use super::servers::CONTAINERD;
use crate::run::{command, output, remove, retry, run};

pub(crate) const PAUSE: &str = "ebb.test/pause:1";
/// A shell and the tools of busybox.
pub(crate) const BUSYBOX: &str = "ebb.test/busybox:1";
pub(crate) const DEBIAN: &str = "ebb.test/debian:1";

const DEBOOTSTRAP: [&str; 3] =
    ["--variant=minbase", "--include=ca-certificates,curl,jq,postgresql-client,python3", "bookworm"];

/// Returns the archive of Debian's image. debootstrap creates it once.
pub(crate) fn debian() -> anyhow::Result<PathBuf> {
    folder::cached(&format!("debian-{}.tar", digest(&DEBOOTSTRAP)), |made| {
        eprintln!("building an image of Debian with debootstrap");
        let root = made.with_extension("root");
        // An attempt that fails leaves a part of the folder.
        let bootstrap = "rm --recursive --force \"$1\"; exec debootstrap \"${@:2}\" \"$1\"";
        let mut bash = command("bash");
        let began = retry(bash.args(["-c", bootstrap, "bash"]).arg(&root).args(DEBOOTSTRAP).stdout(Stdio::null()));
        let archived = began.and_then(|()| {
            // Archives of installed packages, and files that are not used in an image without network.
            for unused in ["var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/locale"] {
                remove(&root.join(unused))?;
            }
            archive(DEBIAN, &root, &[], made)
        });
        remove(&root)?;
        archived
    })
}

pub(crate) fn import_all(netns: &ClusterNetns) -> anyhow::Result<()> {
    let present = ctr(netns, &["images", "list", "--quiet"])?;
    let missing = |name: &str| !present.lines().any(|line| line == name);
    let folder = folder::state().join("images");
    if missing(PAUSE) {
        let root = folder.join("pause");
        fs::create_dir_all(&root)?;
        fs::copy(BinarySet::Pause.built()?.join("pause"), root.join("pause"))?;
        import(netns, PAUSE, &root, &["/pause".to_owned()])?;
    }
    if missing(BUSYBOX) {
        let root = folder.join("busybox");
        busybox(&root)?;
        import(netns, BUSYBOX, &root, &[])?;
    }
    if missing(DEBIAN) {
        import(netns, DEBIAN, &debian()?, &[])?;
    }
    remove(&folder)
}

/// Imports an image. `from` is an archive, or a folder that becomes the only layer of `name`.
pub(crate) fn import(netns: &ClusterNetns, name: &str, from: &Path, entrypoint: &[String]) -> anyhow::Result<()> {
    let from = fs::canonicalize(from).with_context(|| format!("cannot find {}", from.display()))?;
    if !from.is_dir() {
        return ctr(netns, &["images", "import", &from.display().to_string()]).map(drop);
    }
    let made = folder::state().join(format!("import-{}.tar", std::process::id()));
    let imported = archive(name, &from, entrypoint, &made)
        .and_then(|()| ctr(netns, &["images", "import", &made.display().to_string()]));
    remove(&made)?;
    imported.map(drop)
}

fn ctr(netns: &ClusterNetns, arguments: &[&str]) -> anyhow::Result<String> {
    output(netns.command("ctr").args(["--address", CONTAINERD, "--namespace", "k8s.io"]).args(arguments))
}

/// Writes a folder with Debian's static busybox and links for all of its tools.
fn busybox(root: &Path) -> anyhow::Result<()> {
    let program = Path::new("/bin/busybox");
    let names = output(command(program).arg("--list"))?;
    fs::create_dir_all(root.join("bin"))?;
    fs::create_dir_all(root.join("tmp"))?;
    fs::set_permissions(root.join("tmp"), fs::Permissions::from_mode(0o1777))?;
    fs::copy(program, root.join("bin/busybox"))?;
    for name in names.lines().filter(|name| *name != "busybox") {
        symlink("busybox", root.join("bin").join(name))?;
    }
    Ok(())
}

/// Writes the content of a folder as a layer.
pub(crate) fn pack(root: &Path, layer: &Path) -> anyhow::Result<()> {
    let create = ["--create", "--numeric-owner", "--file"];
    run(command("tar").args(create).arg(layer).arg("--directory").arg(root).arg("."))
}

/// Returns the digest of a file, as manifests have it.
pub(crate) fn digest_of(file: &Path) -> anyhow::Result<String> {
    let sum = output(command("sha256sum").arg(file))?;
    Ok(format!("sha256:{}", sum.split(' ').next().context("sha256sum prints the digest first")?))
}

/// Returns the configuration of an image whose layers have these digests.
pub(crate) fn config(entrypoint: &[String], layers: &[String]) -> Value {
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    json!({
        "architecture": architecture,
        "os": "linux",
        "config": {
            "Entrypoint": entrypoint,
            "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
        },
        "rootfs": { "type": "layers", "diff_ids": layers },
        "history": vec![json!({}); layers.len()],
    })
}

/// Writes an archive, in the format of `docker save`, of an image with one layer: the folder `root`.
pub(crate) fn archive(name: &str, root: &Path, entrypoint: &[String], to: &Path) -> anyhow::Result<()> {
    let parts = to.with_extension("parts");
    remove(&parts)?;
    fs::create_dir_all(&parts)?;
    let layer = parts.join("layer.tar");
    pack(root, &layer)?;
    let config = config(entrypoint, &[digest_of(&layer)?]);
    let manifest = json!([{ "Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"] }]);
    folder::write(&parts.join("config.json"), &config.to_string())?;
    folder::write(&parts.join("manifest.json"), &manifest.to_string())?;
    let mut whole = command("tar");
    whole.arg("--create").arg("--file").arg(to).arg("--directory").arg(&parts);
    run(whole.args(["manifest.json", "config.json", "layer.tar"]))?;
    remove(&parts)
}
