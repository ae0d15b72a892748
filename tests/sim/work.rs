//! What units do once they run, and how they say so.

use std::collections::BTreeMap;
use std::sync::Arc;

use ebb_flow::complete::Taken;
use ebb_wire::callback::{Callback, CallbackStatus, ReasonCode};

use super::ledger::{Active, Finished};
use super::scenario::{Makes, Part};
use super::{Functions, Ledger, Random, Runtime, Scenario, Sent};

/// What goes wrong with callbacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallbackFaults {
    /// Percent that are sent once more.
    pub doubled: u8,
    /// Up to how much later, in milliseconds.
    pub late_ms: u64,
}

/// The work of a scenario's units.
pub(super) struct Work {
    pub(super) runtime: Runtime,
    pub(super) functions: Arc<Functions>,
    pub(super) ledger: Arc<Ledger>,
    pub(super) scenario: Arc<Scenario>,
    random: Random,
    faults: CallbackFaults,
}

/// After this long a callback that was not taken is sent again.
const AGAIN_MS: u64 = 1_000;

/// Outputs, or why there are none.
pub(super) type Result = std::result::Result<BTreeMap<String, serde_json::Value>, String>;

impl Work {
    pub(super) fn new(
        functions: Arc<Functions>,
        runtime: Runtime,
        ledger: Arc<Ledger>,
        scenario: Arc<Scenario>,
        faults: CallbackFaults,
    ) -> Self {
        let random = Random::new(scenario.seed ^ 0xca11);
        Self { runtime, functions, ledger, scenario, random, faults }
    }

    pub(super) fn part(&self, name: &str) -> Part<'_> {
        self.scenario.part(name).unwrap_or_else(|| unreachable!("no unit is called {name:?}"))
    }

    pub(super) fn note_sent(&self, name: &str, attempt: u32, inputs: &BTreeMap<String, String>, fresh: bool) {
        let sent = Sent {
            unit: name.to_owned(),
            attempt,
            at: self.runtime.elapsed(),
            by: self.runtime.current(),
            inputs: inputs.clone(),
            fresh,
        };
        self.ledger.state().sent.push(sent);
    }

    /// Does what a try does, in its time.
    pub(super) async fn perform(
        &self,
        name: String,
        attempt: u32,
        inputs: BTreeMap<String, String>,
    ) -> Result {
        let _active = Active::new(&self.ledger);
        let part = self.part(&name);
        let half = part.millis() / 2;
        self.runtime.sleep(half).await;
        let id = match part {
            Part::Setup(unit) if unit.makes == Makes::PerTry => format!("{name}.{attempt}"),
            Part::Setup(_) | Part::Undo(..) => name.clone(),
        };
        if let Part::Setup(unit) = part
            && unit.makes == Makes::Once
        {
            self.ledger.state().things.insert((name.clone(), id.clone()));
        }
        self.runtime.sleep(part.millis() - half).await;
        let well = !part.fails(attempt);
        let mut ledger = self.ledger.state();
        match part {
            Part::Setup(unit) if well && unit.makes == Makes::PerTry => {
                ledger.things.insert((name.clone(), id.clone()));
            }
            Part::Undo(undone, _) if well => {
                // Without an id everything goes that bears the name.
                let made = format!("u{undone}");
                let gone = inputs.get(&made);
                ledger.things.retain(|(of, id)| *of != made || gone.is_some_and(|gone| gone != id));
            }
            Part::Setup(_) | Part::Undo(..) => {}
        }
        ledger.finished.push(Finished { unit: name, attempt, at: self.runtime.elapsed(), well });
        if !well {
            return Err("it fails as planned".to_owned());
        }
        Ok(match part {
            Part::Setup(_) => BTreeMap::from([("id".to_owned(), id.into())]),
            Part::Undo(..) => BTreeMap::new(),
        })
    }

    /// Sends a callback until it is taken.
    pub(super) async fn call_back(self: Arc<Self>, token: String, callback: Callback) {
        let _active = Active::new(&self.ledger);
        let body = serde_json::to_vec(&callback).expect("callbacks are JSON");
        if self.random.in_percent(self.faults.doubled) {
            let later = self.random.below(self.faults.late_ms + 1);
            let (again, token, body) = (Arc::clone(&self), token.clone(), body.clone());
            self.runtime.spawn(async move {
                again.runtime.sleep(later).await;
                again.insist(token, body).await;
            });
        }
        self.insist(token, body).await;
    }

    async fn insist(&self, token: String, body: Vec<u8>) {
        let _active = Active::new(&self.ledger);
        loop {
            match self.functions.callback(token.clone(), body.clone()).await {
                Ok(Taken::Accepted | Taken::Late(_)) => return,
                Ok(refused) => {
                    self.ledger
                        .state()
                        .refused
                        .push(format!("{refused:?}: {}", String::from_utf8_lossy(&body)));
                    return;
                }
                Err(_) => self.runtime.sleep(AGAIN_MS).await,
            }
        }
    }
}

/// The callback of a result. A file's content is text, a webhook's output any JSON.
pub(super) fn callback_of(result: &Result) -> Callback {
    match result {
        Ok(outputs) => Callback { outputs: outputs.clone(), ..Callback::new(CallbackStatus::Succeeded) },
        Err(reason) => Callback::failed(ReasonCode::Failed, reason),
    }
}
