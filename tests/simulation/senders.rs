//! Senders beside the platform: programs that call the API, and sources.

use ebb_documents::pinned_version::{PinnedDocument, with_version};
use ebb_protocol::ApplyTarget;

use super::*;

/// The longest delay of an event of a source.
const DELAY_MS: u64 = 20_000;
const AGAIN_MS: u64 = 1_000;

#[derive(Clone, Debug)]
pub(super) struct SimSource {
    pub(super) name: String,
    is_timed: bool,
    /// True if its deliveries have signed ids. Otherwise equal events are repetitions.
    has_ids: bool,
    names_instances: bool,
    /// True if a document lists what exists at the sender.
    pub(super) has_origin: bool,
}

#[derive(Clone, Debug)]
pub(super) struct SentEvent {
    event: DesiredTarget,
    revision: String,
    at: u64,
}

impl SimSource {
    pub(super) fn random(number: u64, random: &SimRandom, origins: &SimRandom) -> Self {
        let (is_timed, has_ids) = (random.below(3) > 0, random.below(3) > 0);
        let names_instances = random.below(3) == 0;
        // Without ids, the event that opens a thing again is a repetition.
        let has_origin = origins.below(2) == 0 && has_ids;
        Self { name: format!("s{number}"), is_timed, has_ids, names_instances, has_origin }
    }
}

impl PlatformSender {
    pub(super) fn next_revision(&self) -> String {
        let mut state = self.0.ledger.state();
        state.revisions += 1;
        state.revisions.to_string()
    }

    /// Returns a random document of a target, as a sender sends it, and its revision.
    pub(super) fn any_document(
        &self,
        target: &TargetScenario,
        (name, by): (&str, &str),
        random: &SimRandom,
    ) -> (String, String) {
        let number = random.below(2 * target.changed.len() as u64 + 1) as usize;
        let text = target.changed.get(number).unwrap_or(&target.document).replace("NAME", name);
        let revision = self.next_revision();
        (owners::document(&text, by, &revision), revision)
    }

    /// Applies and deletes the target of a name by the API.
    pub(super) async fn call_api(self, name: String, target: TargetScenario, random: SimRandom) {
        let _active = self.0.ledger.activity();
        let functions = &self.0.functions;
        let mut newest = None;
        for number in 0..1 + random.below(4) {
            // The third request names the generation that was the newest before the second one. Others change the target
            // in the pauses.
            if number != 2 {
                newest = self.0.ledger.state().newest_generation(&name);
            }
            let seen = newest.filter(|_| number % 2 == 0);
            self.pause(&random).await;
            if random.below(8) == 0 {
                self.delete_by(PERSON, &name, None).await;
                continue;
            }
            // An instance that the platform has created, or another one.
            let known = |uid: &String| self.0.ledger.state().instances.contains_key(uid);
            let uid = match random.below(6) {
                0 => Some(format!("{name}-{}", random.below(3))).filter(known),
                1 => Some(format!("{name}-a{}", number / 2)),
                _ => None,
            };
            let (document, revision) = self.any_document(&target, (&name, DIRECT), &random);
            let key = (random.below(2) == 0).then(|| format!("request-{revision}"));
            let routing_key = (random.below(3) == 0).then(|| format!("rk-{revision}"));
            let (kind, name) = (KIND.to_owned(), name.clone());
            let caller = CALLERS[number as usize % CALLERS.len()];
            self.0.ledger.state().owners.insert(revision.clone(), caller.to_owned());
            let allow_replace = target.document.contains(PROTECTED).then(|| random.below(3) == 0);
            self.0.ledger.state().keeping.extend((allow_replace == Some(false)).then(|| revision.clone()));
            let target = ApplyTarget { kind, name, document, uid, generation: seen, allow_replace, routing_key };
            let request = TargetRequest { target, key, access: owners::access(caller), source: None };
            if random.below(4) == 0 {
                functions.preview(request.clone()).await.ok();
            }
            // The deletion of the instance arrives before, during or after its creation.
            if let Some(uid) = request.derived_uid().filter(|_| revision.ends_with('7')) {
                let (own, name) = (self.clone(), request.target.name.clone());
                self.0.runtime.spawn(async move {
                    let _active = own.0.ledger.activity();
                    own.delete_by(owners::OPERATOR, &name, Some(&uid)).await;
                });
            }
            let Some(response) = self.apply(&request, &revision).await else { continue };
            let (generation, routing_key) = (response.generation, request.target.routing_key);
            if let Some(named) = seen {
                self.0.ledger.state().conditional[0] += 1;
                if generation != named + 1 && !self.0.ledger.state().repeated.contains(&revision) {
                    let text = format!("{revision} is generation {generation} of {}; it named {named}", response.uid);
                    self.0.ledger.report_violation(text);
                }
            }
            let accepted = AcceptedDocument { generation, revision, routing_key };
            self.0.ledger.state().accepted.entry(response.uid).or_default().push(accepted);
        }
    }

