//! Installed relays with push and pull transport: units in several clusters, a killed relay, a cluster without a relay, and
//! orphans.

use ebb_protocol::api::{ClusterInfo, DeleteOrphansResponse, OrphanList, TransportKind};
use ebb_protocol::id;
use ebb_protocol::lifecycle::OutputValue;
use ebb_protocol::relay::{
    Batch, CallbackEndpoint, EnsureTask, ObjectTask, RelayRequest, TaskCompletion, TaskId, TaskNames,
};

use crate::platform::{SignedRequest, http, now};
use crate::prelude::*;

const PLUGIN: &str = include_str!("documents/word.yaml");

/// Most units run in the cluster of a parameter, the others in the cluster of the sandbox.
const SPREAD: &str = include_str!("documents/spread.yaml");

/// The resource of most sandboxes.
const WORD: &str = "word: {plugin: word@1.0.0}";

/// Returns the names of objects of a kind in the namespace of units.
fn names(relay: &InstalledRelay, kind: &str) -> Vec<String> {
    let items = list(relay.cluster, &relay.units, kind).unwrap().into_iter();
    let names = items.map(|item| item["metadata"]["name"].as_str().unwrap().to_owned());
    names.filter(|name| name != "kube-root-ca.crt").collect()
}

/// Sends a request with push transport, like a control plane with this entry of the cluster.
async fn send(entry: &Value, request: RelayRequest) {
    let text = |key: &str| entry[key].as_str().unwrap();
    let batch = Batch { v: 1, cluster: text("uid").to_owned(), requests: vec![request] };
    let secret = WebhookSecret::parse(text("secret")).unwrap();
    let batch = SignedRequest::new(&secret, "m", now(), serde_json::to_vec(&batch).unwrap());
    let response = batch.post(&http(), &format!("{}/v1/batch", text("url"))).send().await.unwrap();
    assert_eq!(response.status().as_u16(), 200);
}

/// A task of an instance that is gone arrives late. Its object is listed, and deleted when a person confirms it.
async fn one_orphan_is_deleted(
    workdir: &Workdir,
    (push, relay): (&Value, &InstalledRelay),
    url: String,
    instance: String,
) {
    let task = TaskId { unit: format!("{instance}-1-pre-start-7"), attempt: 1 };
    let manifest = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "orphan"}});
    let until_ready = TaskCompletion::Ready(vec![]);
    let body = ObjectTask { instance, apply: vec![manifest], keep: true, until: until_ready, ..ObjectTask::default() };
    let callback = CallbackEndpoint { url, token: "t".to_owned(), installation: String::new() };
    let (late, names_of_task) = (task.clone(), TaskNames::default());
    let (valid_for_ms, timeout_ms) = (60_000, 60_000);
    let ensure = EnsureTask { v: 1, task, valid_for_ms, timeout_ms, callback, names: names_of_task, body };
    send(push, RelayRequest::Ensure(Box::new(ensure))).await;
    until("the orphan", async || {
        let orphans: OrphanList =
            workdir.ebb(&["orphans", "-o", "json"]).await.ends_with(1, "Not checked in gone").json();
        assert!(orphans.errors.iter().all(|error| ["gone", "copy"].contains(&&*error.cluster)), "{orphans:?}");
        let [orphan] = &orphans.orphans[..] else { return None };
        (orphan.name == "orphan" && orphan.owned).then_some(())
    })
    .await;
    assert_eq!(workdir.ebb(&["orphans", "--delete"]).await.code, Some(2), "a person has to confirm");
    assert!(names(relay, "configmaps").contains(&"orphan".to_owned()));
    let deleted: DeleteOrphansResponse =
        workdir.ebb(&["orphans", "--delete", "--yes", "-o", "json"]).await.done().json();
    assert_eq!(deleted.deleted.iter().map(|it| it.name.as_str()).collect::<Vec<_>>(), ["orphan"], "{deleted:?}");
    assert_eq!(names(relay, "configmaps").len(), 1, "objects of the running sandbox remain");
    // Acknowledges the result. Without this, the record would block the deletion of its namespace.
    send(push, RelayRequest::Acknowledge(late)).await;
}

