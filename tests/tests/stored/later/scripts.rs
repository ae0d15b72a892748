//! Lives with scripts in a cluster whose relay polls.

use anyhow::ensure;
use ebb_engine::Moment::{AfterStop, BeforeReady};
use ebb_engine::TargetPhase;
use ebb_flow::complete::Taken;
use ebb_store::Mailbox as _;
use ebb_wire::mail::Outcome;

use super::Later;
use crate::fixture::Stored;
use crate::world::{FAR, work};

/// That answers which nobody has fetched can be read, and the letters that have none are handed out, and those alone.
pub(super) async fn answers(later: &Later<'_>, stored: &Stored) -> anyhow::Result<()> {
    let mut answered = 0;
    for id in stored.letters() {
        if let Some(answer) = later.world.store.read_answer(FAR, id).await? {
            let outcome: Outcome = serde_json::from_slice(&answer)?;
            ensure!(matches!(outcome, Outcome::Answers(_)), "mail#{FAR}: {outcome:?}");
            answered += 1;
        }
    }
    ensure!(answered == 2, "mail#{FAR}: {answered} letters are answered");
    later.world.polls().await?;
    let mut verbs = later.world.outside.verbs();
    // Of former versions, which told a relay that its result was taken.
    verbs.retain(|verb| !verb.starts_with("acknowledge "));
    ensure!(verbs == [format!("ensure {}", work("posted", BeforeReady, 0))], "mail#{FAR}: {verbs:?}");
    Ok(())
}

/// The relay's results of a life that is starting.
async fn complete(later: &Later<'_>, name: &str) -> anyhow::Result<()> {
    let code = format!("name-of-{name}");
    for unit in [0, 1] {
        later.completes(&work(name, BeforeReady, unit), &code, Taken::Accepted).await?;
    }
    later.world.until(name, TargetPhase::Ready).await?;
    asked_with(later, &work(name, BeforeReady, 1), &[&format!("key-of-{name}"), &code])
}

/// That the relay was asked for a work with these texts in it.
fn asked_with(later: &Later<'_>, work: &str, texts: &[&str]) -> anyhow::Result<()> {
    ensure!(later.world.outside.works(work, texts), "nobody asks for {work} with {texts:?}");
    Ok(())
}

/// The letter of a function that was killed has been handed out.
pub(super) async fn at_once(later: &Later<'_>) -> anyhow::Result<()> {
    complete(later, "posted").await
}

/// What else a killed function has left is asked for again.
pub(super) async fn once_looked_at(later: &Later<'_>) -> anyhow::Result<()> {
    // What says that it goes on is not asked whether it does.
    let beating = work("beating", BeforeReady, 1);
    ensure!(!later.world.outside.works(&beating, &[]), "beating: it is asked for again");
    later.completes(&beating, "", Taken::Accepted).await?;
    later.world.until("beating", TargetPhase::Ready).await?;
    for name in ["answered", "wordy"] {
        complete(later, name).await?;
    }
    later.delete("thanked").await?;
    let drop = work("thanked", AfterStop, 0);
    asked_with(later, &drop, &["key-of-thanked", "name-of-thanked"])?;
    later.completes(&drop, "", Taken::Accepted).await?;
    later.world.until("thanked", TargetPhase::Gone).await
}
