//! The relay as its chart installs it: in a pod, with the chart's rights and the Pod Security Standard `restricted`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Once;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::rbac::v1::ClusterRole;
use serde::Deserialize;

use crate::callback_receiver::CallbackReceiver;
use crate::cluster::{RELAY, TestCluster, relay_image};
use crate::fixture::*;
use crate::rights::{client, kubeconfig_of};
use crate::{requests, rights};

pub(crate) struct TestNamespaces {
    pub(crate) client: kube::Client,
    pub(crate) units: String,
    pub(crate) relay: String,
}

impl TestNamespaces {
    async fn new(title: &str) -> Self {
        let (client, units) = (client().await, format!("{title}-{:08x}", rand::random::<u32>()));
        let relay = format!("{units}-relay");
        for name in [&units, &relay] {
            let labels = json!({"pod-security.kubernetes.io/enforce": "restricted"});
            let api: Api<Namespace> = Api::all(client.clone());
            create(&api, json!({"metadata": {"name": name, "labels": labels}})).await;
        }
        Self { client, units, relay }
    }

    pub(crate) async fn close(self) {
        let api: Api<Namespace> = Api::all(self.client.clone());
        for name in [&self.units, &self.relay] {
            api.delete(name, &DeleteParams::default()).await.unwrap();
        }
    }
}

/// Returns the values of a relay whose units are in the namespace `units`, and others instead of these.
fn values(units: &str, others: &Value) -> Value {
    let mut values = json!({
        "image": RELAY, "unitNamespace": units, "callbackHosts": ["ebb.example"], "signing": {"existingSecret": "s"},
    });
    values.as_object_mut().unwrap().extend(others.as_object().unwrap().clone());
    values
}

/// The table of values, each used as the other ones of [`values`].
#[derive(Deserialize)]
struct ChartValues {
    everything: Value,
    registering: Value,
    /// Each with a part of the message.
    wrong: Vec<(Value, String)>,
    /// Keys, each with a value and a part of the message.
    foreign: Vec<(String, Value, String)>,
}

fn chart_values(units: &str, relay: &str) -> ChartValues {
    let table = include_str!("installed/values.yaml").replace("UNITS", units).replace("OWN", relay);
    serde_saphyr::from_str(&table).unwrap()
}

/// Renders the chart. Returns the message of Helm if the chart rejects the values.
async fn template(units: &str, relay: &str, others: &Value) -> Result<String, String> {
    let arguments = ["template", "eu", "infra/relay/chart", "--kube-version=1.34", "--values=-", "--namespace", relay];
    cluster().await.run("helm", &arguments, &values(units, others).to_string())
}

/// Checks that a rendered chart has the parts that the table lists.
fn check_rendered(given: &str, text: &str) {
    let parts: BTreeMap<String, Vec<String>> = serde_saphyr::from_str(include_str!("installed/rendered.yaml")).unwrap();
    for part in &parts[given] {
        assert!(text.contains(part), "{part}\n{text}");
    }
}

/// The API server accepts everything that the chart can render.
#[tokio::test(flavor = "multi_thread")]
async fn rendered_manifests_are_valid() {
    let (cluster, namespaces) = (cluster().await, TestNamespaces::new("render").await);
    let ChartValues { everything, registering, .. } = chart_values(&namespaces.units, &namespaces.relay);
    for (given, others) in [("plain", json!({})), ("everything", everything), ("registering", registering)] {
        let text = template(&namespaces.units, &namespaces.relay, &others).await.unwrap();
        check_rendered(given, &text);
        cluster.run("kubectl", &["apply", "--dry-run=server", "--filename=-"], &text).unwrap();
        for broad in ["\"*\"", "- '*'", "cluster-admin", "- escalate", "- impersonate"] {
            assert!(!text.contains(broad), "{broad}\n{text}");
        }
    }
    namespaces.close().await;
}

/// The chart sets every variable of the relay, except for that of the kubeconfig, which a pod does not need. The profile of
/// Signadot has its namespace and kinds, and wrong values are refused.
#[tokio::test(flavor = "multi_thread")]
async fn values_of_the_chart() {
    let ChartValues { everything, registering, wrong, .. } = chart_values("units", "relay");
    let mut rendered = template("units", "relay", &everything).await.unwrap();
    rendered += &template("units", "relay", &registering).await.unwrap();
    let help = std::process::Command::new(env!("CARGO_BIN_EXE_ebb-relay")).arg("--help").output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    // The terminal width decides where the text is wrapped.
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    let settings = help.split("[env: ").skip(1).filter_map(|rest| rest.split(['=', ']']).next());
    let missing: Vec<_> = settings.filter(|name| !rendered.contains(&format!("{{name: {name}, "))).collect();
    assert_eq!(missing, ["EBB_RELAY_KUBECONFIG"]);
    // The namespace of the profile does not exist, so the API server would refuse the role in it.
    check_rendered("signadot", &template("units", "relay", &json!({"profile": "signadot"})).await.unwrap());
    for (wrong, message) in wrong {
        let error = template("units", "relay", &wrong).await.unwrap_err();
        assert!(error.contains(&message), "{wrong}: {error}");
    }
}

