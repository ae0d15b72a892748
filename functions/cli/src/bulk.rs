//! Commands on several targets: those of some names or of a selector. Their requests are those for one target, some at a
//! time.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use ebb_protocol::api::{ChangeList, TargetInfo, TargetReceipt, TargetState};
use futures::StreamExt as _;
use serde::Serialize;
use tokio::task::JoinSet;

use crate::client::ApiClient;
use crate::confirmation::confirm;
use crate::exit::{Exit, Result};
use crate::interrupt::InterruptCount;
use crate::lifecycle::named;
use crate::output::{self, OutputArgs};
use crate::progress::follow::FollowGoal;
use crate::progress::labels;
use crate::selector::{CommandTargets, TargetSelection};
use crate::target::TargetRef;
use crate::timing;

/// Requests of a command at a time. A server delays a response by up to 0.5 s while a hook begins, so a command on 300
/// targets that sends 32 at a time would take 5 s.
const CONCURRENT: usize = 320;
/// The pauses before a request is repeated that the server refused for the moment.
const PAUSES: [Duration; 6] = [
    Duration::from_millis(200),
    Duration::from_millis(400),
    Duration::from_millis(800),
    Duration::from_millis(1_600),
    Duration::from_millis(3_200),
    Duration::from_millis(6_400),
];
/// The pause between two requests for changes while a command waits.
const PAUSE: Duration = Duration::from_secs(1);
/// The time after which a command that waits lists the targets although none has changed: a change can get lost.
const LIST_INTERVAL: Duration = Duration::from_secs(30);

/// The option `--yes` of commands that change the targets of a selector.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct YesArgs {
    /// Change the selected targets without asking for confirmation
    #[arg(long)]
    yes: bool,
}

impl YesArgs {
    /// Shows the targets that a selector has found, and asks before they are changed. `verb` is `Delete`, `Retry` or
    /// `Upgrade`.
    pub(crate) fn confirm(self, verb: &str, found: &[TargetInfo]) -> Result<()> {
        if self.yes || found.is_empty() {
            return Ok(());
        }
        found.iter().for_each(|target| output::status_line(&line(target)));
        confirm(&format!("{verb} {} targets?", found.len()), "nothing was changed")
    }
}

/// A target of a command on several, as `-o json` prints it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TargetOutcome {
    pub(crate) kind: String,
    pub(crate) name: String,
    /// Absent for a target that was not found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) uid: Option<String>,
    /// The last known phase.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) phase: Option<TargetState>,
    /// True if nothing was changed because of `--dry-run`.
    pub(crate) dry_run: bool,
    /// The reason why the command failed for the target.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
}

impl TargetOutcome {
    /// Returns the outcome for a target without a known UID and phase.
    pub(crate) fn named(TargetRef { kind, name }: TargetRef) -> Self {
        Self { kind, name, uid: None, phase: None, dry_run: false, error: None }
    }

    /// Returns the outcome for a target that was found.
    pub(crate) fn of(target: &TargetInfo) -> Self {
        let (uid, phase) = (Some(target.uid.clone()), Some(target.phase));
        Self { uid, phase, ..Self::named(target.into()) }
    }

    pub(crate) fn target(&self) -> TargetRef {
        TargetRef { kind: self.kind.clone(), name: self.name.clone() }
    }

    /// Adds the response to a request for the target, which may have needed none, or prints its error.
    pub(crate) fn answered(mut self, response: Option<Result<Option<TargetReceipt>>>) -> Self {
        match response {
            Some(Ok(receipt)) => {
                self.uid = receipt.and_then(|receipt| receipt.uid).or(self.uid);
                self
            }
            Some(Err(error)) => self.with_error(&error.message()),
            None => self.unanswered(),
        }
    }

    /// Adds an error and prints it.
    pub(crate) fn with_error(mut self, error: &str) -> Self {
        let (target, text) = (self.target().to_string(), output::joined_lines(error));
        // The text of a missing target begins with the target.
        let text = if text.starts_with(&target) { text } else { format!("{target}: {text}") };
        output::status_line(&text);
        self.error = Some(error.to_owned());
        self
    }

