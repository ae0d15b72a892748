//! What units do once they run, and how they say so.

use std::collections::BTreeMap;
use std::sync::Arc;

use ebb_flow::run::callback::CallbackOutcome;
use ebb_protocol::callback::{Callback, CallbackStatus, ReasonCode};
use ebb_protocol::id::RunId;

use super::super::{FaultInjector, FaultKind, SimFunctions, SimRuntime};
use super::ledger::{AttemptEntry, AttemptGuard, AttemptReceiver, SimActivity, SimLedger, SimObject};
use super::registry::{SimUnit, UnitEffect};

/// After this long a callback that was not taken is sent again.
const AGAIN_MS: u64 = 1_000;
/// Longest delay of what comes late, in milliseconds.
const LATE_MS: u64 = 600_000;
/// Longest delay of a first callback.
const FIRST_LATE_MS: u64 = 120_000;

/// Results of a flood: more than are kept of an attempt.
const FLOOD: usize = ebb_protocol::limits::DISTINCT_RESULTS + 4;

/// Returns whether the thing that a callback reports is undone in the end.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum UndoExpectation {
    Yes,
    No,
}

/// Outputs, or why there are none.
pub(super) type SimOutputs = Result<BTreeMap<String, serde_json::Value>, String>;

/// The work of all units of a simulation.
pub(super) struct SimExecutor {
    pub(super) runtime: SimRuntime,
    pub(super) functions: Arc<SimFunctions>,
    pub(super) ledger: Arc<SimLedger>,
    pub(super) faults: Arc<FaultInjector>,
}

/// A run and a unit by the name of an attempt: `RUN-UNIT`.
pub(super) fn run_of(name: &str) -> Option<RunId> {
    name.rsplit_once('-')?.0.to_owned().try_into().ok()
}

impl SimExecutor {
    /// Counts an attempt as begun.
    pub(super) fn begin(
        &self,
        part: &Arc<SimUnit>,
        run: RunId,
        attempt: u32,
        receiver: AttemptReceiver,
        tells: bool,
        reads: Vec<String>,
    ) -> AttemptGuard {
        let (part, began) = (Arc::clone(part), self.runtime.elapsed());
        let this = AttemptEntry {
            unit: part,
            run,
            attempt,
            receiver,
            reports: tells,
            began,
            over: false,
            reads,
            given_up: None,
        };
        AttemptGuard::new(&self.ledger, self.ledger.begin(this))
    }

    /// Does what an attempt does, in its time.
    pub(super) async fn execute(&self, running: AttemptGuard) -> SimOutputs {
        let number = running.number();
        let this = self.ledger.state().attempts[number].clone();
        let part = &this.unit;
        self.ledger.check_reads(number, "begins");
        if !part.undoes.is_empty() {
            self.ledger.check_undone(part, "begins");
        }
        let half = part.millis / 2;
        self.runtime.sleep(half).await;
        if part.effect == UnitEffect::Once {
            self.make(number, part, part.key.clone());
        }
        // Work that hangs is forgotten by the simulation: nobody waits for its end.
        if this.receiver.kills() && self.faults.should_inject(FaultKind::AttemptHangs) {
            self.ledger.trace(|| format!("hangs {} #{}", part.name, this.attempt));
            std::future::pending::<()>().await;
        }
        self.runtime.sleep(part.millis - half).await;
        self.ledger.check_reads(number, "ends");
        let kind = if part.sets_up() { FaultKind::SetupBroken } else { FaultKind::UndoBroken };
        let broken = self.ledger.is_broken(&part.key, || self.faults.should_inject(kind));
        if broken || self.faults.should_inject(FaultKind::AttemptFails) {
            self.ledger.trace(|| format!("fails {} #{}", part.name, this.attempt));
            return Err("it fails as planned".to_owned());
        }
        let id = match part.effect {
            UnitEffect::PerAttempt => format!("{}.{}", part.key, this.attempt),
            UnitEffect::Once | UnitEffect::Nothing => part.key.clone(),
        };
        if part.effect == UnitEffect::PerAttempt {
            self.make(number, part, id.clone());
        }
        if !part.undoes.is_empty() {
            self.ledger.check_undone(part, "ends");
            self.delete_objects(part, &this.reads);
        }
        self.ledger.trace(|| format!("succeeds {} #{}", part.name, this.attempt));
        Ok(part.outputs.iter().map(|name| (name.clone(), id.clone().into())).collect())
    }

