//! Executes attempts, and sends their callbacks.

use ebb_protocol::TokenClaims;

use super::*;

/// A callback without a response is sent again after this time.
const AGAIN_MS: u64 = 1_000;
/// The longest delay of a duplicated callback.
const LATE_MS: u64 = 600_000;
/// The longest delay of a first callback.
const FIRST_LATE_MS: u64 = 120_000;

/// The most heartbeats of a script, and the longest time between two. Some scripts end earlier.
const HEARTBEATS: u64 = 3;
const HEARTBEAT_MS: u64 = 90_000;
/// The longest time from the start of an attempt to a read of its run.
const READ_MS: u64 = 60_000;

/// The results of a flood: more than an attempt record holds.
const FLOOD: usize = ebb_protocol::limits::DISTINCT_RESULTS + 4;

/// The outputs of an attempt, or why it failed.
pub(super) type SimOutputs = Result<BTreeMap<String, serde_json::Value>, String>;

fn run_of_token(token: &str) -> Option<RunId> {
    TokenClaims::verify(token, &settings(0).token_keys, Timestamp(0)).ok().map(|claims| claims.run)
}

#[derive(Clone)]
pub(super) struct SimExecutor {
    pub(super) runtime: SimRuntime,
    pub(super) functions: Arc<SimFunctions>,
    pub(super) ledger: Arc<Ledger>,
    pub(super) faults: Arc<FaultInjector>,
}

/// Returns the run in the name of a task: `RUN-UNIT`.
pub(super) fn run_of(name: &str) -> Option<RunId> {
    name.rsplit_once('-')?.0.parse().ok()
}

/// Returns a text, or those of a list.
pub(super) fn texts_of(value: &serde_json::Value) -> Vec<String> {
    match value {
        serde_json::Value::Array(list) => list.iter().flat_map(texts_of).collect(),
        value => value.as_str().map(str::to_owned).into_iter().collect(),
    }
}

impl SimExecutor {
    /// Lets the running task die if a fault of `kind` happens.
    pub(super) async fn may_die(&self, kind: FaultKind) {
        if self.faults.should_inject(kind) {
            self.runtime.die().await;
        }
    }

    /// Returns the response of a server that got a request. The invocation may die then, or lose the response by a fault of
    /// `kind`.
    pub(super) async fn answer(&self, kind: FaultKind, response: HttpResponse) -> CallResult<HttpResponse> {
        self.may_die(FaultKind::DeathAfterCall).await;
        match self.faults.should_inject(kind) {
            true => Err(CallError::Connect("the response was lost as planned".to_owned())),
            false => Ok(response),
        }
    }

    pub(super) fn inject_below(&self, kind: FaultKind, bound: u64) -> Option<u64> {
        self.faults.should_inject(kind).then(|| self.faults.random_below(kind, bound))
    }

    /// Returns true during an outage, which ends at `until`. A fault of `kind` begins one of less than `most` ms.
    pub(super) fn is_away(&self, kind: FaultKind, until: &mut u64, most: u64) -> bool {
        let now = self.runtime.elapsed();
        if let Some(millis) = (now >= *until).then(|| self.inject_below(kind, most)).flatten() {
            *until = now + millis;
        }
        now < *until
    }

    pub(super) fn begin(
        &self,
        unit: &Arc<SimUnit>,
        run: RunId,
        attempt: u32,
        receiver: AttemptReceiver,
        reports: bool,
        reads: Vec<String>,
    ) -> AttemptGuard {
        let read = run.clone();
        let this = AttemptEntry {
            unit: Arc::clone(unit),
            run,
            attempt,
            receiver,
            began: self.runtime.elapsed(),
            by: self.runtime.current(),
            requests: 1,
            reads,
            reports,
            given_up: None,
            result: None,
            over: None,
        };
        let number = self.ledger.begin(this);
        if let Some(later) = self.inject_below(FaultKind::RunRead, READ_MS) {
            let (runtime, functions) = (self.runtime.clone(), Arc::clone(&self.functions));
            let ledger = Arc::clone(&self.ledger);
            self.runtime.spawn(async move {
                runtime.sleep(later).await;
                if let Ok(Some(detail)) = functions.describe(read).await {
                    ledger.check_shown_start(number, &detail);
                }
            });
        }
        self.ledger.attempt(number)
    }

