//! Commands on several targets: those of some names or of a selector. The server takes an action on a part of them per
//! request.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use ebb_protocol::{
    ActOnTargets, ErrorCode, LifecycleResult, NamedTarget, TargetAction, TargetOutcome, TargetOutcomes, TargetPhase,
    TargetSelection,
};

use crate::many_waits::{acted_on, wait_until_ended};
use crate::output::PrintLine;
use crate::silence::{REPETITIONS, pause, repeated};
use crate::{
    ApiClient, CommandTargets, Exit, FollowGoal, InterruptCount, OutputArgs, Result, TargetRef, confirm, named, output,
};

/// The option `--yes` of commands that change the targets of a selector.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct YesArgs {
    /// Change the selected targets without asking for confirmation
    #[arg(long)]
    pub(crate) yes: bool,
}

/// Returns the line of a target before a question, with the resources whose data an update would lose.
pub(crate) fn line(outcome: &TargetOutcome) -> String {
    let phase = outcome.phase.map(|phase| phase.name().to_owned());
    let lost = lost(outcome).map(|names| format!("LOSES the data of {names}"));
    let withdrawn = withdrawn(outcome);
    let owner = outcome.owner_name.clone().or_else(|| outcome.owner.clone());
    let parts = [&phase, &owner, &outcome.first_cause, &lost, &withdrawn].into_iter().flatten();
    let parts: Vec<String> = parts.map(|text| output::printable(text)).collect();
    format!("{}: {}", acted_on(outcome), parts.join(", ")).trim_end_matches(": ").to_owned()
}

/// Returns the words for the waiting instance that a deletion withdraws.
pub(crate) fn withdrawn(outcome: &TargetOutcome) -> Option<String> {
    outcome.waiting_uid.as_ref().map(|uid| format!("with the waiting instance (uid {uid})"))
}

/// Returns the names of the complete resources that an update removes or replaces.
pub(crate) fn lost(outcome: &TargetOutcome) -> Option<String> {
    let lost = outcome.update.as_ref().map(|update| &update.lost).filter(|lost| !lost.is_empty())?;
    Some(lost.iter().map(String::as_str).collect::<Vec<_>>().join(", "))
}

/// Asks before an action on selected targets. `how` is a part of the question.
pub(crate) fn ask(verb: &str, outcomes: &[TargetOutcome], how: &str) -> Result<()> {
    let accepted = || outcomes.iter().filter(|outcome| outcome.error.is_none());
    let losing = accepted().filter(|outcome| lost(outcome).is_some()).count();
    let loss = if losing > 0 { format!("; {losing} of them lose data") } else { String::new() };
    confirm(&format!("{verb} {} targets{how}{loss}?", accepted().count()), "--yes", "nothing was changed")
}

/// Returns the line of a dry run about a target. `verb` is `delete` or `retry`.
pub(crate) fn would(verb: &str, outcome: &TargetOutcome) -> String {
    match outcome.phase {
        Some(TargetPhase::Gone) => format!("{} is gone already", TargetRef::from(outcome)),
        _ => format!("Would {verb} {}", line(outcome)),
    }
}

/// Returns true for an upgrade that changes nothing.
pub(crate) fn has_version(outcome: &TargetOutcome) -> bool {
    outcome.update.as_ref().is_some_and(|update| update.result == LifecycleResult::Unchanged)
}

/// Returns the line of a refused target. `steps` has the next steps that earlier lines have named.
fn refusal(outcome: &TargetOutcome, error: &str, steps: &mut BTreeSet<String>) -> String {
    let target = TargetRef::from(outcome).to_string();
    if outcome.uid.is_none() && outcome.has_code(ErrorCode::NotFound) {
        return format!("{target} does not exist");
    }
    let text = output::joined_lines(error);
    let errors = outcome.errors.iter().skip(1).map(|error| format!("\n  {}", output::joined_lines(&error.to_string())));
    let step = outcome.next_step.as_ref().filter(|step| steps.insert((*step).clone()));
    let step = step.map(|step| format!("; {step}")).into_iter().chain(errors).collect::<String>();
    // Some texts begin with the target.
    if text.starts_with(&target) { text + &step } else { format!("{target}: {text}{step}") }
}

pub(crate) struct TargetsCommand<'a> {
    pub(crate) client: &'a ApiClient,
    pub(crate) action: TargetAction,
    /// `Delete`, `Retry` or `Upgrade`, for the question before it.
    pub(crate) verb: &'static str,
    pub(crate) is_dry_run: bool,
    pub(crate) output: OutputArgs,
}