#[tokio::test]
async fn relays_with_push_and_pull() {
    let (_lock, cluster) = (shared_lock().await, cluster().await);
    let granted = json!({"grantedKinds": {"ConfigMap": "configmaps"}});
    let push_relay = InstalledRelay::new(cluster, "push", granted.clone()).await;
    let (mut clusters, network) = push_relay.clusters();
    let push = clusters["default"].take();
    let (mut pull, mut gone, mut copy) = (push.clone(), push.clone(), push.clone());
    pull.as_object_mut().unwrap().remove("url");
    (gone["url"], copy["uid"]) = ("http://127.0.0.1:1".into(), "uid-of-another".into());
    let clusters = json!({"pull": pull, "push": push, "gone": gone, "copy": copy});
    let workdir =
        Workdir::with(&["--clusters", "clusters.json"]).and(&["--relay-networks", &network, "--listen", &cluster.host]);
    workdir.write("clusters.json", &clusters.to_string());
    let dev = workdir.dev().await;
    let mut values = granted;
    values["signing"] = json!({"secret": pull["secret"]});
    values["pull"] = json!({"url": dev.url, "cluster": "pull"});
    let pull_relay = InstalledRelay::new(cluster, "pull", values).await;
    for (name, rest) in [("word@1.0.0", PLUGIN), ("spread@1.0.0", SPREAD)] {
        workdir.publish(name, &rest.replace("IMAGE", BUSYBOX)).await;
    }
    let apply = |name: &str, cluster: &str, resource: &str| {
        let file = workdir.write_sandbox(name, &format!("cluster: {cluster}\nresources: {{{resource}}}\n"));
        workdir.start(&["apply", "-f", &file])
    };

    // This sandbox is deleted while the relay of its cluster does not respond.
    workdir.create("lost", &format!("cluster: gone\nresources: {{{WORD}}}\n")).await;
    workdir.ebb(&["delete", "sandbox", "lost", "--wait=false"]).await.done();

    // The relay is killed while its Job runs, and starts again.
    let (pulled, pushed) = (apply("pulled", "pull", WORD), apply("pushed", "push", WORD));
    let spread = apply("spread", "push", "db: {plugin: spread@1.0.0, params: {data: pull}}");
    until("a pod", async || (!names(&pull_relay, "pods").is_empty()).then_some(())).await;
    let kill = ["delete", "pods", "--all", "--force", "--grace-period=0", "--namespace", &pull_relay.own];
    cluster.run("kubectl", &kill, "").unwrap();
    let result = pulled.end().await.done();
    assert_eq!(value(&result.stdout, "word.word"), "hello", "{result:#?}");
    pushed.end().await.done();
    // A unit with a cluster ran in that cluster. A sensitive output is a reference.
    let result = spread.end().await.done();
    assert_eq!(value(&result.stdout, "db.word"), "uses db-1", "{result:#?}");
    let target = workdir.get("spread").await;
    let OutputValue::Secret(password) = &target.resources["db"].outputs["password"] else { panic!("{target:?}") };
    assert_eq!(password.cluster.as_deref(), Some("pull"));
    assert!(names(&pull_relay, "secrets").contains(&password.name));
    for (relay, configmaps) in [(&pull_relay, 2), (&push_relay, 1)] {
        assert_eq!(names(relay, "configmaps").len(), configmaps, "{}", relay.units);
    }

    let infos: Vec<ClusterInfo> = workdir.ebb(&["cluster", "list", "-o", "json"]).await.done().json();
    let info = |name: &str| infos.iter().find(|cluster| cluster.name == name).unwrap();
    for (name, expected) in [("pull", TransportKind::Pull), ("push", TransportKind::Push)] {
        let ClusterInfo { error, transport, version, .. } = info(name);
        assert_eq!((error, *transport), (&None, expected));
        assert_eq!(version.as_deref(), Some(env!("CARGO_PKG_VERSION")));
        assert!(info(name).up_seconds.is_some() && info(name).tasks.is_some(), "{infos:?}");
    }
    for (name, message) in [("gone", "does not respond"), ("copy", "runs in another cluster")] {
        assert!(info(name).error.as_ref().unwrap().contains(message), "{infos:?}");
    }

    // The commands show the outage and the waiting units. A unit that may still run cannot be overridden.
    let printed = workdir.ebb(&["why", "lost"]).await.done().stdout;
    for part in ["cluster gone has not responded since 20", "word/note, word/slow", "ebb delete sandbox lost --force"] {
        assert!(printed.contains(part), "{part}: {printed}");
    }
    let force_delete = ["delete", "sandbox", "lost", "--force", "--reason", "its cluster is gone"];
    assert_ne!(workdir.ebb(&force_delete).await.code, Some(0));

    let instance = id::instance_key("sandbox", "pulled", &workdir.get("pulled").await.info.uid);
    for name in ["pulled", "spread"] {
        workdir.ebb(&["delete", "sandbox", name]).await.done();
    }
    pull_relay.wait_until_empty().await;
    one_orphan_is_deleted(&workdir, (&push, &push_relay), format!("{}/v1/callbacks", dev.url), instance).await;
    workdir.ebb(&["delete", "sandbox", "pushed"]).await.done();
    push_relay.wait_until_empty().await;
    dev.stop().await;

    // Units that wait for a cluster end when it is removed from the configuration.
    workdir.write("clusters.json", &json!({"pull": pull}).to_string());
    let dev = workdir.dev_again().await;
    workdir.reaches("lost", TargetPhase::Stuck).await;
    workdir.ebb(&force_delete).await.done();
    workdir.reaches("lost", TargetPhase::Gone).await;
    dev.stop().await;
    pull_relay.remove();
    push_relay.remove();
}
