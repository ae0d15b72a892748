//! Ends that take long or need an operator: a script that ignores signals, pods that never start, a cluster that is away
//! during the teardown.

use crate::prelude::*;

/// A try of five seconds, and as long as a relay may be late with its end, and a bit.
const AWAY: Duration = Duration::from_secs(5 + 15 + 3);

/// Publishes a plugin of two scripts and asks for a sandbox with it, both of this name. `template` is more of the first
/// one's pod, `undo` of the second unit.
async fn sandbox(place: &Workdir, name: &str, image: &str, template: &str, script: &str, undo: &str) {
    let plugin = format!(
        r##"apiVersion: ebb.dev/v1
kind: Plugin
name: {name}@1.0.0
runners:
  first: {{image: "{image}", podTemplate: "spec: {{securityContext: {{runAsUser: 65532}}{template}}}"}}
  last: {{image: "{BUSYBOX}", podTemplate: "spec: {{securityContext: {{runAsUser: 65532}}}}"}}
defaults: {{timeout: 1m, retry: {{attempts: 1}}}}
preStart:
  make: {{pod: {{runner: first, script: "#!/bin/sh\n{script}"}}}}
postStop:
  unmake:
    undoes: make{undo}
    pod: {{runner: last, script: "#!/bin/sh\necho taken away"}}
"##
    );
    place.apply("plugin", &plugin).await;
    let sandbox =
        format!("apiVersion: ebb.dev/v1\nkind: Sandbox\nname: {name}\nresources: {{it: {{plugin: {name}@1.0.0}}}}\n");
    let sandbox = place.write(&format!("{name}.yaml"), &sandbox);
    place.ebb(&["sandbox", "apply", "-f", &sandbox, "--wait=false"]).await.done();
}

/// Pods that never start say why, each in its own way. A script that does not listen is killed, and what it may have made
/// is taken away before its sandbox is gone.
#[tokio::test]
async fn what_never_starts_and_what_does_not_listen() {
    let _served = served().await;
    let relay = InstalledRelay::new(
        cluster().await,
        "ends",
        json!({"podStartTimeoutSeconds": 2, "schedulingTimeoutSeconds": 2}),
    )
    .await;
    let place = elsewhere::by(&relay);
    let dev = place.dev().await;
    sandbox(&place, "deaf", BUSYBOX, "", "trap '' TERM; echo begun; sleep 1000 & wait; sleep 1000", "").await;
    // Its pod is the only one so far.
    let logs = ["logs", "--selector=ebb.dev/unit", "--container=main", "--namespace", &relay.units];
    until("the script that does not listen", async || {
        relay.cluster.run("kubectl", &logs, "").is_ok_and(|log| log.contains("begun")).then_some(())
    })
    .await;
    let cases = [
        ("missing", "127.0.0.1:1/none:1", "", "imagePull", "none:1"),
        ("nowhere", BUSYBOX, ", nodeSelector: {no: such}", "unschedulable", "node"),
    ];
    for (name, image, template, ..) in cases {
        sandbox(&place, name, image, template, "true", "").await;
    }
    place.ebb(&["sandbox", "delete", "deaf", "--wait=false"]).await.done();
    for (name, .., code, said) in cases {
        place.reaches(name, TargetState::Failed).await;
        for command in [&["sandbox", "get", name][..], &["why", name]] {
            let printed = place.ebb(command).await.stdout;
            assert!(printed.contains(code) && printed.contains(said), "{printed}");
        }
        place.ebb(&["sandbox", "delete", name]).await.done();
    }
    let seen = place.reaches("deaf", TargetState::Gone).await;
    let units = seen.runs.iter().flat_map(|run| &run.units).map(|unit| (&*unit.key, unit.state));
    let expected = [("it/make", UnitState::Cancelled), ("it/unmake", UnitState::Succeeded)];
    assert_eq!(units.collect::<Vec<_>>(), expected);
    relay.nothing_left().await;
    dev.stop().await;
    relay.remove();
}

/// The API server is away for longer than all tries of what takes away may take. Once it can be known that nothing of
/// them runs, an operator has to decide.
#[tokio::test]
async fn a_cluster_that_is_away() {
    let _alone = alone().await;
    let relay = InstalledRelay::new(cluster().await, "away", json!({})).await;
    let place = elsewhere::by(&relay);
    let dev = place.dev().await;
    sandbox(&place, "away", BUSYBOX, "", "true", "\n    timeout: 5s").await;
    place.reaches("away", TargetState::Ready).await;
    xtask(&["cluster", "kill", "kube-apiserver"]);
    place.ebb(&["sandbox", "delete", "away", "--wait=false"]).await.done();
    let undo = async || {
        let seen = place.get("away").await;
        let mut units = seen.runs.into_iter().flat_map(|run| run.units);
        (seen.info.phase, units.find(|unit| unit.key == "it/unmake"))
    };
    let begun = until("the undo", async || {
        let (_, unit) = undo().await;
        unit.filter(|unit| unit.state == UnitState::Running).map(|_| Instant::now())
    })
    .await;
    until("the end of its only try", async || (begun.elapsed() > AWAY).then_some(())).await;
    // Nothing is given up that may still run, and the commands show the cause.
    assert_eq!(undo().await.0, TargetState::Stopping);
    let says = async |arguments: &[&str], parts: &[&str]| {
        until(&format!("{parts:?} from {arguments:?}"), async || {
            let printed = place.ebb(arguments).await.done().stdout;
            parts.iter().all(|part| printed.contains(part)).then_some(())
        })
        .await;
    };
    let silent = "cluster default has not responded since 20";
    says(&["sandbox", "get", "away"], &[silent, "waiting units: it/unmake", "ebb why away"]).await;
    says(&["why", "away"], &[silent, "it/unmake", "ebb cluster list", "ebb sandbox delete away --force"]).await;
    says(&["cluster", "list"], &["degraded since 20"]).await;
    xtask(&["cluster", "start", "kube-apiserver"]);
    place.reaches("away", TargetState::Stuck).await;
    says(&["cluster", "list"], &["  up "]).await;
    let (_, unit) = undo().await;
    assert_eq!(json!(unit.unwrap().reason.unwrap().code), "timeout");
    let why = place.ebb(&["why", "away"]).await.stdout;
    assert!(why.contains("it/unmake") && why.contains("timeout") && why.contains("ebb retry"), "{why}");
    place.ebb(&["retry", "away"]).await.done();
    until("the end", async || {
        let phase = undo().await.0;
        if phase == TargetState::Stuck {
            // Five seconds are little for a pod on a busy machine.
            place.ebb(&["retry", "away"]).await;
        }
        (phase == TargetState::Gone).then_some(())
    })
    .await;
    relay.nothing_left().await;
    dev.stop().await;
    relay.remove();
}
