//! What can happen next, and what it does.

use ebb_engine::{RunPhase, TargetPhase};
use ebb_store::Due;
use ebb_wire::id::RunId;

use super::gates::Kind;
use super::outer::{Mail, Outer, Stand};
use super::place::{Ended, Invocation, Place};
use crate::sim::{Blow, TaskId};

/// How much may go wrong on a path, beside the order of things.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Budget {
    /// Invocations that die, at any of their steps.
    pub deaths: u8,
    /// Answers that get lost: of a write, of the relay, of a server, of the platform.
    pub losses: u8,
    /// Kills that do not arrive at their relay.
    pub kills: u8,
    /// Messages of the queue that get lost.
    pub drops: u8,
    /// Callbacks and messages that are delivered once more.
    pub doubles: u8,
    /// Callbacks that are followed by another one of the same attempt, with another result.
    pub contradictions: u8,
    pub failures: u8,
    /// Sweeps while something else goes on.
    pub sweeps: u8,
    /// Times that time passes while something else goes on.
    pub ticks: u8,
    /// Deletions while something else goes on.
    pub deletions: u8,
    /// Invocations at a time that begin while another one is under way.
    pub beside: u8,
}

/// What happens next.
#[derive(Clone, Debug)]
pub(super) enum Choice {
    Step {
        number: u64,
    },
    /// A task goes on, and its answer is lost.
    Lose {
        number: u64,
    },
    /// A task's request does not arrive, and it is told that nobody answers.
    Miss {
        number: u64,
    },
    /// A kill does not arrive, and its task is told that nobody answers.
    Spare {
        number: u64,
    },
    /// A task dies where it stands.
    Die {
        number: u64,
    },
    /// A request arrives; `well`: how work ends that ends at once.
    Arrive {
        number: u64,
        well: bool,
    },
    /// Whoever waits for the answer of a request is told that there is none; the request may still arrive.
    Unanswered {
        number: u64,
    },
    Finish {
        name: String,
        well: bool,
    },
    /// Mail is delivered; `twice`: and once more later.
    Deliver {
        number: u64,
        twice: bool,
    },
    /// The server of a webhook unit makes one more thing, and reports it by a callback of the same attempt.
    Contradict {
        number: u64,
    },
    Drop {
        number: u64,
    },
    Sweep(RunId),
    SweepTarget,
    /// Time passes until then.
    Tick(u64),
    Delete,
    /// An operator has what gave up tried again.
    Retry,
}

/// Time that is longer than any token is valid.
const LONG_MS: u64 = 3 * 3_600_000;

impl Place {
    /// What is over since the last look: mail that was taken is gone, mail whose taker died comes again.
    pub(super) fn collect(&self, deletion: &mut Deletion) {
        let ended: Vec<(TaskId, Ended)> =
            std::mem::take(&mut *self.ended.lock().expect("no panic while it is held"));
        for (task, how) in ended {
            let invocation = self.running.lock().expect("no panic while it is held").remove(&task);
            let looked = self.looked.lock().expect("no panic while it is held").remove(&task);
            if let Some((run, before)) = looked
                && self.overdue(&run) == Some(before)
            {
                self.outer.state().wrong.push(format!("{run} was looked at, and is as due as before"));
            }
            if how == Ended::Answered {
                self.outer.promised(task);
            }
            match (invocation, how) {
                (Some(Invocation::Mail(number)), Ended::Answered) => {
                    self.outer.state().mail.remove(&number);
                }
                (Some(Invocation::Delete), Ended::Answered) => {
                    deletion.answered = true;
                    let newest = self.runtime.newest();
                    self.outer.state().stopped_by.get_or_insert(newest);
                }
                (Some(Invocation::Delete), Ended::Again) => deletion.asked = false,
                _ => {}
            }
        }
    }

    fn is_delivered(&self, number: u64) -> bool {
        let running = self.running.lock().expect("no panic while it is held");
        running.values().any(|invocation| *invocation == Invocation::Mail(number))
    }

    /// Whether nothing moves, but for time and what is due.
    pub(super) fn is_quiet(&self) -> bool {
        let now = self.runtime.elapsed();
        let running = self.running.lock().expect("no panic while it is held").is_empty();
        let state = self.outer.state();
        let works = state.works.values().any(|work| work.stand == Stand::Running);
        let mail = state.mail.values().any(|mail| match mail {
            Mail::Callback { .. } => true,
            Mail::Message { not_before, .. } => *not_before <= now,
        });
        running && state.flights.is_empty() && !works && !mail
    }

