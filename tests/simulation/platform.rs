//! The platform and the operators: lifecycle webhooks in any order and number, and operations at any time.

use axum::http::{HeaderName, HeaderValue};
use ebb_protocol::lifecycle::DELETED;
use ebb_protocol::{LifecycleResult, cloudevents};

use super::owners::PLATFORM;
use super::*;
use crate::platform::sandbox;

pub(super) const EVENT: &str = "sleep";
pub const KIND: &str = "sandbox";
/// A request without a response is sent again after this time.
const AGAIN_MS: u64 = 1_000;
/// The longest delay of a first webhook.
const LATE_MS: u64 = 30_000;
/// The longest time between two events of a target.
const EVENT_PAUSE_MS: u64 = 60_000;
/// The longest delay of a duplicated webhook.
const DUPLICATE_MS: u64 = 300_000;
/// The status for a body that is not an event in structured mode.
const UNSUPPORTED: u16 = 415;

/// An instance of a target, as the platform requests it.
#[derive(Clone, Debug)]
pub struct SimInstance {
    pub name: String,
    pub uid: String,
    pub(super) document: String,
    /// Other documents of the same target.
    pub(super) changed: Vec<String>,
    /// True if its time to live ends it.
    pub(super) expires: bool,
    /// The ids of the events that the platform sends to it, see [`EVENT`].
    pub(super) events: Vec<String>,
}

#[derive(Clone, Debug)]
struct SimWebhook {
    event_type: LifecycleType,
    id: String,
    data: LifecycleData,
    revision: String,
}

/// Sends webhooks and requests of operators. Clones are the same sender.
#[derive(Clone)]
pub struct PlatformSender(pub(super) Arc<SimExecutor>);

impl PlatformSender {
    fn event(instance: &SimInstance, event_type: LifecycleType, generation: u64, document: &str) -> SimWebhook {
        let needs_document = matches!(event_type, LifecycleType::Created | LifecycleType::Updated);
        let document = needs_document.then(|| document.to_owned());
        let event = (event_type == LifecycleType::Event).then(|| EVENT.to_owned());
        let data = LifecycleData { generation, document, event, ..sandbox(&instance.name, &instance.uid, "") };
        SimWebhook { event_type, id: format!("{}-{event_type:?}", instance.uid), data, revision: String::new() }
    }

    /// Sends a webhook, perhaps late, perhaps twice. Returns after the response, or at once if the webhook is late.
    async fn send(&self, event: SimWebhook) -> Option<Rejection> {
        let faults = &self.0.faults;
        if faults.should_inject(FaultKind::EventBinary) {
            self.alter(&event.data).await;
        }
        if faults.should_inject(FaultKind::EventDuplicated) {
            let later = faults.zero_or_below(FaultKind::EventDuplicated, DUPLICATE_MS);
            self.later(event.clone(), later);
        }
        if faults.should_inject(FaultKind::EventLate) {
            self.later(event, faults.random_below(FaultKind::EventLate, LATE_MS));
            return None;
        }
        self.deliver(event).await
    }

    /// Sends a captured webhook in binary mode, as an event of another type. Its headers are not signed.
    async fn alter(&self, event: &LifecycleData) {
        let headers = [("content-type", "application/json"), ("ce-specversion", "1.0"), ("ce-type", DELETED)];
        let headers = headers.map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        let body = serde_json::to_vec(event).expect("events are JSON");
        match cloudevents::parse(&headers.into_iter().collect(), &body) {
            Err(refused) if refused.status() == UNSUPPORTED => {}
            other => {
                self.0.ledger.report_violation(format!("an event in binary mode is read as {other:?}"));
                if let Ok(event) = other {
                    let (event_type, id, data) = (event.event_type, event.id, event.data);
                    self.deliver(SimWebhook { event_type, id, data, revision: String::new() }).await;
                }
            }
        }
    }

    fn later(&self, event: SimWebhook, millis: u64) {
        let own = self.clone();
        self.0.runtime.spawn(async move {
            let _active = own.0.ledger.activity();
            own.0.runtime.sleep(millis).await;
            own.deliver(event).await;
        });
    }

