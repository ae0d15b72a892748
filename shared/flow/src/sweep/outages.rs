//! Records outages of relays for operators: the start, the reason, and the units that wait.
//!
//! Each request to a relay yields an observation. `sweep`, which repeats requests without a response, records outages:
//! one write at the beginning and one at the end of an outage, for any number of waiting units. No decision depends on
//! the record.

use std::collections::{BTreeMap, HashMap};

use ebb_documents::plan::{Plan, UnitPlan};
use ebb_protocol::limits::message;
use ebb_protocol::{RelayOutage, RunDetail, RunState, UnitState, rfc3339};
use ebb_store::{ClusterFault, ClusterFaultKind};

use crate::{Counter, Env, FlowResult, group, telemetry};

/// The time for which a denied poll explains why a relay does not respond, in milliseconds. A relay polls again within
/// a minute.
const DENIAL_AGE_MS: u64 = 3 * ClusterFault::DENIAL_INTERVAL_MS;

/// Records the outages that began or ended since the last call. After an error, the observations are lost.
pub async fn record_outages(env: &Env) -> FlowResult<()> {
    let observations = env.relay.take_observations();
    if observations.is_empty() {
        return Ok(());
    }
    let (known, connected) = (env.store.read_faults(ClusterFaultKind::Outage).await?, env.relay.clusters().await);
    // A request to a cluster may end after the deletion of the cluster.
    let is_connected = |name: &str| connected.iter().any(|cluster| cluster.name == name);
    for (cluster, outage) in observations {
        match outage {
            Some(ClusterFault { at, reason }) => {
                telemetry::count(Counter::Outages, 1);
                if !known.contains_key(&cluster) && is_connected(&cluster) {
                    let reason = message(&reason);
                    tracing::warn!(cluster, reason, "outage of a cluster begins");
                    env.store.begin_fault(ClusterFaultKind::Outage, &cluster, at, &reason).await?;
                }
            }
            None if known.contains_key(&cluster) => {
                tracing::warn!(cluster, "outage of a cluster ends");
                env.store.end_fault(ClusterFaultKind::Outage, &cluster).await?;
            }
            None => {}
        }
    }
    Ok(())
}

/// Returns the outage that units of `runs` wait for. Of several outages, returns the first one by cluster name.
pub async fn find_outage(env: &Env, plan: &Plan, runs: &[RunDetail]) -> FlowResult<Option<RelayOutage>> {
    let units: HashMap<&str, &UnitPlan> =
        plan.hooks.iter().flat_map(|hook| &hook.units).map(|unit| (unit.key.as_str(), unit)).collect();
    let waiting = group(runs.iter().flat_map(waiting_units).filter_map(|key| {
        let cluster = units.get(key.as_str()).and_then(|unit| plan.cluster(unit));
        Some((env.relay.resolve_cluster(cluster)?, key))
    }));
    if waiting.is_empty() {
        return Ok(None);
    }
    let mut known = env.store.read_faults(ClusterFaultKind::Outage).await?;
    let found = waiting.into_iter().find_map(|(cluster, units)| {
        let outage = known.remove(&cluster)?;
        Some(RelayOutage { cluster, since: rfc3339(outage.at), reason: outage.reason, units })
    });
    let Some(outage) = found else { return Ok(None) };
    let denials = env.store.read_faults(ClusterFaultKind::Denial).await?;
    let denied = explain_denial(env, &denials, &outage.cluster);
    Ok(Some(RelayOutage { reason: denied.unwrap_or(outage.reason), ..outage }))
}

/// Returns why the relay of a cluster is denied, if one of its polls was denied lately.
pub fn explain_denial(env: &Env, denials: &BTreeMap<String, ClusterFault>, cluster: &str) -> Option<String> {
    let denial = denials.get(cluster).filter(|denial| env.now().since(denial.at).0 < DENIAL_AGE_MS)?;
    Some(format!(
        "its polls are denied, last at {}: {}. The relay has another secret than the control plane: run `ebb cluster \
         rotate {cluster} --apply`, or give both the same secret if the cluster is an entry of EBB_CLUSTERS",
        rfc3339(denial.at),
        denial.reason
    ))
}

fn waiting_units(run: &RunDetail) -> impl Iterator<Item = String> {
    let open = match run.state {
        RunState::Running => Some(UnitState::Running),
        // The end of these units is not confirmed yet.
        RunState::Cancelling => Some(UnitState::Cancelled),
        RunState::Succeeded | RunState::Failed | RunState::Cancelled => None,
    };
    let is_open = move |state| Some(state) == open;
    let units = run.units.iter().filter(move |unit| is_open(unit.state) && unit.ended.is_none());
    units.filter(|unit| unit.kind != "webhook").map(|unit| unit.key.clone())
}
