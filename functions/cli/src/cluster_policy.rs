//! Documents that violate the policies of their clusters. The server knows the policies.

use std::collections::BTreeSet;

use ebb_documents::compile::{CLUSTER_POLICY, ClusterPolicy, PolicyRequest, UNCHECKED_POLICY, policy_violations};
use ebb_documents::{Diagnostics, SourceText, cluster_name};
use ebb_protocol::api::{ClusterDetail, PlanPreview, ProblemDetails};
use ebb_relay_client::reported_policy;

use crate::{ApiClient, CliError, Result, output, refusal};

/// Returns the error of the violations that the server found in the document `source`, and prints what it did not check.
pub(crate) fn found(preview: &PlanPreview, source: &SourceText) -> Option<CliError> {
    for unchecked in preview.warnings.iter().filter(|warning| warning.code == UNCHECKED_POLICY) {
        note(&unchecked.message);
    }
    let errors: Vec<_> = preview.warnings.iter().filter(|warning| warning.code == CLUSTER_POLICY).cloned().collect();
    let (code, detail) = (CLUSTER_POLICY.to_owned(), "the clusters refuse parts of the documents".to_owned());
    (!errors.is_empty()).then(|| refusal::of_document(ProblemDetails { status: 422, code, detail, errors }, source))
}

/// Checks what units request against the policies of their clusters, as far as the server tells them.
///
/// # Errors
/// Returns the violations.
pub(crate) async fn check(client: &ApiClient, requests: &[PolicyRequest]) -> Result<()> {
    let wanted: BTreeSet<&str> = requests.iter().map(|request| cluster_name(request.cluster.as_deref())).collect();
    let mut policies = Vec::new();
    for name in wanted {
        match client.find::<ClusterDetail>(&["clusters", name]).await {
            Ok(Some(cluster)) => policies.extend(known(&cluster).map(|policy| (name, policy))),
            // A server without this cluster, such as one that runs units on its own machine.
            Ok(None) => {}
            Err(error) => {
                note(&format!("the documents are not checked against the policy of {name}: {}", error.message()))
            }
        }
    }
    let found = policy_violations(requests, |cluster| {
        policies.iter().find(|(name, _)| *name == cluster_name(cluster)).map(|(name, policy)| (*name, policy))
    });
    if found.has_errors() { Err(found.into()) } else { Ok(()) }
}

/// Notes that no server knows the policies of the clusters that units name.
pub(crate) fn note_missing_server(requests: &[PolicyRequest]) {
    let named: BTreeSet<&str> = requests.iter().filter_map(|request| request.cluster.as_deref()).collect();
    for name in named {
        note(&format!("without a server, the document is not checked against the policy of the cluster {name}"));
    }
}

/// Returns the policy of a cluster, or `None` if it is not known.
///
/// # Errors
/// Returns an error if the server has no such cluster, or does not tell.
pub(crate) async fn of(client: &ApiClient, name: &str) -> Result<Option<ClusterPolicy>> {
    let cluster: Option<ClusterDetail> = client.find(&["clusters", name]).await?;
    let missing = || CliError::failed(format!("the cluster {name} does not exist"));
    cluster.map(|cluster| known(&cluster)).ok_or_else(|| missing().with_hint("ebb cluster list"))
}

/// Checks the requests of a plugin in a cluster, for the units that name no other cluster.
///
/// # Errors
/// Returns the violations.
pub(crate) fn check_plugin(requests: &[PolicyRequest], name: &str, policy: &ClusterPolicy) -> Result<(), Diagnostics> {
    let found =
        policy_violations(requests, |cluster| Some((name, policy)).filter(|_| cluster.is_none_or(|it| it == name)));
    if found.has_errors() { Err(found) } else { Ok(()) }
}

fn known(ClusterDetail { info, .. }: &ClusterDetail) -> Option<ClusterPolicy> {
    let name = &info.name;
    let Some(reported) = &info.policy else {
        note(&format!("the policy of the cluster {name} is not known, so the documents are not checked against it"));
        return None;
    };
    if let Some(since) = &info.policy_since {
        note(&format!(
            "the relay of the cluster {name} does not respond, so the documents are checked against its policy of {since}"
        ));
    }
    let policy = reported_policy(reported);
    if policy.is_none() {
        note(&format!("the policy of the cluster {name} has too many names for a check of the documents"));
    }
    policy
}

fn note(text: &str) {
    output::status_line(&format!("note: {text}"));
}
