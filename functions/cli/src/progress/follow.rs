//! Polls a target until it reaches its goal, and shows its progress.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use ebb_protocol::api::{RunState, TargetDetail, TargetInfo, TargetPhase, UnitDetail, UnitState};
use jiff::Timestamp;

use super::labels;
use super::screen::ProgressScreen;
use crate::silence::{LONGEST_SILENCE, ServerSilence};
use crate::{ApiClient, InterruptCount, LocalServer, Result, TargetRef, printable, timing};

const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// The pause after slow requests, as a multiple of their duration. It limits the load on the server to a sixth.
const PAUSE_FACTOR: u32 = 5;

/// The pauses between the requests of a command that waits, by the duration of the last one.
#[derive(Default)]
pub(crate) struct PollPauses(Duration);

impl PollPauses {
    /// Returns the pause after a request that took `took`. A single slow request does not show load: every five seconds, one
    /// waits for relays.
    pub(crate) fn after(&mut self, took: Duration) -> Duration {
        let former = std::mem::replace(&mut self.0, took);
        POLL_INTERVAL.max(took.min(former) * PAUSE_FACTOR)
    }
}

/// The end of a wait. The command line has `ready` and `gone`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[cfg_attr(test, derive(serde::Deserialize))]
pub(crate) enum FollowGoal {
    Ready,
    /// The target is ready, and the run after ready has ended.
    #[value(skip)]
    Settled,
    Gone,
}

impl FollowGoal {
    /// Returns the words for a target that has reached it.
    pub(crate) fn words(self) -> &'static str {
        if self == Self::Gone { "is gone" } else { "is ready" }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct WatchedInstance {
    pub(crate) target: TargetRef,
    pub(crate) uid: String,
    /// The generation that was requested.
    pub(crate) generation: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(serde::Deserialize))]
pub(crate) enum FollowEnd {
    Reached,
    /// The goal cannot be reached without an action of a user.
    Failed,
    /// Another client deleted the target.
    Deleted,
    TimedOut,
    Interrupted,
}

pub(crate) struct FollowLimits<'a> {
    pub(crate) timeout: Option<Duration>,
    /// The watch ends with more interrupts than this.
    pub(crate) interrupts: (&'a InterruptCount, u32),
}

/// Polls a target until the goal, its failure or a limit, and shows its progress on `screen`. Also returns the last
/// response about the instance.
///
/// # Errors
/// Returns an error if the server rejects a request, if it does not respond until the timeout, or for 5 minutes if there is
/// none.
pub(crate) async fn follow(
    client: &ApiClient,
    machine: Option<&LocalServer>,
    instance: &WatchedInstance,
    goal: FollowGoal,
    limits: FollowLimits<'_>,
    screen: &mut ProgressScreen,
) -> Result<(FollowEnd, Option<TargetDetail>)> {
    let begun = Instant::now();
    let mut silence = ServerSilence::default();
    let mut reported = false;
    let (mut running, mut pauses) = (AttemptStarts::default(), PollPauses::default());
    let mut last = None;
    let ended = async {
        loop {
            let sent = Instant::now();
            let response = client.target(&instance.target).await;
            let pause = pauses.after(sent.elapsed());
            match response {
                Ok(seen) => {
                    silence.note_response().into_iter().for_each(|note| screen.print(note));
                    let ended = outcome(instance, goal, seen.as_ref());
                    match seen {
                        Some(seen) if seen.info.uid == instance.uid => {
                            let mut view = seen.clone();
                            if !screen.is_data() {
                                running.note(&mut view, timing::now());
                                // Without those that are not late, a late heartbeat is a change.
                                for unit in view.runs.iter_mut().flat_map(|run| &mut run.units) {
                                    if labels::late_heartbeat(unit, timing::now()).is_none() {
                                        unit.heartbeat = None;
                                    }
                                }
                            }
                            if let Some(machine) = machine.filter(|_| screen.is_terminal()) {
                                add_last_lines(machine, &mut view);
                            }
                            screen.show(view, timing::now())?;
                            last = Some(seen);
                        }
                        Some(seen) if seen.waiting_uid.as_ref() == Some(&instance.uid) && !reported => {
                            reported = true;
                            screen.print(&waiting_line(instance, &seen));
                        }
                        _ => {}
                    }
                    if let Some(ended) = ended {
                        return Ok(ended);
                    }
                }
                Err(error) if error.is_unreachable() => {
                    let is_over = match limits.timeout {
                        Some(timeout) => begun.elapsed() >= timeout,
                        None => silence.lasted() >= LONGEST_SILENCE,
                    };
                    if is_over {
                        return Err(error);
                    }
                    silence.note_failure(sent).into_iter().for_each(|note| screen.print(note));
                }
                Err(error) => return Err(error),
            }
            let wait = match limits.timeout {
                Some(timeout) => match timeout.checked_sub(begun.elapsed()) {
                    Some(left) => left.min(pause),
                    None => return Ok(FollowEnd::TimedOut),
                },
                None => pause,
            };
            let (interrupts, seen) = limits.interrupts;
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = interrupts.more_than(seen) => return Ok(FollowEnd::Interrupted),
            }
        }
    }
    .await;
    screen.finish(timing::now());
    Ok((ended?, last))
}

/// The time at which each attempt was first seen running. It is used if the server has no start time.
#[derive(Default)]
struct AttemptStarts(HashMap<(String, String, u32), Timestamp>);

