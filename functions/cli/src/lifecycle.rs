//! Asking for targets and their end, and waiting for both.

use std::time::Duration;

use ebb_wire::api::{Phase, TargetDetail};
use ebb_wire::cloudevents::Asked;
use ebb_wire::lifecycle::{Lifecycle, LifecycleAnswer};

use crate::client::Client;
use crate::exit::{Exit, Trouble};
use crate::interrupt::Interrupts;
use crate::output;
use crate::progress::follow::{Ended, Goal, Life, Limits, follow};
use crate::progress::screen::Screen;
use crate::progress::words;
use crate::target::Target;
use crate::timing;
use crate::why;

/// `--wait` and how long.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wait {
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
pub(crate) async fn ask(
    client: &Client,
    asked: Asked,
    life: &Life,
    document: Option<&str>,
) -> Result<LifecycleAnswer, Trouble> {
    let data = Lifecycle {
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
pub(crate) fn lives(seen: &TargetDetail) -> bool {
    !matches!(seen.info.phase, Phase::Stopping | Phase::Stuck | Phase::Gone)
}

/// Waits for a life to get to its goal, and tells what stands in the way if it does not.
pub(crate) async fn wait(
    client: &Client,
    life: &Life,
    goal: Goal,
    timeout: Duration,
) -> Result<Exit, Trouble> {
    let interrupts = Interrupts::listen()?;
    let limits = Limits { timeout: Some(timeout), interrupts: (&interrupts, 0) };
    let target = &life.target;
    match follow(client, None, life, goal, limits, &mut Screen::new()).await? {
        Ended::Reached(_) => Ok(Exit::Done),
        Ended::Failed(_) => {
            explain(client, target).await;
            Ok(Exit::Failed)
        }
        Ended::TakenAway => Err(Trouble::failed(format!("{target} was taken away by somebody else"))),
        Ended::TimedOut(seen) => {
            explain(client, target).await;
            let stands = seen.map_or("unknown to the server", |seen| words::phase(seen.info.phase));
            Err(Trouble::failed(format!("{target} is {stands} after {}", timing::length(timeout)))
                .next(format!("wait longer with --wait-timeout; it goes on: `ebb why {}`", named(target))))
        }
        Ended::Interrupted(_) => {
            output::tell(&format!("{target} goes on; see `ebb why {}`", named(target)));
            Ok(Exit::Interrupted)
        }
    }
}

/// Tells why a target is not where it should be, if the server says.
pub(crate) async fn explain(client: &Client, target: &Target) {
    if let Ok(Some(why)) = client.why(target).await {
        output::tell(why::text(&why).trim_end_matches('\n'));
    }
}

/// A target as an argument of a command.
pub(crate) fn named(target: &Target) -> String {
    match target.kind.as_str() {
        "sandbox" => target.name.clone(),
        kind => format!("{} --kind {kind}", target.name),
    }
}
