//! What people and the control plane see of a task while it runs: names, events, progress and heartbeats.

use k8s_openapi::api::core::v1::Event;

use crate::fixture::*;

#[tokio::test(flavor = "multi_thread")]
async fn names_events_and_progress() {
    let fixture = RelayFixture::new("visible", &[]).await;
    let unit = name("run-1", 1);
    let [target, resource, own, plugin, hook] =
        ["sandbox/a", "db", "create", "db@1.0.0", "preStart"].map(str::to_owned);
    // The script runs longer than the requests below take, also on a slow machine.
    let text = "echo '::ebb progress 40% loading'; echo started; sleep 20; exit 3";
    let names = TaskNames { target, resource, unit: own, plugin, hook };
    fixture.ensure(EnsureTask { names, ..fixture.ensure_of(&unit, script(&unit, text)) }).await;
    fixture.wait_for_log(&unit, "started").await;
    let selector = "ebb.dev/target=sandbox.a,ebb.dev/resource=db,ebb.dev/unit-name=create,ebb.dev/plugin=db.1.0.0,\
                    app.kubernetes.io/managed-by=ebb";
    let named = ListParams::default().labels(selector);
    assert_eq!(fixture.names::<Job>(&named).await, ["Job ebb-run-1-1"]);
    assert_eq!(fixture.names::<Secret>(&named).await, ["Secret ebb-run-1-1"]);
    assert_eq!(fixture.names::<Pod>(&named).await.len(), 1);
    let job = fixture.api::<Job>().get("ebb-run-1-1").await.unwrap();
    assert_eq!((&*job.annotations()["ebb.dev/target"], &*job.annotations()["ebb.dev/run"]), ("sandbox/a", "run"));

    assert_eq!(fixture.running(&unit, |task| task.progress).await, "40% loading");
    let heartbeat = until("a heartbeat", async || fixture.callbacks.heartbeats(&token(&unit)).into_iter().next()).await;
    assert_eq!(heartbeat.duration_ms, None, "{heartbeat:?}");

    assert_eq!(fixture.reason(&unit).await.0, ReasonCode::Exit);
    let of_job = ListParams::default().fields("involvedObject.name=ebb-run-1-1");
    let events = until("the events", async || {
        let mut events = fixture.api::<Event>().list(&of_job).await.unwrap().items;
        events.retain(|event| event.reporting_component.as_deref() == Some("ebb.dev/relay"));
        let is_known = |reason: &str| events.iter().any(|event| event.reason.as_deref() == Some(reason));
        ["Started", "Failed", "Removed"].into_iter().all(is_known).then_some(events)
    })
    .await;
    let failed = events.iter().find(|event| event.reason.as_deref() == Some("Failed")).unwrap();
    let expected = "sandbox/a db/create, attempt 1: exit: the script ended with 3";
    assert_eq!(failed.message.as_deref(), Some(expected));
    assert_eq!(fixture.callbacks.heartbeats(&token(&unit)).len(), 1, "at most one a minute");
    let log = fixture.log();
    let line = log.lines().find(|line| line.contains("a task has ended")).unwrap_or_else(|| panic!("{log}"));
    let line: Value = serde_json::from_str(line).unwrap();
    assert_eq!((&line["fields"]["code"], &line["fields"]["plugin"]), (&json!("exit"), &json!("db@1.0.0")));
    fixture.close().await;
}

/// An entrypoint is stopped, and its container still runs for the kubelet. The restarted relay has never received a report of
/// the script. The pods of the test cluster are processes of this machine.
#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_entrypoint_is_lost_after_a_restart_of_the_relay() {
    let fixture = RelayFixture::new("silent", &[]).await;
    let unit = name("unit", 1);
    fixture.run(&unit, ScriptJob::new(&unit, "echo started; sleep 1000")).await;
    fixture.wait_for_log(&unit, "started").await;
    fixture.running(&unit, |task| task.heartbeat_ms).await;
    let host = format!("HOSTNAME={}", fixture.pod_of(&unit).await.unwrap().name_any());
    let is_entrypoint = |pid: &i32| {
        let has = |file: &str, is_wanted: &dyn Fn(&[u8]) -> bool| {
            std::fs::read(format!("/proc/{pid}/{file}")).is_ok_and(|text| text.split(|byte| *byte == 0).any(is_wanted))
        };
        has("cmdline", &|word| word == b"/ebb/ebb-entrypoint") && has("environ", &|word| word == host.as_bytes())
    };
    let mut pids = std::fs::read_dir("/proc").unwrap().filter_map(|it| it.ok()?.file_name().to_str()?.parse().ok());
    let pid: i32 = pids.find(is_entrypoint).unwrap();
    assert!(std::process::Command::new("kill").args(["-STOP", &pid.to_string()]).status().unwrap().success());
    fixture.restart().await;
    fixture.failure(&unit, ReasonCode::Lost, "no heartbeat for ").await;
    fixture.close().await;
}
