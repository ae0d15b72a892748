//! Describes clusters, with information from all relays at the same time, and finds the targets that use one.

use std::collections::BTreeMap;
use std::time::Duration;

use ebb_documents::plan::{Plan, cluster_name};
use ebb_engine::TargetPhase;
use ebb_protocol::{
    ApiServerState, ClusterDetail, ClusterInfo, ClusterRegistration, ClusterState, RelayOutage, ReportedPolicy,
    TargetKey, TransportKind, limits, rfc3339,
};
use ebb_store::{ClusterFault, ClusterFaultKind, ClusterItem, ListPage, Store, TargetHead, TargetList};
use tokio::time::Instant;

use super::cluster_policies;
use ebb_flow::ports::ConnectedCluster;
use ebb_flow::{Env, FlowError, FlowResult, RelayError, outages};

/// Maximum targets that a refused deletion names.
pub(super) const MAX_NAMED: usize = 10;
/// Targets per read.
const PAGE: usize = 100;
/// The time within which the plans of the targets are read.
const SEARCH_TIME: Duration = Duration::from_secs(15);

/// Returns a cluster, connected or registered.
pub async fn get(env: &Env, name: &str) -> FlowResult<Option<ClusterDetail>> {
    let (mut clusters, registered) = described(env, Some(name)).await?;
    let registration = registered.first().map(registration);
    Ok(clusters.pop().map(|info| ClusterDetail { info, registration }))
}

/// Returns the clusters by name, connected or registered, or only that with the name `only`, and those of them that are
/// registered. One whose relay does not respond in time has an error.
pub(crate) async fn described(env: &Env, only: Option<&str>) -> FlowResult<(Vec<ClusterInfo>, Vec<ClusterItem>)> {
    let (mut connected, mut registered) = (env.relay.clusters().await, env.store.list_clusters().await?);
    connected.retain(|cluster| only.is_none_or(|name| name == cluster.name));
    registered.retain(|item| only.is_none_or(|name| name == item.name));
    let is_connected = |item: &&ClusterItem| connected.iter().any(|cluster| cluster.name == item.name);
    let (mut outages, denials) = match connected.is_empty() && registered.is_empty() {
        true => (BTreeMap::new(), BTreeMap::new()),
        false => (outages(&env.store).await?, env.store.read_faults(ClusterFaultKind::Denial).await?),
    };
    let others = registered.iter().filter(|item| !is_connected(item));
    let others = others.map(|item| ClusterInfo { outage: outages.remove(&item.name), ..unconnected(env, item) });
    let others: Vec<ClusterInfo> = others.collect();
    let requests = connected.into_iter().map(|cluster| {
        let recorded = outages.remove(&cluster.name);
        about(env, cluster, recorded)
    });
    let mut clusters = futures::future::join_all(requests).await;
    clusters.extend(others);
    let created = |name: &str| registered.iter().find(|item| item.name == name).map(|item| item.created);
    let policies = clusters.iter_mut().map(|cluster| {
        let created = created(&cluster.name);
        cluster_policies::complete(env, cluster, created)
    });
    futures::future::try_join_all(policies).await?;
    clusters.sort_by(|one, other| one.name.cmp(&other.name));
    clusters.iter_mut().for_each(|cluster| explain(env, cluster, &denials));
    Ok((clusters, registered))
}

/// Returns the recorded outages by cluster, without the units that wait.
pub(crate) async fn outages(store: &Store) -> FlowResult<BTreeMap<String, RelayOutage>> {
    let outages = store.read_faults(ClusterFaultKind::Outage).await?.into_iter().map(|(cluster, outage)| {
        let since = rfc3339(outage.at);
        (cluster.clone(), RelayOutage { cluster, since, reason: outage.reason, units: Vec::new() })
    });
    Ok(outages.collect())
}

/// Returns why the relay of a cluster does not respond, if its polls are denied.
pub(crate) async fn denied(env: &Env, cluster: &str) -> FlowResult<Option<String>> {
    Ok(outages::explain_denial(env, &env.store.read_faults(ClusterFaultKind::Denial).await?, cluster))
}

/// Returns what a comparison of documents with the policy of a cluster needs, without its registration and its relay.
pub(crate) fn for_authors(ClusterDetail { info, .. }: ClusterDetail) -> ClusterDetail {
    let ClusterInfo { name, transport, state, policy, policy_since, .. } = info;
    let info = ClusterInfo { name, transport, state, policy, policy_since, ..ClusterInfo::default() };
    ClusterDetail { info, registration: None }
}

/// Returns the registration of a cluster without its secrets.
pub(crate) fn registration(item: &ClusterItem) -> ClusterRegistration {
    let unused = item.bootstrap.as_ref().filter(|bootstrap| !bootstrap.used);
    ClusterRegistration {
        url: item.url.clone(),
        entrypoint_image: item.entrypoint_image.clone(),
        signadot_outputs: item.signadot_outputs,
        options: item.options.as_object().cloned().unwrap_or_default(),
        version: Some(item.version),
        created: rfc3339(item.created),
        created_by: item.created_by.clone(),
        registered: item.relay.as_ref().map(|relay| rfc3339(relay.since)),
        bootstrap_expires: unused.map(|bootstrap| rfc3339(bootstrap.expires)),
    }
}

