//! Asking for targets and their end, and waiting for both.

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

/// An identity that no other life has.
pub(crate) fn fresh_uid() -> String {
    format!("{:032x}", rand::random::<u128>())
}

/// The webhook that asks for a life.
pub(crate) async fn request(
    client: &ApiClient,
    asked: LifecycleType,
    life: &WatchedInstance,
    document: Option<&str>,
) -> Result<LifecycleResponse, CliError> {
    let data = LifecycleData {
        kind: life.target.kind.clone(),
        name: life.target.name.clone(),
        uid: life.uid.clone(),
        generation: life.generation,
        document: document.map(str::to_owned),
        routing_key: None,
    };
    Ok(client.lifecycle(asked, &data).await?)
}

/// Whether a target lives, so that its uid is to be used again.
pub(crate) fn is_alive(seen: &TargetDetail) -> bool {
    !matches!(seen.info.phase, TargetState::Stopping | TargetState::Stuck | TargetState::Gone)
}

/// Waits for a life to get to its goal, and tells what stands in the way if it does not.
pub(crate) async fn wait(
    client: &ApiClient,
    life: &WatchedInstance,
    goal: FollowGoal,
    timeout: Duration,
) -> Result<Exit, CliError> {
    let interrupts = InterruptCount::listen()?;
    let limits = FollowLimits { timeout: Some(timeout), interrupts: (&interrupts, 0) };
    let target = &life.target;
    match follow(client, None, life, goal, limits, &mut ProgressScreen::new()).await? {
        FollowEnd::Reached(_) => Ok(Exit::Done),
        FollowEnd::Failed(_) => {
            explain(client, target).await;
            Ok(Exit::Failed)
        }
        FollowEnd::Deleted => Err(CliError::failed(format!("{target} was taken away by somebody else"))),
        FollowEnd::TimedOut(seen) => {
            explain(client, target).await;
            let stands = seen.map_or("unknown to the server", |seen| labels::phase(seen.info.phase));
            Err(CliError::failed(format!("{target} is {stands} after {}", timing::length(timeout)))
                .with_hint(format!(
                    "wait longer with --wait-timeout; it goes on: `ebb why {}`",
                    named(target)
                )))
        }
        FollowEnd::Interrupted(_) => {
            output::status_line(&format!("{target} goes on; see `ebb why {}`", named(target)));
            Ok(Exit::Interrupted)
        }
    }
}

/// Tells why a target is not where it should be, if the server says.
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
