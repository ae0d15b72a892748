//! The file with the policy, which its operator may change while the relay runs.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ebb_relay::{ClusterPolicy, Relay, RelaySettings};
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
/// The relay was opened with `policy`. With `attached`, its API server gets each new policy first.
pub(crate) async fn follow(
    relay: Relay,
    file: PathBuf,
    policy: ClusterPolicy,
    attached: Option<(Client, RelaySettings)>,
) {
    // After a failure, the API server may have a part of another policy.
    let mut enforced = Some(policy.clone());
    let mut last: Result<ClusterPolicy, String> = Ok(policy);
    loop {
        tokio::time::sleep(INTERVAL).await;
        let text = tokio::fs::read_to_string(&file).await;
        let text = text.map_err(|error| format!("cannot read {}: {error}", file.display()));
        let mut next = text.and_then(|text| parse(&file, &text));
        if let (Ok(new), Some((client, settings))) = (&next, &attached)
            && enforced.as_ref() != Some(new)
        {
            enforced = None;
            match attached::prepare(client, settings, new).await {
                Ok(()) => enforced = Some(new.clone()),
                Err(error) => next = Err(format!("{error:#}")),
            }
        }
        if next == last {
            continue;
        }
        match &next {
            Ok(_) => tracing::info!(file = %file.display(), "the policy was read again and is in force"),
            Err(reason) => tracing::error!(reason, "the policy cannot be used; the previous one stays in force"),
        }
        relay.set_policy(next.clone());
        last = next;
    }
}
