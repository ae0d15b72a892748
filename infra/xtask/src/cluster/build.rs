//! Programs that Go builds from modules, with the versions and checksums of `infra/cluster/*/go.{mod,sum}`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;
use clap::ValueEnum;
use sha2::{Digest as _, Sha256};

use super::folder::{self, name};
use crate::run::{command, output, retry, run};

/// Programs that are built together, from one folder of `infra/cluster`.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum BinarySet {
    /// kube-apiserver, kube-controller-manager, kube-scheduler, kubelet, kube-proxy, kubectl.
    Kubernetes,
    /// etcd. Its program is called `server`.
    Etcd,
    /// The container that holds the namespaces of a pod.
    Pause,
    Helm,
    /// The `controller` of kro and its definitions, `crds`.
    Kro,
    /// OpenTofu. Its program is called `tofu`.
    Opentofu,
}

impl BinarySet {
    /// Returns the folder of the programs. Builds them unless the cache has them from the same sources and Go version.
    pub(crate) fn built(self) -> anyhow::Result<PathBuf> {
        let name = name(self);
        let sources = folder::sources().join(&name);
        let version = go_version()?;
        let mut files: Vec<PathBuf> = fs::read_dir(&sources)
            .and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect())
            .with_context(|| format!("cannot list {}", sources.display()))?;
        files.sort();
        let mut parts = vec![version.clone().into_bytes()];
        for file in &files {
            parts.push(fs::read(file).with_context(|| format!("cannot read {}", file.display()))?);
        }
        folder::cached(&format!("{name}-{}", digest(&parts)), |made| {
            eprintln!("building {name} with {version}");
            fs::create_dir_all(made).with_context(|| format!("cannot make {}", made.display()))?;
            let package = if sources.join("main.go").exists() { "." } else { "tool" };
            let fetch = ["list", "-mod=readonly", "-deps", "-f", "{{if .Error}}{{.Error}}{{end}}"];
            retry(go(&sources).args(fetch).arg(package)).context("Go needs a module proxy")?;
            let mut build = go(&sources);
            build.args(["build", "-mod=readonly", "-trimpath", "-ldflags", &self.linker_flags(&sources)?, "-o"]);
            run(build.arg(made.join("")).arg(package))?;
            if self == Self::Kro { definitions(&sources, &made.join("crds")) } else { Ok(()) }
        })
    }

    /// Returns the flags of the linker. They set versions, which servers and clients of Kubernetes compare.
    fn linker_flags(self, sources: &Path) -> anyhow::Result<String> {
        let mut flags = "-s -w".to_owned();
        if self == Self::Kubernetes {
            let version = required_version(sources, "k8s.io/kubernetes")?;
            flags += &format!(" -X k8s.io/component-base/version.gitVersion=v{version}");
        }
        Ok(flags)
    }
}

/// Returns the version of a module that `go.mod` requires, without its `v`.
fn required_version(sources: &Path, module: &str) -> anyhow::Result<String> {
    let modules = fs::read_to_string(sources.join("go.mod"))?;
    let mut lines = modules.lines().map(|line| line.trim().trim_start_matches("require "));
    let version = lines.find_map(|line| line.strip_prefix(module)?.strip_prefix(" v")?.split(' ').next());
    version.map(str::to_owned).with_context(|| format!("go.mod requires no {module}"))
}

fn definitions(sources: &Path, to: &Path) -> anyhow::Result<()> {
    let module = output(go(sources).args(["list", "-m", "-f", "{{.Dir}}", "github.com/kubernetes-sigs/kro"]))?;
    run(command("cp").arg("--recursive").arg(Path::new(module.trim()).join("helm/crds")).arg(to))
}

/// Returns `go` in `folder`, at low priority. Without cgo, its programs run in any image.
fn go(folder: &Path) -> Command {
    let mut go = command("nice");
    go.args(["-n", "10", "go"]).current_dir(folder).env("CGO_ENABLED", "0").env("GOFLAGS", "-buildvcs=false");
    go
}

/// Returns the version of Go, which is part of the digest of programs.
pub(crate) fn go_version() -> anyhow::Result<String> {
    // The module there requires the newest version, so a Go that downloads toolchains selects this version.
    let version = output(command("go").current_dir(folder::sources().join("kubernetes")).args(["env", "GOVERSION"]));
    let version = version.context("Kubernetes is built with Go: install Go 1.26 (https://go.dev/dl)")?;
    Ok(version.trim().to_owned())
}

/// Returns 16 hexadecimal digits of a SHA-256 over the parts and their lengths.
pub(crate) fn digest(parts: &[impl AsRef<[u8]>]) -> String {
    let mut all = Sha256::new();
    for part in parts {
        all.update((part.as_ref().len() as u64).to_be_bytes());
        all.update(part);
    }
    all.finalize()[..8].iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::digest;

    #[test]
    fn a_digest_depends_on_each_part_and_its_length() {
        let digests = [&["ab", "c"][..], &["a", "bc"], &["ab"], &["ab", "d"]].map(digest);
        assert!(digests.iter().all(|digest| digest.len() == 16), "{digests:?}");
        for (index, one) in digests.iter().enumerate() {
            assert!(!digests[index + 1..].contains(one), "{digests:?}");
        }
    }
}
