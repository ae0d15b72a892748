//! The answers for targets that wait, have failed or are damaged.

use axum::http::Method;
use ebb_protocol::api::{TargetPage, TargetState, UnitState};
use ebb_protocol::cloudevents::LifecycleType;
use ebb_protocol::lifecycle::{LifecycleResponse, LifecycleResult};
use serde_json::{Value, json};

use crate::harness::{CannedReply, LifecycleHarness, eventually, find, plugin, sandbox};

const SIMPLE: &str = r#"
preStart:
  make: {webhook: {url: "RECEIVER/make"}, retry: {attempts: 1}}
postStop:
  drop: {undoes: make, webhook: {url: "RECEIVER/drop"}}
"#;

/// Returns the `waitsFor` that the list shows for the sandbox `a`.
async fn listed(world: &LifecycleHarness) -> Option<String> {
    let page: TargetPage = world.get("/v1/targets").await.is(200).json();
    page.targets.into_iter().find(|target| target.name == "a")?.waits_for
}

/// The targets that are gone and wait for nothing.
async fn gone(world: &LifecycleHarness) -> Vec<String> {
    let page: TargetPage = world.get("/v1/targets?gone=true").await.is(200).json();
    page.targets.into_iter().map(|target| target.name).collect()
}

pub(crate) async fn an_outcome_that_the_platform_does_not_accept() {
    let world = LifecycleHarness::with_platform().await;
    world.publish(&plugin("simple@1.0.0", SIMPLE)).await;
    world.create("a", "simple").await;
    world.phase("a", TargetState::Ready).await;
    world.taken("a").await;
    world.receiver.on("POST /platform", |_, _| CannedReply::status(503));
    world.delete("a").await;
    let delivery = eventually("a try has failed", async || world.target("a").await?.delivery).await;
    assert_eq!(delivery.outcome, "gone");
    assert!(delivery.reason.is_some_and(|reason| reason.contains("503")), "{:?}", delivery.attempts);
    assert!(delivery.next.is_some());
    // A gone target stays in the list of the living until the platform has accepted its outcome.
    assert!(listed(&world).await.is_some_and(|waits| waits.contains("`gone`")));
    assert_eq!(gone(&world).await, Vec::<String>::new());
    let answer = world.lifecycle(LifecycleType::Created, &sandbox("a", "next", "simple")).await;
    assert_eq!(answer.is(202).json::<LifecycleResponse>().result, LifecycleResult::Waiting);
    let why = world.why("a").await;
    let waits = listed(&world).await.unwrap();
    for text in [&why.summary, &waits] {
        assert!(text.contains("the platform to accept the outcome `gone`"), "{text}");
        assert!(text.contains("503") && text.contains("uid next waits for the name"), "{text}");
    }
    assert!(why.next_steps.iter().any(|step| step.contains("platform")), "{why:?}");
    world.receiver.on("POST /platform", |_, _| CannedReply::status(204));
    eventually("the next life is ready", async || {
        let target = world.target("a").await?;
        (target.info.uid == "next" && target.info.phase == TargetState::Ready).then_some(())
    })
    .await;
    assert_eq!(listed(&world).await, None);
    let uid = world.target("a").await.unwrap().info.uid;
    world
        .lifecycle(
            LifecycleType::Deleted,
            &ebb_protocol::lifecycle::LifecycleData { uid, ..sandbox("a", "next", "simple") },
        )
        .await
        .is(202);
    eventually("a is in the list of the gone", async || (gone(&world).await == ["a"]).then_some(())).await;
}

const TWO: &str = r#"
preStart:
  one: {webhook: {url: "RECEIVER/one"}, retry: {attempts: 1}}
  two: {webhook: {url: "RECEIVER/two"}, retry: {attempts: 1}}
"#;

