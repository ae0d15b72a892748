//! Describes steps as text.

use super::choice::StepChoice;
use super::environment::PendingDelivery;
use super::gates::GatePoint;
use super::simulation::{ModelInvocation, ModelSimulation};
use crate::simulation::{SimTaskId, lock};

impl ModelSimulation {
    /// Describes a step before its execution.
    pub(super) fn describe(&self, choice: &StepChoice) -> String {
        match choice {
            StepChoice::Step(number) => self.step(*number),
            StepChoice::Lose(number, _) => format!("{}: THE ANSWER IS LOST", self.step(*number)),
            StepChoice::Miss(number) | StepChoice::Spare(number) => {
                format!("{}: DOES NOT ARRIVE", self.step(*number))
            }
            StepChoice::Die(number) => format!("{}: DIES BEFORE IT", self.step(*number)),
            StepChoice::Arrive { number, well: true } => {
                format!("the request of {} arrives", self.flight(*number))
            }
            StepChoice::Arrive { number, .. } => {
                format!("the request of {} arrives and FAILS", self.flight(*number))
            }
            StepChoice::Unanswered(number) => {
                format!("the request of {} is NOT ANSWERED, and on its way", self.flight(*number))
            }
            StepChoice::Finish { name, well: true } => format!("{name} succeeds"),
            StepChoice::Finish { name, .. } => format!("{name} FAILS"),
            StepChoice::Deliver { number, twice: false } => format!("delivery: {}", self.mail(*number)),
            StepChoice::Deliver { number, .. } => format!("delivery, ONE OF TWO: {}", self.mail(*number)),
            StepChoice::Contradict(number) => format!("ANOTHER RESULT beside: {}", self.mail(*number)),
            StepChoice::Drop(number) => format!("LOST: {}", self.mail(*number)),
            StepChoice::Sweep(run) => format!("sweep {run}"),
            StepChoice::SweepTarget => "sweep target".to_owned(),
            StepChoice::Tick(at) => format!("time passes: {at} ms"),
            StepChoice::Delete => "DELETE".to_owned(),
            StepChoice::Update => "UPDATE".to_owned(),
            StepChoice::Retry => "an operator's retry".to_owned(),
        }
    }

    /// Returns the gate at which a task waits.
    pub(super) fn point(&self, number: u64) -> Option<GatePoint> {
        self.gates.waiting().into_iter().find_map(|(at, point)| (at == number).then_some(point))
    }

    fn step(&self, number: u64) -> String {
        let Some(point) = self.point(number) else { return "none".to_owned() };
        format!("{} {:?} {}", self.name(point.task), point.kind, point.what)
    }

    fn flight(&self, number: u64) -> String {
        let state = self.environment.state();
        state.in_flight.get(&number).map_or_else(String::new, |flight| flight.request.to_string())
    }

    fn mail(&self, number: u64) -> String {
        match self.environment.state().deliveries.get(&number) {
            Some(PendingDelivery::Callback { of, .. }) => format!("callback of {of}"),
            Some(PendingDelivery::Message { message, .. }) => format!("{message:?}"),
            None => "mail".to_owned(),
        }
    }

    fn name(&self, task: SimTaskId) -> String {
        let running = lock(&self.running).get(&task).cloned();
        match running {
            Some(ModelInvocation::Deliver(number)) => format!("[{} {}]", task.0, self.mail(number)),
            Some(other) => format!("[{} {other:?}]", task.0),
            None => format!("[{}]", task.0),
        }
    }
}