/// Helm takes over what `kubectl apply` made of the chart. It refuses to replace the relay of another cluster or installation,
/// and to need a namespace that does not exist.
#[tokio::test(flavor = "multi_thread")]
async fn a_release_takes_over_its_own_relay_only() {
    let (cluster, namespaces) = (cluster().await, TestNamespaces::new("take").await);
    let TestNamespaces { units, relay, .. } = &namespaces;
    let pull = json!({"cluster": "eu", "url": "https://ebb.example"});
    let mut values = values(units, &json!({"createNamespaces": [units, relay], "pull": pull}));
    let helm = |command: &[&str], values: &Value| {
        let arguments = [command, &["ebb-relay", "infra/relay/chart", "--values=-", "--namespace", relay]].concat();
        cluster.run("helm", &arguments, &values.to_string())
    };
    let manifests = helm(&["template", "--kube-version=1.34"], &values).unwrap();
    cluster.run("kubectl", &["apply", "--filename=-"], &manifests).unwrap();
    values["policy"] = json!({"namespaces": {units: {"level": "baseline"}}});
    let upgrade = ["upgrade", "--install", "--take-ownership"];
    helm(&upgrade, &values).unwrap();
    let read = ["get", "configmap", "ebb-relay", "-o=jsonpath={.data}", "--namespace", relay];
    let policy = cluster.run("kubectl", &read, "").unwrap();
    assert!(policy.contains("level: baseline"), "{policy}");
    for (key, value, expected) in chart_values(units, relay).foreign {
        let mut other = values.clone();
        other[key] = value;
        for command in [&upgrade[..], &["upgrade", "--dry-run=server"]] {
            let error = helm(command, &other).unwrap_err();
            assert!(error.contains(&expected), "{error}");
        }
    }
    cluster.run("helm", &["uninstall", "ebb-relay", "--namespace", relay], "").unwrap();
    namespaces.close().await;
}

/// The relays of a release, and the control plane that receives their callbacks.
pub(crate) struct InstalledRelay {
    pub(crate) cluster: &'static TestCluster,
    pub(crate) namespaces: TestNamespaces,
    pub(crate) callbacks: CallbackReceiver,
    callback_url: String,
    secret: WebhookSecret,
    http: reqwest::Client,
    uid: String,
}

impl InstalledRelay {
    /// Installs the chart with values instead of those of [`values`].
    pub(crate) async fn new(title: &str, others: &Value) -> Self {
        static IMAGE: Once = Once::new();
        let (cluster, namespaces) = (cluster().await, TestNamespaces::new(title).await);
        IMAGE.call_once(|| relay_image(Path::new(env!("CARGO_BIN_EXE_ebb-relay")), RELAY));
        let TestNamespaces { client, units, relay } = &namespaces;
        let (callbacks, callback_url) = CallbackReceiver::start_at(&cluster.host).await;
        let host = callback_url.strip_prefix("http://").and_then(|rest| rest.split_once('/')).unwrap().0;
        let secret = WebhookSecret::from_bytes(&[7; 32]).unwrap();
        let mut values = values(units, others);
        (values["callbackHosts"], values["signing"]) = (json!([host]), json!({"secret": **secret.reveal()}));
        let install =
            ["install", "ebb", "infra/relay/chart", "--values=-", "--wait", "--timeout=150s", "--namespace", relay];
        cluster.run("helm", &install, &values.to_string()).unwrap_or_else(|error| {
            panic!("{error}\n{:?}", cluster.run("kubectl", &["logs", "deployment/ebb-relay", "-n", relay], ""))
        });
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        let uid = crate::fixture::uid_of(client).await;
        Self { cluster, namespaces, callbacks, callback_url, secret, http, uid }
    }

    async fn service(&self, name: &str, port: u16) -> String {
        let api: Api<Service> = Api::namespaced(self.namespaces.client.clone(), &self.namespaces.relay);
        let address = api.get(name).await.unwrap().spec.unwrap().cluster_ip.unwrap();
        format!("http://{address}:{port}")
    }

