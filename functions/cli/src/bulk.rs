//! Commands on several targets: those of some names or of a selector. The server takes an action on a part of them per
//! request.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use ebb_protocol::api::{
    ActOnTargets, ChangeList, NamedTarget, TargetAction, TargetInfo, TargetOutcome, TargetOutcomes, TargetPhase,
    TargetSelection, TargetSelector,
};
use ebb_protocol::error_code::ErrorCode;

use crate::client::ApiClient;
use crate::confirmation::confirm;
use crate::exit::{Exit, Result};
use crate::interrupt::InterruptCount;
use crate::lifecycle::named;
use crate::output::{self, OutputArgs};
use crate::progress::follow::FollowGoal;
use crate::progress::labels;
use crate::selector::CommandTargets;
use crate::target::TargetRef;
use crate::timing;

/// The first pause before what the server refused for the moment is sent again. Each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// Maximum repetitions of a request, and of the requests for refused targets.
const REPETITIONS: u32 = 6;
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

/// Returns a target of an outcome.
pub(crate) fn target(TargetOutcome { kind, name, .. }: &TargetOutcome) -> TargetRef {
    TargetRef { kind: kind.clone(), name: name.clone() }
}

/// Describes a target in one line.
fn line(outcome: &TargetOutcome) -> String {
    let phase = outcome.phase.map(|phase| phase.name().to_owned());
    let parts = [&phase, &outcome.owner, &outcome.first_cause].into_iter().flatten();
    let parts: Vec<String> = parts.map(|text| output::printable(text)).collect();
    format!("{}: {}", target(outcome), parts.join(", "))
}

/// Returns the line of a dry run about a target. `verb` is `delete` or `retry`.
pub(crate) fn would(verb: &str, outcome: &TargetOutcome) -> String {
    format!("Would {verb} {}", line(outcome))
}

/// Returns the line about the error of a target.
fn refusal(outcome: &TargetOutcome, error: &str) -> String {
    let target = target(outcome).to_string();
    if outcome.uid.is_none() && outcome.has_code(ErrorCode::NotFound) {
        return format!("{target} does not exist");
    }
    let text = output::joined_lines(error);
    let errors = outcome.errors.iter().skip(1).map(|error| format!("\n  {}", output::joined_lines(&error.to_string())));
    let step = outcome.next_step.iter().map(|step| format!("; {step}")).chain(errors).collect::<String>();
    // Some texts begin with the target.
    if text.starts_with(&target) { text + &step } else { format!("{target}: {text}{step}") }
}

/// Returns the pause before a repetition, which is below [`REPETITIONS`].
fn pause(repetition: u32) -> Duration {
    FIRST_PAUSE * 2_u32.pow(repetition)
}

/// Sends a request of a command on several targets. Repeats it while the server refuses it for the moment.
pub(crate) async fn repeated<T, F: Future<Output = Result<T>>>(request: impl Fn() -> F) -> Result<T> {
    for repetition in 0..REPETITIONS {
        match request().await {
            Err(error) if error.is_busy() => tokio::time::sleep(pause(repetition)).await,
            result => return result,
        }
    }
    request().await
}

/// An action of a command on several targets.
pub(crate) struct TargetsCommand<'a> {
    pub(crate) client: &'a ApiClient,
    pub(crate) action: TargetAction,
    /// `Delete`, `Retry` or `Upgrade`, for the question before it.
    pub(crate) verb: &'static str,
    pub(crate) is_dry_run: bool,
}

/// The answers to the requests of a command on several targets.
#[derive(Debug)]
pub(crate) struct AnsweredTargets {
    outcomes: Vec<TargetOutcome>,
    /// The version `NAME@VERSION` that targets get.
    plugin: Option<String>,
    /// `Done` if all requests were sent. Otherwise the interrupt, or the error of a request.
    end: Result<Exit>,
}

