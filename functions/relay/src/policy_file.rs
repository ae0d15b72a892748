//! The file with the policy, which its operator may change while the relay runs.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ebb_relay_core::{ClusterPolicy, Relay, RelaySettings};
use kube::Client;

use crate::attached;

/// A kubelet replaces the files of a ConfigMap without a signal.
const INTERVAL: Duration = Duration::from_secs(2);

/// Parses the text of the file.
///
/// # Errors
/// Returns the reason, for the operator.
pub(crate) fn parse(file: &Path, text: &str) -> Result<ClusterPolicy, String> {
    // The error repeats its cause, so only its text is used.
    serde_saphyr::from_str(text).map_err(|error| format!("{}: {}", file.display(), error.without_snippet()))
}

/// Reads the file again and again, and replaces the policy of the relay when it changes. A reason why the file cannot be
/// used is logged once. The relay reports it and keeps the policy in force.
///
/// `settings` are those with which the relay was opened. With `attached`, the API server gets each new policy first.
pub(crate) async fn follow(relay: Relay, file: PathBuf, mut settings: RelaySettings, attached: Option<Client>) {
    let mut failed: Option<String> = None;
    loop {
        tokio::time::sleep(INTERVAL).await;
        let next = load(&file, &settings, attached.as_ref()).await;
        match &next {
            Ok(policy) if *policy == settings.policy && failed.is_none() => continue,
            Err(reason) if failed.as_ref() == Some(reason) => continue,
            Ok(policy) => {
                tracing::info!(file = %file.display(), "the policy was read again and is in force");
                settings.policy = policy.clone();
                failed = None;
            }
            Err(reason) => {
                tracing::error!(reason, "the policy cannot be used; the previous one stays in force");
                failed = Some(reason.clone());
            }
        }
        relay.set_policy(next);
    }
}

async fn load(file: &Path, settings: &RelaySettings, attached: Option<&Client>) -> Result<ClusterPolicy, String> {
    let text = tokio::fs::read_to_string(file).await;
    let policy = parse(file, &text.map_err(|error| format!("cannot read {}: {error}", file.display()))?)?;
    if let Some(client) = attached
        && policy != settings.policy
    {
        let changed = RelaySettings { policy: policy.clone(), ..settings.clone() };
        attached::prepare(client, &changed).await.map_err(|error| format!("{error:#}"))?;
    }
    Ok(policy)
}
