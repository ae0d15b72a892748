//! Asking the API server, by kubectl as the administrator.

use std::io::Write as _;
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};

use super::folder;
use super::servers::NODE;
use crate::run::{command, line, works};

/// kubectl with the cluster's administrator.
pub(crate) fn kubectl(arguments: &[&str]) -> Command {
    let mut kubectl = command(folder::state().join("bin/kubectl"));
    kubectl.arg("--kubeconfig").arg(folder::kubeconfig()).args(arguments);
    // The cluster is on this machine, whatever way leads out of it.
    for proxy in ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"] {
        kubectl.env_remove(proxy);
    }
    kubectl
}

/// What kubectl answers.
///
/// # Errors
/// When it fails; with what it says.
pub(crate) fn asked(arguments: &[&str]) -> anyhow::Result<String> {
    answer(kubectl(arguments), "")
}

/// Applies documents.
///
/// # Errors
/// When the API server refuses one; with what it says.
pub(crate) fn applied(documents: &str) -> anyhow::Result<()> {
    answer(kubectl(&["apply", "--filename=-"]), documents).map(drop)
}

fn answer(mut kubectl: Command, input: &str) -> anyhow::Result<String> {
    kubectl.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = kubectl.spawn().context("cannot start kubectl")?;
    child.stdin.take().context("a pipe was asked for")?.write_all(input.as_bytes())?;
    let output = child.wait_with_output()?;
    if !output.status.success() {
        bail!("`{}`: {}", line(&kubectl), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// Returns true if the API server takes requests.
pub(crate) fn serves() -> bool {
    works(&mut kubectl(&["get", "--raw=/readyz", "--request-timeout=5s"]))
}

/// Returns true if the node takes pods: it is Ready, and what kept pods away until then is gone.
pub(crate) fn ready() -> bool {
    let node = r#"jsonpath={.status.conditions[?(@.type=="Ready")].status}{.spec.taints}"#;
    asked(&["get", "node", NODE, "--output", node, "--request-timeout=5s"]).is_ok_and(|it| it == "True")
}