    pub(super) async fn execute(&self, running: AttemptGuard) -> SimOutputs {
        let number = running.number;
        let this = self.ledger.state().attempts[number].clone();
        let unit = &this.unit;
        self.ledger.check_reads(number, "begins");
        if !unit.undoes.is_empty() {
            self.ledger.check_undone(unit, "begins");
        }
        let is_wrong = this.reads.iter().any(|read| read == WRONG);
        let corrected = self.ledger.state().corrected.get(&unit.key).copied();
        if is_wrong && corrected.is_some_and(|last| this.attempt > last) {
            self.ledger.report_violation(format!("{} #{} is not the corrected one", unit.name, this.attempt));
        }
        let half = unit.millis / 2;
        self.runtime.sleep(half).await;
        if unit.effect == UnitEffect::Once {
            self.make(number, unit, unit.key.clone());
        }
        // The simulation does not wait for the end of an attempt that hangs.
        if this.receiver.kills() && self.faults.should_inject(FaultKind::AttemptHangs) {
            self.ledger.trace(|| format!("hangs {} #{}", unit.name, this.attempt));
            std::future::pending::<()>().await;
        }
        self.runtime.sleep(unit.millis - half).await;
        self.ledger.check_reads(number, "ends");
        let kind = if unit.sets_up() { FaultKind::SetupBroken } else { FaultKind::UndoBroken };
        let broken = self.ledger.is_broken(&unit.key, || self.faults.should_inject(kind));
        self.ledger.settle_things();
        let is_of = |id: &String| unit.undoes.iter().any(|key| id.split('.').next() == Some(key));
        let finds = unit.plan.verifies && self.ledger.state().objects.keys().any(is_of);
        let fails = finds || is_wrong || this.attempt <= unit.fails || broken;
        let fails = fails || self.faults.should_inject(FaultKind::AttemptFails);
        self.ledger.state().attempts[number].result = Some((self.runtime.elapsed(), !fails));
        if fails {
            self.ledger.trace(|| format!("fails {} #{}", unit.name, this.attempt));
            return Err("it fails as planned".to_owned());
        }
        let id = match unit.effect {
            UnitEffect::PerAttempt => format!("{}.{}", unit.key, this.attempt),
            UnitEffect::Once | UnitEffect::Nothing => unit.key.clone(),
        };
        if unit.effect == UnitEffect::PerAttempt {
            self.make(number, unit, id.clone());
        }
        if !unit.undoes.is_empty() && !unit.plan.verifies {
            self.ledger.check_undone(unit, "ends");
            for key in &unit.undoes {
                let of = |id: &str| id.split('.').next() == Some(key);
                // Without the id of a unit's object, all objects of the unit are deleted.
                let known: Vec<&String> = this.reads.iter().filter(|id| of(id)).collect();
                let mut state = self.ledger.state();
                state.objects.retain(|id, _| !of(id) || !(known.is_empty() || known.contains(&id)));
            }
        }
        self.ledger.state().repaired[1] += u64::from(corrected.is_some());
        self.ledger.trace(|| format!("succeeds {} #{}", unit.name, this.attempt));
        Ok(unit.plan.outputs.keys().map(|name| (name.clone(), id.clone().into())).collect())
    }

    fn make(&self, number: usize, unit: &Arc<SimUnit>, id: String) {
        self.ledger.trace(|| format!("{} makes {id}", unit.name));
        let this = self.ledger.state().attempts[number].clone();
        let unreported = !this.reports && self.ledger.is_past_in_flight(&this);
        self.ledger.state().objects.insert(id, SimObject { unit: Arc::clone(unit), unreported });
    }