    /// Sends a request to the API until it has a response. Returns `None` for one that it may refuse, because of the instance or
    /// of the policy of a cluster.
    async fn apply(&self, request: &TargetRequest, revision: &str) -> Option<LifecycleResponse> {
        let ledger = &self.0.ledger;
        let response = loop {
            match self.0.functions.apply(request.clone()).await {
                Ok(response) => break response,
                // The one before may have changed another instance.
                Err(_) => {
                    ledger.state().repeated.insert(revision.to_owned());
                    self.0.runtime.sleep(AGAIN_MS).await;
                }
            }
        };
        ledger.trace(|| format!("the API applies {revision} to {}: {response:?}", request.target.name));
        match &response {
            Err(Rejection::Refused(ErrorCode::Outdated, _)) if request.target.generation.is_some() => {
                ledger.state().conditional[1] += 1;
            }
            Err(Rejection::Refused(code, _)) if code.statuses() == [409] => {}
            Err(Rejection::Document(found)) if found.iter().all(|one| one.code == CLUSTER_POLICY) => {}
            Err(rejection) => ledger.report_violation(format!("the API: {rejection:?}")),
            Ok(_) => {}
        }
        response.ok()
    }

    /// Gives the living instance of a source another version of its first plugin, as the API does with the newest document of
    /// the source. Does nothing while an update waits.
    async fn upgrade(&self, source: &str, name: &str) -> Option<()> {
        let ledger = &self.0.ledger;
        let (head, plan) = {
            let table = ledger.table.state();
            let head = table.targets.get(name).filter(|head| head.source.as_deref() == Some(source))?;
            (head.phase.is_alive() && head.pending_update.is_none()).then_some(())?;
            (head.clone(), table.plan(&head.instance_key())?)
        };
        let revision = plan.target.labels.get("rev")?;
        let is_newest = |sent: &&SentEvent| sent.revision == *revision && sent.event.key.name == name;
        let text = ledger.state().sent.iter().find(is_newest).and_then(|sent| sent.event.document.clone())?;
        let plugins: BTreeMap<_, _> = plan.resources.iter().map(|(of, one)| (of.clone(), one.plugin.clone())).collect();
        let (plugin, version) = plugins.get("a")?.split_once('@')?;
        let full = format!("{plugin}@{}", if version == REPAIRED { "1.0.0" } else { REPAIRED });
        let PinnedDocument { text: document, is_allowed } = with_version(&text, &full, &plugins).ok()??;
        is_allowed.then_some(())?;
        let (kind, name, uid) = (KIND.to_owned(), name.to_owned(), Some(head.uid.clone()));
        let generation = Some(head.newest_generation());
        let target = ApplyTarget { kind, name, document, uid, generation, ..ApplyTarget::default() };
        let (access, source) = (owners::access(CALLERS[0]), head.source.clone());
        ledger.state().upgrades.insert((head.uid.clone(), full.clone()));
        ledger.state().upgraded.remove(&head.uid);
        self.apply(&TargetRequest { target, key: None, access, source }, revision).await?;
        let mut state = ledger.state();
        state.repaired[2] += 1;
        state.upgraded.insert(head.uid, full);
        Some(())
    }

    /// Deletes every instance of a name, or only that with the identity `uid`.
    pub async fn delete_by(&self, by: &str, name: &str, uid: Option<&str>) {
        self.will_delete(by, name, uid.map(str::to_owned));
        while self.0.functions.delete_target(by, name, uid).await.is_err() {
            self.0.runtime.sleep(AGAIN_MS).await;
        }
        let now = self.0.runtime.elapsed();
        self.0.ledger.state().deleted.insert(name.to_owned(), now);
    }

    pub(super) fn will_delete(&self, by: &str, name: &str, uid: Option<String>) {
        self.0.ledger.trace(|| format!("{by} deletes {name} {uid:?}"));
        self.0.ledger.state().deletions.insert(RequestedDeletion { by: by.to_owned(), name: name.to_owned(), uid });
    }

