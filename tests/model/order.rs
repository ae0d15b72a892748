//! The usual order of steps: the oldest actor continues to its end, unless it was delayed.

use std::collections::BTreeMap;

use super::choice::StepChoice;
use super::simulation::ModelSimulation;
use crate::simulation::SimTaskId;

/// The actor of a step.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Actor {
    Task(SimTaskId),
    Flight(u64),
    Work(String),
    Mail(u64),
}

/// The delayed actors. All others come first, until none of them can continue.
///
/// So one unusual step delays an actor as long as necessary, and most violations need few of them. (Delay-bounded
/// scheduling: Emmi, Qadeer, Rakamarić, POPL 2011.)
#[derive(Clone, Debug, Default)]
pub(super) struct ActorOrder {
    late: BTreeMap<Actor, u64>,
    next: u64,
}

impl ActorOrder {
    fn actor(place: &ModelSimulation, choice: &StepChoice) -> Option<Actor> {
        match choice {
            StepChoice::Step(number) => place.point(*number).map(|point| Actor::Task(point.task)),
            StepChoice::Arrive { number, .. } => Some(Actor::Flight(*number)),
            StepChoice::Finish { name, .. } => Some(Actor::Work(name.clone())),
            StepChoice::Deliver { number, .. } => Some(Actor::Mail(*number)),
            _ => None,
        }
    }

    /// Sorts steps into the usual order.
    pub(super) fn sort(&self, place: &ModelSimulation, choices: &mut [StepChoice]) {
        if !self.late.is_empty() {
            choices.sort_by_cached_key(|choice| {
                Self::actor(place, choice).and_then(|actor| self.late.get(&actor).copied()).unwrap_or(0)
            });
        }
    }

    /// Delays the actors of the steps before the chosen one.
    pub(super) fn put_off(&mut self, place: &ModelSimulation, before: &[StepChoice]) {
        for choice in before {
            if let Some(actor) = Self::actor(place, choice) {
                self.next += 1;
                self.late.insert(actor, self.next);
            }
        }
    }

    /// Returns the delayed actors in order. They are part of the state if unusual steps are limited.
    pub(super) fn who(&self) -> impl std::fmt::Debug {
        let mut who: Vec<(u64, &Actor)> = self.late.iter().map(|(actor, at)| (*at, actor)).collect();
        who.sort_unstable();
        who.into_iter().map(|(_, actor)| actor.clone()).collect::<Vec<_>>()
    }
}
