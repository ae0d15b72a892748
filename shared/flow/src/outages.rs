//! Clusters that give no answer to what they are asked, for people: since when, why, and which units wait for it.
//!
//! Whoever asks a relay notices, and `sweep`, which asks again whatever got no answer, writes it down: one write when a
//! silence begins and one when it ends, however many units wait. Nothing is decided by it.

use std::collections::{BTreeMap, HashMap};

use ebb_documents::plan::{Plan, UnitPlan};
use ebb_protocol::api::{RelayOutage, RunDetail, RunState, UnitState};
use ebb_protocol::limits::message;
use ebb_protocol::time::rfc3339;
use ebb_store::RelayOutages;

use crate::env::Env;
use crate::error::FlowError;
use crate::ports::RelayObservation;

/// The only kind of units that no relay sees to.
const WEBHOOK: &str = "webhook";

/// Writes down which silences have begun and ended since this was done last.
///
/// # Errors
/// The store's; what was heard by then is not written down.
pub async fn record_outages(env: &Env, store: &dyn RelayOutages) -> Result<(), FlowError> {
    let heard = env.relay.take_observations();
    if heard.is_empty() {
        return Ok(());
    }
    let known = store.read_outages().await?;
    for (cluster, heard) in heard {
        match heard {
            RelayObservation::NoResponse(why) if !known.contains_key(&cluster) => {
                let why = message(&why);
                tracing::warn!(cluster, why, "a cluster gives no answer");
                store.begin_outage(&cluster, env.now(), &why).await?;
            }
            RelayObservation::Responded if known.contains_key(&cluster) => {
                tracing::warn!(cluster, "a cluster answers again");
                store.end_outage(&cluster).await?;
            }
            RelayObservation::NoResponse(_) | RelayObservation::Responded => {}
        }
    }
    Ok(())
}

/// A silence that units of `runs` wait out, by what their plan says of their clusters; of several the first one by name.
/// `None`: there is none.
///
/// # Errors
/// The store's.
pub async fn find_outage(
    env: &Env,
    store: &dyn RelayOutages,
    plan: &Plan,
    runs: &[RunDetail],
) -> Result<Option<RelayOutage>, FlowError> {
    let units: HashMap<&str, &UnitPlan> =
        plan.hooks.iter().flat_map(|event| &event.units).map(|unit| (unit.key.as_str(), unit)).collect();
    let mut waits: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for key in runs.iter().flat_map(waiting_units) {
        let cluster = units.get(key.as_str()).and_then(|unit| plan.cluster(unit));
        if let Some(cluster) = env.relay.resolve_cluster(cluster) {
            waits.entry(cluster).or_default().push(key);
        }
    }
    if waits.is_empty() {
        return Ok(None);
    }
    let mut known = store.read_outages().await?;
    Ok(waits.into_iter().find_map(|(cluster, units)| {
        let noted = known.remove(&cluster)?;
        Some(RelayOutage { cluster, since: rfc3339(noted.since), reason: noted.reason, units })
    }))
}

/// The units of a run that only a relay can end.
fn waiting_units(run: &RunDetail) -> impl Iterator<Item = String> {
    let open = match run.state {
        RunState::Running => Some(UnitState::Running),
        // Nobody has confirmed yet that it does not run any more.
        RunState::Stopping => Some(UnitState::Cancelled),
        RunState::Succeeded | RunState::Failed | RunState::Cancelled => None,
    };
    let is_open = move |state| Some(state) == open;
    let units = run.units.iter().filter(move |unit| is_open(unit.state) && unit.ended.is_none());
    units.filter(|unit| unit.kind != WEBHOOK).map(|unit| unit.key.clone())
}