    /// Adds the error of a target whose request was not sent, or has no known response.
    pub(crate) fn unanswered(self) -> Self {
        Self { error: Some("the command has ended before a response".to_owned()), ..self }
    }
}

/// Describes a target in one line.
fn line(target: &TargetInfo) -> String {
    let TargetInfo { kind, name, owner, first_cause, .. } = target;
    let more = owner.iter().chain(first_cause).map(|text| format!(", {}", output::printable(text)));
    format!("{kind}/{name}: {}{}", labels::target_state(target), more.collect::<String>())
}

/// Sends a request of a command on several targets. Repeats it while the server refuses it for the moment.
pub(crate) async fn repeated<T, F: Future<Output = Result<T>>>(request: impl Fn() -> F) -> Result<T> {
    for pause in PAUSES {
        match request().await {
            Err(error) if error.is_busy() => tokio::time::sleep(pause).await,
            result => return result,
        }
    }
    request().await
}

/// The requests of a command that changes several targets.
pub(crate) struct SentRequests<T, R> {
    /// Each item with the response to its request, in the order of the items. `None` if the request was not sent, or if
    /// its response is not known.
    pub(crate) responses: Vec<(T, Option<Result<R>>)>,
    /// `Done` if all requests were sent. Otherwise the interrupt, or the error that the others would have as well.
    pub(crate) end: Result<Exit>,
}

/// Runs a request for each item, some at a time. After an interrupt, and after an error that each request would have, it
/// sends no further one and waits for the responses of those in progress. A second interrupt ends that.
///
/// # Errors
/// Returns an error if signals cannot be handled.
pub(crate) async fn each<T, R, F>(items: Vec<T>, request: impl Fn(T) -> F) -> Result<SentRequests<T, R>>
where
    T: Clone,
    R: Send + 'static,
    F: Future<Output = Result<R>> + Send + 'static,
{
    Ok(each_until(&InterruptCount::listen()?, items, request).await)
}

async fn each_until<T, R, F>(interrupts: &InterruptCount, items: Vec<T>, request: impl Fn(T) -> F) -> SentRequests<T, R>
where
    T: Clone,
    R: Send + 'static,
    F: Future<Output = Result<R>> + Send + 'static,
{
    let (mut waiting, mut running) = (items.iter().cloned().enumerate(), JoinSet::new());
    let (mut responses, mut end, mut seen) = (BTreeMap::new(), Ok(Exit::Done), 0);
    loop {
        while matches!(end, Ok(Exit::Done))
            && running.len() < CONCURRENT
            && let Some((number, item)) = waiting.next()
        {
            let request = request(item);
            running.spawn(async move { (number, request.await) });
        }
        tokio::select! {
            // No request is sent after an interrupt.
            biased;
            () = interrupts.more_than(seen) => {
                seen = interrupts.count();
                end = end.and(Ok(Exit::Interrupted));
                if seen > 1 {
                    break;
                }
            }
            joined = running.join_next() => match joined {
                Some(Ok((_, Err(error)))) if error.is_general() => end = end.and(Err(error)),
                Some(Ok((number, response))) => drop(responses.insert(number, response)),
                Some(Err(error)) => std::panic::resume_unwind(error.into_panic()),
                None => break,
            },
        }
    }
    let answered = items.into_iter().enumerate().map(|(number, item)| (item, responses.remove(&number)));
    SentRequests { responses: answered.collect(), end }
}

/// Returns the targets of a command, and the outcomes for names that the server does not have.
pub(crate) async fn find(client: &ApiClient, targets: CommandTargets) -> Result<(Vec<TargetInfo>, Vec<TargetOutcome>)> {
    let names = match targets {
        CommandTargets::Selected(selection) => {
            let (found, warnings) = client.targets(&selection).await?;
            warnings
                .iter()
                .for_each(|warning| output::status_line(&format!("warning: {}", output::printable(warning))));
            if found.is_empty() {
                output::status_line("No target is selected");
            }
            return Ok((found, Vec::new()));
        }
        CommandTargets::One(target) => vec![target],
        CommandTargets::Named(targets) => targets,
    };
    let (mut found, mut missing) = (Vec::new(), Vec::new());
    let read = futures::stream::iter(names)
        .map(|target| async move { (repeated(|| client.existing(&target)).await, target) })
        .buffered(CONCURRENT);
    for (seen, target) in read.collect::<Vec<_>>().await {
        match seen {
            Ok(seen) => found.push(seen.info),
            Err(error) if error.exit() == Exit::Failed => {
                missing.push(TargetOutcome::named(target).with_error(&error.message()));
            }
            Err(error) => return Err(error),
        }
    }
    Ok((found, missing))
}