    /// Sends the events of a source for one name: in any order, repeated, some for instances of others.
    pub(super) async fn send_source(self, source: SimSource, name: String, target: TargetScenario, random: SimRandom) {
        let _active = self.0.ledger.activity();
        let is_ranged = self.0.ledger.state().is_ranged;
        let target = if is_ranged { target.ranged() } else { target };
        let mut time = self.0.runtime.now().0;
        for number in 0..1 + random.below(6) {
            self.pause(&random).await;
            // Some events have the time of the one before.
            time += if random.below(4) == 0 { 0 } else { 1_000 };
            if source.has_origin {
                // Those that follow a list are newer than it.
                time = time.max(self.0.runtime.now().0);
            }
            let uid = source.names_instances.then(|| match random.below(4) {
                0 => format!("{name}-{}", random.below(3)),
                _ => format!("{name}-{}-{}", source.name, number / 2),
            });
            let is_delete = random.below(3) == 0;
            self.send_to_source(&source, (&name, uid, time), (!is_delete).then_some(&target), &random);
            if is_ranged {
                self.pause(&random).await;
                self.upgrade(&source.name, &name).await;
            }
        }
    }

    fn send_to_source(
        &self,
        source: &SimSource,
        (name, uid, time): (&str, Option<String>, u64),
        target: Option<&TargetScenario>,
        random: &SimRandom,
    ) {
        let by = source.name.as_str();
        let (document, revision) = match target {
            Some(target) if source.has_ids => self.any_document(target, (name, by), random),
            // Without ids, equal bodies are equal deliveries.
            Some(target) => {
                let revision = format!("{by}-{}", random.below(2));
                (owners::document(&target.document.replace("NAME", name), by, &revision), revision)
            }
            None => (String::new(), self.next_revision()),
        };
        self.0.ledger.state().owners.insert(revision.clone(), format!("source {by}"));
        let is_delete = target.is_none();
        let body = || {
            let content = if is_delete { "deleted" } else { revision.as_str() };
            let time = if source.is_timed { time } else { 0 };
            format!("{content}-{time}-{}", uid.as_deref().unwrap_or_default())
        };
        let delivery = if source.has_ids { revision.clone() } else { self.next_revision() };
        let order = if is_delete { 1 } else { 2 * u8::from(revision.ends_with('1')) };
        let event = DesiredTarget {
            delivery: format!("{by}-{delivery}"),
            order,
            identity: (!source.has_ids).then(body),
            key: DesiredKey { source: by.to_owned(), kind: KIND.to_owned(), name: name.to_owned(), uid: uid.clone() },
            sent: source.is_timed.then_some(ebb_engine::Timestamp(time)),
            document: (!is_delete).then_some(document),
            is_delete,
            is_limited: self.0.ledger.state().limits.contains_key(by),
            ..DesiredTarget::default()
        };
        if is_delete {
            self.will_delete(by, name, uid);
        }
        let at = self.0.runtime.elapsed();
        if source.has_origin {
            self.0.ledger.state().origins.note(&event.key, (!is_delete).then_some(at));
            if is_delete && self.0.faults.should_inject(FaultKind::ClosingLost) {
                self.0.ledger.trace(|| format!("{by} closes {name} without an event"));
                return;
            }
        }
        self.0.ledger.state().sent.push(SentEvent { event: event.clone(), revision, at });
        for _ in 0..1 + random.below(4) / 3 {
            let delay = if random.below(2) == 0 { 0 } else { random.below(DELAY_MS) };
            let (own, event) = (self.clone(), event.clone());
            self.0.runtime.spawn(async move {
                let _active = own.0.ledger.activity();
                own.0.runtime.sleep(delay).await;
                own.deliver_event(event).await;
            });
        }
    }

    async fn deliver_event(&self, event: DesiredTarget) {
        let work = &self.0;
        let response = loop {
            match work.functions.source_event(event.clone()).await {
                Ok(response) => break response,
                Err(_) => work.runtime.sleep(AGAIN_MS).await,
            }
        };
        work.ledger.trace(|| format!("{} {:?}: {response:?}", event.delivery, event.key));
        let is_outdated = response.is_some_and(|response| response.result == SourceResult::Outdated);
        if is_outdated && event.sent.is_none() && event.key.uid.is_none() {
            work.ledger.report_violation(format!("{} has no time and is outdated", event.delivery));
        }
    }

    /// Deletes what the sources of a simulation have made, and everything else.
    pub(super) async fn clean(self, names: Vec<String>, sources: Vec<SimSource>) {
        let _active = self.0.ledger.activity();
        let sent = self.0.ledger.state().sent.clone();
        let keys: BTreeSet<DesiredKey> = sent.into_iter().map(|sent| sent.event.key).collect();
        let random = SimRandom::new(1);
        for key in keys {
            let Some(source) = sources.iter().find(|source| source.name == key.source) else { continue };
            let source = SimSource { has_ids: true, has_origin: false, ..source.clone() };
            self.send_to_source(&source, (&key.name, key.uid, self.0.runtime.now().0), None, &random);
        }
        // The longest delay of an event, and of its application by a sweep.
        self.0.runtime.sleep(DELAY_MS + 120_000).await;
        for name in names {
            self.delete_by(owners::OPERATOR, &name, None).await;
        }
    }
}

