//! Watching a target until it is where it should be.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use ebb_protocol::api::{RunState, TargetDetail, TargetState, UnitState};

use jiff::Timestamp;

use super::TargetView;
use super::screen::ProgressScreen;
use crate::client::{ApiClient, ApiClientError};
use crate::exit::CliError;
use crate::interrupt::InterruptCount;
use crate::local_server::LocalServer;
use crate::target::TargetRef;
use crate::timing;
use crate::why::printable;

const EVERY: Duration = Duration::from_millis(200);
/// A question that took long is asked again after so many times as long: watching must not be what keeps a server busy.
const SPARING: u32 = 5;
/// So many questions in a row may stay without answer: a server that restarts.
const PATIENCE: u32 = 25;

/// Where the target should get to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FollowGoal {
    Ready,
    /// They are there, and what follows has been done.
    Settled,
    Gone,
}

/// A life of a target that is watched.
#[derive(Clone, Debug)]
pub(crate) struct WatchedInstance {
    pub(crate) target: TargetRef,
    pub(crate) uid: String,
    /// The generation that was asked for.
    pub(crate) generation: u64,
}

/// How watching ended, with what was seen last.
#[derive(Debug)]
pub(crate) enum FollowEnd {
    /// It is there; `None`: the server knows nothing of it any more.
    Reached(Option<Box<TargetDetail>>),
    /// It will not get there by itself.
    Failed(Box<TargetDetail>),
    /// It was taken away by somebody else.
    Deleted,
    TimedOut(Option<Box<TargetDetail>>),
    Interrupted(Option<Box<TargetDetail>>),
}

/// When watching ends whatever is seen.
pub(crate) struct FollowLimits<'a> {
    pub(crate) timeout: Option<Duration>,
    /// When there are more interrupts than this.
    pub(crate) interrupts: (&'a InterruptCount, u32),
}

/// Watches a target and shows how it goes.
///
/// # Errors
/// If the server does not answer for long, or refuses to.
pub(crate) async fn follow(
    client: &ApiClient,
    machine: Option<&LocalServer>,
    life: &WatchedInstance,
    goal: FollowGoal,
    limits: FollowLimits<'_>,
    screen: &mut ProgressScreen,
) -> Result<FollowEnd, CliError> {
    let begun = Instant::now();
    let mut last: Option<Box<TargetDetail>> = None;
    let mut unanswered = 0;
    let mut told = false;
    let mut running = AttemptStarts::default();
    let ended = loop {
        let asked = Instant::now();
        let answer = client.target(&life.target).await;
        let pause = EVERY.max(asked.elapsed() * SPARING);
        match answer {
            Ok(seen) => {
                unanswered = 0;
                if let Some(seen) = &seen
                    && seen.info.uid == life.uid
                {
                    let mut view = TargetView::new(seen);
                    running.note(&mut view, timing::now());
                    if let Some(machine) = machine {
                        listen(machine, &mut view);
                    }
                    screen.show(view, timing::now());
                } else if let Some(seen) = &seen
                    && seen.waiting_uid.as_deref() == Some(life.uid.as_str())
                    && !std::mem::replace(&mut told, true)
                {
                    screen.say(&waits(life, seen));
                }
                if let Some(ended) = verdict(life, goal, seen.as_ref()) {
                    break match ended {
                        GoalState::Reached => FollowEnd::Reached(seen.map(Box::new).or(last)),
                        GoalState::Failed => match seen.map(Box::new) {
                            Some(seen) => FollowEnd::Failed(seen),
                            None => FollowEnd::Deleted,
                        },
                        GoalState::Deleted => FollowEnd::Deleted,
                    };
                }
                last = seen.filter(|seen| seen.info.uid == life.uid).map(Box::new).or(last);
            }
            Err(error @ ApiClientError::Unreachable { .. }) => {
                unanswered += 1;
                if unanswered == 2 {
                    screen.say("the server does not answer; asking again");
                }
                if unanswered > PATIENCE {
                    screen.rest(timing::now());
                    return Err(error.into());
                }
            }
            Err(error) => {
                screen.rest(timing::now());
                return Err(error.into());
            }
        }
        let wait = match limits.timeout {
            Some(timeout) => match timeout.checked_sub(begun.elapsed()) {
                Some(left) => left.min(pause),
                None => break FollowEnd::TimedOut(last),
            },
            None => pause,
        };
        let (interrupts, seen) = limits.interrupts;
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = interrupts.more_than(seen) => break FollowEnd::Interrupted(last),
        }
    };
    screen.rest(timing::now());
    Ok(ended)
}

/// When attempts were first seen to run: their start, as long as the server does not know it.
#[derive(Default)]
struct AttemptStarts(HashMap<(String, String, u32), Timestamp>);

impl AttemptStarts {
    fn note(&mut self, view: &mut TargetView, now: Timestamp) {
        for run in &mut view.runs {
            for unit in run.units.iter_mut().filter(|unit| unit.state == UnitState::Running) {
                let key = (run.id.clone(), unit.key.clone(), unit.attempt);
                let first = *self.0.entry(key).or_insert(now);
                unit.started.get_or_insert_with(|| first.to_string());
            }
        }
    }
}

