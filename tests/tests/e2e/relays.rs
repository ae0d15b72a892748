//! Relays outside of `ebb dev`, one with push and one with pull transport: a relay that is killed, reports of relays that do
//! not respond, and orphans of instances.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Stdio;

use ebb_protocol::api::{ClusterInfo, DeleteOrphansResponse, OrphanList, TransportKind};
use ebb_protocol::id;
use ebb_protocol::lifecycle::OutputValue;
use ebb_protocol::relay::{Batch, CallbackEndpoint, EnsureTask, ObjectTask, RelayRequest, TaskCompletion, TaskId};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use crate::platform::{SignedRequest, http, now};
use crate::prelude::*;

const PLUGIN: &str = r##"
apiVersion: ebb.dev/v1
kind: Plugin
name: word@1.0.0
runners: {shell: {image: IMAGE}}
defaults: {timeout: 2m}
preStart:
  note: {object: {manifest: {apiVersion: v1, kind: ConfigMap, metadata: {name: "note-${target.key}"}}}}
  slow:
    pod: {runner: shell, script: "#!/bin/sh -eu\nsleep 2\nmkdir -p /tmp/out\nprintf said >/tmp/out/word"}
    outputs: {word: {file: /tmp/out/word}}
outputs: {word: "${units.slow.outputs.word}"}
"##;

/// Most of it is in a cluster of its own, wherever its sandbox is.
const SPREAD: &str = r##"
apiVersion: ebb.dev/v1
kind: Plugin
name: spread@1.0.0
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

fn sandbox(name: &str, cluster: &str) -> String {
    format!(
        "apiVersion: ebb.dev/v1\nkind: Sandbox\nname: {name}\ncluster: {cluster}\nresources:\n  word: {{plugin: word@1.0.0}}\n"
    )
}

/// What kubectl prints; `None`: it fails.
fn kubectl(cluster: &TestCluster, arguments: &[&str], input: &str) -> Option<String> {
    cluster.run("kubectl", arguments, input).ok()
}

/// Returns the uid of the namespace `kube-system`.
fn uid_of(cluster: &TestCluster) -> String {
    kubectl(cluster, &["get", "namespace", "kube-system", "-o", "jsonpath={.metadata.uid}"], "").unwrap()
}

/// A relay with namespaces of its own.
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
        let mut child = Command::new(program::relay())
            .args(["--listen", &format!("0.0.0.0:{}", self.port), "--callback-hosts", "127.0.0.1"])
            .args(["--advertise-url", &format!("http://{}:{}", self.cluster.host, self.port)])
            .args(["--namespace", &format!("{}-relay", self.units), "--unit-namespace", &self.units])
            .arg("--kubeconfig")
            .arg(&self.cluster.kubeconfig)
            .arg("--policy")
            .arg(self.file("policy"))
            .arg("--secret")
            .arg(self.file("secret"))
            .args(more)
            .stdout(Stdio::piped())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let line = BufReader::new(child.stdout.take().unwrap()).lines().next_line().await.unwrap();
        assert!(line.is_some(), "{}", std::fs::read_to_string(self.file("log")).unwrap());
        self.child = Some(child);
    }

    /// `kill -9`.
    async fn kill(&mut self) {
        self.child.take().unwrap().kill().await.unwrap();
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    fn entry(&self, uid: &str) -> Value {
        json!({"secret": &**self.secret.reveal(), "uid": uid, "entrypointImage": ENTRYPOINT})
    }

    /// Its units' objects of a kind, by name.
    async fn there(&self, kind: &str) -> Vec<String> {
        let names = ["-n", &self.units, "get", kind, "-o", "jsonpath={.items[*].metadata.name}"];
        let names = kubectl(self.cluster, &names, "").unwrap();
        names.split_whitespace().filter(|name| *name != "kube-root-ca.crt").map(str::to_owned).collect()
    }

    /// The Jobs that have had a pod, also those that are gone.
    async fn jobs(&self) -> usize {
        let made = r#"-o=jsonpath={.items[?(@.reason=="SuccessfulCreate")].involvedObject.name}"#;
        let made = kubectl(self.cluster, &["-n", &self.units, "get", "events", made], "").unwrap();
        made.split_whitespace().collect::<BTreeSet<_>>().len()
    }

    /// Asks as a control plane does, at the door.
    async fn ask(&self, request: RelayRequest) {
        let batch = Batch { v: 1, cluster: uid_of(self.cluster), requests: vec![request] };
        let batch = SignedRequest::new(&self.secret, "m", now(), serde_json::to_vec(&batch).unwrap());
        let answer = batch.post(&http(), &format!("{}/v1/batch", self.url())).send().await.unwrap();
        assert_eq!(answer.status().as_u16(), 200);
    }

    async fn close(mut self) {
        self.kill().await;
        let (units, own) = (self.units.clone(), format!("{}-relay", self.units));
        kubectl(self.cluster, &["delete", "namespace", "--wait=false", &units, &own], "").unwrap();
        self.cluster.stop_enforcing(&units);
    }
}

