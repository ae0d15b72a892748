//! The usual order of steps: the oldest actor continues to its end, unless it was delayed.

use super::*;

/// The names of the delayed actors. All others come first, until none of them can continue.
///
/// So one unusual step delays an actor as long as necessary, and most violations need few of them. (Delay-bounded
/// scheduling: Emmi, Qadeer, Rakamarić, POPL 2011.) They are part of the state if unusual steps are limited.
#[derive(Debug, Default)]
pub(super) struct ActorOrder(Vec<String>);

impl ActorOrder {
    fn actor(place: &ModelSimulation, choice: &StepChoice) -> Option<String> {
        match choice {
            StepChoice::Step(number) => place.point(*number).map(|point| format!("task {}", point.task.0)),
            StepChoice::Arrive { number, .. } => Some(format!("flight {number}")),
            StepChoice::Finish { name, .. } => Some(format!("work {name}")),
            StepChoice::Deliver { number, .. } => Some(format!("mail {number}")),
            _ => None,
        }
    }

    pub(super) fn sort(&self, place: &ModelSimulation, choices: &mut [StepChoice]) {
        if !self.0.is_empty() {
            choices.sort_by_cached_key(|choice| {
                let actor = Self::actor(place, choice);
                actor.and_then(|actor| self.0.iter().position(|late| *late == actor))
            });
        }
    }

    /// Delays the actors of the steps before the chosen one.
    pub(super) fn put_off(&mut self, place: &ModelSimulation, before: &[StepChoice]) {
        for actor in before.iter().filter_map(|choice| Self::actor(place, choice)) {
            self.0.retain(|late| *late != actor);
            self.0.push(actor);
        }
    }
}
