//! The same scripts without Ebb: a shell makes one Job after the other and waits for each.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

use super::documents::SCRIPT;
use super::{ChainsArgs, UNITS};

/// Makes, waits, goes on; removes all of them in the end, which does not count.
const LOOP: &str = r#"
set -eu
n=0
while [ "$n" -lt "$UNITS" ]; do
    "$KUBECTL" --namespace "$NAMESPACE" create job "bare-$n" --image="$IMAGE" -- sh -c "$SCRIPT" >/dev/null
    "$KUBECTL" --namespace "$NAMESPACE" wait --for=condition=complete --timeout=60s "job/bare-$n" >/dev/null
    n=$((n + 1))
done
"#;

/// Runs the chain; gives how long it took.
pub(crate) fn chain(arguments: &ChainsArgs) -> anyhow::Result<Duration> {
    let began = Instant::now();
    let mut shell = Command::new("sh");
    shell.args(["-c", LOOP]).env("UNITS", arguments.units.to_string()).env("IMAGE", &arguments.image);
    shell.env("SCRIPT", SCRIPT).env("KUBECONFIG", &arguments.kubeconfig).stdin(Stdio::null());
    shell.env("KUBECTL", &arguments.kubectl).env("NAMESPACE", UNITS);
    let status = shell.status().context("cannot start a shell")?;
    ensure!(status.success(), "the shell's loop failed: {status}");
    let took = began.elapsed();
    let removed = arguments.kubectl().args(["delete", "jobs", "--all", "--wait"]).output()?;
    ensure!(removed.status.success(), "the bare Jobs stay");
    Ok(took)
}
