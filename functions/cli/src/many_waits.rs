//! Waits of commands for several targets.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use ebb_protocol::api::{ChangeList, TargetInfo, TargetOutcome, TargetPhase, TargetSelector};

use crate::output::PrintLine;
use crate::silence::repeated;
use crate::{ApiClient, Exit, FollowGoal, InterruptCount, PollPauses, Result, TargetRef, labels, output, timing};

/// The time after which a command that waits lists the targets although none has changed: a change can get lost.
const LIST_INTERVAL: Duration = Duration::from_secs(30);

/// Waits until each target has reached a goal, or cannot reach it, and removes it from `open` then. A target without a UID may
/// not exist yet. With the version `plugin` of an upgrade, a target that a later update gave another one has not reached it.
///
/// # Errors
/// Returns an error if the server rejects a request, or does not respond until the timeout.
pub(crate) async fn wait_until_ended(
    client: &ApiClient,
    open: &mut Vec<&mut TargetOutcome>,
    (goal, plugin): (FollowGoal, Option<&str>),
    timeout: Duration,
    line: PrintLine,
) -> Result<Exit> {
    let (begun, interrupts) = (Instant::now(), InterruptCount::listen()?);
    let kind = open.first().map(|outcome| outcome.kind.clone());
    let mut list = ChangedList::new(kind.filter(|kind| open.iter().all(|outcome| outcome.kind == *kind)));
    let mut pauses = PollPauses::default();
    while !open.is_empty() {
        let sent = Instant::now();
        match list.read(client, open, goal).await {
            Ok(None) => {}
            Ok(Some(seen)) => {
                open.retain_mut(|outcome| {
                    let shown = seen.get(&TargetRef::from(&**outcome).to_string());
                    !note_end(outcome, (goal, plugin), shown, line)
                });
            }
            Err(error) if error.is_unreachable() && begun.elapsed() < timeout => {}
            Err(error) => return Err(error),
        }
        if open.is_empty() {
            break;
        }
        let Some(left) = timeout.checked_sub(begun.elapsed()) else {
            let waited = timing::length(timeout);
            for outcome in open.iter() {
                let phase = outcome.phase.map_or("is not known to the server".to_owned(), labels::stands);
                output::status_line(&format!("{} {phase} after {waited}", TargetRef::from(&**outcome)));
            }
            return Ok(Exit::TimedOut);
        };
        tokio::select! {
            () = tokio::time::sleep(pauses.after(sent.elapsed()).min(left)) => {}
            () = interrupts.more_than(0) => return Ok(Exit::Interrupted),
        }
    }
    Ok(Exit::Done)
}

/// Returns the name of the target of an outcome, or of the waiting instance that alone was acted on. That one has no phase.
pub(crate) fn acted_on(outcome: &TargetOutcome) -> String {
    let waiting = outcome.uid.as_ref().filter(|_| outcome.phase.is_none() && outcome.waiting_uid.is_none());
    let waiting = waiting.map(|uid| format!("the waiting instance (uid {}) of ", output::printable(uid)));
    format!("{}{}", waiting.unwrap_or_default(), TargetRef::from(outcome))
}

/// The targets of a kind, or of all kinds. They are listed again when one of those that a command waits for has changed.
struct ChangedList {
    all: TargetSelector,
    /// The number of the last answer of the feed of changes.
    since: Option<String>,
    listed: Option<Instant>,
    /// True after a change. A list that follows a change at once may not show a new target.
    is_settling: bool,
}

impl ChangedList {
    fn new(kind: Option<String>) -> Self {
        let all = TargetSelector { kind, ..TargetSelector::default() };
        Self { all, since: None, listed: None, is_settling: false }
    }

