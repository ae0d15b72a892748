//! What units do once they run, and how they say so.

use std::collections::BTreeMap;
use std::sync::Arc;

use ebb_flow::complete::Taken;
use ebb_wire::callback::{Callback, CallbackStatus, ReasonCode};
use ebb_wire::id::RunId;

use super::super::{Functions, Mishap, Mishaps, Runtime};
use super::books::{Active, Books, Receiver, Running, Thing, Try};
use super::cast::{Makes, Part};

/// After this long a callback that was not taken is sent again.
const AGAIN_MS: u64 = 1_000;
/// Longest delay of what comes late, in milliseconds.
const LATE_MS: u64 = 600_000;
/// Longest delay of a first callback.
const FIRST_LATE_MS: u64 = 120_000;

/// Results of a flood: more than are kept of an attempt.
const FLOOD: usize = ebb_wire::limits::DISTINCT_RESULTS + 4;

/// Returns whether the thing that a callback reports is undone in the end.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Counts {
    Yes,
    No,
}

/// Outputs, or why there are none.
pub(super) type Ended = Result<BTreeMap<String, serde_json::Value>, String>;

/// The work of all units of a world.
pub(super) struct Work {
    pub(super) runtime: Runtime,
    pub(super) functions: Arc<Functions>,
    pub(super) books: Arc<Books>,
    pub(super) mishaps: Arc<Mishaps>,
}

/// A run and a unit by the name of a try: `RUN-UNIT`.
pub(super) fn run_of(name: &str) -> Option<RunId> {
    name.rsplit_once('-')?.0.to_owned().try_into().ok()
}

impl Work {
    /// Counts a try as begun.
    pub(super) fn begin(
        &self,
        part: &Arc<Part>,
        run: RunId,
        attempt: u32,
        receiver: Receiver,
        tells: bool,
        reads: Vec<String>,
    ) -> Running {
        let (part, began) = (Arc::clone(part), self.runtime.elapsed());
        let this = Try { part, run, attempt, receiver, tells, began, over: false, reads, given_up: None };
        Running::new(&self.books, self.books.begin(this))
    }

    /// Does what a try does, in its time.
    pub(super) async fn perform(&self, running: Running) -> Ended {
        let number = running.number();
        let this = self.books.state().tries[number].clone();
        let part = &this.part;
        self.books.check_reads(number, "begins");
        if !part.undoes.is_empty() {
            self.books.check_undone(part, "begins");
        }
        let half = part.millis / 2;
        self.runtime.sleep(half).await;
        if part.makes == Makes::Once {
            self.make(number, part, part.key.clone());
        }
        // Work that hangs is forgotten by the world: nobody waits for its end.
        if this.receiver.kills() && self.mishaps.strikes(Mishap::TryHangs) {
            self.books.tell(|| format!("hangs {} #{}", part.name, this.attempt));
            std::future::pending::<()>().await;
        }
        self.runtime.sleep(part.millis - half).await;
        self.books.check_reads(number, "ends");
        let kind = if part.sets_up() { Mishap::SetupBroken } else { Mishap::UndoBroken };
        let broken = self.books.is_broken(&part.key, || self.mishaps.strikes(kind));
        if broken || self.mishaps.strikes(Mishap::TryFails) {
            self.books.tell(|| format!("fails {} #{}", part.name, this.attempt));
            return Err("it fails as planned".to_owned());
        }
        let id = match part.makes {
            Makes::PerTry => format!("{}.{}", part.key, this.attempt),
            Makes::Once | Makes::Nothing => part.key.clone(),
        };
        if part.makes == Makes::PerTry {
            self.make(number, part, id.clone());
        }
        if !part.undoes.is_empty() {
            self.books.check_undone(part, "ends");
            self.take_away(part, &this.reads);
        }
        self.books.tell(|| format!("succeeds {} #{}", part.name, this.attempt));
        Ok(part.outputs.iter().map(|name| (name.clone(), id.clone().into())).collect())
    }