impl TargetsCommand<'_> {
    /// Takes the action on the targets. Shows those of a selector before, and asks, unless it is a dry run or `--yes` is given.
    /// Prints the text that `show` returns for the outcome of each target that was not refused, with the version that it gets.
    /// After an interrupt, sends no further request. A second one ends the request in progress.
    ///
    /// # Errors
    /// Returns an error if signals cannot be handled, and without a confirmation.
    pub(crate) async fn run(
        &self,
        targets: CommandTargets,
        YesArgs { yes }: YesArgs,
        show: impl Fn(&TargetOutcome, &str) -> String,
    ) -> Result<AnsweredTargets> {
        let all = match targets {
            CommandTargets::One(target) => parts([target.into()]),
            CommandTargets::Named(targets) => parts(targets.into_iter().map(NamedTarget::from)),
            CommandTargets::Selected(selector) => {
                let all = VecDeque::from([TargetSelection::Filter(selector)]);
                if yes || self.is_dry_run {
                    all
                } else {
                    let found = self.send(None, all, true, &|outcome, _| line(outcome)).await;
                    let AnsweredTargets { outcomes, plugin, end } = found;
                    let (end, count) = (Ok(end?), succeeded(&outcomes));
                    if count == 0 {
                        return Ok(AnsweredTargets { outcomes, plugin, end });
                    }
                    confirm(&format!("{} {count} targets?", self.verb), "nothing was changed")?;
                    parts(outcomes.into_iter().map(instance))
                }
            }
        };
        let interrupts = InterruptCount::listen()?;
        Ok(self.send(Some(&interrupts), all, self.is_dry_run, &show).await)
    }

    /// Sends requests until each target of the selections has an outcome. The targets that were refused for the moment follow
    /// after the others. Without `interrupts`, a signal ends the program.
    async fn send(
        &self,
        interrupts: Option<&InterruptCount>,
        mut left: VecDeque<TargetSelection>,
        dry_run: bool,
        show: &impl Fn(&TargetOutcome, &str) -> String,
    ) -> AnsweredTargets {
        let (mut answered, mut full) = (Vec::new(), None);
        let (mut busy, mut repetition): (Vec<(NamedTarget, TargetOutcome)>, u32) = (Vec::new(), 0);
        let end = loop {
            if left.is_empty() && !busy.is_empty() {
                tokio::select! {
                    () = tokio::time::sleep(pause(repetition)) => {}
                    () = signals(interrupts, 0) => break Ok(Exit::Interrupted),
                }
                repetition += 1;
                left = parts(busy.drain(..).map(|(target, _)| target));
            }
            let Some(select) = left.pop_front() else { break Ok(Exit::Done) };
            let request = ActOnTargets { select, action: self.action.clone(), dry_run };
            let answer = tokio::select! {
                answer = repeated(|| self.client.post::<TargetOutcomes>(&["targets", "actions"], &request)) => answer,
                () = signals(interrupts, 1) => {
                    left.push_front(request.select);
                    break Ok(Exit::Interrupted);
                }
            };
            let TargetOutcomes { outcomes, plugin, damaged, next } = match answer {
                Ok(answer) => answer,
                Err(error) => {
                    left.push_front(request.select);
                    break Err(error);
                }
            };
            print_warnings(damaged.iter().map(|reason| format!("cannot read a target: {reason}")));
            for (number, outcome) in outcomes.into_iter().enumerate() {
                if outcome.is_busy() && repetition < REPETITIONS {
                    busy.push((sent_target(&request.select, number, &outcome), outcome));
                    continue;
                }
                let text = match &outcome.error {
                    Some(error) => refusal(&outcome, error),
                    None => show(&outcome, plugin.as_deref().unwrap_or_default()),
                };
                output::status_line(&text);
                answered.push(outcome);
            }
            full = plugin;
            next.into_iter().for_each(|rest| left.push_front(rest));
            if interrupts.is_some_and(|interrupts| interrupts.count() > 0) {
                break Ok(Exit::Interrupted);
            }
        };
        for (_, outcome) in busy {
            output::status_line(&refusal(&outcome, outcome.error.as_deref().unwrap_or_default()));
            answered.push(outcome);
        }
        if answered.is_empty() {
            // The error of the command is the whole answer.
            left.clear();
        }
        for select in left {
            let TargetSelection::Targets(named) = select else { continue };
            let error = Some("the command has ended before a response".to_owned());
            answered.extend(named.into_iter().map(|NamedTarget { kind, name, uid, .. }| TargetOutcome {
                uid,
                error: error.clone(),
                dry_run,
                ..TargetOutcome::named(kind, name)
            }));
        }
        AnsweredTargets { outcomes: answered, plugin: full, end }
    }
}