impl AttemptStarts {
    fn note(&mut self, view: &mut TargetDetail, now: Timestamp) {
        let waiting = view.outage.as_ref().map(|outage| outage.units.as_slice()).unwrap_or_default();
        for run in &mut view.runs {
            // A queued unit has a wait and no start. The start of a unit is unknown while its cluster does not respond.
            let started = |unit: &&mut UnitDetail| {
                unit.state == UnitState::Running && unit.waits.is_empty() && !waiting.contains(&unit.key)
            };
            for unit in run.units.iter_mut().filter(started) {
                let key = (run.id.clone(), unit.key.clone(), unit.attempt);
                let first = *self.0.entry(key).or_insert(now);
                unit.started.get_or_insert_with(|| first.to_string());
            }
        }
    }
}

/// Adds the last log line of each unit that runs on this machine and reports no progress itself.
fn add_last_lines(machine: &LocalServer, view: &mut TargetDetail) {
    for run in view.runs.iter_mut().filter(|run| run.state == RunState::Running) {
        for (position, unit) in run.units.iter_mut().enumerate() {
            if unit.state == UnitState::Running && unit.kind == "pod" {
                let line =
                    || machine.stack.last_line(&run.id, position, unit.attempt).filter(|line| !line.trim().is_empty());
                unit.progress = unit.progress.take().or_else(line);
            }
        }
    }
}

/// Returns the line about an instance that waits for the name of `seen`.
pub(crate) fn waiting_line(instance: &WatchedInstance, seen: &TargetDetail) -> String {
    let (target, TargetInfo { uid, phase, since, waits_for, .. }) = (&instance.target, &seen.info);
    if let (TargetPhase::Gone, Some(waits)) = (phase, waits_for) {
        return format!("{target} waits for {} of its predecessor, which is gone", printable(waits));
    }
    let (phase, since) = (labels::name(phase), timing::clock(since));
    format!("{target} waits until its predecessor {uid} is gone ({phase} since {since})")
}

/// Returns the end of the watch, or `None` while it continues.
fn outcome(instance: &WatchedInstance, goal: FollowGoal, seen: Option<&TargetDetail>) -> Option<FollowEnd> {
    let lost = || Some(if goal == FollowGoal::Gone { FollowEnd::Reached } else { FollowEnd::Deleted });
    let Some(seen) = seen else { return lost() };
    if seen.info.uid != instance.uid {
        let waits = seen.waiting_uid.as_deref() == Some(instance.uid.as_str());
        return if waits { None } else { lost() };
    }
    // A deletion withdraws an update that waits.
    let is_update = goal != FollowGoal::Gone && seen.info.phase != TargetPhase::Gone;
    if is_update && seen.info.generation < instance.generation {
        return None;
    }
    let after_ready = || seen.runs.iter().find(|run| run.hook == "postStart").map(|run| run.state);
    match (goal, seen.info.phase) {
        (_, TargetPhase::Gone) => lost(),
        (_, TargetPhase::Stuck) => Some(FollowEnd::Failed),
        (FollowGoal::Gone, _) => None,
        (FollowGoal::Ready, TargetPhase::Failed) if seen.info.usable => Some(FollowEnd::Reached),
        (_, TargetPhase::Failed) => Some(FollowEnd::Failed),
        (_, TargetPhase::Starting | TargetPhase::Updating | TargetPhase::Stopping) => None,
        (FollowGoal::Ready, TargetPhase::Ready) => Some(FollowEnd::Reached),
        (FollowGoal::Settled, TargetPhase::Ready) => match after_ready() {
            None | Some(RunState::Running | RunState::Cancelling) => None,
            Some(RunState::Succeeded) => Some(FollowEnd::Reached),
            Some(RunState::Failed | RunState::Cancelled) => Some(FollowEnd::Failed),
        },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value, json};

    use super::*;
    use crate::progress::fixtures;

    #[test]
    fn the_end_depends_on_goal_and_target() {
        type Row = (FollowGoal, Option<Map<String, Value>>, Option<FollowEnd>);
        for (goal, shown, expected) in fixtures::rows::<Row>("the_end_depends_on_goal_and_target") {
            let case = format!("{goal:?} {shown:?}");
            let seen = shown.map(|fields| -> TargetDetail {
                let mut target = json!(fixtures::target("busy"));
                target.as_object_mut().unwrap().extend(fields);
                serde_json::from_value(target).unwrap()
            });
            assert_eq!(outcome(&fixtures::instance(), goal, seen.as_ref()), expected, "{case}");
        }
    }

    #[test]
    fn one_slow_request_does_not_delay_the_next() {
        let mut pauses = PollPauses::default();
        for (took, pause) in fixtures::rows::<(u64, u64)>("one_slow_request_does_not_delay_the_next") {
            assert_eq!(pauses.after(Duration::from_millis(took)), Duration::from_millis(pause), "{took}");
        }
    }

    #[test]
    fn a_unit_has_no_start_while_its_cluster_does_not_respond() {
        for (name, is_started) in [("busy", true), ("outage", false)] {
            let mut view = fixtures::target(name);
            view.runs[0].units[1].started = None;
            AttemptStarts::default().note(&mut view, timing::now());
            assert_eq!(view.runs[0].units[1].started.is_some(), is_started);
        }
    }
}
