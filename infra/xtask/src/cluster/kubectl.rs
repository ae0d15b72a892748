//! Requests to the API server, with kubectl as administrator.

use std::io::Write as _;
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};

use super::folder;
use super::servers::NODE;
use crate::run::{command, line, works};

/// Returns kubectl as the cluster's administrator.
pub(crate) fn kubectl(arguments: &[&str]) -> Command {
    let mut kubectl = command(folder::state().join("bin/kubectl"));
    kubectl.arg("--kubeconfig").arg(folder::kubeconfig()).args(arguments);
    // The cluster is on this machine, so no proxy applies.
    for proxy in ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"] {
        kubectl.env_remove(proxy);
    }
    kubectl
}

/// Runs kubectl and returns its output.
pub(crate) fn output_of(arguments: &[&str]) -> anyhow::Result<String> {
    output(kubectl(arguments), "")
}

/// Applies manifests with kubectl.
pub(crate) fn apply(documents: &str) -> anyhow::Result<()> {
    output(kubectl(&["apply", "--filename=-"]), documents).map(drop)
}

fn output(mut kubectl: Command, input: &str) -> anyhow::Result<String> {
    kubectl.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = kubectl.spawn().context("cannot start kubectl")?;
    child.stdin.take().context("standard input is piped")?.write_all(input.as_bytes())?;
    let output = child.wait_with_output()?;
    if !output.status.success() {
        bail!("`{}`: {}", line(&kubectl), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// Returns true if the API server is ready.
pub(crate) fn serves() -> bool {
    works(&mut kubectl(&["get", "--raw=/readyz", "--request-timeout=5s"]))
}

/// Returns true if the node is Ready and has no taints.
pub(crate) fn ready() -> bool {
    let node = r#"jsonpath={.status.conditions[?(@.type=="Ready")].status}{.spec.taints}"#;
    output_of(&["get", "node", NODE, "--output", node, "--request-timeout=5s"]).is_ok_and(|it| it == "True")
}
