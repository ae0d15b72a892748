//! The possible steps of a state, and their effects.

use ebb_engine::{RunPhase, TargetPhase};
use ebb_protocol::id::RunId;
use ebb_store::DueItem;

use super::environment::{ModelEnvironment, ModelTaskState, PendingDelivery};
use super::gates::GateKind;
use super::simulation::{InvocationEnd, ModelInvocation, ModelSimulation};
use crate::simulation::{SimTaskId, WriteFate};

/// The number of faults of each kind on a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
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
    /// Maximum number of running invocations when another one starts.
    pub concurrent: u8,
}

/// The next step.
#[derive(Clone, Debug)]
pub(super) enum StepChoice {
    Step(u64),
    /// A task continues, and its response is lost.
    Lose(u64),
    /// A request does not arrive, and its sender gets an error.
    Miss(u64),
    /// A cancel request does not arrive, and its sender gets an error.
    Spare(u64),
    /// A task dies before its step.
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
    Sweep(RunId),
    SweepTarget,
    /// Time passes to this time.
    Tick(u64),
    Delete,
    /// The next update.
    Update,
    /// An operator retries the stuck target.
    Retry,
}

/// Longer than the validity of any token.
const LONG_MS: u64 = 3 * 3_600_000;

impl ModelSimulation {
    /// Processes ended invocations. Deliveries that were accepted are removed. Those of failed invocations are
    /// repeated.
    pub(super) fn collect(&self, platform: &mut PlatformState) {
        let ended: Vec<(SimTaskId, InvocationEnd)> =
            std::mem::take(&mut *self.ended.lock().expect("no panic while it is held"));
        for (task, how) in ended {
            let invocation = self.running.lock().expect("no panic while it is held").remove(&task);
            let looked = self.looked.lock().expect("no panic while it is held").remove(&task);
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

    fn is_delivered(&self, number: u64) -> bool {
        let running = self.running.lock().expect("no panic while it is held");
        running.values().any(|invocation| *invocation == ModelInvocation::Deliver(number))
    }

    /// Returns true if only time and sweeps can change the state.
    pub(super) fn is_quiet(&self) -> bool {
        let now = self.runtime.elapsed();
        let running = self.running.lock().expect("no panic while it is held").is_empty();
        let state = self.environment.state();
        let works = state.tasks.values().any(|work| work.state == ModelTaskState::Running);
        let mail = state.deliveries.values().any(|mail| match mail {
            PendingDelivery::Callback { .. } => true,
            PendingDelivery::Message { not_before, .. } => *not_before <= now,
        });
        running && state.in_flight.is_empty() && !works && !mail
    }

    /// Returns the time of the next due item or delayed message.
    fn next_time(&self) -> Option<u64> {
        let now = self.runtime.elapsed();
        let begin = self.runtime.now().0 - now;
        let due = self.due().into_iter().map(|(at, _)| at.0.saturating_sub(begin));
        let state = self.environment.state();
        let mail = state.deliveries.values().filter_map(|mail| match mail {
            PendingDelivery::Message { not_before, .. } => Some(*not_before),
            PendingDelivery::Callback { .. } => None,
        });
        due.chain(mail.collect::<Vec<_>>()).filter(|at| *at > now).min()
    }

    /// Returns the number of steps without a fault, and all steps, with these first. The first step is the usual one.
    pub(super) fn choices(&self, budget: &FaultBudget, platform: &PlatformState) -> (usize, Vec<StepChoice>) {
        let now = self.runtime.elapsed();
        let mut usual = Vec::new();
        let mut faults = Vec::new();
        for (number, point) in self.gates.waiting() {
            usual.push(StepChoice::Step(number));
            if budget.losses > 0 && point.kind == GateKind::Write {
                faults.push(StepChoice::Lose(number));
            }
            if budget.losses > 0 && point.kind == GateKind::Send {
                faults.push(StepChoice::Miss(number));
                // `Unanswered` loses the other responses.
                if point.what.starts_with("cancel") || point.what == "notify" {
                    faults.push(StepChoice::Lose(number));
                }
            }
            if budget.kills > 0 && point.what.starts_with("cancel") {
                faults.push(StepChoice::Spare(number));
            }
            if budget.drops > 0 && point.kind == GateKind::Queue {
                faults.push(StepChoice::Lose(number));
            }
            if budget.deaths > 0 && !self.gates.has_only_read(point.task) {
                faults.push(StepChoice::Die(number));
            }
        }
        let (flights, works, mail) = {
            let state = self.environment.state();
            let flights: Vec<_> = state.in_flight.iter().map(|(number, flight)| (*number, flight.clone())).collect();
            let running = |work: &&super::environment::ModelTask| work.state == ModelTaskState::Running;
            let works: Vec<String> =
                state.tasks.values().filter(running).map(|work| work.request.name.clone()).collect();
            let mail: Vec<_> = state.deliveries.iter().map(|(number, mail)| (*number, mail.clone())).collect();
            (flights, works, mail)
        };
        for (number, flight) in flights {
            usual.push(StepChoice::Arrive { number, well: true });
            if budget.failures > 0 && !flight.request.later && !flight.request.by_relay {
                faults.push(StepChoice::Arrive { number, well: false });
            }
            if budget.losses > 0 && ModelEnvironment::is_awaited(&flight) {
                faults.push(StepChoice::Unanswered(number));
            }
        }
        for name in works {
            usual.push(StepChoice::Finish { name: name.clone(), well: true });
            if budget.failures > 0 {
                faults.push(StepChoice::Finish { name, well: false });
            }
        }
        let under_way = self.running.lock().expect("no panic while it is held").len();
        let may_begin = under_way <= usize::from(budget.concurrent);
        for (number, mail) in mail {
            if self.is_delivered(number) {
                continue;
            }
            let ripe = match &mail {
                PendingDelivery::Callback { .. } => true,
                PendingDelivery::Message { not_before, .. } => *not_before <= now,
            };
            if ripe && may_begin {
                usual.push(StepChoice::Deliver { number, twice: false });
                if budget.duplicates > 0 {
                    faults.push(StepChoice::Deliver { number, twice: true });
                }
            }
            if budget.contradictions > 0 && self.environment.may_contradict(&mail) {
                faults.push(StepChoice::Contradict(number));
            }
            if budget.drops > 0 && matches!(mail, PendingDelivery::Message { .. }) {
                faults.push(StepChoice::Drop(number));
            }
        }
        let quiet = self.is_quiet();
        if may_begin && (quiet || budget.sweeps > 0) {
            let begin = self.runtime.now().0 - now;
            for (at, due) in self.due() {
                let ripe = at.0.saturating_sub(begin) <= now;
                if !ripe {
                    continue;
                }
                let sweep = match due {
                    DueItem::Run(run) => StepChoice::Sweep(run),
                    DueItem::Target(..) | DueItem::Desired(..) => StepChoice::SweepTarget,
                };
                if quiet { usual.push(sweep) } else { faults.push(sweep) }
            }
        }
        if quiet && usual.is_empty() && !platform.asked && self.environment.is_hopeless() {
            usual.push(StepChoice::Delete);
        } else if let Some(at) = self.next_time() {
            if quiet && usual.is_empty() {
                usual.push(StepChoice::Tick(at));
            } else if budget.ticks > 0 {
                faults.push(StepChoice::Tick(at));
            }
        }
        if budget.ticks > 0 {
            faults.push(StepChoice::Tick(now + LONG_MS));
        }
        let is_at_rest = quiet && usual.is_empty() && !self.is_open();
        if !platform.begun && !platform.is_updating && platform.updates < self.updates() && may_begin {
            if is_at_rest {
                usual.push(StepChoice::Update);
            } else if budget.updates > 0 {
                faults.push(StepChoice::Update);
            }
        }
        if !platform.asked && may_begin {
            // An instance at rest is deleted after its updates.
            if is_at_rest && usual.is_empty() {
                usual.push(StepChoice::Delete);
            } else if budget.deletions > 0 || platform.begun {
                faults.push(StepChoice::Delete);
            }
        }
        if platform.begun && !platform.asked && usual.is_empty() && may_begin {
            usual.push(StepChoice::Delete);
        }
        let stuck = self.table.state().targets.values().any(|target| target.phase == TargetPhase::Stuck);
        if quiet && usual.is_empty() && stuck {
            usual.push(StepChoice::Retry);
        }
        // The end of a path has no faults.
        let free = usual.len();
        if free > 0 {
            usual.extend(faults);
        }
        (free, usual)
    }

    /// Returns true if a run of the target is open.
    pub(super) fn is_open(&self) -> bool {
        let state = self.table.state();
        let roots = state.heads.values().filter_map(|heads| heads.get(&ebb_engine::Shard::ROOT));
        let mut phases = roots.map(|root| root.head.phase);
        phases.any(|phase| phase != RunPhase::Closed) || state.targets.values().any(|target| target.due.is_some())
    }

    /// Executes a step and subtracts its fault from the budget.
    pub(super) fn happen(
        &self,
        choice: &StepChoice,
        free: bool,
        budget: &mut FaultBudget,
        platform: &mut PlatformState,
    ) {
        match choice {
            StepChoice::Step(number) => self.gates.release(*number, WriteFate::Proceed),
            StepChoice::Lose(number) => {
                let queue =
                    self.gates.waiting().iter().any(|(at, point)| at == number && point.kind == GateKind::Queue);
                if queue {
                    budget.drops -= 1
                } else {
                    budget.losses -= 1
                }
                self.gates.release(*number, WriteFate::LoseResponse);
            }
            StepChoice::Miss(number) => {
                budget.losses -= 1;
                self.gates.release(*number, WriteFate::Die);
            }
            StepChoice::Spare(number) => {
                budget.kills -= 1;
                self.gates.release(*number, WriteFate::Die);
            }
            StepChoice::Die(number) => {
                budget.deaths -= 1;
                let task = self.point(*number).expect("only who waits dies").task;
                self.runtime.kill(task);
                let invocation = self.running.lock().expect("no panic while it is held").remove(&task);
                match invocation {
                    Some(ModelInvocation::Delete) => platform.asked = false,
                    Some(ModelInvocation::Update(_)) => platform.is_updating = false,
                    _ => {}
                }
            }
            StepChoice::Arrive { number, well, .. } => {
                if !well {
                    budget.failures -= 1;
                }
                self.environment.arrive(*number, *well);
            }
            StepChoice::Unanswered(number) => {
                budget.losses -= 1;
                let flight = self.environment.state().in_flight.get(number).cloned().expect("it is on its way");
                ModelEnvironment::answer(&flight, self.environment.no_answer(&flight.request));
            }
            StepChoice::Finish { name, well } => {
                if !well {
                    budget.failures -= 1;
                }
                self.environment.finish(name, *well);
            }
            StepChoice::Deliver { number, twice, .. } => {
                if *twice {
                    budget.duplicates -= 1;
                    let mut state = self.environment.state();
                    let mail = state.deliveries.get(number).cloned().expect("only mail that is there is delivered");
                    let next = state.number();
                    state.deliveries.insert(next, mail);
                }
                self.invoke(ModelInvocation::Deliver(*number));
            }
            StepChoice::Contradict(number) => {
                budget.contradictions -= 1;
                self.environment.contradict(*number);
            }
            StepChoice::Drop(number) => {
                budget.drops -= 1;
                self.environment.state().deliveries.remove(number);
            }
            StepChoice::Sweep(run) => {
                if !free {
                    budget.sweeps -= 1;
                }
                self.invoke(ModelInvocation::Sweep(run.clone()));
            }
            StepChoice::SweepTarget => {
                if !free {
                    budget.sweeps -= 1;
                }
                self.invoke(ModelInvocation::SweepTarget);
            }
            StepChoice::Tick(_) => {
                if !free {
                    budget.ticks -= 1;
                }
            }
            StepChoice::Retry => self.invoke(ModelInvocation::Retry),
            StepChoice::Delete => {
                if !free && !platform.begun {
                    budget.deletions -= 1;
                }
                platform.asked = true;
                platform.begun = true;
                self.invoke(ModelInvocation::Delete);
            }
            StepChoice::Update => {
                if !free {
                    budget.updates -= 1;
                }
                platform.is_updating = true;
                self.invoke(ModelInvocation::Update(platform.updates + 1));
            }
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
    /// True while an update is requested.
    pub(super) is_updating: bool,
    /// The number of updates that were answered. One that was rejected because of a run is sent again.
    pub(super) updates: usize,
}