    /// When the next thing that waits for time happens.
    fn next_time(&self) -> Option<u64> {
        let now = self.runtime.elapsed();
        let begin = self.runtime.now().0 - now;
        let due = self.due().into_iter().map(|(at, _)| at.0.saturating_sub(begin));
        let state = self.outer.state();
        let mail = state.mail.values().filter_map(|mail| match mail {
            Mail::Message { not_before, .. } => Some(*not_before),
            Mail::Callback { .. } => None,
        });
        due.chain(mail.collect::<Vec<_>>()).filter(|at| *at > now).min()
    }

    /// Everything that can happen; the first is what happens if nothing goes wrong and nothing overtakes.
    /// Gives how many of them cost nothing, and all.
    pub(super) fn choices(&self, budget: &Budget, deletion: &Deletion) -> (usize, Vec<Choice>) {
        let now = self.runtime.elapsed();
        let mut usual = Vec::new();
        let mut faults = Vec::new();
        for (number, point) in self.gates.waiting() {
            usual.push(Choice::Step { number });
            if budget.losses > 0 && point.kind == Kind::Write {
                faults.push(Choice::Lose { number });
            }
            if budget.losses > 0 && point.kind == Kind::Send {
                faults.push(Choice::Miss { number });
                // Other answers are lost on their own way.
                if point.what.starts_with("cancel") || point.what == "tell" {
                    faults.push(Choice::Lose { number });
                }
            }
            if budget.kills > 0 && point.what.starts_with("cancel") {
                faults.push(Choice::Spare { number });
            }
            if budget.drops > 0 && point.kind == Kind::Queue {
                faults.push(Choice::Lose { number });
            }
            if budget.deaths > 0 && !self.gates.has_only_read(point.task) {
                faults.push(Choice::Die { number });
            }
        }
        let (flights, works, mail) = {
            let state = self.outer.state();
            let flights: Vec<_> =
                state.flights.iter().map(|(number, flight)| (*number, flight.clone())).collect();
            let running = |work: &&super::outer::Work| work.stand == Stand::Running;
            let works: Vec<String> =
                state.works.values().filter(running).map(|work| work.parcel.name.clone()).collect();
            let mail: Vec<_> = state.mail.iter().map(|(number, mail)| (*number, mail.clone())).collect();
            (flights, works, mail)
        };
        for (number, flight) in flights {
            usual.push(Choice::Arrive { number, well: true });
            if budget.failures > 0 && !flight.what.later && !flight.what.by_relay {
                faults.push(Choice::Arrive { number, well: false });
            }
            if budget.losses > 0 && Outer::is_awaited(&flight) {
                faults.push(Choice::Unanswered { number });
            }
        }
        for name in works {
            usual.push(Choice::Finish { name: name.clone(), well: true });
            if budget.failures > 0 {
                faults.push(Choice::Finish { name, well: false });
            }
        }
        let under_way = self.running.lock().expect("no panic while it is held").len();
        let may_begin = under_way <= usize::from(budget.beside);
        for (number, mail) in mail {
            if self.is_delivered(number) {
                continue;
            }
            let ripe = match &mail {
                Mail::Callback { .. } => true,
                Mail::Message { not_before, .. } => *not_before <= now,
            };
            if ripe && may_begin {
                usual.push(Choice::Deliver { number, twice: false });
                if budget.doubles > 0 {
                    faults.push(Choice::Deliver { number, twice: true });
                }
            }
            if budget.contradictions > 0 && self.outer.may_contradict(&mail) {
                faults.push(Choice::Contradict { number });
            }
            if budget.drops > 0 && matches!(mail, Mail::Message { .. }) {
                faults.push(Choice::Drop { number });
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
                    Due::Run(run) => Choice::Sweep(run),
                    Due::Target(..) => Choice::SweepTarget,
                };
                if quiet { usual.push(sweep) } else { faults.push(sweep) }
            }
        }
        if quiet && usual.is_empty() && !deletion.asked && self.outer.is_hopeless() {
            usual.push(Choice::Delete);
        } else if let Some(at) = self.next_time() {
            if quiet && usual.is_empty() {
                usual.push(Choice::Tick(at));
            } else if budget.ticks > 0 {
                faults.push(Choice::Tick(at));
            }
        }
        if budget.ticks > 0 {
            faults.push(Choice::Tick(now + LONG_MS));
        }
        if !deletion.asked && may_begin {
            // A life that has come to rest is ended.
            if quiet && usual.is_empty() && !self.is_open() {
                usual.push(Choice::Delete);
            } else if budget.deletions > 0 || deletion.begun {
                faults.push(Choice::Delete);
            }
        }
        if deletion.begun && !deletion.asked && usual.is_empty() && may_begin {
            usual.push(Choice::Delete);
        }
        let stuck = self.table.state().targets.values().any(|target| target.phase == TargetPhase::Stuck);
        if quiet && usual.is_empty() && stuck {
            usual.push(Choice::Retry);
        }
        // Where nothing is left to happen, nothing can go wrong.
        let free = usual.len();
        if free > 0 {
            usual.extend(faults);
        }
        (free, usual)
    }

    /// Whether a run of the target is open.
    pub(super) fn is_open(&self) -> bool {
        let state = self.table.state();
        let roots = state.heads.values().filter_map(|heads| heads.get(&ebb_engine::Shard::ROOT));
        let mut phases = roots.map(|root| root.head.phase);
        phases.any(|phase| phase != RunPhase::Closed)
            || state.targets.values().any(|target| target.due.is_some())
    }

    /// Makes a choice happen, and pays for it.
    pub(super) fn happen(&self, choice: &Choice, free: bool, budget: &mut Budget, deletion: &mut Deletion) {
        match choice {
            Choice::Step { number, .. } => self.gates.release(*number, Blow::Go),
            Choice::Lose { number, .. } => {
                let queue =
                    self.gates.waiting().iter().any(|(at, point)| at == number && point.kind == Kind::Queue);
                if queue {
                    budget.drops -= 1
                } else {
                    budget.losses -= 1
                }
                self.gates.release(*number, Blow::Lose);
            }
            Choice::Miss { number } => {
                budget.losses -= 1;
                self.gates.release(*number, Blow::Die);
            }
            Choice::Spare { number } => {
                budget.kills -= 1;
                self.gates.release(*number, Blow::Die);
            }
            Choice::Die { number } => {
                budget.deaths -= 1;
                let task = self.point(*number).expect("only who waits dies").task;
                self.runtime.kill(task);
                let invocation = self.running.lock().expect("no panic while it is held").remove(&task);
                if invocation == Some(Invocation::Delete) {
                    deletion.asked = false;
                }
            }
            Choice::Arrive { number, well, .. } => {
                if !well {
                    budget.failures -= 1;
                }
                self.outer.arrive(*number, *well);
            }
            Choice::Unanswered { number, .. } => {
                budget.losses -= 1;
                let flight = self.outer.state().flights.get(number).cloned().expect("it is on its way");
                Outer::answer(&flight, self.outer.no_answer(&flight.what));
            }
            Choice::Finish { name, well } => {
                if !well {
                    budget.failures -= 1;
                }
                self.outer.finish(name, *well);
            }
            Choice::Deliver { number, twice, .. } => {
                if *twice {
                    budget.doubles -= 1;
                    let mut state = self.outer.state();
                    let mail = state.mail.get(number).cloned().expect("only mail that is there is delivered");
                    let next = state.number();
                    state.mail.insert(next, mail);
                }
                self.invoke(Invocation::Mail(*number));
            }
            Choice::Contradict { number } => {
                budget.contradictions -= 1;
                self.outer.contradict(*number);
            }
            Choice::Drop { number, .. } => {
                budget.drops -= 1;
                self.outer.state().mail.remove(number);
            }
            Choice::Sweep(run) => {
                if !free {
                    budget.sweeps -= 1;
                }
                self.invoke(Invocation::Sweep(run.clone()));
            }
            Choice::SweepTarget => {
                if !free {
                    budget.sweeps -= 1;
                }
                self.invoke(Invocation::SweepTarget);
            }
            Choice::Tick(_) => {
                if !free {
                    budget.ticks -= 1;
                }
            }
            Choice::Retry => self.invoke(Invocation::Retry),
            Choice::Delete => {
                if !free && !deletion.begun {
                    budget.deletions -= 1;
                }
                deletion.asked = true;
                deletion.begun = true;
                self.invoke(Invocation::Delete);
            }
        }
    }
}

/// How far the deletion is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Deletion {
    /// Somebody asks for it, or it is answered.
    pub(super) asked: bool,
    /// It was asked for once at least; who got no answer asks again.
    pub(super) begun: bool,
    pub(super) answered: bool,
}
