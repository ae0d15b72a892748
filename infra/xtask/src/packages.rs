//! Debian packages that parts of `cargo xtask verify` need.

use crate::run::{command, run};

/// Packages of tests that run scripts.
pub(crate) const OF_TESTS: &[&str] = &["curl", "busybox-static", "podman", "runc", "postgresql"];

/// Packages of the cluster, in addition to programs that Go builds.
pub(crate) const OF_CLUSTER: &[&str] =
    &["busybox-static", "containerd", "containernetworking-plugins", "debootstrap", "iproute2", "nftables", "runc"];

/// Installs the missing ones of `packages` with `infra/dev/setup.sh`.
pub(crate) fn install(packages: &[&str]) -> anyhow::Result<()> {
    run(command("infra/dev/setup.sh").args(packages))
}