/// Returns the target of an outcome for another request. The outcomes for named targets are in their order. One that was named
/// without an instance is sent so again, because a deletion then covers the instance that waits, too.
fn sent_target(select: &TargetSelection, number: usize, outcome: &TargetOutcome) -> NamedTarget {
    let named = match select {
        TargetSelection::Targets(named) => named.get(number).cloned(),
        TargetSelection::Filter(_) => None,
    };
    named.unwrap_or_else(|| instance(outcome.clone()))
}

/// Returns the instance of an outcome.
fn instance(TargetOutcome { kind, name, uid, .. }: TargetOutcome) -> NamedTarget {
    NamedTarget { kind, name, uid, run: None }
}

impl AnsweredTargets {
    /// Prints how many targets are in `state`, and the outcomes for programs. With `wait`, waits before until the targets have
    /// reached its goal, and prints its state. Returns the exit code of the whole command.
    ///
    /// # Errors
    /// Returns the error of a request, and an error of the output.
    pub(crate) async fn finish(
        mut self,
        client: &ApiClient,
        state: &str,
        wait: Option<((FollowGoal, &str), Duration)>,
        output: OutputArgs,
    ) -> Result<Exit> {
        let end = match (self.end, wait) {
            (Ok(Exit::Done), _) if self.outcomes.is_empty() => {
                output::status_line(&match &self.plugin {
                    Some(plugin) => format!("No selected target has another version than {plugin}"),
                    None => "No target is selected".to_owned(),
                });
                Ok(Exit::Done)
            }
            (Ok(Exit::Done), Some((goal, timeout))) => wait_for(client, &mut self.outcomes, goal, timeout).await,
            (end, _) => {
                print_count(succeeded(&self.outcomes), self.outcomes.len(), state);
                end
            }
        };
        print(&self.outcomes, end, output)
    }
}

/// Waits until there are more than `seen` signals.
async fn signals(interrupts: Option<&InterruptCount>, seen: u32) {
    match interrupts {
        Some(interrupts) => interrupts.more_than(seen).await,
        None => std::future::pending().await,
    }
}

/// Returns selections of named targets, each for one request.
fn parts(targets: impl IntoIterator<Item = NamedTarget>) -> VecDeque<TargetSelection> {
    let targets: Vec<NamedTarget> = targets.into_iter().collect();
    targets.chunks(TargetSelection::MAX_TARGETS).map(|part| TargetSelection::Targets(part.to_vec())).collect()
}

pub(crate) fn print_warnings(warnings: impl IntoIterator<Item = String>) {
    warnings.into_iter().for_each(|warning| output::status_line(&format!("warning: {}", output::printable(&warning))));
}

/// Returns the targets of a selector.
pub(crate) async fn found(client: &ApiClient, selector: &TargetSelector) -> Result<Vec<TargetOutcome>> {
    let (found, warnings) = client.targets(selector, &[]).await?;
    print_warnings(warnings);
    if found.is_empty() {
        output::status_line("No target is selected");
    }
    Ok(found.into_iter().map(TargetOutcome::of).collect())
}

/// The state that a dry run reports for targets without an error.
pub(crate) const WOULD_CHANGE: &str = "would change";