    /// Sends a webhook until it has a response. Returns the rejection.
    async fn deliver(&self, event: SimWebhook) -> Option<Rejection> {
        use ErrorCode::{Busy, Failed, NameTaken, NotFound, OtherOwner, Outdated, Protected, Stale};
        let SimWebhook { event_type, id, data, revision } = event;
        let work = &self.0;
        loop {
            if work.faults.should_inject(FaultKind::EventLost) {
                work.runtime.sleep(AGAIN_MS).await;
                continue;
            }
            let sent = work.runtime.now().0;
            let response = work.functions.lifecycle((event_type, id.clone()), data.clone()).await;
            work.ledger.trace(|| format!("{event_type:?} {} {}: {response:?}", data.uid, data.generation));
            let is_lost = work.faults.should_inject(FaultKind::EventAnswerLost);
            match response {
                Ok(Ok(response)) if !is_lost => {
                    let is_change = matches!(event_type, LifecycleType::Updated | LifecycleType::Event);
                    if is_change && !matches!(response.result, LifecycleResult::Unchanged | LifecycleResult::Retrying) {
                        let mut state = work.ledger.state();
                        let last = state.last_activity.entry(data.uid.clone()).or_default();
                        *last = sent.max(*last);
                    }
                    let runs = matches!(response.result, LifecycleResult::Running | LifecycleResult::Waiting);
                    if runs && data.event.is_some() {
                        work.ledger.state().events.insert((data.uid.clone(), id));
                    }
                    if data.document.is_some() {
                        let (generation, routing_key) = (data.generation, data.routing_key);
                        let accepted = AcceptedDocument { generation, revision, routing_key };
                        work.ledger.state().accepted.entry(data.uid).or_default().push(accepted);
                    }
                    return None;
                }
                Ok(Err(Rejection::Refused(Protected, _))) => {
                    work.ledger.state().kept[usize::from(data.document.is_none())] += 1;
                    return None;
                }
                // Too many events wait.
                Ok(Err(Rejection::Refused(Busy, _))) => work.runtime.sleep(AGAIN_MS).await,
                // The policy is another one later.
                Ok(Err(Rejection::Document(found))) if found.iter().all(|one| one.code == CLUSTER_POLICY) => {
                    work.runtime.sleep(AGAIN_MS).await
                }
                Ok(Err(rejection)) if !is_lost => {
                    let is_known = match rejection {
                        Rejection::Refused(Stale | NameTaken | Outdated | OtherOwner, _) => true,
                        Rejection::Refused(Failed | NotFound, _) => data.event.is_some(),
                        Rejection::Refused(..) | Rejection::Document(_) => false,
                    };
                    let is_stale = matches!(rejection, Rejection::Refused(Stale, _));
                    let has_begun = work.ledger.state().instances.get(&data.uid).is_some_and(|entry| entry.has_begun);
                    // A source may have created and deleted an instance with the same UID.
                    let is_named = work.ledger.state().deletions.iter().any(|one| one.uid.as_ref() == Some(&data.uid));
                    let is_ended = has_begun || is_named || work.ledger.is_deleted_by(DIRECT, &data.name, &data.uid);
                    if !is_known || (is_stale && data.document.is_some() && !is_ended) {
                        work.ledger.report_violation(format!("{event_type:?} {}: {rejection:?}", data.uid));
                    }
                    return Some(rejection);
                }
                _ => work.runtime.sleep(AGAIN_MS).await,
            }
        }
    }

    pub async fn create(&self, instance: &SimInstance) -> Option<Rejection> {
        self.send(Self::event(instance, LifecycleType::Created, 1, &instance.document)).await
    }

    /// Requests an instance once, even without a response.
    pub async fn create_once(&self, instance: &SimInstance) {
        let event = Self::event(instance, LifecycleType::Created, 1, &instance.document);
        self.0.functions.lifecycle((event.event_type, event.id), event.data).await.ok();
    }

    /// Deletes an instance. A deletion is rejected only for an instance that a source has created.
    pub async fn delete(&self, instance: &SimInstance) {
        self.will_delete(DIRECT, &instance.name, Some(instance.uid.clone()));
        let event = Self::event(instance, LifecycleType::Deleted, 1, "");
        if let Some(rejection) = self.send(event).await {
            let sender = self.0.ledger.state().instances.get(&instance.uid).map(|entry| entry.sender.clone());
            if sender.is_none_or(|sender| sender == DIRECT) {
                self.0.ledger.report_violation(format!("the deletion of {}: {rejection:?}", instance.uid));
            }
        }
    }

    pub async fn send_events(&self, instance: &SimInstance, random: &SimRandom, pause_ms: u64) {
        for number in 0..instance.events.len() {
            self.0.runtime.sleep(random.below(pause_ms + 1)).await;
            self.send_event(instance, number).await;
        }
    }

