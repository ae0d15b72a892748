//! Fills a table with one target with a large run, many gone targets and many active ones.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, bail, ensure};
use aws_sdk_dynamodb::types::AttributeValue;
use ebb_engine::{TargetPhase, Timestamp};
use ebb_local::embedded::{EmbeddedTable, StateDurability};
use ebb_protocol::cloudevents::LifecycleType;
use ebb_protocol::lifecycle::LifecycleData;
use ebb_store::item_table::{ItemKey, ItemPut, WriteExpression};
use ebb_store::{ItemTable as _, MoveTarget as _, ReadTarget as _, TargetHead, TargetTransition};
use ebb_tests::{fakes, platform};

use crate::measured_store::MeasuredStore;

pub(crate) const KIND: &str = "sandbox";
/// The target of the large run.
pub(crate) const LARGE: &str = "large";
/// The plugin of the large run.
const WIDE: &str = "wide";
/// The plugin of the many targets.
pub(crate) const SMALL: &str = "held";
/// Units of one resource of the large run.
const UNITS: usize = 100;
/// Items of a transaction.
const BATCH: usize = 100;

pub(crate) struct TableSizes {
    pub(crate) units: usize,
    pub(crate) gone: usize,
    pub(crate) living: usize,
}

/// Fills a folder.
pub(crate) async fn fill(folder: &Path, sizes: &TableSizes) -> anyhow::Result<()> {
    let (queue, traffic, messages) = fakes::channel();
    let (stored, env) = super::open(folder, Arc::new(queue)).await?;
    for (name, document) in [(WIDE, wide()), (SMALL, small())] {
        let published = ebb_api::queries::plugins::publish(stored.unmetered.as_ref(), &document, env.now()).await;
        published.map_err(|error| anyhow::anyhow!("{name} is not published: {error:?}"))?;
    }
    for (phase, count) in [(TargetPhase::Gone, sizes.gone), (TargetPhase::Ready, sizes.living)] {
        targets(&stored, env.now(), phase, count).await?;
        eprintln!("{count} targets in phase {phase:?}");
    }
    let work = tokio::spawn(fakes::process_messages(Arc::clone(&env), Arc::clone(&traffic), messages));
    let event = event(LARGE, WIDE, sizes.units.div_ceil(UNITS));
    let response = ebb_flow::instance::lifecycle::receive(
        &env,
        stored.unmetered.as_ref(),
        (LifecycleType::Created, "bench"),
        &event,
    );
    Box::pin(response).await.map_err(|error| anyhow::anyhow!("the target is not created: {error:?}"))?;
    loop {
        let target = stored.unmetered.read_target(KIND, LARGE).await?.context("the target is gone")?;
        match target.phase {
            TargetPhase::Ready if target.notification.is_none() || traffic.pending() == 0 => break,
            TargetPhase::Starting | TargetPhase::Ready => {}
            phase => bail!("the target is {phase:?}: {:?}", traffic.failed()),
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    work.abort();
    eprintln!("a run of {} units", sizes.units);
    Ok(())
}

/// Writes gone targets, at least one, into the table of `ebb dev` in its state folder. Returns the name of the last one.
pub(crate) async fn fill_gone(state: &Path, count: usize) -> anyhow::Result<String> {
    let (table, bucket) = (EmbeddedTable::open(&state.join("table"), StateDurability::Process)?, tempfile::tempdir()?);
    let stored = MeasuredStore::open(table, bucket.path()).await?;
    targets(&stored, platform::now(), TargetPhase::Gone, count).await?;
    Ok(name(TargetPhase::Gone, count - 1))
}

/// Returns a plugin with [`UNITS`] units. The resource has the output of one of them.
fn wide() -> String {
    let mut text = format!("apiVersion: ebb.dev/v1\nkind: Plugin\nname: {WIDE}@1.0.0\npreStart:\n");
    for unit in 0..UNITS {
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "  u{unit}: {{webhook: {{url: \"http://outside.test/\"}}, outputs: {{text: {{value: \"${{response.body.text}}\"}}}}}}"
        );
    }
    text.push_str("outputs: {text: \"${units.u0.outputs.text}\"}\n");
    text
}

fn small() -> String {
    format!(
        "apiVersion: ebb.dev/v1\nkind: Plugin\nname: {SMALL}@1.0.0\npreStart: {{u: {{webhook: {{url: \"http://outside.test/\"}}}}}}\n"
    )
}

/// Returns the event that creates a sandbox with this number of resources of a plugin.
pub(crate) fn event(name: &str, plugin: &str, resources: usize) -> LifecycleData {
    let mut rest = String::from("resources:\n");
    for resource in 0..resources {
        let _ = writeln!(rest, "  r{resource}: {{plugin: {plugin}}}");
    }
    platform::sandbox(name, &format!("{name}-uid"), &rest)
}

fn name(phase: TargetPhase, number: usize) -> String {
    format!("{phase:?}-{number:07}").to_lowercase()
}

/// Writes targets: the first by the store, the others as copies of its item.
async fn targets(stored: &MeasuredStore, now: Timestamp, phase: TargetPhase, count: usize) -> anyhow::Result<()> {
    let first = TargetHead {
        phase,
        generation: 1,
        plugins: vec![format!("{SMALL}@1.0.0")],
        version: 1,
        ..TargetHead::new(KIND, &name(phase, 0), "uid-0", now)
    };
    let transition = TargetTransition { target: first, expected_version: None, run: None, tombstone: None };
    ensure!(stored.unmetered.move_target(&transition).await?, "the first target exists already");
    let (text, key) = (|text: &str| AttributeValue::S(text.to_owned()), |n| format!("t#{KIND}#{n}"));
    let item = stored.table.get(ItemKey::new(key(name(phase, 0)), "h")).await?.value.context("the first target")?;
    let copy = |number: usize| {
        let mut item = item.clone();
        let name = name(phase, number);
        item.insert("uid".to_owned(), text(&format!("uid-{number}")));
        item.insert("pk".to_owned(), text(&key(name.clone())));
        item.insert("n".to_owned(), text(&name));
        ItemPut { item, expression: WriteExpression::default() }
    };
    for from in (1..count).step_by(BATCH) {
        let puts: Vec<ItemPut> = (from..count.min(from + BATCH)).map(copy).collect();
        stored.table.transact(&puts, "").await?;
    }
    Ok(())
}
