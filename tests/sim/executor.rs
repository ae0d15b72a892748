//! What units do once they run, and how they say so.

use std::collections::BTreeMap;
use std::sync::Arc;

use ebb_flow::run::callback::CallbackOutcome;
use ebb_protocol::callback::{Callback, CallbackStatus, ReasonCode};

use super::ledger::{ActiveGuard, FinishEntry};
use super::scenario::{ScenarioEffect, ScenarioUnit};
use super::{Ledger, Scenario, SimFunctions, SimRandom, SimRuntime, StartEntry};

/// What goes wrong with callbacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallbackFaults {
    /// Percent that are sent once more.
    pub doubled: u8,
    /// Up to how much later, in milliseconds.
    pub late_ms: u64,
}

/// The work of a scenario's units.
pub(super) struct ScenarioExecutor {
    pub(super) runtime: SimRuntime,
    pub(super) functions: Arc<SimFunctions>,
    pub(super) ledger: Arc<Ledger>,
    pub(super) scenario: Arc<Scenario>,
    random: SimRandom,
    faults: CallbackFaults,
}

/// After this long a callback that was not taken is sent again.
const AGAIN_MS: u64 = 1_000;

/// Outputs, or why there are none.
pub(super) type ScenarioOutputs = std::result::Result<BTreeMap<String, serde_json::Value>, String>;

impl ScenarioExecutor {
    pub(super) fn new(
        functions: Arc<SimFunctions>,
        runtime: SimRuntime,
        ledger: Arc<Ledger>,
        scenario: Arc<Scenario>,
        faults: CallbackFaults,
    ) -> Self {
        let random = SimRandom::new(scenario.seed ^ 0xca11);
        Self { runtime, functions, ledger, scenario, random, faults }
    }

    pub(super) fn unit(&self, name: &str) -> ScenarioUnit<'_> {
        self.scenario.unit(name).unwrap_or_else(|| unreachable!("no unit is called {name:?}"))
    }

    pub(super) fn note_sent(&self, name: &str, attempt: u32, inputs: &BTreeMap<String, String>, fresh: bool) {
        let sent = StartEntry {
            unit: name.to_owned(),
            attempt,
            at: self.runtime.elapsed(),
            by: self.runtime.current(),
            inputs: inputs.clone(),
            fresh,
        };
        self.ledger.state().sent.push(sent);
    }

    /// Does what an attempt does, in its time.
    pub(super) async fn execute(
        &self,
        name: String,
        attempt: u32,
        inputs: BTreeMap<String, String>,
    ) -> ScenarioOutputs {
        let _active = ActiveGuard::new(&self.ledger);
        let part = self.unit(&name);
        let half = part.millis() / 2;
        self.runtime.sleep(half).await;
        let id = match part {
            ScenarioUnit::Setup(unit) if unit.makes == ScenarioEffect::PerAttempt => {
                format!("{name}.{attempt}")
            }
            ScenarioUnit::Setup(_) | ScenarioUnit::Undo(..) => name.clone(),
        };
        if let ScenarioUnit::Setup(unit) = part
            && unit.makes == ScenarioEffect::Once
        {
            self.ledger.state().objects.insert((name.clone(), id.clone()));
        }
        self.runtime.sleep(part.millis() - half).await;
        let well = !part.fails(attempt);
        let mut ledger = self.ledger.state();
        match part {
            ScenarioUnit::Setup(unit) if well && unit.makes == ScenarioEffect::PerAttempt => {
                ledger.objects.insert((name.clone(), id.clone()));
            }
            ScenarioUnit::Undo(undone, _) if well => {
                // Without an id everything goes that bears the name.
                let made = format!("u{undone}");
                let gone = inputs.get(&made);
                ledger.objects.retain(|(of, id)| *of != made || gone.is_some_and(|gone| gone != id));
            }
            ScenarioUnit::Setup(_) | ScenarioUnit::Undo(..) => {}
        }
        ledger.finished.push(FinishEntry { unit: name, attempt, at: self.runtime.elapsed(), well });
        if !well {
            return Err("it fails as planned".to_owned());
        }
        Ok(match part {
            ScenarioUnit::Setup(_) => BTreeMap::from([("id".to_owned(), id.into())]),
            ScenarioUnit::Undo(..) => BTreeMap::new(),
        })
    }

    /// Sends a callback until it is taken.
    pub(super) async fn call_back(self: Arc<Self>, token: String, callback: Callback) {
        let _active = ActiveGuard::new(&self.ledger);
        let body = serde_json::to_vec(&callback).expect("callbacks are JSON");
        if self.random.in_percent(self.faults.doubled) {
            let later = self.random.below(self.faults.late_ms + 1);
            let (again, token, body) = (Arc::clone(&self), token.clone(), body.clone());
            self.runtime.spawn(async move {
                again.runtime.sleep(later).await;
                again.deliver(token, body).await;
            });
        }
        self.deliver(token, body).await;
    }

    async fn deliver(&self, token: String, body: Vec<u8>) {
        let _active = ActiveGuard::new(&self.ledger);
        loop {
            match self.functions.callback(token.clone(), body.clone()).await {
                Ok(CallbackOutcome::Accepted | CallbackOutcome::Late(_)) => return,
                Ok(refused) => {
                    self.ledger.state().refused.push(format!("{refused:?}: {}", String::from_utf8_lossy(&body)));
                    return;
                }
                Err(_) => self.runtime.sleep(AGAIN_MS).await,
            }
        }
    }
}

/// The callback of a result. A file's content is text, a webhook's output any JSON.
pub(super) fn callback_of(result: &ScenarioOutputs) -> Callback {
    match result {
        Ok(outputs) => Callback { outputs: outputs.clone(), ..Callback::new(CallbackStatus::Succeeded) },
        Err(reason) => Callback::failed(ReasonCode::Failed, reason),
    }
}