    /// Returns the targets by `KIND/NAME`, or `None` if none of those in `open` has changed since the last list. One that is
    /// not listed, without evidence that it is gone, gets an error.
    async fn read(
        &mut self,
        client: &ApiClient,
        open: &mut [&mut TargetOutcome],
        goal: FollowGoal,
    ) -> Result<Option<BTreeMap<String, TargetInfo>>> {
        let ChangeList { seq, reload, targets } = repeated(|| false, || client.changes(self.since.as_deref())).await?;
        let changed: BTreeSet<String> = targets.into_iter().collect();
        let is_changed =
            reload || open.iter().any(|outcome| changed.contains(&TargetRef::from(&**outcome).to_string()));
        let is_due = self.listed.is_none_or(|at| at.elapsed() >= LIST_INTERVAL);
        let mut seen = None;
        if is_changed || self.is_settling || is_due {
            let (targets, _) = repeated(|| false, || client.targets(&self.all, &[])).await?;
            self.listed = Some(Instant::now());
            let by_name = |target: TargetInfo| (TargetRef::from(&target).to_string(), target);
            let mut listed: BTreeMap<String, TargetInfo> = targets.into_iter().map(by_name).collect();
            for outcome in open.iter_mut().filter(|_| goal == FollowGoal::Gone) {
                let target = TargetRef::from(&**outcome);
                if listed.contains_key(&target.to_string()) {
                    continue;
                }
                let Some(hidden) = repeated(|| false, || client.hidden(&target)).await? else { break };
                match repeated(|| false, || client.target(&target)).await? {
                    Some(found) => listed.extend([by_name(found.info)]),
                    None => outcome.error = Some(hidden.message_with_steps()),
                }
            }
            seen = Some(listed);
        }
        (self.since, self.is_settling) = (Some(seq), is_changed);
        Ok(seen)
    }
}

/// Records what a list shows of a target. Returns true if the wait for it has ended, and prints its end.
fn note_end(
    outcome: &mut TargetOutcome,
    (goal, plugin): (FollowGoal, Option<&str>),
    seen: Option<&TargetInfo>,
    line: PrintLine,
) -> bool {
    if let Some(hidden) = &outcome.error {
        output::status_line(hidden);
        return true;
    }
    let target = acted_on(outcome);
    if let Some(seen) = seen.filter(|seen| seen.phase != TargetPhase::Gone) {
        outcome.uid.get_or_insert_with(|| seen.uid.clone());
    }
    // Another instance of the name is not the one that is awaited.
    let seen = seen.filter(|seen| outcome.uid.as_ref().is_none_or(|uid| *uid == seen.uid));
    // A list can be older than the update, which can wait for the end of a run.
    let begun = outcome.update.as_ref().map_or(0, |update| update.generation);
    if seen.is_some_and(|seen| seen.phase.is_alive() && seen.generation < begun) {
        return false;
    }
    let Some(error) = end(goal, outcome.uid.is_some(), seen) else {
        outcome.phase = seen.map(|seen| seen.phase);
        return false;
    };
    outcome.phase = Some(seen.map_or(TargetPhase::Gone, |seen| seen.phase));
    let replaced = plugin.zip(seen.filter(|seen| seen.phase.is_alive() && seen.generation > begun));
    let replaced = replaced.filter(|(plugin, seen)| !seen.plugins.iter().any(|used| used == plugin));
    let other = |plugin, now| format!("does not have {plugin}: generation {now} has replaced generation {begun}");
    let error = replaced.map(|(plugin, seen)| other(plugin, seen.generation)).or(error);
    if let Some(problem) = &error {
        output::status_line(&format!("{target} {}", output::printable(problem)));
    } else {
        seen.and_then(labels::failed_after_ready).iter().for_each(|warning| output::status_line(warning));
        // The line with the count returns an error of the output.
        let _ = line(&format!("{target} {}", goal.words()));
    }
    outcome.error = error;
    true
}

