//! How what is stored goes on.

mod definitions;
mod scripts;
mod seen;
mod webhooks;
mod wide;

use std::collections::BTreeMap;

use anyhow::{Context as _, ensure};
use ebb_engine::TargetPhase;
use ebb_flow::complete::Taken;

use crate::fixture::Stored;
use crate::world::{World, made};

/// What was stored, and who else goes on with it.
struct Later<'a> {
    world: World,
    /// Those that were given out before.
    tokens: &'a BTreeMap<String, String>,
}

impl Later<'_> {
    /// The result of `what`, with `code`, comes and is taken so.
    async fn completes(&self, what: &str, code: &str, expected: Taken) -> anyhow::Result<()> {
        let new = self.world.outside.tokens();
        let token = new.get(what).or_else(|| self.tokens.get(what));
        let token = token.with_context(|| format!("nobody was asked for {what}"))?;
        let taken = self.world.callback(token, &made(code)).await?;
        ensure!(taken == expected, "{what}: {taken:?} and not {expected:?}");
        Ok(())
    }

    async fn delete(&self, name: &str) -> anyhow::Result<()> {
        self.world.meanwhile(self.world.delete(name)).await?
    }

    async fn until_gone(&self, name: &str) -> anyhow::Result<()> {
        self.delete(name).await?;
        self.world.until(name, TargetPhase::Gone).await
    }

    /// That a unit was asked by these tries, and since then.
    fn tries(&self, what: &str, expected: &[&str]) -> anyhow::Result<()> {
        let tries: Vec<String> =
            self.world.outside.asked(what).into_iter().map(|asked| asked.attempt).collect();
        ensure!(tries == expected, "{what}: tries {tries:?} and not {expected:?}");
        Ok(())
    }

    fn asked(&self, what: &str, times: usize) -> anyhow::Result<()> {
        let asked = self.world.outside.asked(what).len();
        ensure!(asked == times, "{what}: asked {asked} times and not {times}");
        Ok(())
    }

    /// That the requests of a teardown have read these values of an input, one each.
    fn undone(&self, what: &str, input: &str, expected: &[&str]) -> anyhow::Result<()> {
        let asked = self.world.outside.asked(what);
        let values: Vec<&str> =
            asked.iter().map(|asked| asked.body[input].as_str().unwrap_or_default()).collect();
        ensure!(values == expected, "{what}: {input} {values:?} and not {expected:?}");
        Ok(())
    }
}

/// That all lives go on as if nothing had happened.
///
/// # Errors
/// What does not; with the name of its target, as far as it is of one.
pub(crate) async fn goes_on(stored: &Stored) -> anyhow::Result<()> {
    let later = Later { world: World::with(stored).await, tokens: &stored.outside.tokens };
    seen::by_people(&later).await?;
    scripts::answers(&later, stored).await?;
    definitions::known(&later).await?;
    scripts::at_once(&later).await?;
    webhooks::at_once(&later).await?;
    wide::at_once(&later).await?;
    // By now all runs that were begun before have been looked at.
    later.world.pass(60_000).await?;
    later.world.pass(0).await?;
    scripts::once_looked_at(&later).await?;
    webhooks::once_looked_at(&later).await?;
    // Outcomes that nobody was told of yet.
    later.world.pass(1_000).await?;
    told(&later.world)
}

/// That two lists are the same.
fn same(what: &str, found: impl IntoIterator<Item = String>, expected: &[String]) -> anyhow::Result<()> {
    let mut found: Vec<String> = found.into_iter().collect();
    found.sort();
    let missing: Vec<_> = expected.iter().filter(|one| !found.contains(one)).collect();
    let new: Vec<_> = found.iter().filter(|one| !expected.contains(one)).collect();
    ensure!(
        found == expected,
        "{what}: {missing:?} missing, {new:?} new, {} of {}",
        found.len(),
        expected.len()
    );
    Ok(())
}

/// That the platform has been told everything that it did not know.
fn told(world: &World) -> anyhow::Result<()> {
    let expected = [
        ("answered", "ready"),
        ("asked", "ready"),
        ("beating", "ready"),
        ("brief", "gone"),
        ("broad", "gone"),
        ("cancelled", "gone"),
        ("failed", "gone"),
        ("new", "ready"),
        ("plain", "gone"),
        ("posted", "ready"),
        ("ready", "gone"),
        ("retrying", "ready"),
        ("stopping", "gone"),
        ("stopping", "gone"),
        ("stopping", "ready"),
        ("stuck", "gone"),
        ("thanked", "gone"),
        ("twice", "gone"),
        ("undone", "gone"),
        ("unheard", "ready"),
        ("untold", "ready"),
        ("waiting", "gone"),
        ("waiting", "ready"),
        ("wide", "gone"),
        ("wide", "ready"),
        ("wordy", "ready"),
    ];
    let expected = expected.map(|(name, what)| format!("{name} dev.ebb.target.{what}.v1"));
    same("told", world.outside.told(), &expected)
}
