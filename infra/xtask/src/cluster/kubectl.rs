//! Requests to the API server, with kubectl as administrator.

use std::process::Command;

use super::folder;
use super::servers::NODE;
use crate::run::{command, output, works};

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

pub(crate) fn serves() -> bool {
    works(&mut kubectl(&["get", "--raw=/readyz", "--request-timeout=5s"]))
}

/// Returns true if the node is Ready and has no taints.
pub(crate) fn ready() -> bool {
    let node = r#"jsonpath={.status.conditions[?(@.type=="Ready")].status}{.spec.taints}"#;
    output(&mut kubectl(&["get", "node", NODE, "--output", node, "--request-timeout=5s"])).is_ok_and(|it| it == "True")
}
