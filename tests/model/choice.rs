//! The possible steps of a state, and their effects.

use super::*;

/// The number of faults of each kind on a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FaultBudget {
    /// Invocations that die at any step.
    pub deaths: u8,
    /// Lost responses of writes, relays, servers and the platform.
    pub losses: u8,
    /// Cancel requests that do not arrive at the relay.
    pub kills: u8,
    /// Lost messages of the queue.
    pub drops: u8,
    /// Callbacks and messages that are delivered twice.
    pub duplicates: u8,
    /// Additional callbacks of an attempt with another result.
    pub contradictions: u8,
    pub failures: u8,
    /// Sweeps while the model is not quiet.
    pub sweeps: u8,
    /// Steps of time while the model is not quiet.
    pub ticks: u8,
    /// Deletions while the model is not quiet.
    pub deletions: u8,
    /// Updates while the model is not quiet.
    pub updates: u8,
    /// True if no two invocations run at a time. Otherwise, another one may start while one runs.
    pub alone: bool,
}

#[derive(Clone, Debug)]
pub(super) enum StepChoice {
    Step(u64),
    /// A task continues, and its response is lost.
    Lose(u64, GateKind),
    /// A request does not arrive, and its sender gets an error.
    Miss(u64),
    /// A cancel request does not arrive, and its sender gets an error.
    Spare(u64),
    Die(u64),
    /// A request arrives. `well` is false if the attempt fails at once.
    Arrive {
        number: u64,
        well: bool,
    },
    /// The sender of a request gets no response. The request may still arrive.
    Unanswered(u64),
    Finish {
        name: String,
        well: bool,
    },
    /// A callback or message is delivered. `twice` if it is delivered again later.
    Deliver {
        number: u64,
        twice: bool,
    },
    /// The server of a webhook unit creates another object and reports it by a callback of the same attempt.
    Contradict(u64),
    Drop(u64),
    Tick(u64),
    Invoke(ModelInvocation),
}

impl FaultBudget {
    /// Returns the number of faults that are left for a step with a fault.
    fn left(&mut self, choice: &StepChoice, platform: &PlatformState) -> Option<&mut u8> {
        Some(match choice {
            StepChoice::Lose(_, GateKind::Queue) | StepChoice::Drop(_) => &mut self.drops,
            StepChoice::Lose(..) | StepChoice::Miss(_) | StepChoice::Unanswered(_) => &mut self.losses,
            StepChoice::Spare(_) => &mut self.kills,
            StepChoice::Die(_) => &mut self.deaths,
            StepChoice::Arrive { .. } | StepChoice::Finish { .. } => &mut self.failures,
            StepChoice::Deliver { .. } => &mut self.duplicates,
            StepChoice::Contradict(_) => &mut self.contradictions,
            StepChoice::Tick(_) => &mut self.ticks,
            StepChoice::Invoke(ModelInvocation::Sweep(_)) => &mut self.sweeps,
            StepChoice::Invoke(ModelInvocation::Update(_)) => &mut self.updates,
            // A request of the deletion without a response is repeated.
            StepChoice::Invoke(ModelInvocation::Delete) if !platform.begun => &mut self.deletions,
            StepChoice::Invoke(_) | StepChoice::Step(_) => return None,
        })
    }
}

/// Longer than the validity of any token.
const LONG_MS: u64 = 3 * 3_600_000;

impl ModelSimulation {
    /// Processes ended invocations. Deliveries that were accepted are removed. Those of failed invocations are
    /// repeated.
    pub(super) fn collect(&self, platform: &mut PlatformState) {
        let ended = std::mem::take(&mut *lock(&self.ended));
        for (task, how) in ended {
            let invocation = lock(&self.running).remove(&task);
            let looked = lock(&self.looked).remove(&task);
            if let Some((run, before)) = looked
                && self.overdue(&run) == Some(before)
            {
                self.environment.state().violations.push(format!("{run} was looked at, and is as due as before"));
            }
            if how == InvocationEnd::Answered {
                self.environment.promised(task);
            }
            match (invocation, how) {
                (Some(ModelInvocation::Deliver(number)), InvocationEnd::Answered) => {
                    self.environment.state().deliveries.remove(&number);
                }
                (Some(ModelInvocation::Delete), InvocationEnd::Answered) => {
                    platform.answered = true;
                    let newest = self.runtime.newest();
                    self.environment.state().stopped_by.get_or_insert(newest);
                }
                (Some(ModelInvocation::Delete), InvocationEnd::Again) => platform.asked = false,
                (Some(ModelInvocation::Update(number)), InvocationEnd::Answered) => {
                    (platform.updates, platform.is_updating) = (number, false);
                }
                (Some(ModelInvocation::Update(_)), InvocationEnd::Again) => platform.is_updating = false,
                _ => {}
            }
        }
    }

