//! What people see of lives that go on: what nothing else reads.

use anyhow::{Context as _, ensure};
use ebb_engine::Moment::{self, AfterStop, BeforeReady};
use ebb_flow::api::{logs, runs, targets};
use ebb_store::TargetList;
use ebb_wire::api::{RunDetail, RunState, UnitDetail, UnitState};
use ebb_wire::callback::ReasonCode;

use super::{Later, same};
use crate::world::run;

/// Names and phases of all targets.
const TARGETS: [(&str, &str); 23] = [
    ("answered", "Starting"),
    ("asked", "Starting"),
    ("beating", "Starting"),
    ("brief", "Ready"),
    ("broad", "Gone"),
    ("cancelled", "Stopping"),
    ("failed", "Failed"),
    ("gone", "Gone"),
    ("kept", "Gone"),
    ("plain", "Ready"),
    ("posted", "Starting"),
    ("ready", "Ready"),
    ("retrying", "Starting"),
    ("stopping", "Stopping"),
    ("stuck", "Stuck"),
    ("thanked", "Ready"),
    ("twice", "Ready"),
    ("undone", "Gone"),
    ("unheard", "Ready"),
    ("untold", "Ready"),
    ("waiting", "Starting"),
    ("wide", "Starting"),
    ("wordy", "Starting"),
];

/// That it is what was to be seen before.
pub(super) async fn by_people(later: &Later<'_>) -> anyhow::Result<()> {
    let mut listed = Vec::new();
    for list in [TargetList::Living, TargetList::Gone] {
        let page = targets::list(&later.world.env, later.world.store.as_ref(), list, None, None).await?;
        listed.extend(page.map_err(|invalid| anyhow::anyhow!("{invalid}"))?.targets);
    }
    listed.sort_by(|a, b| a.name.cmp(&b.name));
    let listed = listed.iter().map(|one| format!("{} {:?}", one.name, one.phase));
    same("targets", listed, &TARGETS.map(|(name, phase)| format!("{name} {phase}")))?;

    let failed = unit(later, "failed", "r/make").await?;
    let reason = failed.reason.as_ref().map(|reason| reason.code);
    ensure!(failed.state == UnitState::Failed && reason == Some(ReasonCode::Status), "failed: {failed:?}");
    let retrying = unit(later, "retrying", "r/wait").await?;
    ensure!(retrying.state == UnitState::Retrying && retrying.next.is_some(), "retrying: {retrying:?}");
    let asked = unit(later, "asked", "r/wait").await?;
    ensure!(asked.started.is_some() && asked.next.is_some(), "asked: {asked:?}");
    let waiting = unit(later, "waiting", "r/wait").await?;
    ensure!(waiting.started.is_some() && waiting.next.is_none(), "waiting: {waiting:?}");
    let beating = unit(later, "beating", "r/use").await?;
    ensure!(beating.progress.as_deref() == Some("half of it"), "beating: {beating:?}");
    let made = unit(later, "beating", "r/make").await?;
    ensure!(made.log && made.took_ms == Some(7), "beating: {made:?}");
    let log = logs::log(&later.world.env, &run("beating", BeforeReady), "r/make", None).await?;
    let log = log.map(|(_, log)| log);
    ensure!(log.as_deref() == Some("made it\n"), "beating: {log:?}");

    let again = unit(later, "wide", "r/again").await?;
    ensure!(again.state == UnitState::Retrying && again.attempt == 2, "wide: {again:?}");
    for (key, state) in [("r/fail", UnitState::Failed), ("r/again", UnitState::Succeeded)] {
        let broad = unit(later, "broad", key).await?;
        ensure!(broad.state == state, "broad: {broad:?}");
    }
    // Its ten tries were over, and it was reopened.
    let undone = detail(later, "undone", AfterStop).await?.units;
    ensure!(undone.iter().any(|unit| unit.attempt == 21), "undone: {undone:?}");
    for name in ["undone", "broad"] {
        let state = detail(later, name, BeforeReady).await?.state;
        ensure!(state == RunState::Cancelled, "{name}: {state:?}");
    }
    Ok(())
}

async fn detail(later: &Later<'_>, name: &str, moment: Moment) -> anyhow::Result<RunDetail> {
    let found = runs::get(&later.world.env, &run(name, moment)).await?;
    found.with_context(|| format!("{name} has no run {moment:?}"))
}

async fn unit(later: &Later<'_>, name: &str, key: &str) -> anyhow::Result<UnitDetail> {
    let units = detail(later, name, BeforeReady).await?.units;
    units.into_iter().find(|unit| unit.key == key).with_context(|| format!("{name} has no unit {key}"))
}
