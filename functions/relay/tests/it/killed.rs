//! A relay that is killed at any moment reports in the end as if nothing had happened.

use std::collections::BTreeMap;

use kube::api::EvictParams;

use crate::fixture::*;

/// A script that does something after it has written its outputs.
fn script_that(unit: &TaskId, then: &str) -> ScriptJob {
    let text = format!("echo {0}; printf %s {0} > /tmp/out; printf %s {0} > /tmp/kept; {then}", unit.unit);
    ScriptJob::new(unit, &text).output("out", false).output("kept", true)
}

/// What came back, all that came: the same each time, and complete.
async fn check(fixture: &RelayFixture, unit: &TaskId) {
    let result = fixture.succeeds(unit).await;
    assert_eq!(result.outputs, BTreeMap::from([("out".to_owned(), unit.unit.clone().into())]));
    assert_eq!(result.log, Some(format!("{}\n", unit.unit)), "{unit:?}");
    assert_eq!(fixture.sensitive(&result, "kept").await, unit.unit.as_bytes());
    assert!(fixture.plane.taken(&token(unit)).iter().all(|again| *again == result));
}

/// Killed at these milliseconds after a request was sent, each time with another unit on its way. Who has sent it asks
/// again, as it does when no answer came.
#[tokio::test(flavor = "multi_thread")]
async fn while_it_starts() {
    let fixture = RelayFixture::new("starts", &[]).await;
    let moments = [0, 5, 10, 15, 20, 25, 30, 40, 50, 70, 100, 150, 400, 1000];
    let units = moments.map(|moment| name(&format!("at-{moment}"), 1));
    for (unit, moment) in units.iter().zip(moments) {
        let request = fixture.ensure_of(unit, script_that(unit, "sleep 2").objects(unit));
        {
            let sent = fixture.ask_or_none(vec![RelayRequest::Ensure(Box::new(request.clone()))]);
            // Its answer is lost, be it there or not.
            let _ = tokio::time::timeout(Duration::from_millis(moment), sent).await;
        }
        fixture.kill().await;
        fixture.start().await;
        let answer = fixture.ensure(request).await;
        assert!(matches!(answer, ebb_protocol::relay::RelayResponse::State(_)), "{unit:?}: {answer:?}");
    }
    for unit in &units {
        check(&fixture, unit).await;
    }
    fixture.release("instance-1").await;
    fixture.close().await;
}

/// The relay is killed while a script runs, while it reports, and before and after its result could be reported. It starts
/// again after a pause.
#[tokio::test(flavor = "multi_thread")]
async fn while_it_runs_and_reports() {
    let fixture = RelayFixture::new("runs", &[]).await;
    fixture.plane.answer(Some(503));
    let units = [0, 1, 2, 3].map(|number| name(&format!("unit-{number}"), 1));
    for unit in &units {
        fixture.run(unit, script_that(unit, "sleep 2")).await;
    }
    fixture.printed(&units[0], "unit-0").await;
    let jobs = fixture.api::<Job>().list(&Default::default()).await.unwrap();
    for pause in [100, 500, 900, 1300, 1700] {
        fixture.kill().await;
        tokio::time::sleep(Duration::from_millis(pause / 4)).await;
        fixture.start().await;
        tokio::time::sleep(Duration::from_millis(pause)).await;
    }
    for unit in &units {
        fixture.ended(unit).await;
    }
    fixture.kill().await;
    fixture.plane.answer(None);
    fixture.start().await;
    // While it tidies up after one, and tells of the others.
    fixture.result(&units[0]).await;
    fixture.kill().await;
    fixture.start().await;
    for unit in &units {
        check(&fixture, unit).await;
    }
    assert_eq!(jobs.items.len(), units.len());
    fixture.release("instance-1").await;
    fixture.close().await;
}