    /// Sends a start, until there is a response: kube-proxy needs a moment until it routes to a pod.
    pub(crate) async fn ensure(&self, unit: &str, task: ObjectTask) -> RelayResponse {
        let batches = self.service("ebb-relay", 8080).await;
        let request = RelayRequest::Ensure(Box::new(requests::ensure(&name(unit, 1), &self.callback_url, task)));
        let batch = json!(Batch { v: 1, cluster: self.uid.clone(), requests: vec![request] });
        let (status, body) = until("the relay", async || post(&self.http, &batches, &batch, &self.secret).await).await;
        assert_eq!(status, 200, "{body}");
        serde_json::from_str::<BatchResponse>(&body).unwrap().responses.remove(0)
    }

    async fn result(&self, unit: &str) -> Callback {
        let logs = ["logs", "deployment/ebb-relay", "-n", &self.namespaces.relay];
        let event = format!("the result of {unit}\n{:?}", self.cluster.run("kubectl", &logs, ""));
        until(&event, async || self.callbacks.accepted(&token(&name(unit, 1))).into_iter().next()).await
    }
}

/// An installed relay has exactly the rights of the chart, and applies objects of a kind once a role grants it. The
/// end-to-end tests run scripts with these rights.
#[tokio::test(flavor = "multi_thread")]
async fn an_installed_relay_runs_tasks_with_the_rights_of_the_chart() {
    let relay = InstalledRelay::new("chart", &json!({"policy": {"kinds": ["Job.batch", "ConfigMap"]}})).await;
    let InstalledRelay { cluster, namespaces: TestNamespaces { client, units, relay: own }, http, .. } = &relay;

    // The account has the rights of the chart's file, and no others in any namespace.
    let relay_kubeconfig = || kubeconfig_of(cluster, own, "ebb-relay");
    let expected = rights::rights();
    let mut anywhere = rights::expand(&expected.cluster);
    let of_units = rights::expand(&expected.namespaces).into_iter();
    anywhere.extend(of_units.map(|(group, resource, _, verb)| (group, resource, units.clone(), verb)));
    for (namespace, rules) in [(own.as_str(), &expected.own), (units, &expected.units), ("default", &vec![])] {
        let default_rights = rights::rights_of(kubeconfig_of(cluster, "default", "default"), namespace).await;
        let own: BTreeSet<_> =
            rights::rights_of(relay_kubeconfig(), namespace).await.difference(&default_rights).cloned().collect();
        let rules: BTreeSet<_> = rights::expand(rules).union(&anywhere).cloned().collect();
        assert_eq!(own, rules.difference(&default_rights).cloned().collect(), "{namespace}");
    }

    let reports = relay.service("ebb-relay-reports", 8081).await;
    // The port of reports does not accept batches. Pods reach only this port.
    assert_eq!(http.post(format!("{reports}/v1/batch")).send().await.unwrap().status(), 404);

    // The policy allows the kind, and the account has no right to it yet.
    let task = ObjectTask { instance: "instance-2".to_owned(), ..objects(vec![config_map("map")]) };
    let RelayResponse::Refused(message) = relay.ensure("map", task.clone()).await else {
        panic!("the task was accepted without the right")
    };
    let account = format!("User \"system:serviceaccount:{own}:ebb-relay\" cannot get resource \"configmaps\"");
    assert!(message.starts_with("the relay has no right to ") && message.contains(&account), "{message}");
    assert!(message.ends_with(": ebb cluster connect NAME --apply --kind ConfigMap"), "{message}");
    let label = json!({"ebb.dev/aggregate-to-relay": "true"});
    let grant = json!({"metadata": {"name": own, "labels": label}, "rules": [rights::rule_for("", "configmaps")]});
    let roles: Api<ClusterRole> = Api::all(client.clone());
    create(&roles, grant).await;
    let accepted = until("the grant", async || match relay.ensure("map", task.clone()).await {
        RelayResponse::Refused(_) => None,
        other => Some(other),
    });
    assert!(matches!(accepted.await, RelayResponse::State(_)));
    assert_eq!(relay.result("map").await.status, CallbackStatus::Succeeded);
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), units);
    until("the deletion of the ConfigMap", async || maps.get_opt("map").await.unwrap().is_none().then_some(())).await;
    let elsewhere = rights::rights_of(relay_kubeconfig(), "default").await;
    assert!(!elsewhere.iter().any(|(_, resource, ..)| resource == "configmaps"), "{elsewhere:?}");
    roles.delete(own, &DeleteParams::default()).await.unwrap();

    cluster.run("helm", &["uninstall", "ebb", "--wait", "--namespace", own], "").unwrap();
    for role in roles.list(&ListParams::default()).await.unwrap() {
        assert!(!role.metadata.name.unwrap().contains(own.as_str()));
    }
    relay.namespaces.close().await;
}