/// The answers to the requests of a command on several targets.
#[derive(Debug)]
pub(crate) struct AnsweredTargets {
    pub(crate) outcomes: Vec<TargetOutcome>,
    /// The version `NAME@VERSION` that targets get.
    pub(crate) plugin: Option<String>,
    /// `Done` if all requests were sent. Otherwise the interrupt, or the error of a request.
    pub(crate) end: Result<Exit>,
}

impl TargetsCommand<'_> {
    /// Returns what prints lines about targets. Those of a dry run are the result.
    fn lines(&self) -> PrintLine {
        if self.is_dry_run { self.output.lines() } else { output::message }
    }

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
        let needs_question = matches!(targets, CommandTargets::Selected(_)) && !yes && !self.is_dry_run;
        let mut all = selections(targets);
        if needs_question {
            let found = self.send(None, all, true, &|outcome, _| line(outcome)).await;
            let AnsweredTargets { outcomes, plugin, end } = found;
            let end = Ok(end?);
            if succeeded(&outcomes) == 0 {
                return Ok(AnsweredTargets { outcomes, plugin, end });
            }
            ask(self.verb, &outcomes, "")?;
            all = parts(outcomes.into_iter().map(instance));
        }
        let interrupts = InterruptCount::listen()?;
        Ok(self.send(Some(&interrupts), all, self.is_dry_run, &show).await)
    }

    /// Sends requests until each target of the selections has an outcome. The targets that were refused for the moment follow
    /// after the others. Without `interrupts`, a signal ends the program.
    pub(crate) async fn send(
        &self,
        interrupts: Option<&InterruptCount>,
        mut left: VecDeque<TargetSelection>,
        dry_run: bool,
        show: &impl Fn(&TargetOutcome, &str) -> String,
    ) -> AnsweredTargets {
        let (mut answered, mut full, mut steps) = (Vec::new(), None, BTreeSet::new());
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
            let has_server = || self.client.has_server() && interrupts.is_none_or(|interrupts| interrupts.count() == 0);
            let sent = || self.client.post::<TargetOutcomes>(&["targets", "actions"], &request);
            let answer = tokio::select! {
                answer = repeated(has_server, sent) => answer,
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
                    Some(error) => refusal(&outcome, error, &mut steps),
                    None => show(&outcome, plugin.as_deref().unwrap_or_default()),
                };
                let line = if outcome.error.is_none() { self.lines() } else { output::message };
                // The line with the count returns an error of the output.
                let _ = line(&text);
                answered.push(outcome);
            }
            full = plugin;
            next.into_iter().for_each(|rest| left.push_front(rest));
            if interrupts.is_some_and(|interrupts| interrupts.count() > 0) {
                break Ok(Exit::Interrupted);
            }
        };
        for (_, outcome) in busy {
            output::status_line(&refusal(&outcome, outcome.error.as_deref().unwrap_or_default(), &mut steps));
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

pub(crate) fn instance(TargetOutcome { kind, name, uid, .. }: TargetOutcome) -> NamedTarget {
    NamedTarget { kind, name, uid, ..NamedTarget::default() }
}

impl AnsweredTargets {
    /// Prints how many targets are in `state`, and the outcomes for programs. With `wait`, waits before until the targets have
    /// reached its goal, and prints its state. A dry run has another state, and waits for nothing. Returns the exit code of the
    /// whole command.
    ///
    /// # Errors
    /// Returns the error of a request, and an error of the output.
    pub(crate) async fn finish(
        mut self,
        command: &TargetsCommand<'_>,
        state: &str,
        wait: Option<((FollowGoal, &str), Duration)>,
    ) -> Result<Exit> {
        let is_dry_run = command.is_dry_run;
        let made = (succeeded(&self.outcomes), state.to_owned());
        let (done, state) = if is_dry_run { planned(&self.outcomes, &command.action) } else { made };
        let end = match (self.end, wait.filter(|_| !is_dry_run)) {
            (Ok(Exit::Done), _) if self.outcomes.is_empty() => output::message(&match &self.plugin {
                Some(plugin) => format!("No selected target has another version than {plugin}"),
                None => "No target is selected".to_owned(),
            }),
            (Ok(Exit::Done), Some((goal, timeout))) => {
                let goal = (goal, self.plugin.as_deref());
                wait_for(command.client, &mut self.outcomes, goal, timeout, output::message).await
            }
            (end, _) => {
                print_count(command.lines(), done, self.outcomes.len(), &state)?;
                end
            }
        };
        print(&self.outcomes, end, command.output)
    }
}

async fn signals(interrupts: Option<&InterruptCount>, seen: u32) {
    if let Some(interrupts) = interrupts { interrupts.more_than(seen).await } else { std::future::pending().await }
}

pub(crate) fn selections(targets: CommandTargets) -> VecDeque<TargetSelection> {
    match targets {
        CommandTargets::One(target) => parts([target.into()]),
        CommandTargets::Named(targets) => parts(targets),
        CommandTargets::Selected(selector) => VecDeque::from([TargetSelection::Filter(selector)]),
    }
}

/// Returns selections of named targets, each for one request.
pub(crate) fn parts(targets: impl IntoIterator<Item = NamedTarget>) -> VecDeque<TargetSelection> {
    let targets: Vec<NamedTarget> = targets.into_iter().collect();
    targets.chunks(TargetSelection::MAX_TARGETS).map(|part| TargetSelection::Targets(part.to_vec())).collect()
}

pub(crate) fn print_warnings(warnings: impl IntoIterator<Item = String>) {
    warnings.into_iter().for_each(|warning| output::status_line(&format!("warning: {}", output::printable(&warning))));
}

/// Prints the outcomes of a command, also if it has ended with an error. Returns the exit code of the whole command.
pub(crate) fn print(outcomes: &[TargetOutcome], end: Result<Exit>, output: OutputArgs) -> Result<Exit> {
    if !outcomes.is_empty() || end.is_ok() {
        output.write_data(&outcomes)?;
    }
    let exit = end?;
    let has_failed = outcomes.iter().any(|outcome| outcome.error.is_some());
    Ok(if exit == Exit::Done && has_failed { Exit::Failed } else { exit })
}

/// Returns how many targets a dry run would change, and the rest of the line about all.
fn planned(outcomes: &[TargetOutcome], action: &TargetAction) -> (usize, String) {
    let is_kept = |it: &&TargetOutcome| it.error.is_none() && (has_version(it) || it.phase == Some(TargetPhase::Gone));
    let (accepted, kept) = (succeeded(outcomes), outcomes.iter().filter(is_kept).count());
    let (refused, losing) = (outcomes.len() - accepted, outcomes.iter().filter(|it| lost(it).is_some()).count());
    let loss = matches!(action, TargetAction::Upgrade { .. }).then(|| format!(", {losing} with loss of data"));
    (accepted - kept, format!("would change{}; {refused} refused, {kept} unchanged", loss.unwrap_or_default()))
}

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
fn print_count(line: PrintLine, done: usize, all: usize, state: &str) -> Result<Exit> {
    if all > 0 { line(&format!("{done} of {all} targets {state}")) } else { Ok(Exit::Done) }
}

/// Waits until each target without an error has reached a goal, or cannot reach it. Prints the targets that have reached it and
/// how many are in `state`, the text for the goal, by `line`, and the command that explains the others. `plugin` is the version of
/// an upgrade.
///
/// # Errors
/// Returns an error if the server rejects a request, or does not respond until the timeout.
pub(crate) async fn wait_for(
    client: &ApiClient,
    outcomes: &mut [TargetOutcome],
    ((goal, state), plugin): ((FollowGoal, &str), Option<&str>),
    timeout: Duration,
    line: PrintLine,
) -> Result<Exit> {
    let mut open: Vec<&mut TargetOutcome> = outcomes.iter_mut().filter(|outcome| outcome.error.is_none()).collect();
    let exit = wait_until_ended(client, &mut open, (goal, plugin), timeout, line).await;
    let left = open.len();
    print_count(line, succeeded(outcomes) - left, outcomes.len(), state)?;
    // A refused target has a code.
    let awaited = outcomes.iter().filter(|outcome| outcome.code.is_none());
    let others =
        awaited.filter(|outcome| !matches!(outcome.phase, None | Some(TargetPhase::Ready | TargetPhase::Gone)));
    if let Some(next) = next_step(others.map(TargetRef::from)) {
        output::status_line(&next);
    }
    exit
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::Router;
    use axum::http::StatusCode;
    use axum::routing::post;
    use tokio::sync::watch;

    use super::*;
    use crate::progress::fixtures::client_of;

    /// Deletes `pr-0`, `pr-1` and so on. `answer` has the answer of the server to the number and the targets of a request, or
    /// `None` if it refuses the request for the moment.
    async fn deleted<A>(count: usize, interrupts: Option<&InterruptCount>, answer: A) -> AnsweredTargets
    where
        A: Fn(usize, Vec<NamedTarget>) -> Option<TargetOutcomes> + Clone + Send + Sync + 'static,
    {
        let requests = Arc::new(AtomicUsize::new(0));
        let handler = move |axum::Json(request): axum::Json<ActOnTargets>| {
            let TargetSelection::Targets(targets) = request.select else { panic!("another selection") };
            let answered = answer(requests.fetch_add(1, Ordering::SeqCst) + 1, targets);
            async move { answered.map(axum::Json).ok_or(StatusCode::SERVICE_UNAVAILABLE) }
        };
        let client = client_of(Router::new().route("/v1/targets/actions", post(handler))).await;
        let (action, output) = (TargetAction::Delete { allow_protected: false }, OutputArgs::default());
        let command = TargetsCommand { client: &client, action, verb: "Delete", is_dry_run: false, output };
        let named =
            |number| NamedTarget { kind: "sandbox".to_owned(), name: format!("pr-{number}"), ..NamedTarget::default() };
        command.send(interrupts, parts((0..count).map(named)), false, &|_, _| String::new()).await
    }

    fn outcome(NamedTarget { kind, name, .. }: NamedTarget) -> TargetOutcome {
        TargetOutcome::named(kind, name)
    }

    /// A server handles some targets of a request, refuses the first request for the moment, and does not answer another one. A
    /// signal arrives during one of them.
    #[tokio::test]
    async fn the_rest_of_a_selection_is_sent() {
        const HANDLED: usize = 70;
        for (signal_at, expected) in [(None, 250), (Some(3), HANDLED + 30)] {
            let (sender, count) = watch::channel(0);
            let sender = Arc::new(sender);
            let answer = move |number: usize, mut targets: Vec<NamedTarget>| {
                if Some(number) == signal_at {
                    sender.send_modify(|count| *count += 1);
                }
                assert!(number != 4, "the connection ends");
                let rest = targets.split_off(targets.len().min(HANDLED));
                let outcomes = targets.into_iter().map(outcome).collect();
                let next = (!rest.is_empty()).then_some(TargetSelection::Targets(rest));
                (number > 1).then(|| TargetOutcomes { outcomes, next, ..TargetOutcomes::default() })
            };
            let answered = deleted(250, Some(&InterruptCount::of(count)), answer).await;
            let names: Vec<String> = answered.outcomes.iter().map(|outcome| outcome.name.clone()).collect();
            assert_eq!(names, (0..250).map(|number| format!("pr-{number}")).collect::<Vec<_>>());
            assert_eq!(succeeded(&answered.outcomes), expected);
            let end = if signal_at.is_some() { Exit::Interrupted } else { Exit::Done };
            assert_eq!(answered.end.unwrap(), end);
        }
    }

    /// A target that the server refuses for the moment is sent again, as it was named.
    #[tokio::test]
    async fn a_busy_target_is_sent_again() {
        let answer = |number: usize, targets: Vec<NamedTarget>| {
            assert!(number <= 2 && targets.iter().all(|target| target.uid.is_none()), "{targets:?}");
            let outcomes = targets.into_iter().map(|target| {
                let code = match target.name.as_str() {
                    "pr-1" if number == 1 => Some("busy".to_owned()),
                    "pr-2" => Some("outdated".to_owned()),
                    _ => None,
                };
                TargetOutcome { uid: Some("u".to_owned()), error: code.clone(), code, ..outcome(target) }
            });
            Some(TargetOutcomes { outcomes: outcomes.collect(), ..TargetOutcomes::default() })
        };
        let answered = deleted(4, None, answer).await;
        let shown = answered.outcomes.iter().map(|outcome| (outcome.name.as_str(), outcome.code.as_deref()));
        let expected = [("pr-0", None), ("pr-2", Some("outdated")), ("pr-3", None), ("pr-1", None)];
        assert_eq!(shown.collect::<Vec<_>>(), expected);
        assert_eq!(answered.end.unwrap(), Exit::Done);
    }
}