pub(crate) async fn every_unit_that_failed() {
    let world = LifecycleHarness::new().await;
    world.publish(&plugin("two@1.0.0", TWO)).await;
    for path in ["POST /one", "POST /two"] {
        world.receiver.on(path, |_, number| match number {
            3 => CannedReply::ok(json!({})),
            _ => CannedReply::status(400),
        });
    }
    world.create("a", "two").await;
    eventually("a has failed", async || {
        (world.target("a").await?.info.phase == TargetState::Failed).then_some(())
    })
    .await;
    let why = world.why("a").await;
    let mut failed: Vec<&str> = why.failed.iter().map(|failed| failed.unit.as_str()).collect();
    failed.sort_unstable();
    assert_eq!(failed, ["r/one", "r/two"]);
    assert_eq!(why.cause.as_ref().unwrap().unit, why.failed[0].unit);
    assert!(why.summary.contains(&format!("{} failed too", why.failed[1].unit)), "{}", why.summary);
    // Tries are counted from the retry, and numbered on.
    world.ask(Method::POST, "/v1/targets/sandbox/a/retry", None).await.is(202);
    let both = eventually("both have failed again", async || {
        let target = world.target("a").await?;
        let both = ["one", "two"].map(|name| find(&target, "preStart", name).unwrap());
        let again = both.iter().all(|unit| unit.state == UnitState::Failed && unit.attempt == 2);
        (again && target.info.phase == TargetState::Failed).then_some(both)
    });
    for unit in both.await {
        assert_eq!((unit.attempt_in_series, unit.max_attempts), (1, 1), "{unit:?}");
    }
    assert!(world.why("a").await.failed.iter().all(|failed| failed.attempt == 2));
}

const RETRIED: &str = r##"
runners: {shell: {image: "busybox:1.36"}}
preStart:
  make:
    pod: {script: "#!/bin/sh\necho try $EBB_ATTEMPT; exit 7"}
    retry: {attempts: 2, backoff: 5m, maxBackoff: 5m}
"##;

pub(crate) async fn a_unit_between_two_tries() {
    let world = LifecycleHarness::new().await;
    world.publish(&plugin("retried@1.0.0", RETRIED)).await;
    world.create("a", "retried").await;
    let unit = world.unit("a", "preStart", "make", UnitState::Retrying).await;
    assert_eq!(unit.attempt, 2);
    let run = world.target("a").await.unwrap().runs[0].id.clone();
    let log = world.get(&format!("/v1/runs/{run}/logs?unit=r/make")).await;
    assert_eq!((log.status, log.body.as_str()), (200, "try 1\n"));
    let why = world.why("a").await;
    let cause = why.cause.unwrap();
    assert_eq!((cause.unit.as_str(), cause.attempt), ("r/make", 1));
    assert_eq!(cause.log, ["try 1"]);
}

/// Returns a plugin whose plan is an object of the bucket, because its text is hard to compress.
fn large() -> String {
    let units = (0..80_u64).map(|number| {
        let text = (1..4)
            .map(|factor| format!("{:016x}", (3 * number + factor).wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        format!(
            "  make-{number}: {{webhook: {{url: \"RECEIVER/make\", body: {{t: \"{}\"}}}}}}\n",
            text.collect::<String>()
        )
    });
    format!("preStart:\n{}", units.collect::<String>())
}

pub(crate) async fn a_plan_that_is_lost() {
    let mut world = LifecycleHarness::new().await;
    world.publish(&plugin("large@1.0.0", &large())).await;
    world.create("a", "large").await;
    world.phase("a", TargetState::Ready).await;
    world.taken("a").await;
    // Otherwise it would be in memory.
    let bucket = &world.stack().store().bucket;
    assert!(!bucket.list("plans/").await.unwrap().is_empty(), "no plan was found");
    bucket.remove_all("plans/").await.unwrap();
    world.restart().await;
    let target = world.target("a").await.unwrap();
    let waits = target.info.waits_for.unwrap_or_default();
    assert!(waits.contains("the stored plan"), "{waits:?}");
    let why = world.why("a").await;
    assert!(why.next_steps[0].contains("ebb sandbox apply -f FILE"), "{why:?}");
    let version = "/v1/plugins/large/versions/1.0.0";
    // The plan is restored from the version that the target has, also if it is withdrawn.
    world.ask(Method::DELETE, version, None).await.is(204);
    let mut deletion = sandbox("a", "a-uid", "large");
    deletion.document = None;
    let answer = world.lifecycle(LifecycleType::Deleted, &deletion).await;
    assert!(answer.is_problem(500, "damaged").detail.contains("ebb sandbox apply"), "{answer:?}");
    let other = sandbox("a", "a-uid", "large}, s: {plugin: large");
    world.lifecycle(LifecycleType::Updated, &other).await.is_problem(500, "damaged");
    let answer = world.lifecycle(LifecycleType::Updated, &sandbox("a", "a-uid", "large")).await;
    assert_eq!(answer.is(202).json::<Value>()["result"], "unchanged");
    assert_eq!(world.target("a").await.unwrap().info.waits_for, None);
    world.delete("a").await;
    world.phase("a", TargetState::Gone).await;
}
