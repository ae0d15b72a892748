//! The receivers of subscriptions, and the check of what they get. One of them is GitHub.

use ebb_store::PhaseNotice;

use super::*;
use crate::fakes::SECRET;

const ALL: &str =
    "starting, ready, updating, failed, stopping, stuck, gone, event-succeeded, event-failed, pre-stop-ended";
/// The names of the subscriptions of a simulation, and the phases that they report.
const SUBSCRIPTIONS: [(&str, &str); 2] = [("all", ALL), ("ends", "ready, failed, gone, event-failed")];
/// The subscriptions to GitHub, the phases that they report, and their receivers. Each has a connection of its own.
const OF_GITHUB: [(&str, &str, &str); 3] = [
    ("github-status", "starting, ready, updating, failed, stuck", "github: {REPOSITORY, sha: abc123}"),
    ("github-deployment", "starting, ready, failed, gone", "deployment: {REPOSITORY, sha: abc123}"),
    ("github-comment", "ready, failed, gone", "comment: {REPOSITORY, number: \"7\"}"),
];
/// The URL of all receivers, before the name of the subscription, or before a path of GitHub.
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

const GITHUB: &str = "#github";

/// Returns a document as the store has it. `rest` is what follows its name.
pub(super) fn stored_document(kind: &str, name: &str, rest: &str) -> NamedDocument {
    let document = crate::platform::named(kind, name, rest);
    NamedDocument { name: name.to_owned(), document, changed: SimRuntime::default().now() }
}

/// Returns the subscriptions as the store has them.
pub(super) fn documents() -> impl Iterator<Item = NamedDocument> {
    SUBSCRIPTIONS.into_iter().map(|(name, phases)| {
        let to = format!("{{standard: {{url: \"{RECEIVERS}{name}\", secret: {SECRET}}}}}");
        stored_document("Subscription", name, &format!("on: [{phases}]\nto: {to}\n"))
    })
}

/// Returns the connection to GitHub, and the subscriptions that use it.
pub(super) fn of_github() -> (NamedDocument, impl Iterator<Item = NamedDocument>) {
    let (origin, names) = (RECEIVERS.trim_end_matches('/'), OF_GITHUB.map(|(name, ..)| name).join(", "));
    let rest = format!("origin: {origin}\nauth: {{bearer: {{secret: {SECRET}}}}}\nsubscriptions: [{names}]\n");
    let subscriptions = OF_GITHUB.into_iter().map(|(name, phases, to)| {
        let to = to.replace("REPOSITORY", "connection: github, repository: acme/shop");
        stored_document("Subscription", name, &format!("on: [{phases}]\nto: {{{to}}}\n"))
    });
    (stored_document("Connection", "github", &rest), subscriptions)
}

/// Records the notifications that the write of a target appends. A change of the phase that appends none is
/// wrong.
pub(super) fn appended(state: &mut TableState, seen: Option<&TargetHead>, target: &TargetHead) {
    let reports_all = state.documents.contains_key(&named(NamedKind::Subscription, SUBSCRIPTIONS[0].0));
    let name = format!("{}/{}", target.kind, target.name);
    let mut is_reported = false;
    // The platform records what it gets about withdrawn instances.
    let of_subscriptions = |notice: &&PhaseNotice| notice.number == target.version && !notice.is_for_platform();
    for notice in target.outbox.notices.iter().filter(of_subscriptions) {
        for subscription in &notice.to {
            state.appended.entry((subscription.clone(), name.clone())).or_default().insert(notice.number, notice.phase);
            is_reported = true;
        }
    }
    let is_same = seen.is_some_and(|seen| seen.uid == target.uid && seen.phase == target.phase);
    // An instance that was deleted before its creation never began.
    let is_late = target.plan.is_empty();
    if reports_all && !is_same && !is_late && !is_reported {
        let (phase, version) = (target.phase, target.version);
        state.wrong.push(format!("{name} is {phase:?} in version {version}, and no subscription reports it"));
    }
}

pub(super) struct SimReceivers {
    pub(super) executor: Arc<SimExecutor>,
    pub(super) outages: Mutex<BTreeMap<String, u64>>,
}

impl SimReceivers {
    /// Receives a request to a URL that begins with [`RECEIVERS`].
    pub(super) async fn receive(&self, rest: &str, request: &HttpRequest) -> CallResult<HttpResponse> {
        let subscription = if rest.starts_with("repos/") { GITHUB } else { rest };
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
        if subscription == GITHUB {
            runtime.sleep(RESPONSE_MS).await;
            let (status, body) = ledger.state().github.respond(&request.method, rest, &event);
            ledger.trace(|| format!("GitHub answers {status} to {} {rest} {event}", request.method));
            return self.executor.answer(FaultKind::ResponseLost, HttpResponse::new(status, body.to_string())).await;
        }
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
        if OF_GITHUB.iter().any(|(name, ..)| *name == of.0) {
            continue;
        }
        let wanted: BTreeSet<u64> = appended.get(of).into_iter().flat_map(BTreeMap::keys).copied().collect();
        let received = received.get(of).cloned().unwrap_or_default();
        let numbers: BTreeSet<u64> = received.iter().map(|(number, _)| *number).collect();
        let ids: BTreeSet<&String> = received.iter().map(|(_, id)| id).collect();
        if numbers != wanted || ids.len() != wanted.len() || !received.is_sorted_by_key(|(number, _)| *number) {
            wrong.push(format!("the receiver {of:?} got {received:?} of {wanted:?}"));
        }
    }
    wrong.extend(of_pull_requests(&simulation.ledger.state().github, &appended));
    wrong
}

/// Each target has one comment, one deployment and one commit status at GitHub at most, each with the last phase that was
/// reported, and GitHub rejects nothing.
fn of_pull_requests(
    github: &GithubStandIn,
    appended: &BTreeMap<(String, String), BTreeMap<u64, TargetChange>>,
) -> Vec<String> {
    let mut wrong: Vec<String> = github.wrong.iter().map(|request| format!("GitHub rejects {request}")).collect();
    for ((subscription, target), phases) in appended {
        let Some((_, phase)) = phases.last_key_value() else { continue };
        let (_, name) = target.split_once('/').unwrap_or_default();
        let of_deployments = || github.deployments.iter().filter(|(made, _)| made["environment"] == name);
        let state = |begun| match phase {
            TargetChange::Ready => "success",
            TargetChange::Failed => "failure",
            TargetChange::Stuck => "error",
            TargetChange::Gone => "inactive",
            _ => begun,
        };
        let (shown, expected): (Vec<String>, &str) = match subscription.as_str() {
            "github-status" => {
                let end = format!("/{name}");
                let is_own =
                    |status: &&Value| status["context"].as_str().is_some_and(|context| context.ends_with(&end));
                let last = github.statuses.iter().rfind(is_own).map(|status| status["state"].to_string());
                (last.into_iter().collect(), state("pending"))
            }
            // A target that was deleted before it was reported has none.
            "github-deployment" if *phase == TargetChange::Gone && of_deployments().next().is_none() => continue,
            "github-deployment" => {
                let last = |(_, statuses): &(Value, Vec<Value>)| statuses.last().map(|last| last["state"].to_string());
                (of_deployments().filter_map(last).collect(), state("in_progress"))
            }
            "github-comment" => {
                let own = github.comments.iter().filter(|text| text.starts_with(&format!("`{target}` ")));
                (own.cloned().collect(), phase.name())
            }
            _ => continue,
        };
        if shown.len() != 1 || !shown[0].contains(expected) {
            wrong.push(format!("{subscription} shows {shown:?} for {target}, expected {expected}"));
        }
    }
    wrong
}