/// Returns a registered cluster to which no requests are sent.
pub(super) fn unconnected(env: &Env, item: &ClusterItem) -> ClusterInfo {
    let ClusterItem { name, relay, bootstrap, .. } = item;
    let valid = bootstrap.as_ref().filter(|bootstrap| !bootstrap.used && bootstrap.expires > env.now());
    let state = if relay.is_none() { ClusterState::WaitingForRelay } else { ClusterState::Down };
    let error = match (relay, valid) {
        (None, Some(bootstrap)) => {
            let expires = rfc3339(bootstrap.expires);
            format!("no relay has registered yet; the bootstrap token expires at {expires}")
        }
        (None, None) => format!(
            "no relay has registered, and the bootstrap token has expired: request another one with `ebb cluster connect \
             {name} --apply`"
        ),
        (Some(_), _) => {
            "this control plane runs units on its own machine (`ebb dev` needs --clusters), or it cannot decrypt \
                         the secret of the relay; its log has the cause"
                .to_owned()
        }
    };
    let transport = if item.url.is_some() { TransportKind::Push } else { TransportKind::Pull };
    let (name, uid) = (name.clone(), relay.as_ref().map(|relay| relay.uid.clone()));
    ClusterInfo { name, transport, state: Some(state), uid, error: Some(error), ..ClusterInfo::default() }
}

/// Asks the relay of a cluster about itself and its API server. `recorded` is the outage that requests for units have found.
pub(super) async fn about(env: &Env, cluster: ConnectedCluster, recorded: Option<RelayOutage>) -> ClusterInfo {
    let ConnectedCluster { name, polls, uid, .. } = cluster;
    let transport = if polls { TransportKind::Pull } else { TransportKind::Push };
    let (since, state) = (rfc3339(env.now()), Some(ClusterState::Down));
    let info = ClusterInfo { name, transport, state, uid, outage: recorded, ..ClusterInfo::default() };
    match env.relay.about(&info.name).await {
        Ok((about, reported)) => ClusterInfo {
            outage: match about.api_server {
                None => info.outage,
                Some(ApiServerState::Responds) => None,
                Some(ApiServerState::Fails(reason)) => Some(RelayOutage {
                    cluster: info.name.clone(),
                    since: info.outage.map_or(since, |recorded| recorded.since),
                    reason: limits::message(&reason),
                    units: Vec::new(),
                }),
            },
            state: Some(ClusterState::Up),
            uid: Some(limits::message(&reported)),
            version: Some(limits::message(&about.version)),
            up_seconds: Some(about.up_ms / 1000),
            tasks: Some(about.tasks),
            policy: about.policy.map(ReportedPolicy::fit),
            ..info
        },
        Err(RelayError::Refused(reason)) => ClusterInfo { error: Some(reason), ..info },
        Err(error) => ClusterInfo { error: Some(error.to_string()), ..info },
    }
}

/// Replaces the error of a relay that does not respond, if its polls are denied.
pub(super) fn explain(env: &Env, cluster: &mut ClusterInfo, denials: &BTreeMap<String, ClusterFault>) {
    if cluster.state != Some(ClusterState::Down) {
        return;
    }
    if let Some(denied) = outages::explain_denial(env, denials, &cluster.name) {
        (cluster.state, cluster.error) = (Some(ClusterState::Denied), Some(denied));
    }
}

/// Returns targets with units in a cluster that are not gone, as [`users`] does.
pub(crate) async fn targets_in(env: &Env, cluster: &str) -> FlowResult<Option<Vec<String>>> {
    users(env, |_| true, |plan| uses(plan, cluster)).await
}

/// Returns the targets that are not gone and whose head and plan have a property, at most [`MAX_NAMED`], as `KIND/NAME`.
/// Returns `None` if there are too many targets to read their plans in time.
pub(super) async fn users(
    env: &Env,
    may_use: impl Fn(&TargetHead) -> bool,
    mut uses: impl FnMut(&Plan) -> bool,
) -> FlowResult<Option<Vec<String>>> {
    let end = Instant::now() + SEARCH_TIME;
    let (mut found, mut after) = (Vec::new(), None::<(String, String)>);
    loop {
        let key = after.as_ref().map(|(kind, name)| TargetKey::new(kind, name));
        let ListPage { targets, next, .. } = env.store.list_page(TargetList::Active, None, key, PAGE).await?;
        for target in targets {
            // A gone target that waits for the platform has no unit.
            if (target.phase == TargetPhase::Gone && target.waiting.is_none()) || !may_use(&target) {
                continue;
            }
            let is_used = match env.plan_of(&target).await {
                Ok(loaded) => uses(&loaded.plan),
                // Its units are not known until its plan is repaired.
                Err(FlowError::Damaged { .. }) => true,
                Err(error) => return Err(error),
            };
            if is_used {
                found.push(target.target_key().to_string());
            }
            if found.len() >= MAX_NAMED {
                return Ok(Some(found));
            }
            if Instant::now() >= end {
                return Ok(None);
            }
        }
        let Some(next) = next else { return Ok(Some(found)) };
        after = Some(next);
    }
}

fn uses(plan: &Plan, cluster: &str) -> bool {
    plan.unit_clusters().into_iter().chain(plan.secret_clusters()).any(|name| cluster_name(name) == cluster)
}