    pub async fn send_event(&self, instance: &SimInstance, number: usize) {
        let event = Self::event(instance, LifecycleType::Event, 1, "");
        self.send(SimWebhook { id: instance.events[number].clone(), ..event }).await;
    }

    pub(super) async fn pause(&self, random: &SimRandom) {
        let most = [0, 3_000, 60_000, 240_000][random.below(4) as usize];
        self.0.runtime.sleep(random.below(most + 1)).await;
    }

    /// Sends a document of an instance, perhaps with a routing key. `sent` has the earlier ones with their revisions. One in
    /// four is sent again.
    async fn change(
        &self,
        instance: &SimInstance,
        generation: u64,
        sent: &mut Vec<(String, String)>,
        random: &SimRandom,
    ) {
        let change = if sent.is_empty() { LifecycleType::Created } else { LifecycleType::Updated };
        let number = random.below(instance.changed.len() as u64 + 1) as usize;
        let other = instance.changed.get(number).filter(|_| change == LifecycleType::Updated);
        let revision = self.next_revision();
        self.0.ledger.state().owners.insert(revision.clone(), PLATFORM.to_owned());
        let document = owners::document(other.unwrap_or(&instance.document), DIRECT, &revision);
        let earlier = sent.get(random.below(4 * sent.len() as u64 + 1) as usize).cloned();
        let (revision, document) = earlier.unwrap_or((revision, document));
        sent.push((revision.clone(), document.clone()));
        let event = Self::event(instance, change, generation, &document);
        let routing_key = (random.below(3) == 0).then(|| format!("rk-{revision}"));
        self.send(SimWebhook { data: LifecycleData { routing_key, ..event.data }, revision, ..event }).await;
    }

    /// Creates and deletes the instances of one name, one after the other or overlapping. The last one may stay.
    pub(super) async fn run(self, instances: Vec<SimInstance>, random: SimRandom) {
        let _active = self.0.ledger.activity();
        let mut alive: Option<&SimInstance> = None;
        for instance in &instances {
            self.pause(&random).await;
            if random.below(12) == 0 {
                // Deleted before it is created.
                self.delete(instance).await;
                self.pause(&random).await;
            }
            let overlaps = random.below(2) == 0;
            if let Some(before) = alive.take_if(|_| !overlaps) {
                self.end(before, &random).await;
                self.pause(&random).await;
            }
            let mut sent = Vec::new();
            self.change(instance, 1, &mut sent, &random).await;
            if !instance.events.is_empty() {
                let (own, instance, random) = (self.clone(), instance.clone(), SimRandom::new(random.bits()));
                self.0.runtime.spawn(async move {
                    let _active = own.0.ledger.activity();
                    own.send_events(&instance, &random, EVENT_PAUSE_MS).await;
                });
            }
            if random.below(3) == 0 {
                // The document of generation 1 is the first one, also if an update overtakes it.
                let mut generation = 2;
                for _ in 0..1 + random.below(3) {
                    self.pause(&random).await;
                    self.change(instance, generation, &mut sent, &random).await;
                    generation += 1 + random.below(2);
                }
            }
            self.pause(&random).await;
            if let Some(before) = alive.take() {
                self.end(before, &random).await;
            }
            alive = Some(instance);
        }
        self.pause(&random).await;
        if let Some(last) = alive.filter(|_| random.below(2) == 0) {
            self.end(last, &random).await;
        }
    }

    async fn end(&self, instance: &SimInstance, random: &SimRandom) {
        if instance.expires && random.below(2) == 0 {
            return;
        }
        self.delete(instance).await;
        if random.below(8) == 0 {
            self.delete(instance).await;
        }
    }

    /// Runs operations on random instances at random times, by a list that is older: another instance may have the name since.
    /// Most often it repairs the units first.
    pub(super) async fn operate(self, names: Vec<String>, table: Arc<SimTable>, random: SimRandom) {
        let _active = self.0.ledger.activity();
        let present = |name: &String| table.state().targets.get(name).map(|target| target.uid.clone());
        let mut list = BTreeMap::new();
        for _ in 0..random.below(6) {
            list = names.iter().filter_map(|name| Some((name, present(name)?))).chain(list).collect();
            self.0.runtime.sleep(random.below(300_000)).await;
            if random.below(3) > 0 {
                self.0.ledger.repair();
            }
            let name = &names[random.below(names.len() as u64) as usize];
            let listed = list.get(name);
            self.0.ledger.state().conditional[2] += u64::from(listed.is_some() && present(name).as_ref() != listed);
            self.operation(name, listed.map(String::as_str), &random).await;
        }
    }