    fn make(&self, number: usize, part: &Arc<SimUnit>, id: String) {
        self.ledger.trace(|| format!("{} makes {id}", part.name));
        let this = self.ledger.state().attempts[number].clone();
        let untold = !this.reports && self.ledger.is_past_in_flight(&this);
        self.ledger.state().objects.insert(id, SimObject { unit: Arc::clone(part), unreported: untold });
    }

    /// Takes away what the ids name; of what no id is known everything that bears the key.
    fn delete_objects(&self, undo: &SimUnit, ids: &[String]) {
        for key in &undo.undoes {
            let of = |id: &str| id.split('.').next() == Some(key);
            let known: Vec<&String> = ids.iter().filter(|id| of(id)).collect();
            let mut state = self.ledger.state();
            state.objects.retain(|id, _| !of(id) || !(known.is_empty() || known.contains(&id)));
        }
    }

    /// Reports one thing more with each callback, more of them than are kept. A result that is
    /// refused as one too many is not undone.
    pub(super) async fn flood(self: Arc<Self>, number: usize, token: String) {
        let _active = SimActivity::new(&self.ledger);
        let part = Arc::clone(&self.ledger.state().attempts[number].unit);
        for more in 0..FLOOD {
            let id = format!("{}.more{number}-{more}", part.key);
            self.make(number, &part, id.clone());
            let outputs = part.outputs.iter().map(|name| (name.clone(), id.clone().into())).collect();
            let body = serde_json::to_vec(&callback_of(&Ok(outputs))).expect("callbacks are JSON");
            let counts = self.deliver(token.clone(), body).await;
            if let (UndoExpectation::No, Some(thing)) = (counts, self.ledger.state().objects.get_mut(&id)) {
                thing.unreported = true;
            }
        }
    }

    /// Sends a callback until it is taken.
    pub(super) async fn call_back(self: Arc<Self>, token: String, callback: Callback) {
        let _active = SimActivity::new(&self.ledger);
        let body = serde_json::to_vec(&callback).expect("callbacks are JSON");
        if self.faults.should_inject(FaultKind::CallbackDuplicated) {
            let later = self.faults.zero_or_below(FaultKind::CallbackDuplicated, LATE_MS);
            let (again, token, body) = (Arc::clone(&self), token.clone(), body.clone());
            self.runtime.spawn(async move {
                again.runtime.sleep(later).await;
                again.deliver(token, body).await;
            });
        }
        if self.faults.should_inject(FaultKind::CallbackLate) {
            self.runtime.sleep(self.faults.random_below(FaultKind::CallbackLate, FIRST_LATE_MS)).await;
        }
        self.deliver(token, body).await;
    }

    async fn deliver(&self, token: String, body: Vec<u8>) -> UndoExpectation {
        let _active = SimActivity::new(&self.ledger);
        loop {
            if self.faults.should_inject(FaultKind::CallbackLost) {
                self.runtime.sleep(AGAIN_MS).await;
                continue;
            }
            let taken = self.functions.callback(token.clone(), body.clone()).await;
            if self.faults.should_inject(FaultKind::CallbackAnswerLost) {
                self.runtime.sleep(AGAIN_MS).await;
                continue;
            }
            match taken {
                Ok(CallbackOutcome::Accepted | CallbackOutcome::Late(_)) => return UndoExpectation::Yes,
                Ok(CallbackOutcome::Excess(_)) => return UndoExpectation::No,
                Ok(refused) => {
                    self.ledger
                        .report_violation(format!("a callback is {refused:?}: {}", String::from_utf8_lossy(&body)));
                    return UndoExpectation::No;
                }
                Err(_) => self.runtime.sleep(AGAIN_MS).await,
            }
        }
    }
}

/// The callback of a result. A file's content is text, a webhook's output any JSON.
pub(super) fn callback_of(ended: &SimOutputs) -> Callback {
    match ended {
        Ok(outputs) => Callback { outputs: outputs.clone(), ..Callback::new(CallbackStatus::Succeeded) },
        Err(reason) => Callback::failed(ReasonCode::Failed, reason),
    }
}
