//! Checks of the relay's chart by helm.

use std::fs;

use anyhow::bail;

use crate::cluster::programs;
use crate::run::{command, root, run};

/// Lints the chart, and compares its versions with that of the workspace. Builds helm if it is missing.
pub(crate) fn check() -> anyhow::Result<()> {
    let (helm, chart) = (programs("helm")?.join("helm"), root().join("infra/relay/chart"));
    let described = fs::read_to_string(chart.join("Chart.yaml"))?;
    for key in ["version", "appVersion"] {
        let expected = format!("{key}: {}", env!("CARGO_PKG_VERSION"));
        if !described.lines().any(|line| line == expected) {
            bail!("Chart.yaml: expected the line `{expected}`");
        }
    }
    let required = ["--set=image=i", "--set=callbackHosts={h}", "--set=pull.url=https://h", "--set=pull.cluster=c"];
    run(command(&helm).args(["lint", "--strict", "--quiet", "--kube-version=1.34.0"]).arg(&chart).args(required))
}