/// Prints what a command would do. `verb` is `delete`, `retry` or `upgrade`.
pub(crate) fn print_dry_run(
    verb: &str,
    found: &[TargetInfo],
    missing: Vec<TargetOutcome>,
    output: OutputArgs,
) -> Result<Exit> {
    found.iter().for_each(|target| output::status_line(&format!("Would {verb} {}", line(target))));
    let planned = found.iter().map(|target| TargetOutcome { dry_run: true, ..TargetOutcome::of(target) });
    let outcomes: Vec<TargetOutcome> = planned.chain(missing).collect();
    print_count(succeeded(&outcomes), outcomes.len(), WOULD_CHANGE);
    print(&outcomes, Ok(Exit::Done), output)
}

/// The state that a dry run reports for targets without an error.
pub(crate) const WOULD_CHANGE: &str = "would change";

/// Prints the outcomes of a command, also if it has ended with an error. Returns the exit code of the whole command.
pub(crate) fn print(outcomes: &[TargetOutcome], end: Result<Exit>, output: OutputArgs) -> Result<Exit> {
    output.write_data(&outcomes)?;
    Ok(exit_of(outcomes, end?))
}

/// Returns the exit code of a command that has ended with `exit`.
pub(crate) fn exit_of<'a>(outcomes: impl IntoIterator<Item = &'a TargetOutcome>, exit: Exit) -> Exit {
    let has_failed = outcomes.into_iter().any(|outcome| outcome.error.is_some());
    if exit == Exit::Done && has_failed { Exit::Failed } else { exit }
}

/// Returns the number of targets without an error.
pub(crate) fn succeeded<'a>(outcomes: impl IntoIterator<Item = &'a TargetOutcome>) -> usize {
    outcomes.into_iter().filter(|outcome| outcome.error.is_none()).count()
}

/// Returns the command that explains the first of some targets.
pub(crate) fn next_step(mut targets: impl Iterator<Item = TargetRef>) -> Option<String> {
    let first = targets.next()?;
    let others = match targets.count() {
        0 => String::new(),
        1 => " (and for 1 more target)".to_owned(),
        count => format!(" (and for {count} more targets)"),
    };
    Some(format!("next step: ebb why {}{others}", output::printable(&named(&first))))
}

/// Prints a line of a command on several targets: how many of `all` are in `state`.
pub(crate) fn print_count(done: usize, all: usize, state: &str) {
    if all > 0 {
        output::status_line(&format!("{done} of {all} targets {state}"));
    }
}

/// Waits until each target without an error has reached a goal, or cannot reach it. A target without a UID may not exist
/// yet. Prints how many targets are in `state`, the text for the goal, and the command that
/// explains those that are not.
///
/// # Errors
/// Returns an error if the server rejects a request, or does not respond until the timeout.
pub(crate) async fn wait_for(
    client: &ApiClient,
    outcomes: &mut [TargetOutcome],
    (goal, state): (FollowGoal, &str),
    timeout: Duration,
) -> Result<Exit> {
    let is_awaited: Vec<bool> = outcomes.iter().map(|outcome| outcome.error.is_none()).collect();
    let mut open: Vec<&mut TargetOutcome> = outcomes.iter_mut().filter(|outcome| outcome.error.is_none()).collect();
    let exit = wait_for_open(client, &mut open, goal, timeout).await;
    let left = open.len();
    print_count(succeeded(outcomes.iter()) - left, outcomes.len(), state);
    let awaited = outcomes.iter().zip(is_awaited).filter_map(|(outcome, is_awaited)| is_awaited.then_some(outcome));
    let others =
        awaited.filter(|outcome| !matches!(outcome.phase, None | Some(TargetState::Ready | TargetState::Gone)));
    if let Some(next) = next_step(others.map(TargetOutcome::target)) {
        output::status_line(&next);
    }
    exit
}

