//! `cargo xtask build chart`: renders the relay's manifests from its chart, for clusters without helm.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::{fs, iter};

use anyhow::{Context as _, bail};
use serde_json::Value;

use crate::cluster::BinarySet;
use crate::run::{command, output, root, run};

/// A release of this name takes over the objects of the manifests.
const RELEASE: &str = "ebb-relay";
/// The chart depends on the version of the cluster. Without a cluster, this version applies.
const VERSION: &str = "--kube-version=1.34.0";
/// Arguments of helm, with placeholders for the values that `ebb cluster connect` sets.
const ARGUMENTS: [&str; 9] = [
    "--namespace=namespace-of-relay",
    "--set=unitNamespace=namespace-of-units",
    "--set=createNamespaces={namespace-of-relay,namespace-of-units}",
    "--set=image=image-of-relay",
    "--set=callbackHosts={host-of-control-plane:44443}",
    "--set=pull.url=https://api-of-control-plane:44444",
    "--set=pull.cluster=name-of-cluster",
    "--set=bootstrap.token=ebbc_bootstrap-token-of-relay-with-43-characters",
    VERSION,
];
const HEAD: &str = "\
# The manifests of a relay, rendered from its chart by `cargo xtask build chart`. `ebb cluster connect` prints them with values.
# To set the values by hand, replace name-of-cluster, namespace-of-relay, namespace-of-units, image-of-relay,
# host-of-control-plane and its port 44443, https://api-of-control-plane:44444 and its port 44444, and
# ebbc_bootstrap-token-of-relay-with-43-characters by the token that registers the relay.
";
/// The folder with values that `ebb cluster connect` prints, and with the objects that the chart makes of them.
const INSTALLATIONS: &str = "infra/relay/installations";

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChartAction {
    Write,
    /// Fail if a file differs from the manifests.
    Compare,
}

/// Lints and renders the chart, and writes or compares `infra/relay/manifests.yaml` and the objects of [`INSTALLATIONS`].
/// Builds helm if it is missing.
pub(crate) fn all(action: ChartAction) -> anyhow::Result<()> {
    let (helm, chart) = (BinarySet::Helm.built()?.join("helm"), root().join("infra/relay/chart"));
    let described = fs::read_to_string(chart.join("Chart.yaml"))?;
    for key in ["version", "appVersion"] {
        let expected = format!("{key}: {}", env!("CARGO_PKG_VERSION"));
        if !described.lines().any(|line| line == expected) {
            bail!("Chart.yaml: expected the line `{expected}`");
        }
    }
    run(command(&helm).args(["lint", "--strict", "--quiet"]).arg(&chart).args(ARGUMENTS))?;
    let template = |arguments: &[&str]| output(command(&helm).args(["template", RELEASE]).arg(&chart).args(arguments));
    action.apply(&root().join("infra/relay/manifests.yaml"), &format!("{HEAD}{}", template(&ARGUMENTS)?))?;
    for values in values()? {
        let text = fs::read_to_string(&values).with_context(|| format!("cannot read {}", values.display()))?;
        let parsed: Value = serde_saphyr::from_str(&text).with_context(|| format!("{}", values.display()))?;
        let relay = parsed["createNamespaces"][0].as_str().context("createNamespaces begins with that of the relay")?;
        let (file, namespace) = (format!("--values={}", values.display()), format!("--namespace={relay}"));
        let objects = objects(&template(&[file.as_str(), namespace.as_str(), VERSION])?)?;
        action.apply(&values.with_extension("jsonl"), &objects)?;
    }
    Ok(())
}

impl ChartAction {
    fn apply(self, path: &Path, expected: &str) -> anyhow::Result<()> {
        match self {
            Self::Write => fs::write(path, expected).with_context(|| format!("cannot write {}", path.display())),
            Self::Compare if fs::read_to_string(path).is_ok_and(|text| text == expected) => Ok(()),
            Self::Compare => bail!("{} differs from the chart: run `cargo xtask build chart`", path.display()),
        }
    }
}

/// Returns the files with values in [`INSTALLATIONS`], ordered by name.
fn values() -> anyhow::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(root().join(INSTALLATIONS)).context(INSTALLATIONS)?;
    let mut files = entries.map(|entry| Ok(entry?.path())).collect::<anyhow::Result<Vec<_>>>()?;
    files.retain(|file| file.extension() == Some(OsStr::new("yaml")));
    files.sort();
    Ok(files)
}

/// Returns the objects of manifests as JSON, one per line. The rules that are the same in all installations are left out.
fn objects(manifests: &str) -> anyhow::Result<String> {
    let mut objects: Vec<Value> = serde_saphyr::from_multiple(manifests).context("the rendered manifests")?;
    for object in objects.iter_mut().filter(|object| object["kind"] == "ValidatingAdmissionPolicy") {
        let spec = object["spec"].as_object_mut().context("an admission policy without spec")?;
        spec.retain(|key, _| !matches!(key.as_str(), "matchConstraints" | "validations"));
    }
    let lines = objects.iter().map(Value::to_string);
    Ok(lines.chain(iter::once(String::new())).collect::<Vec<_>>().join("\n"))
}