    /// Returns true if only time and sweeps can change the state.
    pub(super) fn is_quiet(&self) -> bool {
        let now = self.runtime.elapsed();
        let is_idle = lock(&self.running).is_empty();
        let state = self.environment.state();
        let works = state.tasks.values().any(|work| work.state == ModelTaskState::Running);
        let mail = state.deliveries.values().any(|mail| mail.not_before() <= now);
        is_idle && state.in_flight.is_empty() && !works && !mail
    }

    /// Returns the time of the next due item or delayed message.
    fn next_time(&self) -> Option<u64> {
        let now = self.runtime.elapsed();
        let begin = self.runtime.now().0 - now;
        let due = self.due().into_iter().map(|(at, _)| at.0.saturating_sub(begin));
        let state = self.environment.state();
        due.chain(state.deliveries.values().map(PendingDelivery::not_before)).filter(|at| *at > now).min()
    }

    /// Returns the number of steps without a fault, and all steps, with these first. The first step is the usual one.
    pub(super) fn choices(&self, budget: &FaultBudget, platform: &PlatformState) -> (usize, Vec<StepChoice>) {
        let now = self.runtime.elapsed();
        let mut usual = Vec::new();
        let mut faults = Vec::new();
        for (number, point) in self.gates.waiting() {
            usual.push(StepChoice::Step(number));
            let lose = StepChoice::Lose(number, point.kind);
            let is_cancel = point.what.starts_with("cancel");
            match point.kind {
                GateKind::Read => {}
                GateKind::Write | GateKind::Queue => faults.push(lose),
                GateKind::Send => {
                    faults.push(StepChoice::Miss(number));
                    // `Unanswered` loses the other responses.
                    if is_cancel || point.what == "notify" {
                        faults.push(lose);
                    }
                }
            }
            if is_cancel {
                faults.push(StepChoice::Spare(number));
            }
            if !self.gates.has_only_read(point.task) {
                faults.push(StepChoice::Die(number));
            }
        }
        let mail: Vec<(u64, PendingDelivery)> = {
            let state = self.environment.state();
            for (&number, flight) in &state.in_flight {
                usual.push(StepChoice::Arrive { number, well: true });
                if !flight.request.later && !flight.request.by_relay {
                    faults.push(StepChoice::Arrive { number, well: false });
                }
                if flight.is_awaited() {
                    faults.push(StepChoice::Unanswered(number));
                }
            }
            for work in state.tasks.values().filter(|work| work.state == ModelTaskState::Running) {
                let name = &work.request.name;
                usual.push(StepChoice::Finish { name: name.clone(), well: true });
                faults.push(StepChoice::Finish { name: name.clone(), well: false });
            }
            state.deliveries.iter().map(|(number, mail)| (*number, mail.clone())).collect()
        };
        let running: Vec<ModelInvocation> = lock(&self.running).values().cloned().collect();
        let may_begin = running.len() <= usize::from(!budget.alone);
        for (number, mail) in mail {
            if running.contains(&ModelInvocation::Deliver(number)) {
                continue;
            }
            if mail.not_before() <= now && may_begin {
                usual.push(StepChoice::Deliver { number, twice: false });
                faults.push(StepChoice::Deliver { number, twice: true });
            }
            if self.environment.may_contradict(&mail) {
                faults.push(StepChoice::Contradict(number));
            }
            if matches!(mail, PendingDelivery::Message { .. }) {
                faults.push(StepChoice::Drop(number));
            }
        }
        let quiet = self.is_quiet();
        if may_begin {
            let due = self.due().into_iter().filter(|(at, _)| *at <= self.runtime.now());
            let sweeps = due.map(|(_, due)| StepChoice::Invoke(ModelInvocation::Sweep(due)));
            if quiet { usual.extend(sweeps) } else { faults.extend(sweeps) }
        }
        let delete = StepChoice::Invoke(ModelInvocation::Delete);
        if quiet && usual.is_empty() && !platform.asked && self.environment.is_hopeless() {
            usual.push(delete.clone());
        } else if let Some(at) = self.next_time() {
            if quiet && usual.is_empty() { &mut usual } else { &mut faults }.push(StepChoice::Tick(at));
        }
        faults.push(StepChoice::Tick(now + LONG_MS));
        let is_at_rest = quiet && usual.is_empty() && !self.is_open();
        if !platform.begun && !platform.is_updating && platform.updates < self.updates() && may_begin {
            let update = ModelInvocation::Update(platform.updates + 1);
            if is_at_rest { &mut usual } else { &mut faults }.push(StepChoice::Invoke(update));
        }
        if !platform.asked && may_begin {
            // An instance at rest is deleted after its updates.
            if is_at_rest && usual.is_empty() { &mut usual } else { &mut faults }.push(delete.clone());
        }
        if platform.begun && !platform.asked && usual.is_empty() && may_begin {
            usual.push(delete);
        }
        let stuck = self.table.state().targets.values().any(|target| target.phase == TargetPhase::Stuck);
        if quiet && usual.is_empty() && stuck {
            usual.push(StepChoice::Invoke(ModelInvocation::Retry));
        }
        // The end of a path has no faults.
        let free = usual.len();
        if free > 0 {
            let mut budget = *budget;
            usual.extend(faults.into_iter().filter(|fault| budget.left(fault, platform).is_none_or(|left| *left > 0)));
        }
        (free, usual)
    }

