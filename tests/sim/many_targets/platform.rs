//! What the platform and the operators do: webhooks in any order and number, and verbs at any time.

use std::sync::Arc;

use axum::http::{HeaderName, HeaderValue};
use ebb_flow::target::lifecycle::LifecycleRejection;
use ebb_protocol::cloudevents::{self, LifecycleType};
use ebb_protocol::lifecycle::{DELETED, LifecycleData};

use super::super::{FaultKind, SimRandom};
use super::executor::SimExecutor;
use super::ledger::SimActivity;

/// The kind of all targets of a simulation.
pub(super) const KIND: &str = "sandbox";
/// What was not answered is sent again after this long.
const AGAIN_MS: u64 = 1_000;
/// How late a first webhook may be, in milliseconds.
const LATE_MS: u64 = 30_000;
/// How late a repetition may be.
const DOUBLED_MS: u64 = 300_000;

/// The status for a body that is not an event in structured mode.
const UNSUPPORTED: u16 = 415;

/// One instance of a target, as the platform wants it.
#[derive(Clone, Debug)]
pub(super) struct SimInstance {
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) document: String,
    /// Another document of the same target.
    pub(super) changed: String,
    /// True if its time to live ends it.
    pub(super) expires: bool,
}

/// The platform.
#[derive(Clone)]
pub(super) struct PlatformSender(pub(super) Arc<SimExecutor>);

impl PlatformSender {
    fn event(instance: &SimInstance, asked: LifecycleType, generation: u64, document: &str) -> LifecycleData {
        LifecycleData {
            kind: KIND.to_owned(),
            name: instance.name.clone(),
            uid: instance.uid.clone(),
            generation,
            document: (asked != LifecycleType::Deleted).then(|| document.to_owned()),
            routing_key: None,
        }
    }

    /// Sends a webhook, perhaps late, perhaps twice; waits until it is answered, unless it is late.
    async fn send(&self, asked: LifecycleType, event: LifecycleData) {
        let faults = &self.0.faults;
        if faults.should_inject(FaultKind::EventBinary) {
            self.alter(&event).await;
        }
        if faults.should_inject(FaultKind::EventDuplicated) {
            let later = faults.zero_or_below(FaultKind::EventDuplicated, DOUBLED_MS);
            self.later(asked, event.clone(), later);
        }
        if faults.should_inject(FaultKind::EventLate) {
            self.later(asked, event, faults.random_below(FaultKind::EventLate, LATE_MS));
        } else {
            self.deliver(asked, event).await;
        }
    }

    /// Sends a captured webhook in binary mode, as an event of another type: its headers are not signed.
    async fn alter(&self, event: &LifecycleData) {
        let headers = [("content-type", "application/json"), ("ce-specversion", "1.0"), ("ce-type", DELETED)];
        let headers = headers.map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        let body = serde_json::to_vec(event).expect("events are JSON");
        match cloudevents::parse(&headers.into_iter().collect(), &body) {
            Err(refused) if refused.status() == UNSUPPORTED => {}
            other => {
                self.0.ledger.report_violation(format!("an event in binary mode is read as {other:?}"));
                if let Ok(event) = other {
                    self.deliver(event.event_type, event.data).await;
                }
            }
        }
    }

    fn later(&self, asked: LifecycleType, event: LifecycleData, millis: u64) {
        let own = self.clone();
        self.0.runtime.spawn(async move {
            let _active = SimActivity::new(&own.0.ledger);
            own.0.runtime.sleep(millis).await;
            own.deliver(asked, event).await;
        });
    }

    async fn deliver(&self, asked: LifecycleType, event: LifecycleData) {
        let work = &self.0;
        loop {
            if work.faults.should_inject(FaultKind::EventLost) {
                work.runtime.sleep(AGAIN_MS).await;
                continue;
            }
            let answer = work.functions.lifecycle(asked, event.clone()).await;
            work.ledger.trace(|| format!("{asked:?} {} {}: {answer:?}", event.uid, event.generation));
            let lost = work.faults.should_inject(FaultKind::EventAnswerLost);
            match answer {
                Ok(answer) if !lost => {
                    let known = matches!(
                        answer,
                        Ok(_)
                            | Err(LifecycleRejection::Conflict("stale" | "name-taken", _)
                                | LifecycleRejection::Changed(_))
                    );
                    if !known {
                        work.ledger.report_violation(format!("{asked:?} {}: {answer:?}", event.uid));
                    }
                    return;
                }
                _ => work.runtime.sleep(AGAIN_MS).await,
            }
        }
    }

