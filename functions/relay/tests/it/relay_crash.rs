//! Crashes of the relay. After a restart it reports the same results as without a crash.

use std::collections::BTreeMap;

use kube::api::EvictParams;

use crate::fixture::*;

fn script_then(unit: &TaskId, command: &str) -> ScriptJob {
    let text = format!("echo {0}; printf %s {0} > /tmp/out; printf %s secret-{0} > /tmp/kept; {command}", unit.unit);
    ScriptJob::new(unit, &text).output("out", false).output("kept", true)
}

/// Checks that all callbacks of a task have the same complete result.
async fn check(fixture: &RelayFixture, unit: &TaskId) {
    let result = fixture.success(unit).await;
    assert_eq!(result.outputs, BTreeMap::from([("out".to_owned(), unit.unit.clone().into())]));
    assert_eq!(result.log, Some(format!("{}\n", unit.unit)), "{unit:?}");
    assert_eq!(fixture.sensitive_output(&result, "kept").await, format!("secret-{}", unit.unit).as_bytes());
    assert!(fixture.callbacks.accepted(&token(unit)).iter().all(|again| *again == result));
}

/// Milliseconds from the request of a task to the kill of the relay.
const KILLS: [u64; 14] = [0, 5, 10, 15, 20, 25, 30, 40, 50, 70, 100, 150, 400, 1000];
/// Milliseconds from the request of a task to the end of its connection.
const DISCONNECTS: [u64; 12] = [2, 4, 6, 8, 11, 14, 18, 22, 28, 35, 45, 60];

/// Each task starts while the relay is killed, or while its client disconnects. The control plane repeats a request at a killed
/// relay. The relay completes a task that it has started.
#[tokio::test(flavor = "multi_thread")]
async fn relays_and_clients_end_while_tasks_start() {
    let fixture = RelayFixture::new("starts", &[]).await;
    let places = KILLS.map(|at| ("killed", at)).into_iter().chain(DISCONNECTS.map(|at| ("left", at)));
    let places: Vec<_> = places.map(|(what, at)| (what, at, name(&format!("{what}-{at}"), 1))).collect();
    for (what, at, unit) in &places {
        let request = fixture.request(unit, script_then(unit, "sleep 2").into_task(unit));
        // The response is ignored.
        let _ = tokio::time::timeout(Duration::from_millis(*at), fixture.try_send(vec![request.clone()])).await;
        if *what == "killed" {
            fixture.restart().await;
            let response = fixture.send(request).await;
            assert!(matches!(response, RelayResponse::State(_)), "{unit:?}: {response:?}");
        }
    }
    let mut started = 0;
    for (.., unit) in &places {
        if fixture.get(unit).await != TaskState::Unknown {
            check(&fixture, unit).await;
            started += 1;
        }
    }
    assert!(started > KILLS.len(), "no request without a response started a task");
    fixture.release("instance-1").await;
    fixture.close().await;
}

/// No relay receives the report. The termination message and the log of the pod have the result, up to their limits.
#[tokio::test(flavor = "multi_thread")]
async fn scripts_end_while_no_relay_runs() {
    let fixture = RelayFixture::new("norelay", &["--report-retry-seconds", "1"]).await;
    let [reported, lost, gone, ended] = ["reported", "lost", "gone", "ended"].map(|unit| name(unit, 1));
    fixture.run(&ended, ScriptJob::new(&ended, "echo started; sleep 1000")).await;
    fixture.wait_for_log(&ended, "started").await;
    // These scripts end after the relay is killed.
    let reported_script = ScriptJob::new(&reported, "echo reported; sleep 45; printf 1 > /tmp/out");
    fixture.run(&reported, reported_script.output("out", false)).await;
    fixture.run(&lost, script_then(&lost, "sleep 45")).await;
    fixture.run(&gone, ScriptJob::new(&gone, "sleep 1000")).await;
    fixture.wait_for_log(&reported, "reported").await;
    fixture.wait_for_log(&lost, "lost").await;
    // The relay only starts to terminate this task.
    let cancel = RelayRequest::Cancel { task: ended.clone(), grace_ms: 2_000 };
    let _ = tokio::time::timeout(Duration::from_millis(60), fixture.try_send(vec![cancel])).await;
    fixture.kill().await;
    fixture.api::<Job>().delete("ebb-gone-1", &DeleteParams::background()).await.unwrap();
    until("the pods to end", async || {
        let pods = fixture.api::<Pod>().list(&Default::default()).await.unwrap();
        let is_over = |unit: &TaskId| {
            let mut own = pods.iter().filter(|pod| pod.metadata.labels.as_ref().unwrap()["ebb.dev/unit"] == unit.unit);
            own.all(|pod| pod.status.as_ref().unwrap().phase.as_deref() != Some("Running"))
        };
        (is_over(&reported) && is_over(&lost) && is_over(&gone)).then_some(())
    })
    .await;
    fixture.start().await;
    let result = fixture.result(&reported).await;
    assert_eq!((result.status, result.log.as_deref()), (CallbackStatus::Succeeded, Some("reported\n")));
    assert_eq!(result.outputs["out"], "1");
    fixture.failure(&lost, ReasonCode::Lost, "did not arrive").await;
    fixture.failure(&gone, ReasonCode::Lost, "").await;
    fixture.cancel(&ended).await;
    assert!(fixture.callbacks.accepted(&token(&ended)).is_empty());
    fixture.close().await;
}

/// A success remains valid after the pod was evicted or deleted. It was reported or is only in the termination message.
#[tokio::test(flavor = "multi_thread")]
async fn a_success_outlives_its_pod() {
    let fixture = RelayFixture::new("outlives", &["--report-retry-seconds", "1"]).await;
    let [reported, left] = ["reported", "left"].map(|unit| name(unit, 1));
    let (jobs, pods) = (fixture.api::<Job>(), fixture.api::<Pod>());
    fixture.callbacks.reject_with(Some(503));
    fixture.run(&reported, script_then(&reported, "sleep 2")).await;
    fixture.wait_for_end(&reported).await;
    // The container of this script ends while no relay runs. Its sidecar continues.
    let text = "sleep 3; printf left > /tmp/out";
    fixture.run(&left, ScriptJob::new(&left, text).output("out", false).with_sidecar(1)).await;
    fixture.kill().await;
    until("the end of the script", async || {
        let all = fixture.pod_of(&left).await?.status?.container_statuses?;
        all.into_iter().find(|it| it.name == "main")?.state?.terminated
    })
    .await;
    // The pod is evicted. A finalizer delays its deletion.
    let delayed = finalizers(json!(["batch.kubernetes.io/job-tracking", "test.example/held"]));
    let name = fixture.pod_of(&left).await.unwrap().name_any();
    merge(&pods, &name, delayed).await;
    pods.evict(&name, &EvictParams::default()).await.unwrap();
    jobs.delete("ebb-reported-1", &DeleteParams::background()).await.unwrap();
    until("the pods to fail and to go", async || {
        let failed = fixture.pod_of(&left).await?.status?.phase.as_deref() == Some("Failed");
        (failed && fixture.pod_of(&reported).await.is_none()).then_some(())
    })
    .await;
    fixture.callbacks.reject_with(None);
    fixture.start().await;
    check(&fixture, &reported).await;
    let result = fixture.result(&left).await;
    assert_eq!((result.status, &result.outputs["out"]), (CallbackStatus::Succeeded, &"left".into()), "{result:?}");
    merge(&pods, &name, finalizers(Value::Null)).await;
    fixture.release("instance-1").await;
    fixture.close().await;
}
