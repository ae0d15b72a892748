//! What is usual: who began first goes on until it is over, unless it was put off.

use std::collections::BTreeMap;

use super::choice::StepChoice;
use super::simulation::ModelSimulation;
use crate::simulation::SimTaskId;

/// Who makes a choice happen.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Actor {
    Task(SimTaskId),
    Flight(u64),
    Work(String),
    Mail(u64),
}

/// The tasks that were put off: all others come first, until none of them can go on.
///
/// One unusual step so holds a task back for as long as it takes: most broken promises need few of them. (Delay-bounded
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

    /// Brings choices into the order in which they are usual.
    pub(super) fn sort(&self, place: &ModelSimulation, choices: &mut [StepChoice]) {
        if !self.late.is_empty() {
            choices.sort_by_cached_key(|choice| {
                Self::actor(place, choice).and_then(|actor| self.late.get(&actor).copied()).unwrap_or(0)
            });
        }
    }

    /// Puts off who would have come before what was chosen.
    pub(super) fn put_off(&mut self, place: &ModelSimulation, before: &[StepChoice]) {
        for choice in before {
            if let Some(actor) = Self::actor(place, choice) {
                self.next += 1;
                self.late.insert(actor, self.next);
            }
        }
    }

    /// Who was put off, in order: a part of the state where what is usual counts.
    pub(super) fn who(&self) -> impl std::fmt::Debug {
        let mut who: Vec<(u64, &Actor)> = self.late.iter().map(|(actor, at)| (*at, actor)).collect();
        who.sort_unstable();
        who.into_iter().map(|(_, actor)| actor.clone()).collect::<Vec<_>>()
    }
}
