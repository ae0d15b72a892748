//! Polls a target until it reaches its goal, and shows its progress.

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
use crate::output::printable;
use crate::target::TargetRef;
use crate::timing;

const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// The pause after a slow request, as a multiple of its duration. It bounds the load on the server to a sixth.
const PAUSE_FACTOR: u32 = 5;
/// Consecutive requests without a response before the command fails. A server that restarts needs some.
const MAX_UNANSWERED: u32 = 25;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FollowGoal {
    Ready,
    /// Ready, and the run after ready has ended.
    Settled,
    Gone,
}

/// The instance of a target that is followed.
#[derive(Clone, Debug)]
pub(crate) struct WatchedInstance {
    pub(crate) target: TargetRef,
    pub(crate) uid: String,
    /// The generation that was requested.
    pub(crate) generation: u64,
}

/// The end of a watch, with the last view.
#[derive(Debug)]
pub(crate) enum FollowEnd {
    /// The goal is reached; `None` if the server has no such target.
    Reached(Option<Box<TargetDetail>>),
    /// The goal cannot be reached without a user.
    Failed(Box<TargetDetail>),
    /// Another client deleted the target.
    Deleted,
    TimedOut(Option<Box<TargetDetail>>),
    Interrupted(Option<Box<TargetDetail>>),
}

/// The limits of a watch.
pub(crate) struct FollowLimits<'a> {
    pub(crate) timeout: Option<Duration>,
    /// The watch ends with more interrupts than this.
    pub(crate) interrupts: (&'a InterruptCount, u32),
}

/// Polls a target until the goal, its failure or a limit, and shows its progress on `screen`.
///
/// # Errors
/// The server does not respond to 25 requests in a row, or rejects one.
pub(crate) async fn follow(
    client: &ApiClient,
    machine: Option<&LocalServer>,
    instance: &WatchedInstance,
    goal: FollowGoal,
    limits: FollowLimits<'_>,
    screen: &mut ProgressScreen,
) -> Result<FollowEnd, CliError> {
    let begun = Instant::now();
    let mut last: Option<Box<TargetDetail>> = None;
    let mut unanswered = 0;
    let mut reported = false;
    let mut running = AttemptStarts::default();
    let ended = loop {
        let sent = Instant::now();
        let response = client.target(&instance.target).await;
        let pause = POLL_INTERVAL.max(sent.elapsed() * PAUSE_FACTOR);
        match response {
            Ok(seen) => {
                unanswered = 0;
                if let Some(seen) = &seen
                    && seen.info.uid == instance.uid
                {
                    let mut view = TargetView::new(seen);
                    running.note(&mut view, timing::now());
                    if let Some(machine) = machine {
                        add_last_lines(machine, &mut view);
                    }
                    screen.show(view, timing::now());
                } else if let Some(seen) = &seen
                    && seen.waiting_uid.as_deref() == Some(instance.uid.as_str())
                    && !std::mem::replace(&mut reported, true)
                {
                    screen.print(&waiting_line(instance, seen));
                }
                if let Some(ended) = outcome(instance, goal, seen.as_ref()) {
                    break match ended {
                        GoalState::Reached => FollowEnd::Reached(seen.map(Box::new).or(last)),
                        GoalState::Failed => match seen.map(Box::new) {
                            Some(seen) => FollowEnd::Failed(seen),
                            None => FollowEnd::Deleted,
                        },
                        GoalState::Deleted => FollowEnd::Deleted,
                    };
                }
                last = seen.filter(|seen| seen.info.uid == instance.uid).map(Box::new).or(last);
            }
            Err(error @ ApiClientError::Unreachable { .. }) => {
                unanswered += 1;
                if unanswered == 2 {
                    screen.print("the server does not respond; trying again");
                }
                if unanswered > MAX_UNANSWERED {
                    screen.finish(timing::now());
                    return Err(error.into());
                }
            }
            Err(error) => {
                screen.finish(timing::now());
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
    screen.finish(timing::now());
    Ok(ended)
}

/// The time at which each attempt was first seen running. It replaces a start that the server does not have.
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

/// Adds the last log lines of units that run on this machine.
fn add_last_lines(machine: &LocalServer, view: &mut TargetView) {
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

fn waiting_line(instance: &WatchedInstance, seen: &TargetDetail) -> String {
    let info = &seen.info;
    if let (TargetState::Gone, Some(waits)) = (info.phase, &info.waits_for) {
        return format!("{} waits for {} of its predecessor, which is gone", instance.target, printable(waits));
    }
    format!(
        "{} waits until its predecessor {} is gone ({} since {})",
        instance.target,
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

/// Returns the end of the watch, `None` while it continues.
fn outcome(instance: &WatchedInstance, goal: FollowGoal, seen: Option<&TargetDetail>) -> Option<GoalState> {
    let lost = || Some(if goal == FollowGoal::Gone { GoalState::Reached } else { GoalState::Deleted });
    let Some(seen) = seen else { return lost() };
    if seen.info.uid != instance.uid {
        let waits = seen.waiting_uid.as_deref() == Some(instance.uid.as_str());
        return if waits { None } else { lost() };
    }
    if seen.info.generation < instance.generation {
        return None;
    }
    match (goal, seen.info.phase) {
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

/// Returns the state of the run after ready.
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
    fn the_response_decides() {
        let target = TargetRef { kind: "sandbox".to_owned(), name: "pr-1".to_owned() };
        let instance = WatchedInstance { target, uid: "a".to_owned(), generation: 2 };
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
            assert_eq!(outcome(&instance, goal, seen.as_ref()), expected, "{shown}");
        }
    }

    #[test]
    fn an_instance_that_waits_for_a_name_is_not_lost() {
        let target = TargetRef { kind: "sandbox".to_owned(), name: "pr-1".to_owned() };
        let instance = WatchedInstance { target, uid: "a".to_owned(), generation: 1 };
        let mut other = seen("b", 1, "stopping");
        other.waiting_uid = Some("a".to_owned());
        assert_eq!(outcome(&instance, FollowGoal::Ready, Some(&other)), None);
    }
}
