//! How what is stored goes on.

use anyhow::{Context as _, ensure};
use ebb_engine::TargetPhase;
use ebb_flow::api::retry;
use ebb_flow::complete::Taken;
use ebb_store::{ReadPlugins as _, Rounds as _, Silences as _};
use ebb_wire::cloudevents::Asked;
use serde_json::json;

use crate::fixture::Stored;
use crate::past::document;
use crate::world::{FAR, KIND, World};

/// The callback of a unit that has made `code`.
pub(crate) async fn complete(world: &World, token: &str, code: &str) -> anyhow::Result<Taken> {
    let body = json!({"status": "succeeded", "outputs": {"code": code, "name": code}}).to_string();
    let taken = Box::pin(ebb_flow::complete::complete(&world.env, token, body.as_bytes()));
    Ok(world.meanwhile(taken).await??)
}

/// That all lives go on as if nothing had happened.
///
/// # Errors
/// What does not.
pub(crate) async fn goes_on(stored: &Stored) -> anyhow::Result<()> {
    let world = World::with(stored).await;
    let outside = &world.outside;
    let token = |what: &str| stored.outside.tokens.get(what).cloned().unwrap_or_default();
    let took = |taken: Taken, expected: Taken| {
        ensure!(taken == expected, "{taken:?} and not {expected:?}");
        Ok(())
    };
    definitions(&world).await?;

    // The letter of a function that was killed, then the scripts' results.
    world.pass(0).await?;
    for unit in ["pre-start-0", "pre-start-1"] {
        let tokens = outside.tokens();
        let found = tokens.iter().find(|(what, _)| what.ends_with(unit)).map(|(_, token)| token.clone());
        let found = found.with_context(|| format!("nobody asks for {unit}: {:?}", outside.verbs()))?;
        took(complete(&world, &found, "name-of-posted").await?, Taken::Accepted)?;
    }
    let needed = ["key-of-posted", "name-of-posted"];
    let used = outside.verbs().iter().any(|verb| needed.iter().all(|text| verb.contains(text)));
    ensure!(used, "{:?}", outside.verbs());
    world.until("posted", TargetPhase::Ready).await?;

    took(complete(&world, &token("waiting wait"), "code-of-waiting").await?, Taken::Accepted)?;
    world.until("waiting", TargetPhase::Ready).await?;
    // A result that comes late is taken away.
    took(complete(&world, &token("cancelled wait"), "late-code").await?, Taken::Late)?;
    world.until("cancelled", TargetPhase::Gone).await?;
    ensure!(
        undone(&world, "cancelled unwait", "code") == ["late-code"],
        "{:?}",
        outside.asked("cancelled unwait")
    );
    // The second try is the second try.
    world.until("retrying", TargetPhase::Ready).await?;
    let tries: Vec<String> = outside.asked("retrying wait").into_iter().map(|asked| asked.attempt).collect();
    ensure!(tries == ["2"], "{tries:?}");
    // Who waits for the name gets it.
    took(complete(&world, &token("stopping unwait"), "").await?, Taken::Accepted)?;
    world.until("stopping", TargetPhase::Ready).await?;
    ensure!(world.target("stopping").await?.uid == "stopping-2");
    ensure!(outside.asked("stopping make").len() == 1 && outside.asked("stopping unmake").len() == 1);

    for name in ["ready", "waiting", "failed"] {
        world.delete(name).await?;
        world.until(name, TargetPhase::Gone).await?;
    }
    ensure!(undone(&world, "ready unmake", "id") == ["id-of-ready"]);
    ensure!(undone(&world, "ready unmake", "text") == ["x".repeat(4_000)]);
    ensure!(undone(&world, "waiting unwait", "code") == ["code-of-waiting"]);
    let retried = retry::retry(&world.env, KIND, "stuck").await?;
    ensure!(matches!(retried, retry::Answer::Retried(_)), "{retried:?}");
    world.until("stuck", TargetPhase::Gone).await?;
    ensure!(undone(&world, "stuck unmake", "id") == ["id-of-stuck"]);
    let stale = world.lifecycle(Asked::Created, "gone", "gone-1", &document("gone")).await?;
    ensure!(stale.is_err(), "a life that is over begins again: {stale:?}");

    world.pass(60_000).await?;
    let releases = outside.verbs().iter().filter(|verb| verb.starts_with("release ")).count();
    ensure!(releases == 1 && world.target("kept").await?.release.is_empty(), "{:?}", outside.verbs());
    ensure!(world.target("brief").await?.phase == TargetPhase::Ready);
    world.pass(3_600_000).await?;
    world.until("brief", TargetPhase::Gone).await?;
    // Outcomes that nobody was told of yet.
    world.pass(1_000).await?;
    told(&world)
}

async fn definitions(world: &World) -> anyhow::Result<()> {
    let plugins = world.store.list_plugins().await?;
    let names: Vec<_> = plugins.iter().map(|plugin| format!("{}@{}", plugin.name, plugin.version)).collect();
    ensure!(names == ["scripts@1.0.0", "stored@1.0.0"], "{names:?}");
    // Bound by what was stored, and not made anew.
    let created = world.lifecycle(Asked::Created, "new", "new-1", &document("new")).await?;
    ensure!(created.is_ok(), "{created:?}");
    world.until("new", TargetPhase::Ready).await?;
    ensure!(world.store.read_rounds().await?.contains_key(FAR), "the round of {FAR} is forgotten");
    let silence = world.store.read_silences().await?;
    ensure!(silence.get(FAR).is_some_and(|noted| noted.why == "it polls"), "{silence:?}");
    Ok(())
}

/// What a teardown's requests have read.
fn undone(world: &World, what: &str, input: &str) -> Vec<String> {
    let asked = world.outside.asked(what).into_iter();
    asked.map(|asked| asked.body[input].as_str().unwrap_or_default().to_owned()).collect()
}

/// That the platform has been told everything that it did not know.
fn told(world: &World) -> anyhow::Result<()> {
    let mut told = world.outside.told();
    told.sort();
    let expected = [
        ("brief", "gone"),
        ("brief", "ready"),
        ("cancelled", "gone"),
        ("failed", "gone"),
        ("gone", "gone"),
        ("kept", "gone"),
        ("new", "ready"),
        ("posted", "ready"),
        ("ready", "gone"),
        ("retrying", "ready"),
        ("stopping", "gone"),
        ("stopping", "ready"),
        ("stuck", "gone"),
        ("untold", "ready"),
        ("waiting", "gone"),
        ("waiting", "ready"),
    ];
    let expected = expected.map(|(name, what)| format!("{name} dev.ebb.target.{what}.v1"));
    ensure!(told == expected, "{told:#?}");
    Ok(())
}
