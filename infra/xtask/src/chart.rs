//! `cargo xtask build chart`: the plain manifests of the relay, rendered from its chart for clusters without helm.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, bail};

use crate::cluster::BinarySet;
use crate::run::{command, line, root, run};

/// What stands in the manifests where `ebb cluster connect` fills something in: the arguments of helm.
const PLACES: [&str; 10] = [
    "name-of-cluster",
    "--namespace=namespace-of-relay",
    "--set=unitNamespace=namespace-of-units",
    "--set=createNamespaces={namespace-of-relay,namespace-of-units}",
    "--set=image=image-of-relay",
    "--set=callbackHosts={host-of-control-plane:44443}",
    "--set=pull.url=https://api-of-control-plane:44444",
    "--set=pull.cluster=name-of-cluster",
    "--set=signing.secret=whsec_secret+of+relay",
    // The chart asks for what there is; nobody is asked here.
    "--kube-version=1.34.0",
];
const HEAD: &str = "\
# The relay of a cluster, as its chart renders it (`cargo xtask build chart`). `ebb cluster connect` prints this with everything
# filled in; to do it by hand, replace name-of-cluster, namespace-of-relay, namespace-of-units, image-of-relay,
# host-of-control-plane, its port 44443, https://api-of-control-plane:44444 (nothing, for the push transport) and its port, and whsec_secret+of+relay (`whsec_` and 32 random bytes in base64).
";

/// What is done with what was rendered.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChartAction {
    Write,
    /// The file has to be so already.
    Compare,
}

/// Lints the chart, renders it, and writes or compares `infra/relay/manifests.yaml`. Builds helm if there is none.
///
/// # Errors
/// When helm cannot be had or finds something wrong, and when the file is stale.
pub(crate) fn all(what: ChartAction) -> anyhow::Result<()> {
    let (helm, chart) = (BinarySet::Helm.built()?.join("helm"), root().join("infra/relay/chart"));
    let described = fs::read_to_string(chart.join("Chart.yaml"))?;
    for key in ["version", "appVersion"] {
        let expected = format!("{key}: {}", env!("CARGO_PKG_VERSION"));
        if !described.lines().any(|line| line == expected) {
            bail!("Chart.yaml does not say `{expected}`");
        }
    }
    run(command(&helm).args(["lint", "--strict", "--quiet"]).arg(&chart).args(&PLACES[1..]))?;
    let mut template = command(&helm);
    template.arg("template").arg(PLACES[0]).arg(&chart).args(&PLACES[1..]);
    let output = template.output().with_context(|| format!("cannot start {}", helm.display()))?;
    if !output.status.success() {
        bail!("`{}`: {}", line(&template), String::from_utf8_lossy(&output.stderr).trim());
    }
    let rendered = format!("{HEAD}{}", String::from_utf8(output.stdout)?);
    let path = manifests();
    match what {
        ChartAction::Write => fs::write(&path, rendered).with_context(|| format!("cannot write {}", path.display())),
        ChartAction::Compare if fs::read_to_string(&path).is_ok_and(|text| text == rendered) => Ok(()),
        ChartAction::Compare => {
            bail!("{} is not what the chart renders: `cargo xtask build chart`", path.display())
        }
    }
}

fn manifests() -> PathBuf {
    root().join("infra/relay/manifests.yaml")
}