/// Returns the end of a wait, with an error if the goal cannot be reached. Returns `None` while the wait continues.
fn end(goal: FollowGoal, is_known: bool, seen: Option<&TargetInfo>) -> Option<Option<String>> {
    let failed = |seen: &TargetInfo| {
        let cause = seen.first_cause.as_ref().map(|cause| format!(": {cause}")).unwrap_or_default();
        Some(Some(format!("{}{cause}", labels::stands(seen.phase))))
    };
    match (goal, seen) {
        (FollowGoal::Gone, None) => Some(None),
        (FollowGoal::Gone, Some(seen)) => match seen.phase {
            TargetPhase::Gone => Some(None),
            TargetPhase::Stuck => failed(seen),
            _ => None,
        },
        (FollowGoal::Ready | FollowGoal::Settled, None) => is_known.then(|| Some("was deleted".to_owned())),
        (FollowGoal::Ready | FollowGoal::Settled, Some(seen)) => match seen.phase {
            TargetPhase::Ready => Some(None),
            TargetPhase::Failed if seen.usable => Some(None),
            TargetPhase::Starting | TargetPhase::Updating => None,
            // The awaited instance comes after this one.
            TargetPhase::Gone if !is_known => None,
            TargetPhase::Failed | TargetPhase::Stopping | TargetPhase::Stuck | TargetPhase::Gone => failed(seen),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use axum::Router;
    use axum::routing::get;
    use ebb_protocol::TargetReceipt;

    use super::*;
    use crate::progress::fixtures::{client_of, rows, target};

    #[tokio::test]
    async fn a_wait_lists_targets_after_a_change_only() {
        let answer = Arc::new(Mutex::new(ChangeList::default()));
        let shared = Arc::clone(&answer);
        let changes = move || {
            let answer = shared.lock().unwrap().clone();
            async move { axum::Json(answer) }
        };
        let targets = || async { axum::Json(serde_json::json!({"targets": []})) };
        let router = Router::new().route("/v1/changes", get(changes)).route("/v1/targets", get(targets));
        let client = client_of(router).await;
        let mut outcome = TargetOutcome::named("sandbox".to_owned(), "pr-1".to_owned());
        let (mut list, mut open) = (ChangedList::new(Some("sandbox".to_owned())), [&mut outcome]);
        let rows = rows::<(bool, Option<String>, bool)>("a_wait_lists_targets_after_a_change_only");
        for (reload, changed, is_listed) in rows {
            let changed_targets = changed.iter().cloned().collect();
            *answer.lock().unwrap() = ChangeList { seq: "7".to_owned(), reload, targets: changed_targets };
            let seen = list.read(&client, &mut open, FollowGoal::Ready).await.unwrap();
            assert_eq!(seen.is_some(), is_listed, "{reload} {changed:?}");
        }
        // After a time, they are listed without a change.
        list.listed = None;
        assert!(list.read(&client, &mut open, FollowGoal::Ready).await.unwrap().is_some());
    }

    #[test]
    fn a_wait_ends_at_its_goal_or_when_it_cannot_be_reached() {
        let info =
            |name: &str| TargetInfo { phase: serde_json::from_value(name.into()).unwrap(), ..target("busy").info };
        let shown = |goal, is_known, phase: Option<&str>| {
            let seen = phase.map(info);
            match end(goal, is_known, seen.as_ref()) {
                None => "waits".to_owned(),
                Some(None) => "reached".to_owned(),
                Some(Some(error)) => error,
            }
        };
        let rows = rows::<(Option<String>, String, String)>("a_wait_ends_at_its_goal_or_when_it_cannot_be_reached");
        for (phase, ready, gone) in rows {
            let phase = phase.as_deref();
            assert_eq!(shown(FollowGoal::Ready, true, phase), ready, "{phase:?}");
            assert_eq!(shown(FollowGoal::Gone, true, phase), gone, "{phase:?}");
        }
        assert_eq!([None, Some("gone")].map(|phase| shown(FollowGoal::Ready, false, phase)), ["waits"; 2]);
        let caused = TargetInfo { first_cause: Some("db/make: why".to_owned()), ..info("failed") };
        assert_eq!(end(FollowGoal::Ready, true, Some(&caused)), Some(Some("has failed: db/make: why".to_owned())));
        assert_eq!(end(FollowGoal::Ready, true, Some(&TargetInfo { usable: true, ..caused })), Some(None));
        let replaced = "does not have db@2.0.0: generation 3 has replaced generation 2";
        for (generation, used, error) in [(2, "db@2.0.0", None), (3, "db@2.0.0", None), (3, "db@1.0.0", Some(replaced))]
        {
            let seen = TargetInfo { generation, plugins: vec![used.to_owned()], ..info("ready") };
            let update = Some(TargetReceipt { generation: 2, ..TargetReceipt::default() });
            let mut outcome = TargetOutcome { update, ..TargetOutcome::of(seen.clone()) };
            assert!(note_end(&mut outcome, (FollowGoal::Ready, Some("db@2.0.0")), Some(&seen), output::message));
            assert_eq!(outcome.error.as_deref(), error, "{generation} {used}");
        }
    }
}
