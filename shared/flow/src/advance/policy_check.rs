//! Refuses an update that would undo a resource before its cluster refuses the units that make it again, or whose units
//! cannot use their connections.

use std::collections::BTreeSet;
use std::time::Duration;

use ebb_documents::compile::{self, PlanUpdate, objects_without_cluster, policy_violations, replacement_requests};
use ebb_documents::plan::{HookPlan, document_name};
use ebb_documents::{ClusterPolicy, Diagnostics, Plan, PolicyRequest, SandboxDoc};
use ebb_engine::Hook;
use ebb_store::TargetHead;
use futures::future::{Either, join_all, select};

use crate::instance::target_document::bind_connections;
use crate::run::removal::possible_resources::possible_resources;
use crate::{CompiledPlan, Env, FlowResult, PinnedVersions, RequestError};

/// An update that no policy refuses.
pub(crate) struct CheckedUpdate {
    pub(crate) update: PlanUpdate,
    /// True if the policy refuses to make again what a failed run has left.
    pub(crate) stays_failed: bool,
}

/// The longest wait for the policy of a cluster.
const POLICY_TIME: Duration = Duration::from_secs(3);

/// Checks the units by which `update` makes replaced resources again against the present policies of their clusters. A
/// policy that is not known now refuses nothing, because the units can wait for the cluster. A resource counts only if
/// something of it may exist.
///
/// Returns the update to begin. If only what a failed run has left incomplete is refused, the update has no units, and the
/// target stays failed.
///
/// # Errors
/// Returns the violations, or the connections that cannot be used.
pub(crate) async fn check_replacements(
    env: &Env,
    target: &TargetHead,
    (current, wanted): (&CompiledPlan, &Plan),
    update: PlanUpdate,
) -> Result<CheckedUpdate, RequestError> {
    let refused = match check_connections(env, &update).await {
        Err(error @ RequestError::Failed(_)) => return Err(error),
        Err(refused) => refused,
        Ok(()) => {
            let found = lost_violations(env, target, current, &update).await?;
            if !found.has_errors() {
                return Ok(CheckedUpdate { update, stays_failed: false });
            }
            found.into()
        }
    };
    match compile::update(&current.plan, wanted, |_| true) {
        Ok(Some(kept)) if kept.number.is_none() => Ok(CheckedUpdate { update: kept, stays_failed: true }),
        _ => Err(refused),
    }
}

/// Rejects an update with units that make or change a resource by a connection that they cannot use now, such as one whose
/// secret is missing. What the update undoes may wait for its connection.
pub(crate) async fn check_connections(
    env: &Env,
    PlanUpdate { plan, number, .. }: &PlanUpdate,
) -> Result<(), RequestError> {
    let made = number.and_then(|number| plan.hook_plan(Hook::Update(number)));
    let Some(HookPlan { hook, units }) = made else { return Ok(()) };
    let units = units.iter().filter(|unit| unit.is_setup(*hook)).cloned().collect();
    let mut plan = Plan { hooks: vec![HookPlan { hook: *hook, units }], plugin_updates: Vec::new(), ..plan.clone() };
    let tools = (&*env.store, Some((env.settings.secrets.as_ref(), &env.settings.unit_keys)));
    bind_connections(tools, &SandboxDoc::default(), PinnedVersions::Latest, &mut plan).await
}

/// Returns the violations of the units by which `update` makes again what may exist of replaced resources.
async fn lost_violations(
    env: &Env,
    target: &TargetHead,
    current: &CompiledPlan,
    update: &PlanUpdate,
) -> FlowResult<Diagnostics> {
    if !violations(env, &replacement_requests(update, |_| true)).await.has_errors() {
        return Ok(Diagnostics::default());
    }
    let existing = possible_resources(env, target, current).await?;
    let owners = existing.iter().filter_map(|existing| existing.unit.split_once('/'));
    let lost: BTreeSet<&str> = owners.map(|(resource, _)| document_name(resource)).collect();
    // Of own units, which have `target/UNIT` as their name, all count if something of one may exist.
    let is_lost = |name: &str| name.split('/').next().is_some_and(|owner| lost.contains(owner));
    Ok(violations(env, &replacement_requests(update, is_lost)).await)
}

async fn violations(env: &Env, requests: &[PolicyRequest]) -> Diagnostics {
    if !env.relay.applies_objects() {
        return objects_without_cluster(requests);
    }
    let clusters: BTreeSet<Option<&str>> = requests.iter().map(|request| request.cluster.as_deref()).collect();
    let asked: Vec<_> = clusters.iter().map(|&cluster| present_policy(env, cluster)).collect();
    let known: Vec<Result<Option<(String, ClusterPolicy)>, String>> = join_all(asked).await;
    let mut found = policy_violations(requests, |cluster| {
        let (_, known) = clusters.iter().zip(&known).find(|(of, _)| **of == cluster)?;
        known.as_ref().ok()?.as_ref().map(|(name, policy)| (name.as_str(), policy))
    });
    for (cluster, known) in clusters.iter().zip(&known) {
        let request = requests.iter().find(|request| request.cluster.as_deref() == *cluster);
        if let (Some(request), Err(why)) = (request, known) {
            found.push(request.refusal(why));
        }
    }
    found
}

/// Returns the policy of a cluster with the name of the cluster, if its relay reports it in time. Fails if the cluster is not
/// connected, because no unit can start there.
async fn present_policy(env: &Env, cluster: Option<&str>) -> Result<Option<(String, ClusterPolicy)>, String> {
    if let Ok(Err(why)) = env.relay.cluster_uid(cluster).await {
        return Err(why);
    }
    Ok(match select(env.relay.policy(cluster), env.clock.sleep(POLICY_TIME)).await {
        Either::Left((policy, _)) => policy,
        Either::Right(_) => None,
    })
}