    /// Waits.
    pub(super) async fn pause(&self, millis: u64) {
        self.0.runtime.sleep(millis).await;
    }

    pub(super) async fn create(&self, instance: &SimInstance) {
        self.send(LifecycleType::Created, Self::event(instance, LifecycleType::Created, 1, &instance.document)).await;
    }

    pub(super) async fn delete(&self, instance: &SimInstance) {
        self.send(LifecycleType::Deleted, Self::event(instance, LifecycleType::Deleted, 1, "")).await;
    }

    /// Plays the instances of one name, one after the other or overlapping.
    pub(super) async fn run(self, instances: Vec<SimInstance>, random: SimRandom) {
        let _active = SimActivity::new(&self.0.ledger);
        let pause = async |random: &SimRandom| {
            let most = [0, 3_000, 60_000, 240_000][random.below(4) as usize];
            self.0.runtime.sleep(random.below(most + 1)).await;
        };
        let mut alive: Option<&SimInstance> = None;
        for instance in &instances {
            pause(&random).await;
            if random.below(12) == 0 {
                // Deleted before it is created.
                self.delete(instance).await;
                pause(&random).await;
            }
            let overlaps = random.below(2) == 0;
            if let Some(before) = alive.take_if(|_| !overlaps) {
                self.end(before, &random).await;
                pause(&random).await;
            }
            self.create(instance).await;
            if random.below(4) == 0 {
                pause(&random).await;
                let document = if random.below(2) == 0 { &instance.document } else { &instance.changed };
                let event = Self::event(instance, LifecycleType::Updated, 2 + random.below(3), document);
                self.send(LifecycleType::Updated, event).await;
            }
            pause(&random).await;
            if let Some(before) = alive.take() {
                self.end(before, &random).await;
            }
            alive = Some(instance);
        }
        pause(&random).await;
        if let Some(last) = alive {
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

    /// Acts on anything at any time, and mends what is broken before it does so, mostly.
    pub(super) async fn operate(self, names: Vec<String>, random: SimRandom) {
        let _active = SimActivity::new(&self.0.ledger);
        for _ in 0..random.below(4) {
            self.0.runtime.sleep(random.below(300_000)).await;
            if random.below(3) > 0 {
                self.0.ledger.repair();
            }
            let name = &names[random.below(names.len() as u64) as usize];
            self.operation(name, &random).await;
        }
    }

    /// One of the verbs, most often `retry`.
    pub(super) async fn operation(&self, name: &str, random: &SimRandom) {
        match random.below(6) {
            0 => self.force_delete(name).await,
            1 => self.force_complete(name, random).await,
            _ => self.retry(name).await,
        }
    }

    async fn force_delete(&self, name: &str) {
        self.0.ledger.trace(|| format!("an operator force-deletes {name}"));
        while self.0.functions.force_delete(KIND, name).await.is_err() {
            self.0.runtime.sleep(AGAIN_MS).await;
        }
    }

    /// Force-completes a random unit, which may have failed or not.
    async fn force_complete(&self, name: &str, random: &SimRandom) {
        let units: Vec<String> = {
            let state = self.0.ledger.state();
            let undos = state.units.values().filter(|part| !part.sets_up() && part.target == name);
            undos.map(|part| part.unit_key.clone()).collect()
        };
        let unit = units.get(random.below(units.len() as u64) as usize).cloned().unwrap_or_default();
        self.0.ledger.trace(|| format!("an operator force-completes {unit} of {name}"));
        while self.0.functions.force_complete(KIND, name, &unit).await.is_err() {
            self.0.runtime.sleep(AGAIN_MS).await;
        }
    }

    /// Retries until there is an answer.
    pub(super) async fn retry(&self, name: &str) {
        self.0.ledger.trace(|| format!("an operator retries {name}"));
        while self.0.functions.retry(KIND, name).await.is_err() {
            self.0.runtime.sleep(AGAIN_MS).await;
        }
    }
}
