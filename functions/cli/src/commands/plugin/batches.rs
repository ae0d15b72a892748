//! Upgrades in batches, which stop after too many failures.
//!
//! The targets hold the whole state: the version of the plugin and the phase. The same command therefore continues after a
//! stop or an interrupt. It leaves out what has the version already.

use std::num::NonZeroUsize;
use std::time::Duration;

use ebb_protocol::{ErrorCode, TargetOutcome, TargetPhase, TargetSelector};

use crate::bulk::{self, AnsweredTargets, YesArgs, has_version};
use crate::{CommandTargets, Exit, FollowGoal, InterruptCount, Result, TargetRef, TargetsCommand, named, output};

#[derive(Clone, Copy, Debug, clap::Args)]
pub(super) struct BatchArgs {
    /// Update so many targets at a time; the next ones follow when these are ready or have failed
    #[arg(long, value_name = "NUMBER")]
    pub(super) batch: Option<NonZeroUsize>,
    /// Begin no further batch if more of the targets than this have failed with the version, also before
    #[arg(long, value_name = "NUMBER", default_value_t = 0, requires = "batch")]
    max_failures: usize,
}

impl BatchArgs {
    /// Upgrades the targets, `batch` at a time, and prints how many were upgraded, have failed and were left. The targets that
    /// the server would refuse are left out. `timeout` is that of a batch.
    ///
    /// # Errors
    /// Returns an error if the targets cannot be listed, signals cannot be handled, and without a confirmation.
    pub(super) async fn upgrade(
        self,
        command: &TargetsCommand<'_>,
        (targets, YesArgs { yes }): (CommandTargets, YesArgs),
        batch: usize,
        timeout: Duration,
        show: impl Fn(&TargetOutcome, &str) -> String,
    ) -> Result<Exit> {
        let selector = if let CommandTargets::Selected(selector) = &targets { Some(selector.clone()) } else { None };
        let found = command.send(None, bulk::selections(targets), true, &|outcome, _| bulk::line(outcome)).await;
        let AnsweredTargets { outcomes: found, plugin, end } = found;
        let (mut end, full) = (Ok(end?), plugin.unwrap_or_default());
        let (mut outcomes, open): (Vec<_>, Vec<_>) =
            found.into_iter().partition(|outcome| outcome.error.is_some() || has_version(outcome));
        let refused = outcomes.iter().filter(|outcome| outcome.error.is_some()).count();
        let has_failed = |outcome: &&TargetOutcome| has_version(outcome) && outcome.phase == Some(TargetPhase::Failed);
        let mut left_out: Vec<TargetRef> = outcomes.iter().filter(has_failed).map(TargetRef::from).collect();
        if let Some(selector) = selector.as_ref().filter(|selector| selector.phases.is_empty()) {
            let (phases, plugin) = (vec![TargetPhase::Failed], Some(full.clone()));
            let failed = command.client.targets(&TargetSelector { phases, plugin, ..selector.clone() }, &[]).await?.0;
            left_out.extend(failed.iter().map(TargetRef::from));
        }
        for target in &left_out {
            output::status_line(&format!("{target} has failed with {full}, left out: ebb retry {}", named(target)));
        }
        if !yes && (selector.is_some() || open.iter().any(|outcome| bulk::lost(outcome).is_some())) && !open.is_empty()
        {
            bulk::ask("Upgrade", &open, &format!(", {batch} at a time"))?;
        }
        let (interrupts, goal) = (InterruptCount::listen()?, (FollowGoal::Ready, "are ready with the version"));
        let (mut left, mut begun): (_, Vec<TargetOutcome>) = (open.into_iter(), Vec::new());
        // A repeated command counts the failures before it, too.
        let may_begin = |begun: &[TargetOutcome]| left_out.len() + failures(begun) <= self.max_failures;
        while matches!(end, Ok(Exit::Done)) && may_begin(&begun) && left.len() > 0 {
            let next = bulk::parts(left.by_ref().take(batch).map(bulk::instance));
            let answered = command.send(Some(&interrupts), next, false, &show).await;
            let AnsweredTargets { outcomes: mut answered, end: sent, .. } = answered;
            // The phase of an accepted update is known after the wait.
            answered.iter_mut().filter(|outcome| outcome.error.is_none()).for_each(|outcome| outcome.phase = None);
            end = match sent {
                Ok(Exit::Done) => {
                    bulk::wait_for(command.client, &mut answered, (goal, Some(full.as_str())), timeout, output::message)
                        .await
                }
                other => other,
            };
            begun.append(&mut answered);
        }
        let left_over = left.len();
        output::status_line(&format!("{}, {refused} refused, {left_over} not touched", ends(&begun)));
        if left_over > 0 {
            let first =
                if may_begin(&begun) { "" } else { "repair what has failed, or allow more with --max-failures; " };
            output::status_line(&format!(
                "next step: {first}the same command continues without those that have {full}"
            ));
        }
        let error = Some("not touched: the upgrade has stopped".to_owned());
        outcomes.extend(begun.into_iter().chain(left.map(|outcome| TargetOutcome { error: error.clone(), ..outcome })));
        match bulk::print(&outcomes, end, command.output)? {
            Exit::Done if !left_out.is_empty() => Ok(Exit::Failed),
            exit => Ok(exit),
        }
    }
}

/// Returns the number of failed upgrades. A target that was deleted meanwhile says nothing about the version.
fn failures(outcomes: &[TargetOutcome]) -> usize {
    outcomes.iter().filter(|outcome| outcome.error.is_some() && !is_gone(outcome)).count()
}

fn is_gone(outcome: &TargetOutcome) -> bool {
    let is_absent = outcome.has_code(ErrorCode::NotFound) || outcome.has_code(ErrorCode::Outdated);
    let is_ending = matches!(outcome.phase, Some(TargetPhase::Stopping | TargetPhase::Gone));
    outcome.error.is_some() && (is_ending || (is_absent && outcome.phase.is_none()))
}

/// Returns the numbers of upgrades that have begun, by their ends.
fn ends(begun: &[TargetOutcome]) -> String {
    let (failed, gone) = (failures(begun), begun.iter().filter(|outcome| is_gone(outcome)).count());
    let is_open = |outcome: &&TargetOutcome| {
        outcome.error.is_none() && !matches!(outcome.phase, Some(TargetPhase::Ready | TargetPhase::Failed))
    };
    let running = begun.iter().filter(is_open).count();
    format!("{} upgraded, {failed} failed, {gone} gone, {running} not ended", begun.len() - failed - gone - running)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::fixtures::rows;

    #[test]
    fn upgrades_of_deleted_targets_have_not_failed() {
        for (begun, expected) in rows::<(Vec<TargetOutcome>, String)>("upgrades_of_deleted_targets_have_not_failed") {
            assert_eq!(ends(&begun), expected, "{begun:?}");
        }
    }
}
