//! Counts the write units of a unit that waits for a provider: the difference between a wait and none.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::ensure;
use ebb_egress::{HttpRequest, HttpResponse};
use ebb_engine::TargetPhase;
use ebb_flow::ports::Clock as _;
use ebb_protocol::cloudevents::LifecycleType;
use serde_json::json;

use crate::virtual_stack::{HOUR, START, VirtualStack, created};

/// Maximum write units of an hour of waiting.
const MAX_HOUR: f64 = 40.0;
const NAME: &str = "polling";
const SECOND: u64 = 1000;

/// A unit that waits. Its provider reports another percentage with each answer.
const PLUGIN: &str = include_str!("polling.yaml");

/// Prints the questions and the write units of an hour of waiting, and returns an error if they exceed the limit.
pub(crate) async fn measured() -> anyhow::Result<Vec<String>> {
    let (none, waited) = (wait(0).await?, wait(HOUR).await?);
    let (questions, units) = (waited.questions - none.questions, waited.write_units - none.write_units);
    println!("{questions} questions and {units} write units more than without a wait, in an hour");
    println!("{} messages, {} reads", waited.messages - none.messages, waited.reads - none.reads);
    let exceeded = format!("an hour of waiting costs {units:.1} write units, the limit is {MAX_HOUR}");
    Ok((units > MAX_HOUR).then_some(exceeded).into_iter().collect())
}

#[derive(Default)]
struct WaitCost {
    questions: u64,
    write_units: f64,
    messages: u64,
    reads: u64,
}

async fn wait(duration: u64) -> anyhow::Result<WaitCost> {
    let stack = VirtualStack::new()?;
    let VirtualStack { store, meter, clock, messages, .. } = &stack;
    stack.publish(PLUGIN).await?;
    let questions = Arc::new(AtomicU64::new(0));
    let (time, asked) = (clock.clone(), Arc::clone(&questions));
    // The provider is ready after `duration`.
    let provider = move |request: HttpRequest| {
        let now = time.now().0;
        // A response of a real provider has a few KiB.
        let operations: Vec<_> =
            (0..40).map(|id| json!({"id": id, "action": "create_branch", "status": "running"})).collect();
        let body = match request.method.as_str() {
            "GET" => {
                asked.fetch_add(1, Ordering::Relaxed);
                json!({"ready": now >= START + duration, "percent": (now - START) / SECOND, "host": "ep-1.db.test"})
            }
            _ => json!({"id": "br-1", "operations": operations}),
        };
        Ok(HttpResponse::new(200, body.to_string()))
    };
    let env = stack.env(Arc::new(provider), None);
    let created = created(NAME);
    let work = ebb_tests::invocations::receive(&env, store, (LifecycleType::Created, "bench"), &created);
    Box::pin(work).await.map_err(|error| anyhow::anyhow!("the sandbox is rejected: {error:?}"))?;
    let mut cost = WaitCost::default();
    meter.take();
    let end = START + duration + HOUR;
    loop {
        let target = stack.target(NAME).await?;
        if target.phase == TargetPhase::Ready {
            break;
        }
        ensure!(clock.now().0 < end, "the target is {:?}", target.phase);
        clock.advance(SECOND);
        for message in messages.take_due() {
            cost.messages += 1;
            Box::pin(ebb_flow::sweep::receive_message(&env, &message)).await?;
        }
        // The schedule runs once a minute.
        if clock.now().0.is_multiple_of(60_000) {
            stack.sweep(&env).await?;
        }
    }
    ensure!(clock.now().0 >= START + duration, "the target is ready before its provider");
    let figures = meter.take();
    cost.questions = questions.load(Ordering::Relaxed);
    cost.write_units = figures.write_units + figures.refused_write_units as f64;
    cost.reads =
        figures.requests.iter().filter(|(name, _)| matches!(**name, "GetItem" | "Query")).map(|(_, count)| count).sum();
    Ok(cost)
}
