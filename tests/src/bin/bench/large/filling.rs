//! Fills a table: one target with a large run, many that are gone, many that live.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use aws_sdk_dynamodb::types::{AttributeValue, PutRequest, WriteRequest};
use ebb_engine::TargetPhase;
use ebb_protocol::cloudevents::LifecycleType;
use ebb_protocol::lifecycle::LifecycleData;
use ebb_store::{MoveTarget as _, ReadTarget as _, TargetHead, TargetTransition};
use ebb_tests::fakes;
use futures::{StreamExt as _, TryStreamExt as _};

use super::harness::{LargeHarness, TABLE};

pub(crate) const KIND: &str = "sandbox";
/// The target of the large run.
pub(crate) const LARGE: &str = "large";
/// The plugin of the large run.
const WIDE: &str = "wide";
/// The plugin that the many targets had or have, and that of which they have another version.
pub(crate) const HELD: &str = "held";
/// Units of one resource of the large run.
const UNITS: usize = 100;
/// Items of one `BatchWriteItem` at most.
const BATCH: usize = 25;
/// Batches that are written at once.
const AT_ONCE: usize = 8;

pub(crate) struct TableSizes {
    pub(crate) units: usize,
    pub(crate) gone: usize,
    pub(crate) living: usize,
}

/// Fills a folder.
pub(crate) async fn fill(folder: &Path, sizes: &TableSizes) -> anyhow::Result<()> {
    let mut harness = LargeHarness::open(folder).await?;
    for (name, document) in [(WIDE, wide()), (HELD, small())] {
        let published = ebb_api::queries::plugins::publish(harness.store.as_ref(), &document, harness.env.now()).await;
        published.map_err(|error| anyhow::anyhow!("{name} is not published: {error:?}"))?;
    }
    targets(&harness, TargetPhase::Gone, sizes.gone).await?;
    eprintln!("{} targets that are gone", sizes.gone);
    targets(&harness, TargetPhase::Ready, sizes.living).await?;
    eprintln!("{} targets that live", sizes.living);
    let messages = std::mem::replace(&mut harness.messages, tokio::sync::mpsc::unbounded_channel().1);
    let work = tokio::spawn(fakes::process_messages(Arc::clone(&harness.env), Arc::clone(&harness.traffic), messages));
    let run = run(&harness, sizes.units).await;
    work.abort();
    eprintln!("a run of {} units", sizes.units);
    run
}

/// A plugin of [`UNITS`] units, one of which is shown.
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
        "apiVersion: ebb.dev/v1\nkind: Plugin\nname: {HELD}@1.0.0\npreStart: {{u: {{webhook: {{url: \"http://outside.test/\"}}}}}}\n"
    )
}

/// Returns the webhook that creates a sandbox of `resources` resources of a plugin.
pub(crate) fn sandbox(name: &str, plugin: &str, resources: usize) -> LifecycleData {
    let mut document = format!("apiVersion: ebb.dev/v1\nkind: Sandbox\nname: {name}\nresources:\n");
    for resource in 0..resources {
        let _ = writeln!(document, "  r{resource}: {{plugin: {plugin}}}");
    }
    LifecycleData {
        kind: KIND.to_owned(),
        name: name.to_owned(),
        uid: format!("{name}-uid"),
        generation: 1,
        document: Some(document),
        routing_key: None,
    }
}

/// Runs the large run through the functions.
async fn run(harness: &LargeHarness, units: usize) -> anyhow::Result<()> {
    let event = sandbox(LARGE, WIDE, units.div_ceil(UNITS));
    let answer =
        ebb_flow::target::lifecycle::receive(&harness.env, harness.store.as_ref(), LifecycleType::Created, &event);
    if let Err(error) = Box::pin(answer).await {
        bail!("the target is not taken: {error:?}");
    }
    loop {
        let target = harness.store.read_target(KIND, LARGE).await?.context("the target is gone")?;
        match target.phase {
            TargetPhase::Ready if target.notification.is_none() || harness.traffic.pending() == 0 => {
                return Ok(());
            }
            TargetPhase::Starting | TargetPhase::Ready => {}
            phase => bail!("the target is {phase:?}: {:?}", harness.traffic.failed()),
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

fn name(phase: TargetPhase, number: usize) -> String {
    format!("{phase:?}-{number:07}").to_lowercase()
}

/// Writes targets as the store writes them: one by the store, the others as copies of its item.
async fn targets(harness: &LargeHarness, phase: TargetPhase, count: usize) -> anyhow::Result<()> {
    let now = harness.env.now();
    let first = TargetHead {
        phase,
        generation: 1,
        plugins: vec![format!("{HELD}@1.0.0")],
        version: 1,
        ..TargetHead::new(KIND, &name(phase, 0), "uid-0", now)
    };
    let transition = TargetTransition { target: first, expected_version: None, run: None, tombstone: None };
    anyhow::ensure!(harness.store.move_target(&transition).await?, "the first target is there");
    let (text, key) = (|text: &str| AttributeValue::S(text.to_owned()), |n| format!("t#{KIND}#{n}"));
    let item = harness
        .dynamo
        .get_item()
        .table_name(TABLE)
        .key("pk", text(&key(name(phase, 0))))
        .key("sk", text("h"))
        .send()
        .await?
        .item
        .context("the first target")?;
    let copy = |number: usize| -> anyhow::Result<WriteRequest> {
        let mut item: HashMap<String, AttributeValue> = item.clone();
        let name = name(phase, number);
        item.insert("uid".to_owned(), text(&format!("uid-{number}")));
        item.insert("pk".to_owned(), text(&key(name.clone())));
        item.insert("n".to_owned(), text(&name));
        Ok(WriteRequest::builder().put_request(PutRequest::builder().set_item(Some(item)).build()?).build())
    };
    let starts = (1..count).step_by(BATCH);
    let batches = starts.map(|from| (from..count.min(from + BATCH)).map(copy).collect::<anyhow::Result<_>>());
    futures::stream::iter(batches)
        .map(|batch| async {
            let request = harness.dynamo.batch_write_item().request_items(TABLE, batch?);
            let answer = request.send().await?;
            let left = answer.unprocessed_items.is_some_and(|items| !items.is_empty());
            anyhow::ensure!(!left, "items stay unprocessed");
            anyhow::Ok(())
        })
        .buffer_unordered(AT_ONCE)
        .try_collect()
        .await
}
