//! The receivers of subscriptions, and the check of what they get.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use ebb_egress::{CallError, CallResult, HttpRequest, HttpResponse};
use ebb_store::{NamedDocument, NamedKind, PhaseNotice, TargetHead};

use super::executor::SimExecutor;
use super::runtime::lock;
use super::simulator::Simulation;
use super::table_state::{TableState, named};
use super::{FaultKind, SimRuntime};
use crate::fakes::SECRET;

const ALL: &str =
    "starting, ready, updating, failed, stopping, stuck, gone, event-succeeded, event-failed, pre-stop-ended";
/// The names of the subscriptions of a simulation, and the phases that they report.
const SUBSCRIPTIONS: [(&str, &str); 2] = [("all", ALL), ("ends", "ready, failed, gone, event-failed")];
/// The URL of all receivers, before the name of the subscription.
pub(super) const RECEIVERS: &str = "https://receiver.test/";
const RESPONSE_MS: u64 = 20;
const OUTAGE_MS: u64 = 1_200_000;

#[derive(Clone, Debug)]
pub struct ReceivedNotice {
    pub subscription: String,
    /// `KIND/NAME` of the target.
    pub target: String,
    pub id: String,
}

/// Returns the subscriptions as the store has them.
pub(super) fn documents() -> impl Iterator<Item = NamedDocument> {
    SUBSCRIPTIONS.into_iter().map(|(name, phases)| NamedDocument {
        name: name.to_owned(),
        document: format!(
            "apiVersion: ebb.dev/v1\nkind: Subscription\nname: {name}\non: [{phases}]\n\
             to: {{standard: {{url: \"{RECEIVERS}{name}\", secret: {SECRET}}}}}\n"
        ),
        changed: SimRuntime::default().now(),
    })
}

/// Records the notifications that the write of a target appends. A change of the phase that appends none is
/// wrong.
pub(super) fn appended(state: &mut TableState, seen: Option<&TargetHead>, target: &TargetHead) {
    let (of_subscriptions, _) = named(NamedKind::Subscription, "");
    if !state.documents.keys().any(|(kind, _)| *kind == of_subscriptions) {
        return;
    }
    let name = format!("{}/{}", target.kind, target.name);
    let mut is_reported = false;
    // The platform records what it gets about withdrawn instances.
    let of_subscriptions = |notice: &&PhaseNotice| notice.number == target.version && !notice.is_for_platform();
    for notice in target.outbox.notices.iter().filter(of_subscriptions) {
        for subscription in &notice.to {
            state.appended.entry((subscription.clone(), name.clone())).or_default().insert(notice.number);
            is_reported = true;
        }
    }
    let is_same = seen.is_some_and(|seen| seen.uid == target.uid && seen.phase == target.phase);
    // An instance that was deleted before its creation never began.
    let is_late = target.plan.is_empty();
    if !is_same && !is_late && !is_reported {
        let (phase, version) = (target.phase, target.version);
        state.wrong.push(format!("{name} is {phase:?} in version {version}, and no subscription reports it"));
    }
}

pub(super) struct SimReceivers {
    executor: Arc<SimExecutor>,
    outages: Mutex<BTreeMap<String, u64>>,
}

impl SimReceivers {
    pub(super) fn new(executor: Arc<SimExecutor>) -> Self {
        Self { executor, outages: Mutex::default() }
    }

    pub(super) async fn receive(&self, subscription: &str, request: &HttpRequest) -> CallResult<HttpResponse> {
        let SimExecutor { runtime, ledger, .. } = self.executor.as_ref();
        let now = runtime.elapsed();
        let is_away = {
            let mut outages = lock(&self.outages);
            let until = outages.entry(subscription.to_owned()).or_default();
            self.executor.is_away(FaultKind::ReceiverAway, until, OUTAGE_MS)
        };
        if ledger.state().hanging.contains(subscription) {
            let end = now + u64::try_from(request.timeout.as_millis()).unwrap_or(u64::MAX);
            ledger.state().hung.push((now, end));
            runtime.sleep(end - now).await;
            return Err(CallError::Timeout(request.timeout));
        }
        let refuses = ledger.state().refusing.get(subscription).copied();
        if let Some(status) = refuses.or(is_away.then_some(503)) {
            return Ok(HttpResponse::new(status, ""));
        }
        let event: serde_json::Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let text = |key: &str| event[key].as_str().unwrap_or_default().to_owned();
        let (target, id) = (text("subject"), text("id"));
        let _posted = ledger.post(format!("{subscription} of {target}"));
        runtime.sleep(RESPONSE_MS).await;
        ledger.trace(|| format!("{subscription} receives {id} of {target}"));
        let received = ReceivedNotice { subscription: subscription.to_owned(), target, id };
        ledger.state().received.push(received);
        self.executor.answer(FaultKind::ResponseLost, HttpResponse::new(204, "")).await
    }
}

/// Each receiver got every notification of a target that was appended for it, and none after a later one. A repetition has
/// the same id.
pub(super) fn check(simulation: &Simulation) -> Vec<String> {
    let (appended, mut wrong) = (simulation.table.state().appended.clone(), Vec::new());
    let mut received: BTreeMap<(String, String), Vec<(u64, String)>> = BTreeMap::new();
    for ReceivedNotice { subscription, target, id } in simulation.ledger.state().received.clone() {
        let number = id.rsplit('-').next().and_then(|number| number.parse().ok()).unwrap_or(0);
        received.entry((subscription, target)).or_default().push((number, id));
    }
    for of in appended.keys().chain(received.keys()).collect::<BTreeSet<_>>() {
        let (wanted, received) = (appended.get(of).cloned(), received.get(of).cloned());
        let (wanted, received) = (wanted.unwrap_or_default(), received.unwrap_or_default());
        let numbers: BTreeSet<u64> = received.iter().map(|(number, _)| *number).collect();
        let ids: BTreeSet<&String> = received.iter().map(|(_, id)| id).collect();
        if numbers != wanted || ids.len() != wanted.len() || !received.is_sorted_by_key(|(number, _)| *number) {
            wrong.push(format!("the receiver {of:?} got {received:?} of {wanted:?}"));
        }
    }
    wrong
}
