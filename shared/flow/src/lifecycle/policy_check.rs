//! Refuses an update that would undo a resource before its cluster refuses the units that make it again.

use std::collections::BTreeSet;
use std::time::Duration;

use ebb_documents::compile::{
    ClusterPolicy, PlanUpdate, PolicyRequest, ResourceChange, objects_without_cluster, policy_violations,
};
use ebb_documents::plan::Plan;
use futures::future::{Either, join_all, select};

use crate::env::Env;
use crate::instance::rejection::LifecycleRejection;

/// The longest wait for the policy of a cluster.
const POLICY_TIME: Duration = Duration::from_secs(3);

/// Checks the plugins of the resources that `update` replaces against the present policies of their clusters. `requests` are
/// those of the units of `wanted`. A policy that is not known now refuses nothing, because the units can wait for the
/// cluster.
///
/// # Errors
/// Returns the violations.
pub(super) async fn check_replacements(
    env: &Env,
    (wanted, requests): (&Plan, &[PolicyRequest]),
    update: &PlanUpdate,
) -> Result<(), LifecycleRejection> {
    let replaced = update.resources.iter().filter(|(_, change)| **change == ResourceChange::Replaced);
    let replaced = replaced.filter_map(|(name, _)| wanted.resources.get(name));
    let plugins: BTreeSet<&str> = replaced.map(|resource| resource.plugin.as_str()).collect();
    let is_checked = |request: &&PolicyRequest| request.is_refusable() && plugins.contains(request.document());
    let requests: Vec<PolicyRequest> = requests.iter().filter(is_checked).cloned().collect();
    let found = match env.relay.applies_objects() {
        false => objects_without_cluster(&requests),
        true => {
            let clusters: BTreeSet<Option<&str>> = requests.iter().map(|request| request.cluster.as_deref()).collect();
            let asked: Vec<_> = clusters.iter().map(|&cluster| present_policy(env, cluster)).collect();
            let known: Vec<Option<(String, ClusterPolicy)>> = join_all(asked).await;
            policy_violations(&requests, |cluster| {
                let (_, found) = clusters.iter().zip(&known).find(|(of, _)| **of == cluster)?;
                found.as_ref().map(|(name, policy)| (name.as_str(), policy))
            })
        }
    };
    if found.has_errors() { Err(LifecycleRejection::Document(found)) } else { Ok(()) }
}

/// Returns the policy of a cluster with the name of the cluster, if its relay reports it in time.
async fn present_policy(env: &Env, cluster: Option<&str>) -> Option<(String, ClusterPolicy)> {
    match select(env.relay.policy(cluster), env.clock.sleep(POLICY_TIME)).await {
        Either::Left((policy, _)) => policy,
        Either::Right(_) => None,
    }
}
