//! A relay with its own namespaces, and a control plane that receives its callbacks.

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use ebb_protocol::sign::sign;
use kube::Client;
use kube::config::Kubeconfig;
use serde::de::DeserializeOwned;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use crate::callback_receiver::CallbackReceiver;
use crate::cluster::TestCluster;
use crate::requests;
use crate::rights::{self, ApiRight, client, client_of, kubeconfig_of, rights_of, rule_for};

// Imports of most tests.
pub(crate) use std::time::{Duration, Instant};

pub(crate) use ebb_protocol::relay::{ManifestFill, ReadyRules};
pub(crate) use ebb_protocol::{
    Batch, BatchResponse, Callback, CallbackStatus, ClusterListing, EnsureTask, MessageId, ObjectTask, ReasonCode,
    RelayRequest, RelayResponse, RunningTask, TaskCompletion, TaskId, TaskNames, TaskState, Timestamp, WebhookSecret,
};
pub(crate) use k8s_openapi::api::batch::v1::Job;
pub(crate) use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, Secret};
pub(crate) use kube::ResourceExt;
pub(crate) use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
pub(crate) use serde_json::{Value, json};

pub(crate) use crate::cluster::{BUSYBOX, cluster};
pub(crate) use crate::requests::{
    ScriptJob, cancel, config_map, finalizers, name, objects, output, ready_if, removal, script, token, yaml,
};
pub(crate) use crate::wait::{WAIT_TIMEOUT, until};

pub(crate) async fn create<K>(api: &Api<K>, object: Value) -> K
where
    K: DeserializeOwned + serde::Serialize + Clone + std::fmt::Debug,
{
    api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap()
}

pub(crate) async fn merge<K>(api: &Api<K>, name: &str, fields: Value)
where
    K: DeserializeOwned + Clone + std::fmt::Debug,
{
    api.patch(name, &PatchParams::default(), &Patch::Merge(fields)).await.unwrap();
}

/// Posts a signed body to the relay at a URL. Returns `None` without a response.
pub(crate) async fn post(http: &reqwest::Client, url: &str, body: &Value, by: &WebhookSecret) -> Option<(u16, String)> {
    let body = body.to_string();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let headers = sign(by, &MessageId::parse("m1").unwrap(), Timestamp(now.as_millis() as u64), body.as_bytes());
    let mut request = http.post(format!("{url}/v1/batch")).body(body);
    for (name, value) in headers {
        request = request.header(name, value);
    }
    let response = request.send().await.ok()?;
    Some((response.status().as_u16(), response.text().await.ok()?))
}

pub(crate) async fn uid_of(client: &Client) -> String {
    let api: Api<Namespace> = Api::all(client.clone());
    api.get("kube-system").await.unwrap().metadata.uid.unwrap()
}

/// Returns a free port. A relay keeps it when it restarts, because pods have its URL.
fn free_port() -> u16 {
    std::net::TcpListener::bind("0.0.0.0:0").unwrap().local_addr().unwrap().port()
}

#[derive(Clone)]
pub(crate) struct RelayFixture {
    pub(crate) callbacks: CallbackReceiver,
    pub(crate) client: Client,
    /// The namespace of units. The records are in this name with the suffix `-relay`.
    pub(crate) units: String,
    cluster: &'static TestCluster,
    url: String,
    folder: Arc<TempDir>,
    pub(crate) port: u16,
    relay: Arc<Mutex<Option<Child>>>,
    secret: WebhookSecret,
    http: reqwest::Client,
    options: Vec<String>,
    /// The UID of the namespace `kube-system`.
    pub(crate) uid: String,
}

impl RelayFixture {
    pub(crate) async fn new(title: &str, options: &[&str]) -> Self {
        let kinds = ["Job.batch", "ConfigMap", "Deployment.apps", "Secret"];
        Self::with_policy(title, options, |units| json!({"namespaces": {units: []}, "kinds": kinds})).await
    }