/// Asks the units of this machine what they have logged last.
fn listen(machine: &LocalServer, view: &mut TargetView) {
    for run in view.runs.iter().filter(|run| run.state == RunState::Running) {
        for (position, unit) in run.units.iter().enumerate() {
            if unit.state == UnitState::Running
                && unit.kind == "pod"
                && let Some(line) = machine.last_line(&run.id, position, unit.attempt)
            {
                view.last_lines.insert((run.id.clone(), unit.key.clone()), line);
            }
        }
    }
}

fn waits(life: &WatchedInstance, seen: &TargetDetail) -> String {
    let info = &seen.info;
    if let (TargetState::Gone, Some(waits)) = (info.phase, &info.waits_for) {
        return format!("{} waits: its predecessor is gone and waits for {}", life.target, printable(waits));
    }
    format!(
        "{} waits until its predecessor {} is gone, which is {} since {}",
        life.target,
        info.uid,
        super::labels::phase(info.phase),
        timing::clock(&info.since),
    )
}

#[derive(Debug, PartialEq, Eq)]
enum GoalState {
    Reached,
    Failed,
    Deleted,
}

/// Whether watching is over.
fn verdict(life: &WatchedInstance, goal: FollowGoal, seen: Option<&TargetDetail>) -> Option<GoalState> {
    let lost = || Some(if goal == FollowGoal::Gone { GoalState::Reached } else { GoalState::Deleted });
    let Some(seen) = seen else { return lost() };
    let detail = seen;
    if detail.info.uid != life.uid {
        let waits = detail.waiting_uid.as_deref() == Some(life.uid.as_str());
        return if waits { None } else { lost() };
    }
    if detail.info.generation < life.generation {
        return None;
    }
    match (goal, detail.info.phase) {
        (_, TargetState::Gone) => lost(),
        (_, TargetState::Stuck) => Some(GoalState::Failed),
        (FollowGoal::Gone, _) => None,
        (FollowGoal::Ready | FollowGoal::Settled, TargetState::Failed) => Some(GoalState::Failed),
        (FollowGoal::Ready | FollowGoal::Settled, TargetState::Starting | TargetState::Stopping) => None,
        (FollowGoal::Ready, TargetState::Ready) => Some(GoalState::Reached),
        (FollowGoal::Settled, TargetState::Ready) => match after_ready(seen) {
            None | Some(RunState::Running | RunState::Cancelling) => None,
            Some(RunState::Succeeded) => Some(GoalState::Reached),
            Some(RunState::Failed | RunState::Cancelled) => Some(GoalState::Failed),
        },
    }
}

/// Where the run after ready stands.
fn after_ready(seen: &TargetDetail) -> Option<RunState> {
    seen.runs.iter().find(|run| run.hook == "postStart").map(|run| run.state)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::fixtures;

    fn seen(uid: &str, generation: u64, phase: &str) -> TargetDetail {
        let json = serde_json::json!({
            "kind": "sandbox", "name": "pr-1", "uid": uid, "generation": generation, "phase": phase,
            "since": fixtures::NOW, "created": fixtures::NOW, "plugins": [], "resources": {}, "runs": [],
        });
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn what_is_seen_decides() {
        let target = TargetRef { kind: "sandbox".to_owned(), name: "pr-1".to_owned() };
        let life = WatchedInstance { target, uid: "a".to_owned(), generation: 2 };
        let cases = [
            (FollowGoal::Ready, Some(seen("a", 2, "starting")), None),
            (FollowGoal::Ready, Some(seen("a", 2, "ready")), Some(GoalState::Reached)),
            (FollowGoal::Ready, Some(seen("a", 1, "ready")), None),
            (FollowGoal::Ready, Some(seen("a", 2, "failed")), Some(GoalState::Failed)),
            (FollowGoal::Ready, Some(seen("b", 2, "ready")), Some(GoalState::Deleted)),
            (FollowGoal::Ready, None, Some(GoalState::Deleted)),
            (FollowGoal::Settled, Some(seen("a", 2, "ready")), None),
            (FollowGoal::Gone, Some(seen("a", 2, "failed")), None),
            (FollowGoal::Gone, Some(seen("a", 2, "stopping")), None),
            (FollowGoal::Gone, Some(seen("a", 2, "stuck")), Some(GoalState::Failed)),
            (FollowGoal::Gone, Some(seen("a", 2, "gone")), Some(GoalState::Reached)),
            (FollowGoal::Gone, Some(seen("b", 9, "starting")), Some(GoalState::Reached)),
            (FollowGoal::Gone, None, Some(GoalState::Reached)),
        ];
        for (goal, seen, expected) in cases {
            let shown = format!("{goal:?} {seen:?}");
            assert_eq!(verdict(&life, goal, seen.as_ref()), expected, "{shown}");
        }
    }

    #[test]
    fn who_waits_for_a_name_is_not_lost() {
        let target = TargetRef { kind: "sandbox".to_owned(), name: "pr-1".to_owned() };
        let life = WatchedInstance { target, uid: "a".to_owned(), generation: 1 };
        let mut other = seen("b", 1, "stopping");
        other.waiting_uid = Some("a".to_owned());
        assert_eq!(verdict(&life, FollowGoal::Ready, Some(&other)), None);
    }
}