/// No relay took the report: the termination message and the log of the pod contain the result, up to their limits.
#[tokio::test(flavor = "multi_thread")]
async fn while_all_of_it_happens() {
    let fixture = RelayFixture::new("away", &["--report-retry-seconds", "1"]).await;
    let [reported, lost, gone, ended] = ["reported", "lost", "gone", "ended"].map(|unit| name(unit, 1));
    // However slow the machine is, these end when no relay is there.
    let reported_script = ScriptJob::new(&reported, "echo reported; sleep 20; printf 1 > /tmp/out");
    fixture.run(&reported, reported_script.output("out", false)).await;
    fixture.run(&lost, script_that(&lost, "sleep 20")).await;
    fixture.run(&gone, ScriptJob::new(&gone, "sleep 1000")).await;
    fixture.run(&ended, ScriptJob::new(&ended, "echo begun; sleep 1000")).await;
    fixture.printed(&ended, "begun").await;
    // It only begins to end.
    let cancel = RelayRequest::Cancel { task: ended.clone(), grace_ms: 2_000 };
    let _ = tokio::time::timeout(Duration::from_millis(60), fixture.ask_or_none(vec![cancel])).await;
    fixture.kill().await;
    fixture.api::<Job>().delete("ebb-gone-1", &DeleteParams::background()).await.unwrap();
    until("the pods to end", async || {
        let pods = fixture.api::<Pod>().list(&Default::default()).await.unwrap();
        let over = |unit: &TaskId| {
            let mut own = pods.iter().filter(|pod| pod.metadata.labels.as_ref().unwrap()["ebb.dev/unit"] == unit.unit);
            own.all(|pod| pod.status.as_ref().unwrap().phase.as_deref() != Some("Running"))
        };
        (over(&reported) && over(&lost) && over(&gone)).then_some(())
    })
    .await;
    fixture.start().await;
    let result = fixture.result(&reported).await;
    assert_eq!((result.status, result.log.as_deref()), (CallbackStatus::Succeeded, Some("reported\n")));
    assert_eq!(result.outputs["out"], "1");
    let (code, message) = fixture.reason(&lost).await;
    assert!(message.contains("did not arrive"), "{code:?} {message}");
    assert_eq!(fixture.reason(&gone).await.0, ebb_protocol::callback::ReasonCode::Lost);
    fixture.cancelled(&ended).await;
    assert!(fixture.plane.taken(&token(&ended)).is_empty());
    fixture.close().await;
}

/// A success that was reported, or that only the termination message holds, stands whatever becomes of the pod then.
#[tokio::test(flavor = "multi_thread")]
async fn a_success_outlives_its_pod() {
    let fixture = RelayFixture::new("outlives", &["--report-retry-seconds", "1"]).await;
    let [reported, left] = ["reported", "left"].map(|unit| name(unit, 1));
    let (jobs, pods) = (fixture.api::<Job>(), fixture.api::<Pod>());
    let pod = async |unit: &TaskId| {
        let own = ListParams::default().labels(&format!("ebb.dev/unit={}", unit.unit));
        pods.list(&own).await.unwrap().items.pop()
    };
    fixture.plane.answer(Some(503));
    fixture.run(&reported, script_that(&reported, "sleep 2")).await;
    fixture.ended(&reported).await;
    // Its container ends while no relay is there, and another one goes on.
    let text = "sleep 3; printf left > /tmp/out";
    fixture.run(&left, ScriptJob::new(&left, text).output("out", false).beside(1)).await;
    fixture.kill().await;
    until("the end of the script", async || {
        let all = pod(&left).await?.status?.container_statuses?;
        all.into_iter().find(|it| it.name == "main")?.state?.terminated
    })
    .await;
    // The pod is evicted as a whole, and stays to be seen for a while.
    let held = finalizers(json!(["batch.kubernetes.io/job-tracking", "test.example/held"]));
    let name = pod(&left).await.unwrap().name_any();
    merge(&pods, &name, held).await;
    pods.evict(&name, &EvictParams::default()).await.unwrap();
    jobs.delete("ebb-reported-1", &DeleteParams::background()).await.unwrap();
    until("the pods to fail and to go", async || {
        let failed = pod(&left).await?.status?.phase.as_deref() == Some("Failed");
        (failed && pod(&reported).await.is_none()).then_some(())
    })
    .await;
    fixture.plane.answer(None);
    fixture.start().await;
    check(&fixture, &reported).await;
    let result = fixture.result(&left).await;
    assert_eq!((result.status, &result.outputs["out"]), (CallbackStatus::Succeeded, &"left".into()), "{result:?}");
    merge(&pods, &name, finalizers(Value::Null)).await;
    fixture.release("instance-1").await;
    fixture.close().await;
}

/// The client disconnects while a task starts. The relay alone ends what was begun.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_disconnects() {
    let fixture = RelayFixture::new("leaves", &[]).await;
    let moments = [2, 4, 6, 8, 11, 14, 18, 22, 28, 35, 45, 60];
    let units = moments.map(|moment| name(&format!("at-{moment}"), 1));
    for (unit, moment) in units.iter().zip(moments) {
        let request = fixture.request(unit, script_that(unit, "sleep 2").objects(unit));
        let _ = tokio::time::timeout(Duration::from_millis(moment), fixture.ask_or_none(vec![request])).await;
    }
    let mut begun = 0;
    for unit in &units {
        if fixture.get(unit).await != TaskState::Unknown {
            check(&fixture, unit).await;
            begun += 1;
        }
    }
    assert!(begun > 0, "no request has come so far");
    fixture.release("instance-1").await;
    fixture.close().await;
}
