//! Relays outside of `ebb dev` with push and pull transport: a killed relay, relays that do not respond, and orphans.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Stdio;

use ebb_protocol::api::{ClusterInfo, DeleteOrphansResponse, OrphanList, TransportKind};
use ebb_protocol::id;
use ebb_protocol::lifecycle::OutputValue;
use ebb_protocol::relay::{
    Batch, CallbackEndpoint, EnsureTask, ObjectTask, RelayRequest, TaskCompletion, TaskId, TaskNames,
};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use crate::platform::{SignedRequest, http, now};
use crate::prelude::*;

const PLUGIN: &str = r##"
runners: {shell: {image: IMAGE}}
defaults: {timeout: 2m}
preStart:
  note: {object: {manifest: {apiVersion: v1, kind: ConfigMap, metadata: {name: "note-${target.key}"}}}}
  slow:
    pod: {runner: shell, script: "#!/bin/sh -eu\nsleep 2\nmkdir -p /tmp/out\nprintf hello >/tmp/out/word"}
    outputs: {word: {file: /tmp/out/word}}
outputs: {word: "${units.slow.outputs.word}"}
"##;

/// Most units run in the cluster of a parameter, the others in the cluster of the sandbox.
const SPREAD: &str = r##"
params: {data: {type: string}}
runners: {shell: {image: IMAGE}}
defaults: {timeout: 2m}
preStart:
  note:
    cluster: ${params.data}
    object: {manifest: {apiVersion: v1, kind: ConfigMap, metadata: {name: "note-${target.key}"}}}
  make:
    cluster: ${params.data}
    pod: {script: "#!/bin/sh -eu\nmkdir /tmp/out\nprintf db-1 >/tmp/out/name\nprintf hush-hush >/tmp/out/password"}
    outputs: {name: {file: /tmp/out/name}, password: {file: /tmp/out/password, sensitive: true}}
  seed:
    cluster: ${params.data}
    pod: {script: "#!/bin/sh -eu\ntest \"$PASSWORD\" = hush-hush"}
    inputs: {password: "${units.make.outputs.password}"}
  use:
    pod: {script: "#!/bin/sh -eu\nmkdir /tmp/out\nprintf \"uses $NAME\" >/tmp/out/word"}
    inputs: {name: "${units.make.outputs.name}"}
    outputs: {word: {file: /tmp/out/word}}
postStop:
  drop:
    undoes: make
    cluster: ${params.data}
    pod: {script: "#!/bin/sh -eu\ntest \"$NAME$PASSWORD\" = db-1hush-hush"}
    inputs: {name: "${units.make.outputs.name}", password: "${units.make.outputs.password}"}
outputs: {word: "${units.use.outputs.word}", password: "${units.make.outputs.password}"}
"##;

/// The resource of most sandboxes.
const WORD: &str = "word: {plugin: word@1.0.0}";

/// Returns the output of `kubectl`, or `None` if it fails.
fn kubectl(cluster: &TestCluster, arguments: &[&str], input: &str) -> Option<String> {
    cluster.run("kubectl", arguments, input).ok()
}

/// Returns the UID of the namespace `kube-system`.
fn uid_of(cluster: &TestCluster) -> String {
    kubectl(cluster, &["get", "namespace", "kube-system", "-o", "jsonpath={.metadata.uid}"], "").unwrap()
}

/// A relay with its own namespaces.
struct E2eRelay {
    cluster: &'static TestCluster,
    units: String,
    folder: TempDir,
    secret: WebhookSecret,
    port: u16,
    child: Option<Child>,
}

