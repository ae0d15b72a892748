//! What the platform and the operators do: webhooks in any order and number, and verbs at any time.

use std::sync::Arc;

use axum::http::{HeaderName, HeaderValue};
use ebb_flow::receive::NotTaken;
use ebb_wire::cloudevents::{self, Asked};
use ebb_wire::lifecycle::{DELETED, Lifecycle};

use super::super::{Mishap, Random};
use super::books::Active;
use super::work::Work;

/// The kind of all targets of a world.
pub(super) const KIND: &str = "sandbox";
/// What was not answered is sent again after this long.
const AGAIN_MS: u64 = 1_000;
/// How late a first webhook may be, in milliseconds.
const LATE_MS: u64 = 30_000;
/// How late a repetition may be.
const DOUBLED_MS: u64 = 300_000;

/// The status for a body that is not an event in structured mode.
const UNSUPPORTED: u16 = 415;

/// One life of a target, as the platform wants it.
#[derive(Clone, Debug)]
pub(super) struct Life {
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) document: String,
    /// Another document of the same target.
    pub(super) changed: String,
    /// Whether its time to live ends it.
    pub(super) expires: bool,
}

/// The platform.
#[derive(Clone)]
pub(super) struct Sender(pub(super) Arc<Work>);

impl Sender {
    fn event(life: &Life, asked: Asked, generation: u64, document: &str) -> Lifecycle {
        Lifecycle {
            kind: KIND.to_owned(),
            name: life.name.clone(),
            uid: life.uid.clone(),
            generation,
            document: (asked != Asked::Deleted).then(|| document.to_owned()),
            routing_key: None,
        }
    }

    /// Sends a webhook, perhaps late, perhaps twice; waits until it is answered, unless it is late.
    async fn send(&self, asked: Asked, event: Lifecycle) {
        let mishaps = &self.0.mishaps;
        if mishaps.strikes(Mishap::EventBinary) {
            self.alter(&event).await;
        }
        if mishaps.strikes(Mishap::EventDoubled) {
            let later = mishaps.beside_or_below(Mishap::EventDoubled, DOUBLED_MS);
            self.later(asked, event.clone(), later);
        }
        if mishaps.strikes(Mishap::EventLate) {
            self.later(asked, event, mishaps.below(Mishap::EventLate, LATE_MS));
        } else {
            self.insist(asked, event).await;
        }
    }

    /// Sends a captured webhook in binary mode, as an event of another type: its headers are not signed.
    async fn alter(&self, event: &Lifecycle) {
        let headers = [("content-type", "application/json"), ("ce-specversion", "1.0"), ("ce-type", DELETED)];
        let headers =
            headers.map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        let body = serde_json::to_vec(event).expect("events are JSON");
        match cloudevents::parse(&headers.into_iter().collect(), &body) {
            Err(refused) if refused.status() == UNSUPPORTED => {}
            other => {
                self.0.books.blame(format!("an event in binary mode is read as {other:?}"));
                if let Ok(event) = other {
                    self.insist(event.asked, event.data).await;
                }
            }
        }
    }

    fn later(&self, asked: Asked, event: Lifecycle, millis: u64) {
        let own = self.clone();
        self.0.runtime.spawn(async move {
            let _active = Active::new(&own.0.books);
            own.0.runtime.sleep(millis).await;
            own.insist(asked, event).await;
        });
    }

