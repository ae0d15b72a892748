//! The policies that relays report, and documents that violate them.

use std::collections::BTreeSet;
use std::time::Duration;

use ebb_documents::compile::{PolicyRequest, UNCHECKED_POLICY, objects_without_cluster, policy_violations};
use ebb_protocol::{ClusterInfo, DocumentError, ReportedPolicy, Timestamp, rfc3339};
use ebb_relay_client::reported_policy;
use ebb_store::PolicyRecord;

use crate::HttpProblem;
use ebb_flow::ports::no_relay;
use ebb_flow::{Env, FlowError, FlowResult};

/// The longest time for which the check of a document waits for a relay.
const ABOUT_TIME: Duration = Duration::from_secs(3);
/// The largest policy that is stored, in bytes of JSON.
const MAX_STORED: usize = 256 << 10;

/// Records the policy of a relay that responds, if it has changed. Adds the recorded one for a relay without a response.
/// `created` is the time of the registration.
pub(super) async fn complete(env: &Env, cluster: &mut ClusterInfo, created: Option<Timestamp>) -> FlowResult<()> {
    let recorded = recorded(env, &cluster.name, created).await?;
    if let Some(policy) = &cluster.policy {
        let is_new = recorded.is_none_or(|record| record.policy != *policy);
        let fits = serde_json::to_string(policy).is_ok_and(|text| text.len() <= MAX_STORED);
        if is_new && fits {
            env.store.note_policy(&cluster.name, &PolicyRecord { at: env.now(), policy: policy.clone() }).await?;
        }
        return Ok(());
    }
    // A relay of an earlier version responds without a policy.
    if let Some(PolicyRecord { at, policy }) = recorded.filter(|_| cluster.version.is_none()) {
        (cluster.policy, cluster.policy_since) = (Some(policy), Some(rfc3339(at)));
    }
    Ok(())
}

/// Checks what units request against the policies of their clusters. Returns the violations, and a note for each cluster
/// whose present policy is not known. Nothing is refused, because a policy may change before the units run. Without clusters,
/// returns an error for each object.
pub(super) async fn check(env: &Env, requests: &[PolicyRequest]) -> FlowResult<Vec<DocumentError>> {
    if env.relay.resolve_cluster(None).is_none() {
        return Ok(objects_without_cluster(requests).iter().map(HttpProblem::document_error).collect());
    }
    let connected = env.relay.clusters().await;
    let wanted: BTreeSet<Option<&str>> = requests.iter().map(|request| request.cluster.as_deref()).collect();
    let wanted = wanted.into_iter().filter_map(|cluster| Some((cluster, env.relay.resolve_cluster(cluster)?)));
    let (wanted, others): (Vec<_>, Vec<_>) = wanted.partition(|(_, name)| connected.iter().any(|it| it.name == *name));
    let others: BTreeSet<String> = others.into_iter().map(|(_, name)| name).collect();
    let known = wanted.into_iter().map(move |(cluster, name)| async move {
        let policy = known(env, &name).await?;
        Ok::<_, FlowError>((cluster, name, policy))
    });
    let mut found: Vec<DocumentError> = others.iter().map(|name| note(no_relay(name))).collect();
    let mut policies = Vec::new();
    for (cluster, name, known) in futures::future::try_join_all(known).await? {
        let Some((reported, recorded)) = known else {
            found.push(note(format!(
                "the policy of the cluster `{name}` is not known, so the document was not checked against it"
            )));
            continue;
        };
        let Some(policy) = reported_policy(&reported) else {
            found.push(note(format!(
                "the policy of the cluster `{name}` has too many names for a check of the document"
            )));
            continue;
        };
        if let Some(at) = recorded {
            found.push(note(format!(
                "the relay of the cluster `{name}` did not respond in time, so the document was checked against its policy of {}",
                rfc3339(at)
            )));
        }
        policies.push((cluster, name, policy));
    }
    let violations = policy_violations(requests, |cluster| {
        policies.iter().find(|(wanted, ..)| *wanted == cluster).map(|(_, name, policy)| (name.as_str(), policy))
    });
    found.extend(violations.iter().map(HttpProblem::document_error));
    Ok(found)
}

/// Returns the policy of a cluster. A recorded one has the time of its first report.
async fn known(env: &Env, name: &str) -> FlowResult<Option<(ReportedPolicy, Option<Timestamp>)>> {
    if let Ok(Ok((about, _))) = tokio::time::timeout(ABOUT_TIME, env.relay.about(name)).await {
        return Ok(about.policy.map(|policy| (policy.fit(), None)));
    }
    let registered = env.store.list_clusters().await?.into_iter().find(|item| item.name == name);
    Ok(recorded(env, name, registered.map(|item| item.created)).await?.map(|record| (record.policy, Some(record.at))))
}

/// Returns the recorded policy of a cluster. A record from before `created`, the time of the registration, belongs to
/// another cluster of the same name.
async fn recorded(env: &Env, name: &str, created: Option<Timestamp>) -> FlowResult<Option<PolicyRecord>> {
    Ok(env.store.read_policy(name).await?.filter(|record| created.is_none_or(|created| record.at >= created)))
}

fn note(message: String) -> DocumentError {
    let (file, code) = ("document".to_owned(), UNCHECKED_POLICY.to_owned());
    DocumentError { file, code, message, help: None, line: None, column: None }
}