/// The newest event of a recorded state was applied, or it is listed as rejected.
pub(super) fn check(record: &DesiredTarget, state: &TableState, ledger: &LedgerState) -> Option<String> {
    let DesiredTarget { key, delivery, .. } = record;
    let events: Vec<&SentEvent> = ledger.sent.iter().filter(|sent| sent.event.key == *key).collect();
    let source = &key.source;
    // An instance ends once, so its deletion is the last event, unless a newer one has withdrawn it.
    let entry = key.uid.as_ref().and_then(|uid| ledger.instances.get(uid));
    let is_withdrawn = !record.is_delete && entry.is_some_and(|entry| entry.was_refused);
    let order = |event: &DesiredTarget| {
        let is_end = key.uid.is_some() && event.is_delete && !is_withdrawn;
        (is_end, event.sent.filter(|_| !is_end), event.order)
    };
    let is_timed = events.iter().all(|sent| sent.event.sent.is_some());
    let newest = events.iter().map(|sent| order(&sent.event)).max();
    let decided: Vec<&SentEvent> =
        events.iter().copied().filter(|sent| sent.event.identity() == record.identity()).collect();
    let is_listed = delivery.starts_with(MISSING);
    if is_listed && ledger.origins.things.get(key) != Some(&None) {
        return Some(format!("{delivery} of {source} ends {key:?}, whose thing is open"));
    }
    if is_timed && !is_listed && !decided.iter().any(|sent| Some(order(&sent.event)) == newest) {
        return Some(format!("{delivery} of {source} decides {key:?}, and {newest:?} is newer"));
    }
    let Some(result) = &record.result else {
        return Some(format!("{delivery} of {source} was accepted and is not applied"));
    };
    let of_name = || ledger.instances.iter().filter(|(_, entry)| entry.name == key.name);
    if result.result == SourceResult::Rejected {
        let at = record.result_time.unwrap_or_default().0;
        let is_taken = of_name().any(|(_, entry)| entry.sender != *source && entry.is_of(at));
        let is_refused = is_taken || ledger.strict_policies > 0 || result.detail.contains("`protect: true`");
        let is_refused = is_refused || result.detail.ends_with(" targets of the source live");
        return (!is_refused).then(|| format!("{delivery} of {source} is rejected, and {key:?} is free"));
    }
    let target = state.targets.get(&key.name);
    let is_own = |(uid, entry): &(&String, &InstanceEntry)| {
        let is_named = key.uid.as_ref().is_none_or(|of| of == *uid);
        is_named && entry.sender == *source && target.is_some_and(|target| is_present(target, uid))
    };
    let own: Vec<(&String, &InstanceEntry)> = of_name().filter(is_own).collect();
    if record.is_delete {
        return own.first().map(|(uid, _)| format!("{uid} lives, and {delivery} of {source} has deleted it"));
    }
    let is_newest = |entry: &InstanceEntry| decided.iter().any(|sent| sent.revision == entry.revision);
    if let Some((uid, entry)) = own.iter().find(|(_, entry)| !is_newest(entry)) {
        return Some(format!("{uid} has revision {}, and {delivery} of {source} decides", entry.revision));
    }
    // Its instance has ended, and no event names it, so a person has deleted it since.
    let deleted = ledger.deleted.get(&key.name).copied();
    let sent = decided.iter().map(|sent| sent.at).min();
    let is_ended = || {
        let is_over = result.uid.as_ref().is_some_and(|uid| is_over(state, key, uid));
        is_over && (key.uid.is_some() || deleted >= sent)
    };
    // Another instance has the name or waits for it. Another sender may have given it the same UID since.
    let is_own = |uid: &String| ledger.instances.get(uid).is_none_or(|entry| entry.sender == *source);
    let is_other = |target: &TargetHead| result.uid.as_ref().is_none_or(|uid| !is_present(target, uid) || !is_own(uid));
    let is_full = ledger.is_full(state, source);
    let waits = result.result == SourceResult::Accepted && (is_full || target.is_some_and(is_other));
    (own.is_empty() && !waits && !is_ended())
        .then(|| format!("{delivery} of {source} is {:?}, and its target {key:?} does not exist", result.result))
}

/// Returns true if an instance has begun and ended.
fn is_over(state: &TableState, key: &DesiredKey, uid: &str) -> bool {
    let instance = ebb_protocol::id::instance_key(KIND, &key.name, uid);
    let target = state.targets.get(&key.name);
    state.tombstones.contains_key(&instance)
        || target.is_some_and(|target| target.uid == uid && !target.phase.is_alive())
}