    async fn insist(&self, asked: Asked, event: Lifecycle) {
        let work = &self.0;
        loop {
            if work.mishaps.strikes(Mishap::EventLost) {
                work.runtime.sleep(AGAIN_MS).await;
                continue;
            }
            let answer = work.functions.lifecycle(asked, event.clone()).await;
            work.books.tell(|| format!("{asked:?} {} {}: {answer:?}", event.uid, event.generation));
            let lost = work.mishaps.strikes(Mishap::EventAnswerLost);
            match answer {
                Ok(answer) if !lost => {
                    let known = matches!(
                        answer,
                        Ok(_) | Err(NotTaken::Conflict("stale" | "name-taken", _) | NotTaken::Changed(_))
                    );
                    if !known {
                        work.books.blame(format!("{asked:?} {}: {answer:?}", event.uid));
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

    pub(super) async fn create(&self, life: &Life) {
        self.send(Asked::Created, Self::event(life, Asked::Created, 1, &life.document)).await;
    }

    pub(super) async fn delete(&self, life: &Life) {
        self.send(Asked::Deleted, Self::event(life, Asked::Deleted, 1, "")).await;
    }

    /// Plays the lives of one name, one after the other or overlapping.
    pub(super) async fn play(self, lives: Vec<Life>, random: Random) {
        let _active = Active::new(&self.0.books);
        let pause = async |random: &Random| {
            let most = [0, 3_000, 60_000, 240_000][random.below(4) as usize];
            self.0.runtime.sleep(random.below(most + 1)).await;
        };
        let mut alive: Option<&Life> = None;
        for life in &lives {
            pause(&random).await;
            if random.below(12) == 0 {
                // Deleted before it is created.
                self.delete(life).await;
                pause(&random).await;
            }
            let overlaps = random.below(2) == 0;
            if let Some(before) = alive.take_if(|_| !overlaps) {
                self.end(before, &random).await;
                pause(&random).await;
            }
            self.create(life).await;
            if random.below(4) == 0 {
                pause(&random).await;
                let document = if random.below(2) == 0 { &life.document } else { &life.changed };
                let event = Self::event(life, Asked::Updated, 2 + random.below(3), document);
                self.send(Asked::Updated, event).await;
            }
            pause(&random).await;
            if let Some(before) = alive.take() {
                self.end(before, &random).await;
            }
            alive = Some(life);
        }
        pause(&random).await;
        if let Some(last) = alive {
            self.end(last, &random).await;
        }
    }

    async fn end(&self, life: &Life, random: &Random) {
        if life.expires && random.below(2) == 0 {
            return;
        }
        self.delete(life).await;
        if random.below(8) == 0 {
            self.delete(life).await;
        }
    }

    /// Acts on anything at any time, and mends what is broken before it does so, mostly.
    pub(super) async fn operate(self, names: Vec<String>, random: Random) {
        let _active = Active::new(&self.0.books);
        for _ in 0..random.below(4) {
            self.0.runtime.sleep(random.below(300_000)).await;
            if random.below(3) > 0 {
                self.0.books.mend();
            }
            let name = &names[random.below(names.len() as u64) as usize];
            self.verb(name, &random).await;
        }
    }

    /// One of the verbs, most often `retry`.
    pub(super) async fn verb(&self, name: &str, random: &Random) {
        match random.below(6) {
            0 => self.abandon(name).await,
            1 => self.skip(name, random).await,
            _ => self.retry(name).await,
        }
    }

    async fn abandon(&self, name: &str) {
        self.0.books.tell(|| format!("an operator abandons {name}"));
        while self.0.functions.abandon(KIND, name).await.is_err() {
            self.0.runtime.sleep(AGAIN_MS).await;
        }
    }

    /// Skips a random unit, which may have failed or not.
    async fn skip(&self, name: &str, random: &Random) {
        let units: Vec<String> = {
            let state = self.0.books.state();
            let undos = state.parts.values().filter(|part| !part.sets_up() && part.target == name);
            undos.map(|part| part.unit_key.clone()).collect()
        };
        let unit = units.get(random.below(units.len() as u64) as usize).cloned().unwrap_or_default();
        self.0.books.tell(|| format!("an operator skips {unit} of {name}"));
        while self.0.functions.skip(KIND, name, &unit).await.is_err() {
            self.0.runtime.sleep(AGAIN_MS).await;
        }
    }

    /// Retries until there is an answer.
    pub(super) async fn retry(&self, name: &str) {
        self.0.books.tell(|| format!("an operator retries {name}"));
        while self.0.functions.retry(KIND, name).await.is_err() {
            self.0.runtime.sleep(AGAIN_MS).await;
        }
    }
}