    /// Starts a relay with a policy of the chart. The policy is a function of the namespace of units.
    pub(crate) async fn with_policy(title: &str, options: &[&str], policy: impl Fn(&str) -> Value) -> Self {
        let (cluster, client) = (cluster().await, client().await);
        let (callbacks, url) = CallbackReceiver::start_at("127.0.0.1").await;
        let units = format!("{title}-{:08x}", rand::random::<u32>());
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("policy.yaml"), enforce(cluster, &units, &policy(&units))).unwrap();
        rights::grant(&client, &units).await;
        let relay = kubeconfig_of(cluster, &format!("{units}-relay"), "ebb-relay");
        std::fs::write(folder.path().join("kubeconfig"), json!(relay).to_string()).unwrap();
        let relay = client_of(relay).await;
        for namespace in [&units, &format!("{units}-relay")] {
            let secrets: Api<Secret> = Api::namespaced(relay.clone(), namespace);
            until("the relay's rights", async || secrets.list(&ListParams::default()).await.ok()).await;
        }
        let secret = WebhookSecret::from_bytes(&[7; 32]).unwrap();
        std::fs::write(folder.path().join("secret"), &**secret.reveal()).unwrap();
        let port = free_port();
        let options = options.iter().map(|&option| option.to_owned()).collect();
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        let uid = uid_of(&client).await;
        let (folder, relay) = (Arc::new(folder), Arc::default());
        let fixture = Self { callbacks, client, units, cluster, url, folder, port, relay, secret, http, options, uid };
        fixture.start().await;
        fixture
    }

    /// Starts a second relay on the same namespaces, for the same control plane. Close only the first one.
    pub(crate) async fn second_relay(&self) -> Self {
        let second = Self { port: free_port(), relay: Arc::default(), ..self.clone() };
        second.start().await;
        second
    }

    pub(crate) async fn start(&self) {
        let line = self.launch().await;
        assert!(line.is_some_and(|line| line.contains("listening on ")), "{}", self.log());
    }

    /// Starts the relay. Returns its first line, or `None` if it ends.
    pub(crate) async fn launch(&self) -> Option<String> {
        let file = |name: &str| self.file(name).display().to_string();
        let log = std::fs::OpenOptions::new().create(true).append(true).open(file("log")).unwrap();
        // A release build, or the program of this build.
        let mut relay = Command::new(std::env::var_os("EBB_RELAY").unwrap_or(env!("CARGO_BIN_EXE_ebb-relay").into()))
            .args(["--listen", &format!("0.0.0.0:{}", self.port)])
            .args(["--advertise-url", &format!("http://{}:{}", self.cluster.host, self.port)])
            .args(["--kubeconfig", &file("kubeconfig")])
            .args(["--namespace", &format!("{}-relay", self.units), "--unit-namespace", &self.units])
            .args(["--policy", &file("policy.yaml"), "--secret", &file("secret")])
            .args(["--callback-hosts", "127.0.0.1", "--heartbeat-seconds", "1"])
            .args(["--api-server-request-timeout-seconds", "2"])
            .args(&self.options)
            .stdout(Stdio::piped())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(relay.stdout.take().unwrap()).lines();
        *self.relay.lock().unwrap() = Some(relay);
        lines.next_line().await.unwrap()
    }

    pub(crate) async fn kill(&self) {
        let relay = self.relay.lock().unwrap().take();
        relay.unwrap().kill().await.unwrap();
    }

    pub(crate) async fn restart(&self) {
        self.kill().await;
        self.start().await;
    }

    /// Returns the path of a file of the relay, such as `kubeconfig` and `policy.yaml`.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Replaces the policy that the relay reads when it starts.
    pub(crate) fn replace_policy(&self, text: &str) {
        std::fs::write(self.file("policy.yaml"), text).unwrap();
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.file("log")).unwrap_or_default()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.relay.lock().unwrap().as_ref().unwrap().id().unwrap()
    }

    pub(crate) fn ensure_of(&self, name: &TaskId, task: ObjectTask) -> EnsureTask<ObjectTask> {
        requests::ensure(name, &self.url, task)
    }

    pub(crate) fn request(&self, name: &TaskId, task: ObjectTask) -> RelayRequest {
        RelayRequest::Ensure(Box::new(self.ensure_of(name, task)))
    }

    pub(crate) async fn apply(&self, name: &TaskId, task: ObjectTask) -> RelayResponse {
        self.send(self.request(name, task)).await
    }

    pub(crate) async fn apply_within(&self, name: &TaskId, task: ObjectTask, timeout_ms: u64) -> RelayResponse {
        self.ensure(EnsureTask { timeout_ms, ..self.ensure_of(name, task) }).await
    }

    /// Removes the sensitive outputs of an instance.
    pub(crate) async fn release(&self, instance: &str) -> RelayResponse {
        self.send(RelayRequest::Release { instance: instance.to_owned() }).await
    }

    /// Posts a signed body to the relay. Returns `None` without a response.
    pub(crate) async fn post(&self, body: &Value, signer: &WebhookSecret) -> Option<(u16, String)> {
        post(&self.http, &format!("http://127.0.0.1:{}", self.port), body, signer).await
    }

    pub(crate) async fn send_all(&self, requests: Vec<RelayRequest>) -> Vec<RelayResponse> {
        let (status, body) = self.try_send(requests).await.expect("a response of the relay");
        assert_eq!(status, 200, "{body}");
        serde_json::from_str::<BatchResponse>(&body).unwrap().responses
    }

    /// Sends a batch. Returns the status and the body of the response, or `None` if there is none.
    pub(crate) async fn try_send(&self, requests: Vec<RelayRequest>) -> Option<(u16, String)> {
        self.post(&json!(Batch { v: 1, cluster: self.uid.clone(), requests }), &self.secret).await
    }

    pub(crate) async fn send(&self, request: RelayRequest) -> RelayResponse {
        self.send_all(vec![request]).await.remove(0)
    }

    pub(crate) async fn ensure(&self, request: EnsureTask<ObjectTask>) -> RelayResponse {
        self.send(RelayRequest::Ensure(Box::new(request))).await
    }

    /// Starts a script.
    ///
    /// # Panics
    /// If the task does not run then.
    pub(crate) async fn run(&self, name: &TaskId, script: ScriptJob) {
        let response = self.ensure(self.ensure_of(name, script.into_task(name))).await;
        assert!(matches!(response, RelayResponse::State(TaskState::Running { .. })), "{response:?}");
    }

    pub(crate) async fn state(&self, request: RelayRequest) -> TaskState {
        match self.send(request).await {
            RelayResponse::State(state) => state,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn get(&self, name: &TaskId) -> TaskState {
        self.state(RelayRequest::Get(name.clone())).await
    }

    pub(crate) async fn status(&self, name: &TaskId) -> TaskState {
        self.state(RelayRequest::Status(name.clone())).await
    }

    pub(crate) async fn wait_for_log(&self, name: &TaskId, text: &str) {
        until(&format!("{name:?} to print {text:?}\n{}", self.log()), async || match self.get(name).await {
            TaskState::Running(task) => task.log.contains(text).then_some(()),
            other => panic!("{other:?}"),
        })
        .await;
    }

    /// Waits for a part of the state of a running task, without its log.
    ///
    /// # Panics
    /// If the task does not run.
    pub(crate) async fn running<T>(&self, name: &TaskId, part: impl Fn(RunningTask) -> Option<T>) -> T {
        until(&format!("the state of {name:?}"), async || match self.status(name).await {
            TaskState::Running(task) => {
                assert_eq!(task.log, "");
                part(task)
            }
            other => panic!("{name:?}: {other:?}\n{}", self.log()),
        })
        .await
    }

    pub(crate) async fn delete(&self, name: &TaskId) {
        let is_done = async || self.send(RelayRequest::Delete(name.clone())).await == RelayResponse::Done;
        until("the deletion", async || is_done().await.then_some(())).await;
    }

    pub(crate) async fn result(&self, name: &TaskId) -> Callback {
        until(&format!("the result of {name:?}"), async || self.callbacks.accepted(&token(name)).into_iter().next())
            .await
    }

    pub(crate) async fn reason(&self, name: &TaskId) -> (ReasonCode, String) {
        let result = self.result(name).await;
        let reason = result.reason.clone().unwrap_or_else(|| panic!("the task has not failed: {result:?}"));
        (reason.code, reason.message)
    }

    /// Waits for the result of a task, which must be a failure with this code and a part of the message.
    pub(crate) async fn failure(&self, name: &TaskId, code: ReasonCode, message: &str) {
        let reason = self.reason(name).await;
        assert!(reason.0 == code && reason.1.contains(message), "{name:?}: {reason:?}, not {code:?} {message:?}");
    }

    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client.clone(), &self.units)
    }

    pub(crate) async fn relay_client(&self) -> Client {
        client_of(self.relay_account()).await
    }

    fn relay_account(&self) -> Kubeconfig {
        kubeconfig_of(self.cluster, &format!("{}-relay", self.units), "ebb-relay")
    }

    /// Grants the relay all rights to further kinds in the namespace of units, each a group and a resource.
    pub(crate) async fn grant(&self, kinds: &[(&str, &str)]) {
        let rules: Vec<_> = kinds.iter().map(|(group, resource)| rule_for(group, resource)).collect();
        rights::grant_role(&self.client, &self.units, &self.units, "more", json!(rules)).await;
        let (group, resource) = kinds[0];
        let right: ApiRight = [group, resource, "", "patch"].map(str::to_owned).into();
        until("its rights", async || rights_of(self.relay_account(), &self.units).await.contains(&right).then_some(()))
            .await;
    }

    /// Creates a namespace in which the relay has the rights of the chart, and to ConfigMaps. Its name begins with a prefix.
    pub(crate) async fn further_namespace(&self, prefix: &str) -> String {
        let name = format!("{prefix}-{}", self.units);
        create(&Api::<Namespace>::all(self.client.clone()), json!({"metadata": {"name": name}})).await;
        for (role, rules) in
            [("units", json!(rights::rights().units)), ("further", json!([rule_for("", "configmaps")]))]
        {
            rights::grant_role(&self.client, &self.units, &name, role, rules).await;
        }
        name
    }

    pub(crate) async fn apply_with_rights(&self, name: &TaskId, task: ObjectTask) {
        until("the relay's rights", async || match self.apply(name, task.clone()).await {
            RelayResponse::State(_) => Some(()),
            RelayResponse::Refused(_) => None,
            other => panic!("{other:?}"),
        })
        .await;
    }

    pub(crate) fn records(&self) -> Api<Secret> {
        Api::namespaced(self.client.clone(), &format!("{}-relay", self.units))
    }

    /// Returns the kinds and names of objects in the namespace of units.
    pub(crate) async fn names<K>(&self, selected: &ListParams) -> Vec<String>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope> + Clone + DeserializeOwned + std::fmt::Debug,
        K::DynamicType: Default,
    {
        let kind = K::kind(&Default::default()).into_owned();
        self.api::<K>().list(selected).await.unwrap().iter().map(|it| format!("{kind} {}", it.name_any())).collect()
    }

    pub(crate) async fn pod_of(&self, name: &TaskId) -> Option<Pod> {
        let own = ListParams::default().labels(&format!("ebb.dev/unit={}", name.unit));
        self.api::<Pod>().list(&own).await.unwrap().items.pop()
    }

    pub(crate) async fn record(&self, unit: &str) -> Value {
        let record = self.records().get(&format!("ebb-task.{unit}.1")).await.unwrap();
        serde_json::from_slice(&record.data.unwrap()["record"].0).unwrap()
    }

    pub(crate) async fn cancel(&self, name: &TaskId) {
        until(&format!("the tombstone of {name:?}"), async || match self.state(cancel(name)).await {
            TaskState::Tombstoned => Some(()),
            TaskState::Running { .. } => None,
            other => panic!("{other:?}"),
        })
        .await;
    }

    pub(crate) async fn wait_for_end(&self, name: &TaskId) -> Callback {
        until(&format!("the end of {name:?}"), async || match self.get(name).await {
            TaskState::Ended(result) => Some(*result),
            _ => None,
        })
        .await
    }

    pub(crate) async fn success(&self, name: &TaskId) -> Callback {
        let result = self.result(name).await;
        assert_eq!(result.status, CallbackStatus::Succeeded, "{name:?}: {result:?}\n{}", self.log());
        result
    }

    pub(crate) async fn succeed(&self, name: &TaskId, task: ObjectTask) -> Callback {
        self.apply(name, task).await;
        self.success(name).await
    }

    /// Removes the objects of units, by a task of the unit `undo-UNIT` of the first of them. Returns its result.
    pub(crate) async fn remove(&self, units: &[&str]) -> Callback {
        let undo = name(&format!("undo-{}", units[0]), 1);
        self.succeed(&undo, requests::removal(units)).await
    }

    pub(crate) async fn sensitive_output(&self, result: &Callback, output: &str) -> Vec<u8> {
        let reference = &result.secrets[output];
        self.api::<Secret>().get(&reference.name).await.unwrap().data.unwrap()[&reference.key].0.clone()
    }

    /// Returns all objects with the labels of tasks, except for tombstones.
    pub(crate) async fn remaining(&self) -> Vec<String> {
        let labelled = ListParams::default().labels("ebb.dev/unit");
        let mut remaining = [self.names::<Job>(&labelled).await, self.names::<Pod>(&labelled).await].concat();
        remaining.extend([self.names::<ConfigMap>(&labelled).await, self.names::<Secret>(&labelled).await].concat());
        for record in self.records().list(&labelled).await.unwrap() {
            let phase = record.labels().get("ebb.dev/phase").map(String::as_str);
            if phase != Some("tombstone") {
                remaining.push(format!("record {} {phase:?}", record.name_any()));
                continue;
            }
            let content: Value = serde_json::from_slice(&record.data.as_ref().unwrap()["record"].0).unwrap();
            if !content["spec"].is_null() || !record.finalizers().is_empty() {
                remaining.push(format!("a tombstone with more than a name: {content}"));
            }
        }
        remaining
    }

    /// Waits until only tombstones remain. Deletes the namespaces then.
    pub(crate) async fn close(self) {
        until("the deletion of all objects", async || self.remaining().await.is_empty().then_some(())).await;
        let api: Api<Namespace> = Api::all(self.client.clone());
        for name in [self.units.clone(), format!("{}-relay", self.units)] {
            api.delete(&name, &DeleteParams::default()).await.unwrap();
        }
        let name = format!("ebb-relay.{}-relay", self.units);
        for kind in ["validatingadmissionpolicybinding", "validatingadmissionpolicy"] {
            self.cluster.run("kubectl", &["delete", "--ignore-not-found", kind, &name], "").unwrap();
        }
    }
}

/// Applies the namespaces `UNITS` and `UNITS-relay` of the chart, and its admission policy. Returns the policy as YAML.
fn enforce(cluster: &TestCluster, units: &str, policy: &Value) -> String {
    let own = format!("{units}-relay");
    let values = json!({
        "image": "i", "unitNamespace": units, "callbackHosts": ["h"], "signing": {"existingSecret": "s"},
        "policy": policy, "createNamespaces": [units, own],
    });
    let release = format!("--namespace={own}");
    let template = |file: &str| {
        let file = format!("--show-only=templates/{file}.yaml");
        let command = ["template", "eu", "infra/relay/chart", "--kube-version=1.34", "--values=-", &release, &file];
        cluster.run("helm", &command, &values.to_string()).unwrap()
    };
    let objects = format!("{}\n{}", template("namespaces"), template("admission"));
    cluster.run("kubectl", &["apply", "--server-side", "--filename=-"], &objects).unwrap();
    let settings: Value = serde_saphyr::from_str(&template("settings")).unwrap();
    settings["data"]["policy.yaml"].as_str().expect("the chart has a policy").to_owned()
}
