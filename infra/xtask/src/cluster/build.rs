//! Programs that Go builds from modules, with the versions and checksums of `infra/cluster/*/go.{mod,sum}`.

use std::path::PathBuf;

use clap::ValueEnum;

use super::folder::{self, name};
use crate::run::command;

/// Programs that are built together, from one folder of `infra/cluster`.
#[derive(Clone, Copy, ValueEnum)]
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
        folder::made(command(folder::sources().join("programs.sh")).arg(folder::cache()?).arg(name(self)))
    }
}
