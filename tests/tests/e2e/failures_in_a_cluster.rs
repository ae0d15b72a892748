//! Failures in a cluster: a script that ignores signals, pods that never start, and an API server that is down during the
//! teardown.

use crate::prelude::*;

/// Longer than an attempt of five seconds and the time in which the relay must report its end.
const ATTEMPT_END: Duration = Duration::from_secs(5 + 15 + 3);

/// Publishes a plugin of two scripts and creates a sandbox with it, both with the same name. `template` adds to the first
/// pod, `undo` adds to the second unit.
async fn sandbox(workdir: &Workdir, name: &str, image: &str, template: &str, script: &str, undo: &str) {
    let plugin = format!(
        r##"runners:
  first: {{image: "{image}", podTemplate: "spec: {{securityContext: {{runAsUser: 65532}}{template}}}"}}
  last: {{image: "{BUSYBOX}", podTemplate: "spec: {{securityContext: {{runAsUser: 65532}}}}"}}
defaults: {{timeout: 1m, retry: {{attempts: 1}}}}
preStart:
  make: {{pod: {{runner: first, script: "#!/bin/sh\n{script}"}}}}
postStop:
  unmake:
    undoes: make{undo}
    pod: {{runner: last, script: "#!/bin/sh\necho deleted"}}
"##
    );
    workdir.publish(&format!("{name}@1.0.0"), &plugin).await;
    workdir.create(name, &format!("resources: {{it: {{plugin: {name}@1.0.0}}}}\n")).await;
}

/// Pods that never start fail with their reasons. A script that ignores signals is killed, and its undo runs before its
/// sandbox is gone.
#[tokio::test]
async fn pods_that_never_start_and_a_script_that_ignores_signals() {
    let _lock = shared_lock().await;
    let relay = InstalledRelay::new(
        cluster().await,
        "ends",
        json!({"podStartTimeoutSeconds": 2, "schedulingTimeoutSeconds": 2}),
    )
    .await;
    let workdir = workdir_setup::with_relay(&relay);
    let dev = workdir.dev().await;
    sandbox(&workdir, "stubborn", BUSYBOX, "", "trap '' TERM; echo started; sleep 1000 & wait; sleep 1000", "").await;
    // The namespace has only this pod so far.
    let logs = ["logs", "--selector=ebb.dev/unit", "--container=main", "--namespace", &relay.units];
    until("the start of the script", async || {
        relay.cluster.run("kubectl", &logs, "").is_ok_and(|log| log.contains("started")).then_some(())
    })
    .await;
    let cases = [
        ("missing", "127.0.0.1:1/none:1", "", "imagePull", "none:1"),
        ("nowhere", BUSYBOX, ", nodeSelector: {no: such}", "unschedulable", "node"),
    ];
    for (name, image, template, ..) in cases {
        sandbox(&workdir, name, image, template, "true", "").await;
    }
    workdir.ebb(&["sandbox", "delete", "stubborn", "--wait=false"]).await.done();
    for (name, .., code, message) in cases {
        workdir.reaches(name, TargetState::Failed).await;
        for command in [&["sandbox", "get", name][..], &["why", name]] {
            let printed = workdir.ebb(command).await.stdout;
            assert!(printed.contains(code) && printed.contains(message), "{printed}");
        }
        workdir.ebb(&["sandbox", "delete", name]).await.done();
    }
    let target = workdir.reaches("stubborn", TargetState::Gone).await;
    let units = target.runs.iter().flat_map(|run| &run.units).map(|unit| (&*unit.key, unit.state));
    let expected = [("it/make", UnitState::Cancelled), ("it/unmake", UnitState::Succeeded)];
    assert_eq!(units.collect::<Vec<_>>(), expected);
    relay.wait_until_empty().await;
    dev.stop().await;
    relay.remove();
}

/// The API server is down for longer than all attempts of an undo. The target becomes stuck only when the relay has
/// confirmed that no attempt runs.
#[tokio::test]
async fn teardown_while_the_api_server_is_down() {
    let _lock = exclusive_lock().await;
    let relay = InstalledRelay::new(cluster().await, "away", json!({})).await;
    let workdir = workdir_setup::with_relay(&relay);
    let dev = workdir.dev().await;
    sandbox(&workdir, "away", BUSYBOX, "", "true", "\n    timeout: 5s").await;
    workdir.reaches("away", TargetState::Ready).await;
    xtask(&["cluster", "kill", "kube-apiserver"]);
    workdir.ebb(&["sandbox", "delete", "away", "--wait=false"]).await.done();
    let undo = async || {
        let target = workdir.get("away").await;
        let mut units = target.runs.into_iter().flat_map(|run| run.units);
        (target.info.phase, units.find(|unit| unit.key == "it/unmake"))
    };
    let started = until("the undo", async || {
        let (_, unit) = undo().await;
        unit.filter(|unit| unit.state == UnitState::Running).map(|_| Instant::now())
    })
    .await;
    until("the end of its only attempt", async || (started.elapsed() > ATTEMPT_END).then_some(())).await;
    // The attempt may still run and does not count as failed. The commands show the outage.
    assert_eq!(undo().await.0, TargetState::Stopping);
    let wait_for_output = async |arguments: &[&str], parts: &[&str]| {
        until(&format!("{parts:?} from {arguments:?}"), async || {
            let printed = workdir.ebb(arguments).await.done().stdout;
            parts.iter().all(|part| printed.contains(part)).then_some(())
        })
        .await;
    };
    let outage = "cluster default has not responded since 20";
    wait_for_output(&["sandbox", "get", "away"], &[outage, "waiting units: it/unmake", "ebb why away"]).await;
    wait_for_output(&["why", "away"], &[outage, "it/unmake", "ebb cluster list", "ebb sandbox delete away --force"])
        .await;
    wait_for_output(&["cluster", "list"], &["degraded since 20"]).await;
    xtask(&["cluster", "start", "kube-apiserver"]);
    workdir.reaches("away", TargetState::Stuck).await;
    wait_for_output(&["cluster", "list"], &["  up "]).await;
    let (_, unit) = undo().await;
    assert_eq!(json!(unit.unwrap().reason.unwrap().code), "timeout");
    let why = workdir.ebb(&["why", "away"]).await.stdout;
    assert!(why.contains("it/unmake") && why.contains("timeout") && why.contains("ebb retry"), "{why}");
    workdir.ebb(&["retry", "away"]).await.done();
    until("the end", async || {
        let phase = undo().await.0;
        if phase == TargetState::Stuck {
            // On a busy machine, a pod can take longer than five seconds.
            workdir.ebb(&["retry", "away"]).await;
        }
        (phase == TargetState::Gone).then_some(())
    })
    .await;
    relay.wait_until_empty().await;
    dev.stop().await;
    relay.remove();
}
