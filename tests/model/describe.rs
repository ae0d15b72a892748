//! Choices in words.

use super::choice::Choice;
use super::gates::Point;
use super::outer::Mail;
use super::place::{Invocation, Place};
use crate::sim::TaskId;

impl Place {
    /// What a choice is, before it happens.
    pub(super) fn describe(&self, choice: &Choice) -> String {
        match choice {
            Choice::Step { number } => self.step(*number),
            Choice::Lose { number } => format!("{}: THE ANSWER IS LOST", self.step(*number)),
            Choice::Miss { number } => format!("{}: DOES NOT ARRIVE", self.step(*number)),
            Choice::Spare { number } => format!("{}: DOES NOT ARRIVE", self.step(*number)),
            Choice::Die { number } => format!("{}: DIES BEFORE IT", self.step(*number)),
            Choice::Arrive { number, well: true } => {
                format!("the request of {} arrives", self.flight(*number))
            }
            Choice::Arrive { number, .. } => {
                format!("the request of {} arrives and FAILS", self.flight(*number))
            }
            Choice::Unanswered { number } => {
                format!("the request of {} is NOT ANSWERED, and on its way", self.flight(*number))
            }
            Choice::Finish { name, well: true } => format!("{name} succeeds"),
            Choice::Finish { name, .. } => format!("{name} FAILS"),
            Choice::Deliver { number, twice: false } => format!("delivery: {}", self.mail(*number)),
            Choice::Deliver { number, .. } => format!("delivery, ONE OF TWO: {}", self.mail(*number)),
            Choice::Contradict { number } => format!("ANOTHER RESULT beside: {}", self.mail(*number)),
            Choice::Drop { number } => format!("LOST: {}", self.mail(*number)),
            Choice::Sweep(run) => format!("sweep {run}"),
            Choice::SweepTarget => "sweep target".to_owned(),
            Choice::Tick(at) => format!("time passes: {at} ms"),
            Choice::Delete => "DELETE".to_owned(),
            Choice::Retry => "an operator's retry".to_owned(),
        }
    }

    /// The point at which a task waits.
    pub(super) fn point(&self, number: u64) -> Option<Point> {
        self.gates.waiting().into_iter().find_map(|(at, point)| (at == number).then_some(point))
    }

    fn step(&self, number: u64) -> String {
        let Some(point) = self.point(number) else { return "nobody".to_owned() };
        format!("{} {:?} {}", self.name(point.task), point.kind, point.what)
    }

    fn flight(&self, number: u64) -> String {
        let state = self.outer.state();
        state.flights.get(&number).map_or_else(String::new, |flight| flight.what.to_string())
    }

    fn mail(&self, number: u64) -> String {
        match self.outer.state().mail.get(&number) {
            Some(Mail::Callback { of, .. }) => format!("callback of {of}"),
            Some(Mail::Message { message, .. }) => format!("{message:?}"),
            None => "mail".to_owned(),
        }
    }

    fn name(&self, task: TaskId) -> String {
        let running = self.running.lock().expect("no panic while it is held").get(&task).cloned();
        match running {
            Some(Invocation::Mail(number)) => format!("[{} {}]", task.0, self.mail(number)),
            Some(other) => format!("[{} {other:?}]", task.0),
            None => format!("[{}]", task.0),
        }
    }
}
