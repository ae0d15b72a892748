//! `ebb wait`: waits until targets are ready or gone.

use std::time::{Duration, Instant};

use ebb_protocol::api::{TargetDetail, TargetOutcome, TargetPhase};

use super::get::check_kind;
use crate::{
    ApiClient, CliError, CommandTargets, Exit, FollowGoal, InterruptCount, KindArgs, OutputArgs, PollPauses, Result,
    SelectorArgs, TargetRef, WatchedInstance, bulk, lifecycle, list_command, output, timing, watched,
};

#[derive(Debug, clap::Args)]
pub(crate) struct WaitCommandArgs {
    /// Names of the targets, also as KIND/NAME
    #[arg(value_name = "SANDBOX")]
    names: Vec<String>,
    #[command(flatten)]
    kind: KindArgs,
    #[command(flatten)]
    selector: SelectorArgs,
    /// Select targets that use this plugin
    #[arg(long, value_name = "NAME[@VERSION]")]
    plugin: Option<String>,
    /// State to wait for: ready or gone. A target that does not exist is gone, and can become ready. A selector that finds
    /// none is an error, but not for gone
    #[arg(long = "for", value_name = "STATE", default_value = "ready", hide_possible_values = true)]
    goal: FollowGoal,
    /// Longest time to wait
    #[arg(long, value_name = "DURATION", value_parser = timing::parse, default_value = "10m")]
    timeout: Duration,
    #[command(flatten)]
    output: OutputArgs,
}

impl WaitCommandArgs {
    pub(crate) async fn run(self, client: &ApiClient) -> Result<Exit> {
        match self.selector.targets(&self.names, self.kind.of(&self.names)?, self.plugin.as_deref())? {
            CommandTargets::One(target) => self.wait_for(client, target).await,
            CommandTargets::Named(targets) => {
                let named = targets.into_iter().map(|target| TargetOutcome::named(target.kind, target.name));
                self.wait_for_all(client, named.collect()).await
            }
            CommandTargets::Selected(selector) => {
                let (found, warnings) = client.targets(&selector, &[]).await?;
                bulk::print_warnings(warnings);
                if found.is_empty() && self.goal != FollowGoal::Gone {
                    let error = CliError::failed("no target is selected, so none gets ready");
                    return Err(error.with_hint("check the selector, or give the names, to wait until they exist"));
                }
                if found.is_empty() {
                    if let Some(kind) = &selector.kind {
                        check_kind(client, kind).await?;
                    }
                    self.output.lines()("No target is selected: none is left")?;
                }
                self.wait_for_all(client, found.into_iter().map(TargetOutcome::of).collect()).await
            }
        }
    }

    async fn wait_for_all(&self, client: &ApiClient, mut outcomes: Vec<TargetOutcome>) -> Result<Exit> {
        let state = if self.goal == FollowGoal::Gone { "are gone" } else { "are ready" };
        let (goal, line) = (((self.goal, state), None), self.output.lines());
        let end = bulk::wait_for(client, &mut outcomes, goal, self.timeout, line).await;
        bulk::print(&outcomes, end, self.output)
    }

    async fn wait_for(&self, client: &ApiClient, target: TargetRef) -> Result<Exit> {
        let (begun, goal) = (Instant::now(), self.goal);
        let seen = match client.target(&target).await? {
            seen if goal == FollowGoal::Gone => seen,
            Some(seen) if exists(&seen) => Some(seen),
            _ => {
                output::status_line(&format!("{target} does not exist yet"));
                let Some(seen) = self.created(client, &target, begun).await? else { return Ok(Exit::Interrupted) };
                Some(seen)
            }
        };
        let end = if seen.is_some() { goal.words() } else { "does not exist" };
        let exit = match seen.filter(|seen| goal != FollowGoal::Gone || seen.info.phase != TargetPhase::Gone) {
            Some(seen) => {
                let mut instance = watched(&target, &seen);
                if let (FollowGoal::Ready, Some(uid)) = (goal, &seen.waiting_uid) {
                    instance = WatchedInstance { uid: uid.clone(), generation: 1, ..instance };
                }
                let left = self.timeout.saturating_sub(begun.elapsed());
                lifecycle::wait(client, &instance, goal, left, Vec::new()).await
            }
            None if end == goal.words() => Ok(Exit::Done),
            None => {
                client.hidden(&target).await?.map_or(Ok(()), Err)?;
                check_kind(client, &target.kind).await.map(|()| Exit::Done)
            }
        };
        if matches!(exit, Ok(Exit::Done)) {
            self.output.lines()(&format!("{target} {end}"))?;
        }
        if self.output.format.is_some() {
            let seen = client.target(&target).await;
            // The error of the wait is more important than this one.
            if seen.is_ok() || exit.is_ok() {
                self.output.write_data(&seen?)?;
            }
        }
        exit
    }

    /// Waits until the target exists. Returns `None` after an interrupt.
    async fn created(&self, client: &ApiClient, target: &TargetRef, begun: Instant) -> Result<Option<TargetDetail>> {
        let interrupts = InterruptCount::listen()?;
        let (mut reported, mut pauses): (Option<String>, _) = (None, PollPauses::default());
        loop {
            let sent = Instant::now();
            let (seen, rejection) = client.target_or_rejection(target).await?;
            if let Some(seen) = seen.filter(exists) {
                return Ok(Some(seen));
            }
            // The sender can send the event again when the cause is fixed.
            if let Some(reason) = rejection.filter(|reason| reported.as_ref() != Some(reason)) {
                output::status_line(&output::joined_lines(&reason));
                reported = Some(reason);
            }
            let Some(left) = self.timeout.checked_sub(begun.elapsed()) else {
                let waited = timing::length(self.timeout);
                let error = CliError::timed_out(format!("{target} does not exist after {waited}"));
                return Err(match reported {
                    Some(_) => error.with_hint(format!("ebb why {}", lifecycle::named(target))),
                    None => error.with_hint(list_command(&target.kind)),
                });
            };
            tokio::select! {
                () = tokio::time::sleep(pauses.after(sent.elapsed()).min(left)) => {}
                () = interrupts.more_than(0) => return Ok(None),
            }
        }
    }
}

/// Returns true if an instance of the name lives or waits for it.
fn exists(seen: &TargetDetail) -> bool {
    seen.info.phase != TargetPhase::Gone || seen.waiting_uid.is_some()
}