    /// Runs a random operation, most often a retry. It changes no other instance than `uid`, if one is given.
    pub(super) async fn operation(&self, name: &str, uid: Option<&str>, random: &SimRandom) {
        let functions = &self.0.functions;
        let overrides = async |unit: Option<String>| {
            let what = format!("overrides {unit:?} of {name} {uid:?}");
            let send = || functions.override_units(name, uid, unit.clone());
            self.request(what, send).await.ok().map(|done| done.run)
        };
        let changed = match (random.below(8), uid) {
            (0, _) => overrides(None).await,
            (1, _) => overrides(Some(self.any_undo(name, random))).await,
            (2, _) => {
                let send = || functions.repair(name, uid, None);
                self.request(format!("repairs {name} {uid:?}"), send).await.map(|repaired| repaired.run)
            }
            // The ledger reports the end of an instance whose deletion was not requested.
            (3, Some(_)) => {
                self.delete_by(owners::OPERATOR, name, uid).await;
                None
            }
            (number, _) => {
                let corrected = if number > 3 { self.correct(name, uid).await } else { None };
                if corrected.is_some() { corrected } else { self.retry(name, uid).await }
            }
        };
        let is_own = |run: &String| uid.is_none_or(|uid| run.starts_with(&instance_key(KIND, name, uid)));
        if let Some(run) = changed.filter(|run| !is_own(run)) {
            self.0.ledger.report_violation(format!("an operator has selected {uid:?}, and changed {run}"));
        }
    }

    /// Repairs the wrong own undos of a target, or only of its instance `uid`, with a document, if it has some. Returns the run
    /// that continues.
    async fn correct(&self, name: &str, uid: Option<&str>) -> Option<String> {
        let is_wrong = |unit: &&Arc<SimUnit>| {
            let is_of = unit.target == name && uid.is_none_or(|uid| unit.uid == uid);
            is_of && unit.plan.inputs.iter().any(|input| input.name == WRONG)
        };
        let ledger = &self.0.ledger;
        let wrong: Vec<Arc<SimUnit>> = ledger.state().units.values().filter(is_wrong).cloned().collect();
        let text = wrong.first().map(|_| format!("{EMPTY}{OWN_HOOKS}").replace("NAME", name))?;
        let send = || self.0.functions.repair(name, uid, Some(text.clone()));
        let repaired = self.request(format!("corrects {name} {uid:?}"), send).await?;
        let (table, mut state) = (ledger.table.state(), ledger.state());
        state.repaired[0] += u64::from(!repaired.changes.is_empty());
        for unit in wrong.iter().filter(|unit| repaired.uid.as_ref() == Some(&unit.uid)) {
            let last = table.head(&unit.run()).map_or(0, |head| head.attempt(Unit(unit.unit)).0);
            state.corrected.entry(unit.key.clone()).or_insert(last);
        }
        Some(repaired.run)
    }

    /// Retries a target, or only its instance `uid`. Returns the run that continues.
    pub(super) async fn retry(&self, name: &str, uid: Option<&str>) -> Option<String> {
        let send = || self.0.functions.retry(name, uid);
        self.request(format!("retries {name} {uid:?}"), send).await.ok().map(|retried| retried.run)
    }

    /// Returns the key of a random undo of a target, whether it has failed or not.
    fn any_undo(&self, name: &str, random: &SimRandom) -> String {
        let state = self.0.ledger.state();
        let undos: Vec<_> =
            state.units.values().filter(|unit| unit.hook.is_teardown() && unit.target == name).collect();
        let unit = undos.get(random.below(undos.len() as u64) as usize);
        unit.map(|unit| unit.unit_key.clone()).unwrap_or_default()
    }

    /// Sends a request of an operator until it has a response.
    async fn request<T, F>(&self, what: String, send: impl Fn() -> F) -> T
    where
        F: Future<Output = Result<T, InvocationFailure>>,
    {
        self.0.ledger.trace(|| format!("an operator {what}"));
        loop {
            if let Ok(response) = send().await {
                return response;
            }
            self.0.runtime.sleep(AGAIN_MS).await;
        }
    }
}
