//! Describes steps as text.

use super::choice::StepChoice;
use super::environment::PendingDelivery;
use super::gates::GatePoint;
use super::simulation::{ModelInvocation, ModelSimulation};
use crate::simulation::lock;

impl ModelSimulation {
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

    /// Returns the gate at which a task waits.
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
