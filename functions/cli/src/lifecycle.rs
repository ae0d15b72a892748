//! Requests for targets and their end, and waiting for both.

use std::time::Duration;

use ebb_protocol::api::{TargetDetail, TargetState};
use ebb_protocol::cloudevents::LifecycleType;
use ebb_protocol::lifecycle::{LifecycleData, LifecycleResponse};

use crate::client::ApiClient;
use crate::exit::{CliError, Exit};
use crate::interrupt::InterruptCount;
use crate::output;
use crate::progress::follow::{FollowEnd, FollowGoal, FollowLimits, WatchedInstance, follow};
use crate::progress::labels;
use crate::progress::screen::ProgressScreen;
use crate::target::TargetRef;
use crate::timing;
use crate::why;

/// `--wait` and how long.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WaitLimit {
    /// Return as soon as the server has taken it.
    No,
    /// Wait so long at most.
    For(Duration),
}

/// An identity that no other instance has.
pub(crate) fn fresh_uid() -> String {
    format!("{:032x}", rand::random::<u128>())
}

/// Sends the webhook that requests an instance or its end.
pub(crate) async fn request(
    client: &ApiClient,
    asked: LifecycleType,
    instance: &WatchedInstance,
    document: Option<&str>,
) -> Result<LifecycleResponse, CliError> {
    let data = LifecycleData {
        kind: instance.target.kind.clone(),
        name: instance.target.name.clone(),
        uid: instance.uid.clone(),
        generation: instance.generation,
        document: document.map(str::to_owned),
        routing_key: None,
    };
    Ok(client.lifecycle(asked, &data).await?)
}

/// Returns true if a target lives, so that its uid is to be used again.
pub(crate) fn is_alive(seen: &TargetDetail) -> bool {
    !matches!(seen.info.phase, TargetState::Stopping | TargetState::Stuck | TargetState::Gone)
}

/// Waits for an instance to reach its goal, and explains the obstacle if it does not.
pub(crate) async fn wait(
    client: &ApiClient,
    instance: &WatchedInstance,
    goal: FollowGoal,
    timeout: Duration,
) -> Result<Exit, CliError> {
    let interrupts = InterruptCount::listen()?;
    let limits = FollowLimits { timeout: Some(timeout), interrupts: (&interrupts, 0) };
    let target = &instance.target;
    match follow(client, None, instance, goal, limits, &mut ProgressScreen::new()).await? {
        FollowEnd::Reached(_) => Ok(Exit::Done),
        FollowEnd::Failed(_) => {
            explain(client, target).await;
            Ok(Exit::Failed)
        }
        FollowEnd::Deleted => Err(CliError::failed(format!("{target} was deleted by another client"))),
        FollowEnd::TimedOut(seen) => {
            explain(client, target).await;
            let stands = seen.map_or("unknown to the server", |seen| labels::phase(seen.info.phase));
            Err(CliError::failed(format!("{target} is {stands} after {}", timing::length(timeout)))
                .with_hint(format!("wait longer with --wait-timeout; it continues: `ebb why {}`", named(target))))
        }
        FollowEnd::Interrupted(_) => {
            output::status_line(&format!("{target} continues; see `ebb why {}`", named(target)));
            Ok(Exit::Interrupted)
        }
    }
}

/// Prints the diagnosis of a target, if the server has one.
pub(crate) async fn explain(client: &ApiClient, target: &TargetRef) {
    if let Ok(Some(why)) = client.why(target).await {
        output::status_line(why::text(&why).trim_end_matches('\n'));
    }
}

/// A target as an argument of a command.
pub(crate) fn named(target: &TargetRef) -> String {
    match target.kind.as_str() {
        "sandbox" => target.name.clone(),
        kind => format!("{} --kind {kind}", target.name),
    }
}