/// Prints the outcomes of a command, also if it has ended with an error. Returns the exit code of the whole command.
pub(crate) fn print(outcomes: &[TargetOutcome], end: Result<Exit>, output: OutputArgs) -> Result<Exit> {
    if !outcomes.is_empty() || end.is_ok() {
        output.write_data(&outcomes)?;
    }
    let exit = end?;
    let has_failed = outcomes.iter().any(|outcome| outcome.error.is_some());
    Ok(if exit == Exit::Done && has_failed { Exit::Failed } else { exit })
}

/// Returns the number of targets without an error.
fn succeeded(outcomes: &[TargetOutcome]) -> usize {
    outcomes.iter().filter(|outcome| outcome.error.is_none()).count()
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
fn print_count(done: usize, all: usize, state: &str) {
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
    print_count(succeeded(outcomes) - left, outcomes.len(), state);
    let awaited = outcomes.iter().zip(is_awaited).filter_map(|(outcome, is_awaited)| is_awaited.then_some(outcome));
    let others =
        awaited.filter(|outcome| !matches!(outcome.phase, None | Some(TargetPhase::Ready | TargetPhase::Gone)));
    if let Some(next) = next_step(others.map(target)) {
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
                output::status_line(&format!("{} is {phase} after {waited}", target(outcome)));
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

    /// Returns the targets, or `None` if none of those in `open` has changed since the last list.
    async fn read(&mut self, client: &ApiClient, open: &[&mut TargetOutcome]) -> Result<Option<Vec<TargetInfo>>> {
        let ChangeList { seq, reload, targets } = repeated(|| client.changes(self.since.as_deref())).await?;
        let changed: BTreeSet<String> = targets.into_iter().collect();
        let is_changed = reload || open.iter().any(|outcome| changed.contains(&target(outcome).to_string()));
        let is_due = self.listed.is_none_or(|at| at.elapsed() >= LIST_INTERVAL);
        let seen = match is_changed || self.is_settling || is_due {
            true => {
                let (seen, _) = repeated(|| client.targets(&self.all, &[])).await?;
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
    if let Some(seen) = seen.filter(|seen| seen.phase != TargetPhase::Gone) {
        outcome.uid.get_or_insert_with(|| seen.uid.clone());
    }
    // Another instance of the name is not the one that is awaited.
    let seen = seen.filter(|seen| outcome.uid.as_ref().is_none_or(|uid| *uid == seen.uid));
    let Some(error) = end(goal, outcome.uid.is_some(), seen) else {
        outcome.phase = seen.map(|seen| seen.phase);
        return false;
    };
    outcome.phase = seen.map(|seen| seen.phase).or((goal == FollowGoal::Gone).then_some(TargetPhase::Gone));
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
            TargetPhase::Gone => Some(None),
            TargetPhase::Stuck => failed(seen),
            _ => None,
        },
        (FollowGoal::Ready | FollowGoal::Settled, None) => is_known.then(|| Some("was deleted".to_owned())),
        (FollowGoal::Ready | FollowGoal::Settled, Some(seen)) => match seen.phase {
            TargetPhase::Ready => Some(None),
            TargetPhase::Starting | TargetPhase::Updating => None,
            // The awaited instance comes after this one.
            TargetPhase::Gone if !is_known => None,
            TargetPhase::Failed | TargetPhase::Stopping | TargetPhase::Stuck | TargetPhase::Gone => failed(seen),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Mutex};

    use axum::Router;
    use axum::routing::{get, post};
    use ebb_protocol::api::TargetPage;
    use tokio::sync::watch;

    use super::*;
    use crate::progress::fixtures::{self, client_of};

    fn name(number: usize) -> NamedTarget {
        NamedTarget { kind: "sandbox".to_owned(), name: format!("pr-{number}"), ..NamedTarget::default() }
    }

    /// A server handles some targets of a request, and refuses the first request for the moment. A signal arrives during one of
    /// them.
    #[tokio::test]
    async fn the_rest_of_a_selection_is_sent() {
        const HANDLED: usize = 70;
        for (signal_at, expected) in [(None, 250), (Some(3), HANDLED + 30)] {
            let (sender, count) = watch::channel(0);
            let (sender, requests) = (Arc::new(sender), Arc::new(AtomicUsize::new(0)));
            let answer = move |axum::Json(request): axum::Json<ActOnTargets>| {
                let number = requests.fetch_add(1, Ordering::SeqCst) + 1;
                if Some(number) == signal_at {
                    sender.send_modify(|count| *count += 1);
                }
                let TargetSelection::Targets(mut targets) = request.select else { panic!("another selection") };
                let rest = targets.split_off(targets.len().min(HANDLED));
                let outcomes =
                    targets.into_iter().map(|target| TargetOutcome::named(target.kind, target.name)).collect();
                let next = (!rest.is_empty()).then_some(TargetSelection::Targets(rest));
                async move {
                    match number {
                        1 => Err(axum::http::StatusCode::SERVICE_UNAVAILABLE),
                        _ => Ok(axum::Json(TargetOutcomes { outcomes, next, ..TargetOutcomes::default() })),
                    }
                }
            };
            let client = client_of(Router::new().route("/v1/targets/actions", post(answer))).await;
            let command =
                TargetsCommand { client: &client, action: TargetAction::Delete {}, verb: "Delete", is_dry_run: false };
            let all = parts((0..250).map(name));
            let answered = command.send(Some(&InterruptCount::of(count)), all, false, &|_, _| String::new()).await;
            let names = answered.outcomes.iter().map(|outcome| outcome.name.clone());
            assert_eq!(names.collect::<Vec<_>>(), (0..250).map(|number| name(number).name).collect::<Vec<_>>());
            assert_eq!(succeeded(&answered.outcomes), expected);
            let end = if signal_at.is_some() { Exit::Interrupted } else { Exit::Done };
            assert_eq!(answered.end.unwrap(), end);
        }
    }

    /// A target that the server refuses for the moment is sent again, as it was named.
    #[tokio::test]
    async fn a_busy_target_is_sent_again() {
        let requests = Arc::new(AtomicUsize::new(0));
        let sent = Arc::clone(&requests);
        let answer = move |axum::Json(request): axum::Json<ActOnTargets>| {
            let is_first = sent.fetch_add(1, Ordering::SeqCst) == 0;
            let TargetSelection::Targets(targets) = request.select else { panic!("another selection") };
            let outcomes = targets.into_iter().map(|NamedTarget { kind, name, uid, .. }| {
                assert_eq!(uid, None);
                let code = match name.as_str() {
                    "pr-1" if is_first => Some("busy".to_owned()),
                    "pr-2" => Some("outdated".to_owned()),
                    _ => None,
                };
                TargetOutcome {
                    uid: Some("u".to_owned()),
                    error: code.clone(),
                    code,
                    ..TargetOutcome::named(kind, name)
                }
            });
            let outcomes = outcomes.collect();
            async move { axum::Json(TargetOutcomes { outcomes, ..TargetOutcomes::default() }) }
        };
        let client = client_of(Router::new().route("/v1/targets/actions", post(answer))).await;
        let command =
            TargetsCommand { client: &client, action: TargetAction::Delete {}, verb: "Delete", is_dry_run: false };
        let answered = command.send(None, parts((0..4).map(name)), false, &|_, _| String::new()).await;
        let shown = answered.outcomes.iter().map(|outcome| (outcome.name.as_str(), outcome.code.as_deref()));
        let expected = [("pr-0", None), ("pr-2", Some("outdated")), ("pr-3", None), ("pr-1", None)];
        assert_eq!(shown.collect::<Vec<_>>(), expected);
        assert_eq!((answered.end.unwrap(), requests.load(Ordering::SeqCst)), (Exit::Done, 2));
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
        let client = client_of(router).await;
        let mut outcome = TargetOutcome::named("sandbox".to_owned(), "pr-1".to_owned());
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