impl E2eRelay {
    async fn new(cluster: &'static TestCluster, title: &str) -> Self {
        let units = format!("{title}-{:08x}", rand::random::<u32>());
        let (folder, secret) = (tempfile::tempdir().unwrap(), WebhookSecret::from_bytes(&rand::random::<[u8; 32]>()));
        let policy = json!({
            "podSecurityLevel": "baseline", "namespaces": {units.as_str(): []}, "kinds": ["Job.batch", "ConfigMap"],
        });
        let user = kubectl(cluster, &["auth", "whoami", "-o=jsonpath={.status.userInfo.username}"], "").unwrap();
        std::fs::write(folder.path().join("policy"), cluster.enforce(&units, &policy, &user)).unwrap();
        let secret = secret.unwrap();
        std::fs::write(folder.path().join("secret"), &**secret.reveal()).unwrap();
        let port = std::net::TcpListener::bind("0.0.0.0:0").unwrap().local_addr().unwrap().port();
        Self { cluster, units, folder, secret, port, child: None }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    async fn start(&mut self, more: &[&str]) {
        let log = std::fs::File::options().create(true).append(true).open(self.file("log")).unwrap();
        let mut relay = Command::new(program::relay());
        relay.args(["--listen", &format!("0.0.0.0:{}", self.port), "--callback-hosts", "127.0.0.1"]);
        relay.args(["--advertise-url", &format!("http://{}:{}", self.cluster.host, self.port)]);
        relay.args(["--namespace", &format!("{}-relay", self.units), "--unit-namespace", &self.units]);
        relay.arg("--kubeconfig").arg(&self.cluster.kubeconfig);
        relay.arg("--policy").arg(self.file("policy")).arg("--secret").arg(self.file("secret")).args(more);
        let mut child = relay.stdout(Stdio::piped()).stderr(log).kill_on_drop(true).spawn().unwrap();
        let line = BufReader::new(child.stdout.take().unwrap()).lines().next_line().await.unwrap();
        assert!(line.is_some(), "{}", std::fs::read_to_string(self.file("log")).unwrap());
        self.child = Some(child);
    }

    /// Kills the relay with SIGKILL.
    async fn kill(&mut self) {
        self.child.take().unwrap().kill().await.unwrap();
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    fn entry(&self, uid: &str) -> Value {
        json!({"secret": &**self.secret.reveal(), "uid": uid, "entrypointImage": ENTRYPOINT})
    }

    /// Returns the names of objects of a kind in the namespace of units.
    async fn object_names(&self, kind: &str) -> Vec<String> {
        let names = ["-n", &self.units, "get", kind, "-o", "jsonpath={.items[*].metadata.name}"];
        let names = kubectl(self.cluster, &names, "").unwrap();
        names.split_whitespace().filter(|name| *name != "kube-root-ca.crt").map(str::to_owned).collect()
    }

    /// Returns the number of Jobs that have created a pod, including deleted ones.
    async fn count_jobs(&self) -> usize {
        let query = r#"-o=jsonpath={.items[?(@.reason=="SuccessfulCreate")].involvedObject.name}"#;
        let names = kubectl(self.cluster, &["-n", &self.units, "get", "events", query], "").unwrap();
        names.split_whitespace().collect::<BTreeSet<_>>().len()
    }

    /// Sends a request with push transport, like a control plane.
    async fn send(&self, request: RelayRequest) {
        let batch = Batch { v: 1, cluster: uid_of(self.cluster), requests: vec![request] };
        let batch = SignedRequest::new(&self.secret, "m", now(), serde_json::to_vec(&batch).unwrap());
        let response = batch.post(&http(), &format!("{}/v1/batch", self.url())).send().await.unwrap();
        assert_eq!(response.status().as_u16(), 200);
    }

    async fn close(mut self) {
        self.kill().await;
        let (units, own) = (self.units.clone(), format!("{}-relay", self.units));
        kubectl(self.cluster, &["delete", "namespace", "--wait=false", &units, &own], "").unwrap();
        self.cluster.stop_enforcing(&units);
    }
}

#[tokio::test]
async fn crashes_outages_and_orphans_of_relays() {
    let (_lock, cluster) = (shared_lock().await, cluster().await);
    let uid = uid_of(cluster);
    let (mut pull_relay, mut push_relay) = (E2eRelay::new(cluster, "pull").await, E2eRelay::new(cluster, "push").await);
    let at = |url: &str, uid: &str| {
        let mut entry = push_relay.entry(uid);
        entry["url"] = url.into();
        entry
    };
    let workdir = Workdir::with(&["--clusters", "clusters.json"]);
    let clusters = json!({
        "pull": pull_relay.entry(&uid),
        "push": at(&push_relay.url(), &uid),
        "gone": at("http://127.0.0.1:1", &uid),
        "copy": at(&push_relay.url(), "uid-of-another"),
    });
    workdir.write("clusters.json", &clusters.to_string());
    let dev = workdir.dev().await;
    let poll = ["--pull-url", &*dev.url, "--cluster", "pull"];
    pull_relay.start(&poll).await;
    push_relay.start(&[]).await;
    for (name, rest) in [("word@1.0.0", PLUGIN), ("spread@1.0.0", SPREAD)] {
        workdir.publish(name, &rest.replace("IMAGE", BUSYBOX)).await;
    }
    let sandbox = |name: &str, cluster: &str, resource: &str| {
        workdir.write_sandbox(name, &format!("cluster: {cluster}\nresources: {{{resource}}}\n"))
    };
    let apply = |name: &str, cluster: &str, resource: &str| {
        workdir.start(&["sandbox", "apply", "-f", &sandbox(name, cluster, resource)])
    };

    // This sandbox is deleted while the relay of its cluster does not respond.
    let lost = sandbox("lost", "gone", WORD);
    for arguments in [["apply", "-f", &lost, "--wait=false"].as_slice(), &["delete", "lost", "--wait=false"]] {
        workdir.ebb(&[&["sandbox"], arguments].concat()).await.done();
    }

    // The relay is killed while its Job runs, and restarts.
    let (pulled, pushed) = (apply("pulled", "pull", WORD), apply("pushed", "push", WORD));
    let spread = apply("spread", "push", "db: {plugin: spread@1.0.0, params: {data: pull}}");
    until("a pod", async || (!pull_relay.object_names("pods").await.is_empty()).then_some(())).await;
    pull_relay.kill().await;
    pull_relay.start(&poll).await;
    let result = pulled.end().await.done();
    assert_eq!(value(&result.stdout, "word.word"), "hello", "{result:#?}");
    pushed.end().await.done();
    // A unit with a cluster ran in that cluster. A sensitive output is a reference.
    let result = spread.end().await.done();
    assert_eq!(value(&result.stdout, "db.word"), "uses db-1", "{result:#?}");
    let target = workdir.get("spread").await;
    let OutputValue::Secret(password) = &target.resources["db"].outputs["password"] else { panic!("{target:?}") };
    assert_eq!(password.cluster.as_deref(), Some("pull"));
    assert!(pull_relay.object_names("secrets").await.contains(&password.name));
    for (relay, configmaps, jobs) in [(&pull_relay, 2, 3), (&push_relay, 1, 2)] {
        let seen = (relay.object_names("configmaps").await.len(), relay.count_jobs().await);
        assert_eq!(seen, (configmaps, jobs), "{}", relay.units);
    }

    let result = workdir.ebb(&["cluster", "list", "-o", "json"]).await.done();
    let infos: Vec<ClusterInfo> = serde_json::from_str(&result.stdout).unwrap();
    let info = |name: &str| infos.iter().find(|cluster| cluster.name == name).unwrap();
    for (name, expected) in [("pull", TransportKind::Pull), ("push", TransportKind::Push)] {
        let ClusterInfo { error, transport, version, .. } = info(name);
        assert_eq!((error, *transport), (&None, expected));
        assert_eq!((version.as_deref(), info(name).uid.as_deref()), (Some(env!("CARGO_PKG_VERSION")), Some(&*uid)));
        assert!(info(name).up_seconds.is_some() && info(name).tasks.is_some(), "{infos:?}");
    }
    assert!(info("gone").error.as_ref().unwrap().contains("does not respond"), "{infos:?}");
    assert!(info("copy").error.as_ref().unwrap().contains("runs in another cluster"), "{infos:?}");

    // The commands show the outage and the waiting units. A unit that may still run cannot be overridden.
    let outage = info("gone").outage.as_ref().expect("requests to the relay failed");
    // The command shows times without `T` and milliseconds.
    let since = outage.since[.."YYYY-MM-DDTHH:MM:SS".len()].replace('T', " ");
    let message = format!("cluster gone has not responded since {since}Z");
    let target = workdir.get("lost").await;
    assert_eq!(target.info.phase, TargetState::Stopping);
    assert_eq!(target.outage.unwrap().units, ["word/note", "word/slow"]);
    let printed = workdir.ebb(&["why", "lost"]).await.done().stdout;
    for part in
        [&*message, "word/note, word/slow", "ebb cluster list", "EBB_CLUSTERS", "ebb sandbox delete lost --force"]
    {
        assert!(printed.contains(part), "{part}: {printed}");
    }
    let force_delete = ["sandbox", "delete", "lost", "--force", "--reason", "its cluster is gone"];
    assert_ne!(workdir.ebb(&force_delete).await.code, Some(0));

    // A task of an instance that is gone arrives late. A foreign object has the labels of the task, too.
    let instance = id::instance_key("sandbox", "pulled", &workdir.get("pulled").await.info.uid);
    workdir.ebb(&["sandbox", "delete", "pulled"]).await.done();
    workdir.ebb(&["sandbox", "delete", "spread"]).await.done();
    // The relay deletes a Job after the acknowledgement of its result. No command waits for this.
    until("the deletion of all objects", async || {
        pull_relay.object_names("configmaps,jobs,pods,secrets").await.is_empty().then_some(())
    })
    .await;
    let late = TaskId { unit: format!("{instance}-1-pre-start-7"), attempt: 1 };
    let orphan = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "orphan"}});
    let body = ObjectTask {
        instance: instance.clone(),
        apply: vec![orphan],
        keep: true,
        until: TaskCompletion::Ready(vec![]),
        ..ObjectTask::default()
    };
    let callback = CallbackEndpoint {
        url: format!("{}/v1/callbacks", dev.url),
        token: "t".to_owned(),
        installation: String::new(),
        takes_objects: false,
    };
    let names = TaskNames::default();
    let request =
        EnsureTask { v: 1, task: late.clone(), valid_for_ms: 60_000, timeout_ms: 60_000, callback, names, body };
    push_relay.send(RelayRequest::Ensure(Box::new(request))).await;
    let forged = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "forged", "namespace": push_relay.units, "labels": {
            "ebb.dev/unit": &late.unit, "ebb.dev/attempt": "1", "ebb.dev/instance": instance,
        }},
    });
    kubectl(cluster, &["apply", "-f", "-"], &forged.to_string()).unwrap();
    let names = |list: &OrphanList| -> Vec<(String, bool)> {
        list.orphans.iter().map(|orphan| (orphan.name.clone(), orphan.owned)).collect()
    };
    let expected = [("orphan".to_owned(), true), ("forged".to_owned(), false)];
    until("the orphans", async || {
        let list = workdir.ebb(&["orphans", "-o", "json"]).await.ends_with(1, "Not checked in gone");
        let list: OrphanList = serde_json::from_str(&list.stdout).unwrap();
        assert!(list.errors.iter().all(|error| ["gone", "copy"].contains(&&*error.cluster)), "{list:?}");
        (names(&list) == expected).then_some(())
    })
    .await;
    let unconfirmed = workdir.ebb(&["orphans", "--delete"]).await;
    assert_eq!(unconfirmed.code, Some(2), "{unconfirmed:#?}");
    assert!(push_relay.object_names("configmaps").await.contains(&"orphan".to_owned()));
    let deleted = workdir.ebb(&["orphans", "--delete", "--yes", "-o", "json"]).await;
    let deleted: DeleteOrphansResponse = serde_json::from_str(&deleted.stdout).unwrap();
    assert_eq!(deleted.deleted.iter().map(|it| it.name.as_str()).collect::<Vec<_>>(), ["orphan"], "{deleted:?}");
    let remaining = push_relay.object_names("configmaps").await;
    assert!(
        remaining.len() == 2 && remaining.contains(&"forged".to_owned()),
        "objects of the running sandbox remain: {remaining:?}"
    );

    // Acknowledges the result. Without this, the record would block the deletion of its namespace.
    push_relay.send(RelayRequest::Acknowledge(late)).await;
    workdir.ebb(&["sandbox", "delete", "pushed"]).await.done();
    assert_eq!(push_relay.object_names("configmaps").await, ["forged"]);
    dev.stop().await;

    // Units that wait for a cluster end when it is removed from the configuration.
    workdir.write("clusters.json", &json!({"pull": pull_relay.entry(&uid)}).to_string());
    let dev = workdir.dev_again().await;
    workdir.reaches("lost", TargetState::Stuck).await;
    workdir.ebb(&force_delete).await.done();
    workdir.reaches("lost", TargetState::Gone).await;
    dev.stop().await;
    pull_relay.close().await;
    push_relay.close().await;
}
