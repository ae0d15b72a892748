//! Lives with webhooks.

use anyhow::ensure;
use ebb_engine::TargetPhase;
use ebb_flow::api::retry;
use ebb_flow::complete::{From, Taken};
use ebb_wire::cloudevents::Asked;

use super::Later;
use crate::documents;
use crate::world::KIND;

pub(super) async fn at_once(later: &Later<'_>) -> anyhow::Result<()> {
    let world = &later.world;
    later.completes("waiting wait", "code-of-waiting", Taken::Accepted).await?;
    world.until("waiting", TargetPhase::Ready).await?;
    later.asked("waiting wait", 0)?;
    // A result that comes late is taken away.
    later.completes("cancelled wait", "late-code", Taken::Late(From::Webhook)).await?;
    world.until("cancelled", TargetPhase::Gone).await?;
    later.undone("cancelled unwait", "code", &["late-code"])?;
    // The second try is the second try.
    world.until("retrying", TargetPhase::Ready).await?;
    later.tries("retrying wait", &["2"])?;
    // What is to be asked again is the same try.
    world.until("asked", TargetPhase::Ready).await?;
    later.tries("asked wait", &["1"])?;
    // Who waits for the name gets it.
    later.completes("stopping unwait", "", Taken::Accepted).await?;
    world.until("stopping", TargetPhase::Ready).await?;
    let anew = world.target("stopping").await?;
    let same = anew.routing_key.as_deref() == Some("key-of-stopping") && anew.plugins == ["stored@1.0.0"];
    ensure!(anew.uid == "stopping-2" && same, "stopping: {anew:?}");
    later.asked("stopping make", 1)?;
    later.asked("stopping unmake", 1)?;

    for name in ["ready", "waiting", "failed", "plain"] {
        later.until_gone(name).await?;
    }
    later.undone("ready unmake", "id", &["id-of-ready"])?;
    later.undone("ready unmake", "text", &[&"x".repeat(4_000)])?;
    later.undone("waiting unwait", "code", &["code-of-waiting"])?;
    later.undone("waiting unmake", "text", &["xxxx"])?;
    let retried = retry::retry(&world.env, KIND, "stuck").await?;
    let units = matches!(&retried, retry::Answer::Retried(retried) if retried.units == ["r/unmake"]);
    ensure!(units, "stuck: {retried:?}");
    world.until("stuck", TargetPhase::Gone).await?;
    later.undone("stuck unmake", "id", &["id-of-stuck"])?;
    let stale = world.lifecycle(Asked::Created, "gone", "gone-1", &documents::sandbox("gone")).await?;
    ensure!(stale.is_err(), "gone: a life that is over begins again: {stale:?}");
    late(later).await
}

/// What a try has made beside its first result is taken away, and once.
async fn late(later: &Later<'_>) -> anyhow::Result<()> {
    later.until_gone("twice").await?;
    later.undone("twice unwait", "code", &["first", "second"])?;
    // A sender repeats itself.
    later.completes("undone wait", "late", Taken::Late(From::Webhook)).await?;
    later.world.until("undone", TargetPhase::Gone).await?;
    later.asked("undone unwait", 0)?;
    later.completes("undone wait", "later", Taken::Late(From::Webhook)).await?;
    later.world.until("undone", TargetPhase::Gone).await?;
    later.undone("undone unwait", "code", &["late", "later"])
}

pub(super) async fn once_looked_at(later: &Later<'_>) -> anyhow::Result<()> {
    let (world, outside) = (&later.world, &later.world.outside);
    let releases = outside.verbs().iter().filter(|verb| verb.starts_with("release ")).count();
    let kept = world.target("kept").await?.release;
    ensure!(releases == 1 && kept.is_empty(), "kept: {kept:?} after {releases} releases");
    for name in ["brief", "stopping"] {
        ensure!(world.target(name).await?.phase == TargetPhase::Ready, "{name} is over too early");
    }
    world.pass(3_600_000).await?;
    world.until("brief", TargetPhase::Gone).await?;
    world.until("stopping", TargetPhase::Gone).await
}
