//! The data of lifecycle webhooks of commands, and waits for the effects of commands.

use std::time::Duration;

use clap::ArgAction;
use ebb_protocol::{LifecycleData, RunDetail, TargetDetail, words};

use crate::{
    ApiClient, CliError, Exit, FollowEnd, FollowGoal, FollowLimits, InterruptCount, ProgressScreen, Result, TargetRef,
    WatchedInstance, follow, labels, output, timing, why,
};

/// The option `--wait` of commands that change targets.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct WaitArgs {
    // If it is false, the command ends as soon as the server has accepted the request.
    /// Wait until the change has ended
    #[arg(
        long,
        value_name = "BOOL",
        default_value_t = true,
        default_missing_value = "true",
        num_args = 0..=1,
        require_equals = true,
        action = ArgAction::Set
    )]
    pub(crate) wait: bool,
}

/// Returns the present instance of a target, with the generation of an update that waits.
pub(crate) fn watched(target: &TargetRef, seen: &TargetDetail) -> WatchedInstance {
    let generation = seen.pending_generation.unwrap_or(seen.info.generation);
    WatchedInstance { target: target.clone(), uid: seen.info.uid.clone(), generation }
}

pub(crate) fn data(instance: &WatchedInstance, document: Option<&str>) -> LifecycleData {
    let WatchedInstance { target: TargetRef { kind, name }, uid, generation } = instance.clone();
    let document = document.map(str::to_owned);
    LifecycleData { kind, name, uid, generation, document, routing_key: None, event: None }
}

/// Waits until an instance reaches its goal. Prints a diagnosis if it does not. The progress is that after a request: of the
/// runs `before` it, those that had ended are left out.
pub(crate) async fn wait(
    client: &ApiClient,
    instance: &WatchedInstance,
    goal: FollowGoal,
    timeout: Duration,
    before: Vec<RunDetail>,
) -> Result<Exit> {
    let interrupts = InterruptCount::listen()?;
    let limits = FollowLimits { timeout: Some(timeout), interrupts: (&interrupts, 0) };
    let target = &instance.target;
    let (ended, seen) =
        follow(client, None, instance, goal, limits, &mut ProgressScreen::new().without(before)).await?;
    match ended {
        FollowEnd::Reached => {
            let warning = seen.filter(|_| goal == FollowGoal::Ready);
            if let Some(warning) = warning.and_then(|seen| labels::failed_after_ready(&seen.info)) {
                output::status_line(&warning);
            }
            Ok(Exit::Done)
        }
        FollowEnd::Failed => {
            explain(client, target).await;
            Ok(Exit::Failed)
        }
        FollowEnd::Deleted => {
            Err(CliError::failed(format!("{target} was deleted by another client, or its time to live ended"))
                .with_hint(format!("ebb why {}", named(target))))
        }
        FollowEnd::TimedOut => {
            explain(client, target).await;
            let phase = seen.map_or("is not known to the server".to_owned(), |seen| labels::stands(seen.info.phase));
            Err(CliError::timed_out(format!("{target} {phase} after {}", timing::length(timeout)))
                .with_hint(format!("the server continues; wait longer, or run `ebb why {}`", named(target))))
        }
        FollowEnd::Interrupted => {
            output::status_line(&format!("the server continues with {target}; see `ebb why {}`", named(target)));
            Ok(Exit::Interrupted)
        }
    }
}

/// Prints the diagnosis of a target, if the server has one.
pub(crate) async fn explain(client: &ApiClient, target: &TargetRef) {
    if let Ok(why) = client.why(target).await {
        output::status_line(&why::text(&why));
    }
}

/// Returns a target as arguments of a command.
pub(crate) fn named(target: &TargetRef) -> String {
    words::commands::target_arguments(&target.kind, &target.name)
}
