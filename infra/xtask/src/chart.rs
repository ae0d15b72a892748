//! `cargo xtask build chart`: renders the relay's manifests from its chart, for clusters without helm.

use std::fs;

use anyhow::{Context as _, bail};

use crate::cluster::BinarySet;
use crate::run::{command, output, root, run};

/// Arguments of helm, with placeholders for the values that `ebb cluster connect` sets.
const ARGUMENTS: [&str; 10] = [
    // A release of this name takes over the objects of the manifests.
    "ebb-relay",
    "--namespace=namespace-of-relay",
    "--set=unitNamespace=namespace-of-units",
    "--set=createNamespaces={namespace-of-relay,namespace-of-units}",
    "--set=image=image-of-relay",
    "--set=callbackHosts={host-of-control-plane:44443}",
    "--set=pull.url=https://api-of-control-plane:44444",
    "--set=pull.cluster=name-of-cluster",
    "--set=signing.secret=whsec_secret+of+relay",
    // The chart depends on the version of the cluster. Without a cluster, this version applies.
    "--kube-version=1.34.0",
];
const HEAD: &str = "\
# The manifests of a relay, rendered from its chart by `cargo xtask build chart`. `ebb cluster connect` prints them with values.
# To set the values by hand, replace name-of-cluster, namespace-of-relay, namespace-of-units, image-of-relay,
# host-of-control-plane and its port 44443, https://api-of-control-plane:44444 (empty for push transport) and its port 44444,
# and whsec_secret+of+relay (`whsec_` and 32 random bytes in base64).
";

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChartAction {
    Write,
    /// Fail if the file differs from the manifests.
    Compare,
}

/// Lints and renders the chart, and writes or compares `infra/relay/manifests.yaml`. Builds helm if it is missing.
pub(crate) fn all(action: ChartAction) -> anyhow::Result<()> {
    let (helm, chart) = (BinarySet::Helm.built()?.join("helm"), root().join("infra/relay/chart"));
    let described = fs::read_to_string(chart.join("Chart.yaml"))?;
    for key in ["version", "appVersion"] {
        let expected = format!("{key}: {}", env!("CARGO_PKG_VERSION"));
        if !described.lines().any(|line| line == expected) {
            bail!("Chart.yaml: expected the line `{expected}`");
        }
    }
    run(command(&helm).args(["lint", "--strict", "--quiet"]).arg(&chart).args(&ARGUMENTS[1..]))?;
    let mut template = command(&helm);
    template.arg("template").arg(ARGUMENTS[0]).arg(&chart).args(&ARGUMENTS[1..]);
    let rendered = format!("{HEAD}{}", output(&mut template)?);
    let path = root().join("infra/relay/manifests.yaml");
    match action {
        ChartAction::Write => fs::write(&path, rendered).with_context(|| format!("cannot write {}", path.display())),
        ChartAction::Compare if fs::read_to_string(&path).is_ok_and(|text| text == rendered) => Ok(()),
        ChartAction::Compare => {
            bail!("{} differs from the chart: run `cargo xtask build chart`", path.display())
        }
    }
}