    pub(super) fn is_open(&self) -> bool {
        let state = self.table.state();
        state.heads.values().any(|run| run.head.phase != RunPhase::Closed)
            || state.targets.values().any(|target| target.due.is_some())
    }

    /// Executes a step and subtracts its fault from the budget.
    pub(super) fn happen(
        &self,
        choice: &StepChoice,
        free: bool,
        budget: &mut FaultBudget,
        platform: &mut PlatformState,
    ) {
        if let Some(left) = budget.left(choice, platform).filter(|_| !free) {
            *left -= 1;
        }
        match choice {
            StepChoice::Step(number) => self.gates.release(*number, WriteFate::Proceed),
            StepChoice::Lose(number, _) => self.gates.release(*number, WriteFate::LoseResponse),
            StepChoice::Miss(number) | StepChoice::Spare(number) => self.gates.release(*number, WriteFate::Die),
            StepChoice::Die(number) => {
                let task = self.point(*number).expect("only who waits dies").task;
                self.runtime.kill(task);
                match lock(&self.running).remove(&task) {
                    Some(ModelInvocation::Delete) => platform.asked = false,
                    Some(ModelInvocation::Update(_)) => platform.is_updating = false,
                    _ => {}
                }
            }
            StepChoice::Arrive { number, well } => self.environment.arrive(*number, *well),
            StepChoice::Unanswered(number) => self.environment.leave_unanswered(*number),
            StepChoice::Finish { name, well } => self.environment.finish(name, *well),
            StepChoice::Deliver { number, twice } => {
                if *twice {
                    let mut state = self.environment.state();
                    let mail = state.deliveries.get(number).cloned().expect("only mail that is there is delivered");
                    let next = state.number();
                    state.deliveries.insert(next, mail);
                }
                self.invoke(ModelInvocation::Deliver(*number));
            }
            StepChoice::Contradict(number) => self.environment.contradict(*number),
            StepChoice::Drop(number) => drop(self.environment.state().deliveries.remove(number)),
            // The explorer waits.
            StepChoice::Tick(_) => {}
            StepChoice::Invoke(invocation) => {
                match invocation {
                    ModelInvocation::Delete => (platform.asked, platform.begun) = (true, true),
                    ModelInvocation::Update(_) => platform.is_updating = true,
                    _ => {}
                }
                self.invoke(invocation.clone());
            }
        }
    }

    /// Describes a step before its execution, and what it concerns.
    pub(super) fn describe(&self, choice: &StepChoice) -> String {
        let subject = match choice {
            StepChoice::Step(number)
            | StepChoice::Lose(number, _)
            | StepChoice::Miss(number)
            | StepChoice::Spare(number)
            | StepChoice::Die(number) => self.step(*number),
            StepChoice::Arrive { number, .. } | StepChoice::Unanswered(number) => {
                let state = self.environment.state();
                state.in_flight.get(number).map_or_else(String::new, |flight| flight.request.to_string())
            }
            StepChoice::Deliver { number, .. } | StepChoice::Contradict(number) | StepChoice::Drop(number) => {
                self.mail(*number)
            }
            _ => String::new(),
        };
        format!("{choice:?} {subject}")
    }

    pub(super) fn point(&self, number: u64) -> Option<GatePoint> {
        self.gates.waiting().into_iter().find_map(|(at, point)| (at == number).then_some(point))
    }

    fn step(&self, number: u64) -> String {
        let Some(point) = self.point(number) else { return "none".to_owned() };
        let by = match lock(&self.running).get(&point.task) {
            Some(ModelInvocation::Deliver(number)) => self.mail(*number),
            other => format!("{other:?}"),
        };
        format!("[{} {by}] {:?} {}", point.task.0, point.kind, point.what)
    }

    fn mail(&self, number: u64) -> String {
        match self.environment.state().deliveries.get(&number) {
            Some(PendingDelivery::Callback { of, .. }) => format!("callback of {of}"),
            Some(PendingDelivery::Message { message, .. }) => format!("{message:?}"),
            None => "mail".to_owned(),
        }
    }
}

/// The progress of the deletion and of the updates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct PlatformState {
    /// True while a deletion is requested, and after its response.
    pub(super) asked: bool,
    /// True after the first request. A request without a response is repeated.
    pub(super) begun: bool,
    pub(super) answered: bool,
    pub(super) is_updating: bool,
    /// The number of updates that were answered. One that was rejected because of a run is sent again.
    pub(super) updates: usize,
}