    /// Reports another object with each callback, more of them than an attempt record holds. The object of a refused
    /// result is not undone.
    pub(super) async fn flood(self: Arc<Self>, number: usize, token: String) {
        let _active = self.ledger.activity();
        let unit = Arc::clone(&self.ledger.state().attempts[number].unit);
        for more in 0..FLOOD {
            let id = format!("{}.more{number}-{more}", unit.key);
            self.make(number, &unit, id.clone());
            let outputs = unit.plan.outputs.keys().map(|name| (name.clone(), id.clone().into())).collect();
            let body = serde_json::to_vec(&callback_of(&Ok(outputs))).expect("callbacks are JSON");
            let is_undone = self.deliver(token.clone(), body).await;
            if let (false, Some(object)) = (is_undone, self.ledger.state().objects.get_mut(&id)) {
                object.unreported = true;
            }
        }
    }

    /// Sends heartbeats of a script, some of them twice.
    pub(super) async fn send_heartbeats(self: Arc<Self>, token: String) {
        let below = |bound| self.faults.random_below(FaultKind::HeartbeatsSent, bound);
        for number in 1..=HEARTBEATS {
            self.runtime.sleep(below(HEARTBEAT_MS)).await;
            let progress = Some(format!("{number} of {HEARTBEATS}"));
            let callback = Callback { progress, ..Callback::new(CallbackStatus::Heartbeat) };
            let body = serde_json::to_vec(&callback).expect("callbacks are JSON");
            for _ in 0..=below(2) {
                match self.functions.heartbeat(token.clone(), body.clone()).await {
                    // A lost one is not repeated.
                    Err(_) | Ok(CallbackOutcome::Accepted | CallbackOutcome::Expired(_) | CallbackOutcome::Gone) => {}
                    Ok(refused) => self.ledger.report_violation(format!("a heartbeat is {refused:?}")),
                }
            }
        }
    }

    /// Sends a callback, perhaps late, perhaps twice.
    pub(super) async fn call_back(self: Arc<Self>, token: String, callback: Callback) {
        let _active = self.ledger.activity();
        let body = serde_json::to_vec(&callback).expect("callbacks are JSON");
        if self.faults.should_inject(FaultKind::CallbackDuplicated) {
            let later = self.faults.zero_or_below(FaultKind::CallbackDuplicated, LATE_MS);
            let (again, token, body) = (Arc::clone(&self), token.clone(), body.clone());
            self.runtime.spawn(async move {
                again.runtime.sleep(later).await;
                again.deliver(token, body).await;
            });
        }
        if let Some(later) = self.inject_below(FaultKind::CallbackLate, FIRST_LATE_MS) {
            self.runtime.sleep(later).await;
        }
        self.deliver(token, body).await;
    }

    /// Sends a callback until it has a response. Returns true if the object that it reports is undone in the end.
    async fn deliver(&self, token: String, body: Vec<u8>) -> bool {
        let _active = self.ledger.activity();
        let may_be_gone = |run| matches!(RunId::hook(&run), Hook::Event(_)) || self.ledger.is_removed(&run);
        loop {
            if !self.faults.should_inject(FaultKind::CallbackLost) {
                match self.functions.callback(token.clone(), body.clone()).await {
                    _ if self.faults.should_inject(FaultKind::CallbackAnswerLost) => {}
                    Ok(CallbackOutcome::Accepted | CallbackOutcome::Late(_)) => return true,
                    Ok(CallbackOutcome::Excess(_)) => return false,
                    // Retention has removed the run, or an update has replaced the units of an event that has ended.
                    Ok(CallbackOutcome::Gone) if run_of_token(&token).is_some_and(may_be_gone) => return false,
                    Ok(refused) => {
                        let body = String::from_utf8_lossy(&body);
                        self.ledger.report_violation(format!("a callback is {refused:?}: {body}"));
                        return false;
                    }
                    Err(_) => {}
                }
            }
            self.runtime.sleep(AGAIN_MS).await;
        }
    }
}

/// Returns the callback of a result. The content of a file is text, the output of a webhook any JSON.
pub(super) fn callback_of(ended: &SimOutputs) -> Callback {
    match ended {
        Ok(outputs) => Callback { outputs: outputs.clone(), ..Callback::new(CallbackStatus::Succeeded) },
        Err(reason) => Callback::failed(ReasonCode::Failed, reason),
    }
}