    fn make(&self, number: usize, part: &Arc<Part>, id: String) {
        self.books.tell(|| format!("{} makes {id}", part.name));
        let this = self.books.state().tries[number].clone();
        let untold = !this.tells && self.books.has_landed(&this);
        self.books.state().things.insert(id, Thing { part: Arc::clone(part), untold });
    }

    /// Takes away what the ids name; of what no id is known everything that bears the key.
    fn take_away(&self, undo: &Part, ids: &[String]) {
        for key in &undo.undoes {
            let of = |id: &str| id.split('.').next() == Some(key);
            let known: Vec<&String> = ids.iter().filter(|id| of(id)).collect();
            let mut state = self.books.state();
            state.things.retain(|id, _| !of(id) || !(known.is_empty() || known.contains(&id)));
        }
    }

    /// Reports one thing more with each callback, more of them than are kept. A result that is
    /// refused as one too many is not undone.
    pub(super) async fn flood(self: Arc<Self>, number: usize, token: String) {
        let _active = Active::new(&self.books);
        let part = Arc::clone(&self.books.state().tries[number].part);
        for more in 0..FLOOD {
            let id = format!("{}.more{number}-{more}", part.key);
            self.make(number, &part, id.clone());
            let outputs = part.outputs.iter().map(|name| (name.clone(), id.clone().into())).collect();
            let body = serde_json::to_vec(&callback_of(&Ok(outputs))).expect("callbacks are JSON");
            let counts = self.insist(token.clone(), body).await;
            if let (Counts::No, Some(thing)) = (counts, self.books.state().things.get_mut(&id)) {
                thing.untold = true;
            }
        }
    }

    /// Sends a callback until it is taken.
    pub(super) async fn call_back(self: Arc<Self>, token: String, callback: Callback) {
        let _active = Active::new(&self.books);
        let body = serde_json::to_vec(&callback).expect("callbacks are JSON");
        if self.mishaps.strikes(Mishap::CallbackDoubled) {
            let later = self.mishaps.beside_or_below(Mishap::CallbackDoubled, LATE_MS);
            let (again, token, body) = (Arc::clone(&self), token.clone(), body.clone());
            self.runtime.spawn(async move {
                again.runtime.sleep(later).await;
                again.insist(token, body).await;
            });
        }
        if self.mishaps.strikes(Mishap::CallbackLate) {
            self.runtime.sleep(self.mishaps.below(Mishap::CallbackLate, FIRST_LATE_MS)).await;
        }
        self.insist(token, body).await;
    }

    async fn insist(&self, token: String, body: Vec<u8>) -> Counts {
        let _active = Active::new(&self.books);
        loop {
            if self.mishaps.strikes(Mishap::CallbackLost) {
                self.runtime.sleep(AGAIN_MS).await;
                continue;
            }
            let taken = self.functions.callback(token.clone(), body.clone()).await;
            if self.mishaps.strikes(Mishap::CallbackAnswerLost) {
                self.runtime.sleep(AGAIN_MS).await;
                continue;
            }
            match taken {
                Ok(Taken::Accepted | Taken::Late(_)) => return Counts::Yes,
                Ok(Taken::Excess(_)) => return Counts::No,
                Ok(refused) => {
                    self.books
                        .blame(format!("a callback is {refused:?}: {}", String::from_utf8_lossy(&body)));
                    return Counts::No;
                }
                Err(_) => self.runtime.sleep(AGAIN_MS).await,
            }
        }
    }
}

/// The callback of a result. A file's content is text, a webhook's output any JSON.
pub(super) fn callback_of(ended: &Ended) -> Callback {
    match ended {
        Ok(outputs) => Callback { outputs: outputs.clone(), ..Callback::new(CallbackStatus::Succeeded) },
        Err(reason) => Callback::failed(ReasonCode::Failed, reason),
    }
}