#[tokio::test]
async fn relays_that_are_killed_gone_and_others() {
    let (_served, cluster) = (served().await, cluster().await);
    let uid = uid_of(cluster);
    let (mut inside, mut asked) = (E2eRelay::new(cluster, "inside").await, E2eRelay::new(cluster, "asked").await);
    let at = |url: &str, uid: &str| {
        let mut entry = asked.entry(uid);
        entry["url"] = url.into();
        entry
    };
    let place = Workdir::with(&["--clusters", "clusters.json"]);
    let clusters = json!({
        "inside": inside.entry(&uid),
        "asked": at(&asked.url(), &uid),
        "gone": at("http://127.0.0.1:1", &uid),
        "copy": at(&asked.url(), "uid-of-another"),
    });
    place.write("clusters.json", &clusters.to_string());
    let dev = place.dev().await;
    let poll = ["--pull-url", &*dev.url, "--cluster", "inside"];
    inside.start(&poll).await;
    asked.start(&[]).await;
    for plugin in [PLUGIN, SPREAD] {
        place.apply("plugin", &plugin.replace("IMAGE", BUSYBOX)).await;
    }
    let apply = async |name: &str, cluster: &str| {
        let file = place.write(&format!("{name}.yaml"), &sandbox(name, cluster));
        place.start(&["sandbox", "apply", "-f", &file])
    };

    // The cluster of this sandbox does not respond, and the sandbox is deleted again.
    let lost = place.write("lost.yaml", &sandbox("lost", "gone"));
    for arguments in [["apply", "-f", &lost, "--wait=false"].as_slice(), &["delete", "lost", "--wait=false"]] {
        place.ebb(&[&["sandbox"], arguments].concat()).await.done();
    }

    // The relay is killed while its Job runs, and is away when the Job ends.
    let (pulled, lives) = (apply("pulled", "inside").await, apply("lives", "asked").await);
    let spread = "apiVersion: ebb.dev/v1\nkind: Sandbox\nname: spread\ncluster: asked\nresources:\n  db: {plugin: spread@1.0.0, params: {data: inside}}\n";
    let spread = place.write("spread-sandbox.yaml", spread);
    let spread = place.start(&["sandbox", "apply", "-f", &spread]);
    until("a pod", async || (!inside.there("pods").await.is_empty()).then_some(())).await;
    inside.kill().await;
    inside.start(&poll).await;
    let ran = pulled.end().await.done();
    assert_eq!(value(&ran.stdout, "word.word"), "said", "{ran:#?}");
    lives.end().await.done();
    // A unit that names its cluster ran there, and a sensitive output is shown as a reference.
    let ran = spread.end().await.done();
    assert_eq!(value(&ran.stdout, "db.word"), "uses db-1", "{ran:#?}");
    let seen = place.get("spread").await;
    let OutputValue::Secret(password) = &seen.resources["db"].outputs["password"] else { panic!("{seen:?}") };
    assert_eq!(password.cluster.as_deref(), Some("inside"));
    assert!(inside.there("secrets").await.contains(&password.name));
    assert_eq!((inside.there("configmaps").await.len(), asked.there("configmaps").await.len()), (2, 1));
    assert_eq!((inside.jobs().await, asked.jobs().await), (3, 2));

    let listed = place.ebb(&["cluster", "list", "-o", "json"]).await.done();
    let listed: Vec<ClusterInfo> = serde_json::from_str(&listed.stdout).unwrap();
    let about = |name: &str| listed.iter().find(|cluster| cluster.name == name).unwrap();
    for (name, expected) in [("inside", TransportKind::Pull), ("asked", TransportKind::Push)] {
        let ClusterInfo { error, transport, version, .. } = about(name);
        assert_eq!((error, *transport), (&None, expected));
        assert_eq!((version.as_deref(), about(name).uid.as_deref()), (Some(env!("CARGO_PKG_VERSION")), Some(&*uid)));
        assert!(about(name).up_seconds.is_some() && about(name).tasks.is_some(), "{listed:?}");
    }
    assert!(about("gone").error.as_ref().unwrap().contains("does not respond"), "{listed:?}");
    assert!(about("copy").error.as_ref().unwrap().contains("runs in another cluster"), "{listed:?}");

    // People see what is waited for, and cannot override what may still run.
    let silence = about("gone").outage.as_ref().expect("it was asked in vain");
    let silent = format!("cluster gone has not responded since {}", silence.since);
    let seen = place.get("lost").await;
    assert_eq!(seen.info.phase, TargetState::Stopping);
    assert_eq!(seen.outage.unwrap().units, ["word/note", "word/slow"]);
    let printed = place.ebb(&["why", "lost"]).await.done().stdout;
    for part in
        [&*silent, "word/note, word/slow", "ebb cluster list", "EBB_CLUSTERS", "ebb sandbox delete lost --force"]
    {
        assert!(printed.contains(part), "{part}: {printed}");
    }
    let force_delete = ["sandbox", "delete", "lost", "--force", "--reason", "its cluster is gone"];
    assert_ne!(place.ebb(&force_delete).await.code, Some(0));

    // An instance is gone, and a task of it arrives late. A foreign object has its labels, too.
    let instance = id::instance_key("sandbox", "pulled", &place.get("pulled").await.info.uid);
    place.ebb(&["sandbox", "delete", "pulled"]).await.done();
    place.ebb(&["sandbox", "delete", "spread"]).await.done();
    // A Job is deleted after the acknowledgement of its result, for which no command waits.
    until("the end of what was there", async || {
        inside.there("configmaps,jobs,pods,secrets").await.is_empty().then_some(())
    })
    .await;
    let late = TaskId { unit: format!("{instance}-1-pre-start-7"), attempt: 1 };
    let left = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "left"}});
    let body = ObjectTask {
        instance: instance.clone(),
        apply: vec![left],
        keep: true,
        until: TaskCompletion::Ready(vec![]),
        ..ObjectTask::default()
    };
    let callback = CallbackEndpoint {
        url: format!("{}/v1/callbacks", dev.url),
        token: "t".to_owned(),
        installation: String::new(),
    };
    let request = EnsureTask { v: 1, task: late.clone(), valid_for_ms: 60_000, timeout_ms: 60_000, callback, body };
    asked.ask(RelayRequest::Ensure(Box::new(request))).await;
    let forged = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "forged", "namespace": asked.units, "labels": {
            "ebb.dev/unit": &late.unit, "ebb.dev/attempt": "1", "ebb.dev/instance": instance,
        }},
    });
    kubectl(cluster, &["apply", "-f", "-"], &forged.to_string()).unwrap();
    let names = |list: &OrphanList| -> Vec<(String, bool)> {
        list.orphans.iter().map(|orphan| (orphan.name.clone(), orphan.owned)).collect()
    };
    let expected = [("left".to_owned(), true), ("forged".to_owned(), false)];
    until("the orphans", async || {
        let list = place.ebb(&["orphans", "-o", "json"]).await.done();
        let list: OrphanList = serde_json::from_str(&list.stdout).unwrap();
        assert!(list.errors.iter().all(|error| ["gone", "copy"].contains(&&*error.cluster)), "{list:?}");
        (names(&list) == expected).then_some(())
    })
    .await;
    let unasked = place.ebb(&["orphans", "--delete"]).await;
    assert_eq!(unasked.code, Some(2), "{unasked:#?}");
    assert!(asked.there("configmaps").await.contains(&"left".to_owned()));
    let deleted = place.ebb(&["orphans", "--delete", "--yes", "-o", "json"]).await;
    let deleted: DeleteOrphansResponse = serde_json::from_str(&deleted.stdout).unwrap();
    assert_eq!(deleted.deleted.iter().map(|it| it.name.as_str()).collect::<Vec<_>>(), ["left"], "{deleted:?}");
    let there = asked.there("configmaps").await;
    assert!(there.len() == 2 && there.contains(&"forged".to_owned()), "the living one's stays: {there:?}");

    // Its result is not wanted; otherwise the record would keep its namespace.
    asked.ask(RelayRequest::Acknowledge(late)).await;
    place.ebb(&["sandbox", "delete", "lives"]).await.done();
    assert_eq!(asked.there("configmaps").await, ["forged"]);
    dev.stop().await;

    // Once the cluster is not connected any more, what waited for it ends.
    place.write("clusters.json", &json!({"inside": inside.entry(&uid)}).to_string());
    let dev = place.dev_again().await;
    place.reaches("lost", TargetState::Stuck).await;
    place.ebb(&force_delete).await.done();
    place.reaches("lost", TargetState::Gone).await;
    dev.stop().await;
    inside.close().await;
    asked.close().await;
}
