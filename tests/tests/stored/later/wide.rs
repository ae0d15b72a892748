//! Runs of several items.

use ebb_engine::TargetPhase;
use ebb_flow::complete::{From, Taken};

use super::Later;

pub(super) async fn at_once(later: &Later<'_>) -> anyhow::Result<()> {
    // A sender repeats itself.
    later.completes("broad late", "", Taken::Late(From::Webhook)).await?;
    later.world.until("broad", TargetPhase::Gone).await?;
    later.asked("broad undo", 0)?;
    later.completes("broad later", "", Taken::Late(From::Webhook)).await?;
    later.world.until("broad", TargetPhase::Gone).await?;
    later.asked("broad undo", 1)?;

    later.completes("wide late", "", Taken::Accepted).await?;
    later.world.until("wide", TargetPhase::Ready).await?;
    later.tries("wide again", &["2"])?;
    // What is done is done.
    for what in [" a", "wide fail", "wide late", "wide later"] {
        later.asked(what, 0)?;
    }
    later.until_gone("wide").await?;
    later.asked("wide undo", 1)
}
