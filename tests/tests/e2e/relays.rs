//! Installed relays with push and pull transport: units in several clusters, a killed relay, and a cluster without a relay.

use ebb_protocol::{ClusterInfo, OutputValue, TransportKind};

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

    for name in ["pulled", "spread"] {
        workdir.ebb(&["delete", "sandbox", name]).await.done();
    }
    pull_relay.wait_until_empty().await;
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