/// Waits as [`wait_for`] does. Removes the targets whose wait has ended from `open`.
async fn wait_for_open(
    client: &ApiClient,
    open: &mut Vec<&mut TargetOutcome>,
    goal: FollowGoal,
    timeout: Duration,
) -> Result<Exit> {
    let (begun, interrupts) = (Instant::now(), InterruptCount::listen()?);
    let kind = open.first().map(|outcome| outcome.kind.clone());
    let mut list = ChangedList::new(kind.filter(|kind| open.iter().all(|outcome| outcome.kind == *kind)));
    while !open.is_empty() {
        match list.read(client, open).await {
            Ok(None) => {}
            Ok(Some(seen)) => {
                let seen: BTreeMap<(&str, &str), &TargetInfo> =
                    seen.iter().map(|target| ((target.kind.as_str(), target.name.as_str()), target)).collect();
                open.retain_mut(|outcome| {
                    let shown = seen.get(&(outcome.kind.as_str(), outcome.name.as_str())).copied();
                    !note_end(outcome, goal, shown)
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
                let phase = outcome.phase.as_ref().map_or("not known to the server".to_owned(), labels::name);
                output::status_line(&format!("{} is {phase} after {waited}", outcome.target()));
            }
            return Ok(Exit::TimedOut);
        };
        tokio::select! {
            () = tokio::time::sleep(PAUSE.min(left)) => {}
            () = interrupts.more_than(0) => return Ok(Exit::Interrupted),
        }
    }
    Ok(Exit::Done)
}

/// The targets of a kind, or of all kinds. They are listed again when one of those that a command waits for has changed.
struct ChangedList {
    all: TargetSelection,
    /// The number of the last answer of the feed of changes.
    since: Option<String>,
    listed: Option<Instant>,
    /// True after a change. A list that follows a change at once may not show a new target.
    is_settling: bool,
}

impl ChangedList {
    fn new(kind: Option<String>) -> Self {
        let all = TargetSelection { kind, ..TargetSelection::default() };
        Self { all, since: None, listed: None, is_settling: false }
    }

    /// Returns the targets, or `None` if none of those in `open` has changed since the last list.
    async fn read(&mut self, client: &ApiClient, open: &[&mut TargetOutcome]) -> Result<Option<Vec<TargetInfo>>> {
        let ChangeList { seq, reload, targets } = repeated(|| client.changes(self.since.as_deref())).await?;
        let changed: BTreeSet<String> = targets.into_iter().collect();
        let is_changed = reload || open.iter().any(|outcome| changed.contains(&outcome.target().to_string()));
        let is_due = self.listed.is_none_or(|at| at.elapsed() >= LIST_INTERVAL);
        let seen = match is_changed || self.is_settling || is_due {
            true => {
                let (seen, _) = repeated(|| client.targets(&self.all)).await?;
                self.listed = Some(Instant::now());
                Some(seen)
            }
            false => None,
        };
        (self.since, self.is_settling) = (Some(seq), is_changed);
        Ok(seen)
    }
}

/// Records what a list shows of a target. Returns true if the wait for it has ended, and prints its end.
fn note_end(outcome: &mut TargetOutcome, goal: FollowGoal, seen: Option<&TargetInfo>) -> bool {
    if let Some(seen) = seen.filter(|seen| seen.phase != TargetState::Gone) {
        outcome.uid.get_or_insert_with(|| seen.uid.clone());
    }
    // Another instance of the name is not the one that is awaited.
    let seen = seen.filter(|seen| outcome.uid.as_ref().is_none_or(|uid| *uid == seen.uid));
    let Some(error) = end(goal, outcome.uid.is_some(), seen) else {
        outcome.phase = seen.map(|seen| seen.phase);
        return false;
    };
    outcome.phase = seen.map(|seen| seen.phase).or((goal == FollowGoal::Gone).then_some(TargetState::Gone));
    let target = format!("{}/{}", outcome.kind, outcome.name);
    let text = match (&error, &outcome.phase) {
        (Some(error), _) => format!("{target} {}", output::printable(error)),
        (None, Some(phase)) => format!("{target} is {}", labels::name(phase)),
        (None, None) => target,
    };
    output::status_line(&text);
    outcome.error = error;
    true
}

/// Returns the end of a wait, with an error if the goal cannot be reached. Returns `None` while the wait continues.
fn end(goal: FollowGoal, is_known: bool, seen: Option<&TargetInfo>) -> Option<Option<String>> {
    let failed = |seen: &TargetInfo| {
        let cause = seen.first_cause.as_ref().map(|cause| format!(": {cause}")).unwrap_or_default();
        Some(Some(format!("is {}{cause}", labels::name(&seen.phase))))
    };
    match (goal, seen) {
        (FollowGoal::Gone, None) => Some(None),
        (FollowGoal::Gone, Some(seen)) => match seen.phase {
            TargetState::Gone => Some(None),
            TargetState::Stuck => failed(seen),
            _ => None,
        },
        (FollowGoal::Ready | FollowGoal::Settled, None) => is_known.then(|| Some("was deleted".to_owned())),
        (FollowGoal::Ready | FollowGoal::Settled, Some(seen)) => match seen.phase {
            TargetState::Ready => Some(None),
            TargetState::Starting | TargetState::Updating => None,
            // The awaited instance comes after this one.
            TargetState::Gone if !is_known => None,
            TargetState::Failed | TargetState::Stopping | TargetState::Stuck | TargetState::Gone => failed(seen),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::sync::{Arc, Mutex};

    use axum::Router;
    use axum::routing::get;
    use ebb_protocol::api::TargetPage;
    use tokio::sync::watch;

    use super::*;
    use crate::exit::CliError;
    use crate::progress::fixtures;
    use crate::server::{AddressOrigin, ServerAccess};

    /// Sends 1,000 requests. `signals` signals arrive during the first one. Returns the number of known responses, and the
    /// end.
    async fn sent<F: Future<Output = Result<usize>> + Send + 'static>(
        signals: u32,
        request: impl Fn(usize) -> F,
    ) -> (usize, Result<Exit>) {
        let (sender, count) = watch::channel(0);
        let first = AtomicBool::new(true);
        let SentRequests { responses, end } = each_until(&InterruptCount::of(count), (0..1_000).collect(), |number| {
            if first.swap(false, Ordering::SeqCst) {
                sender.send_modify(|count| *count += signals);
            }
            request(number)
        })
        .await;
        for (number, (item, response)) in responses.iter().enumerate() {
            assert!(
                *item == number && response.as_ref().is_none_or(|response| matches!(response, Ok(it) if it == item))
            );
        }
        (responses.iter().filter(|(_, response)| response.is_some()).count(), end)
    }

    #[tokio::test]
    async fn requests_are_bounded_and_in_order() {
        let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let all = sent(0, |number| {
            let (running, most) = (Arc::clone(&running), Arc::clone(&most));
            async move {
                most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(100 - number as u64 % 100)).await;
                running.fetch_sub(1, Ordering::SeqCst);
                Ok(number)
            }
        });
        let (answered, end) = all.await;
        assert_eq!((answered, end.unwrap()), (1_000, Exit::Done));
        assert!((CONCURRENT / 2..=CONCURRENT).contains(&most.load(Ordering::SeqCst)), "{most:?}");
    }

    #[tokio::test]
    async fn an_interrupt_or_an_error_of_all_requests_ends_a_command() {
        let slow = |number: usize| async move {
            tokio::time::sleep(Duration::from_millis(1)).await;
            Ok::<_, CliError>(number)
        };
        // The requests in progress get their responses, unless the user does not wait for them.
        for (signals, expected) in [(1, CONCURRENT), (2, 0)] {
            let (answered, end) = sent(signals, slow).await;
            assert_eq!((answered, end.unwrap()), (expected, Exit::Interrupted), "{signals} signals");
        }
        let (answered, end) = sent(0, |number| async move {
            if number < 100 { Ok(number) } else { Err(CliError::failed("the token is unknown").general()) }
        })
        .await;
        assert_eq!((answered, end.unwrap_err().message()), (100, "the token is unknown".to_owned()));
    }

    #[tokio::test]
    async fn a_wait_lists_targets_after_a_change_only() {
        let answer = Arc::new(Mutex::new(ChangeList::default()));
        let shared = Arc::clone(&answer);
        let changes = move || {
            let answer = shared.lock().unwrap().clone();
            async move { axum::Json(answer) }
        };
        let targets = || async {
            axum::Json(TargetPage { targets: Vec::new(), damaged: Vec::new(), outages: Vec::new(), next_token: None })
        };
        let router = Router::new().route("/v1/changes", get(changes)).route("/v1/targets", get(targets));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        let server = tokio::spawn(axum::serve(listener, router).into_future());
        let access = ServerAccess { url, token: None, webhook_secret: None, origin: AddressOrigin::Given };
        let client = ApiClient::new(access).unwrap();
        let mut outcome = TargetOutcome::named(TargetRef { kind: "sandbox".to_owned(), name: "pr-1".to_owned() });
        let (mut list, open) = (ChangedList::new(Some("sandbox".to_owned())), [&mut outcome]);
        for (reload, changed, is_listed) in [
            (true, None, true),
            // The list of a moment ago may lack a new target.
            (false, None, true),
            (false, None, false),
            (false, Some("sandbox/pr-2"), false),
            (false, Some("sandbox/pr-1"), true),
            (false, None, true),
            (false, None, false),
        ] {
            let changed_targets = changed.iter().map(|&target| target.to_owned()).collect();
            *answer.lock().unwrap() = ChangeList { seq: "7".to_owned(), reload, targets: changed_targets };
            let seen = list.read(&client, &open).await.unwrap();
            assert_eq!(seen.is_some(), is_listed, "{reload} {changed:?}");
        }
        // After a time, they are listed without a change.
        list.listed = None;
        assert!(list.read(&client, &open).await.unwrap().is_some());
        server.abort();
    }

    #[tokio::test]
    async fn a_busy_server_is_asked_again() {
        let requests = &AtomicUsize::new(0);
        let answer = repeated(|| async move {
            match requests.fetch_add(1, Ordering::SeqCst) {
                0 => Err(CliError::broken("too many requests").busy()),
                number => Ok(number),
            }
        });
        assert_eq!(answer.await.unwrap(), 1);
        let refused = repeated(|| async move {
            requests.fetch_add(1, Ordering::SeqCst);
            Err::<(), _>(CliError::failed("refused"))
        });
        assert!(refused.await.is_err());
        assert_eq!(requests.load(Ordering::SeqCst), 3);
    }

    #[test]
    fn a_wait_ends_at_its_goal_or_when_it_cannot_be_reached() {
        let info = |phase: &str| fixtures::target(phase, "2026-11-21T09:00:00Z").info;
        let shown = |goal, is_known, phase: Option<&str>| {
            let seen = phase.map(info);
            match end(goal, is_known, seen.as_ref()) {
                None => "waits".to_owned(),
                Some(None) => "reached".to_owned(),
                Some(Some(error)) => error,
            }
        };
        for (phase, ready, gone) in [
            (Some("starting"), "waits", "waits"),
            (Some("ready"), "reached", "waits"),
            (Some("failed"), "is failed", "waits"),
            (Some("stopping"), "is stopping", "waits"),
            (Some("stuck"), "is stuck", "is stuck"),
            (Some("gone"), "is gone", "reached"),
            (None, "was deleted", "reached"),
        ] {
            assert_eq!(shown(FollowGoal::Ready, true, phase), ready, "{phase:?}");
            assert_eq!(shown(FollowGoal::Gone, true, phase), gone, "{phase:?}");
        }
        assert_eq!([None, Some("gone")].map(|phase| shown(FollowGoal::Ready, false, phase)), ["waits"; 2]);
        let caused = TargetInfo { first_cause: Some("db/make: why".to_owned()), ..info("failed") };
        assert_eq!(end(FollowGoal::Ready, true, Some(&caused)), Some(Some("is failed: db/make: why".to_owned())));
    }
}
