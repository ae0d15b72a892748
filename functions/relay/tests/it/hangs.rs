//! What never answers: the API server, and a webhook that it asks.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use ebb_protocol::relay::Batch;
use ebb_relay_core::{Relay, RelaySettings};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::client::{client_of, kubeconfig_of};
use crate::fixture::*;

/// Who asks waits no longer.
const ASKER: Duration = Duration::from_secs(15);

/// Before a connection is given up by the client that makes it.
const CLIENT: Duration = Duration::from_secs(20);

/// A task with one map of its own name.
fn work(unit: &TaskId, rule: &str) -> ObjectTask {
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": unit.unit}, "data": {"done": "no"}});
    ObjectTask { until: ready_if(rule), ..objects(vec![map]) }
}

fn too_long(answer: &RelayResponse) -> bool {
    matches!(answer, RelayResponse::Unavailable(why) if why.contains("did not respond in time"))
}

/// Stands before the API server. Whatever is asked while it is shut is never answered, and nothing after it on the same
/// connection.
#[derive(Default)]
struct ApiGate {
    shut: AtomicBool,
    forgotten: AtomicUsize,
}

impl ApiGate {
    /// Its address.
    async fn open(self: Arc<Self>, server: SocketAddr) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let gate = self.clone();
                tokio::spawn(async move {
                    let (mut near, mut far) =
                        (near.into_split(), TcpStream::connect(server).await.unwrap().into_split());
                    let back = tokio::spawn(async move { tokio::io::copy(&mut far.0, &mut near.1).await });
                    let mut buffer = vec![0; 64 << 10];
                    while let Ok(count @ 1..) = near.0.read(&mut buffer).await {
                        if gate.shut.load(SeqCst) {
                            gate.forgotten.fetch_add(1, SeqCst);
                            return std::future::pending().await;
                        }
                        far.1.write_all(&buffer[..count]).await.unwrap();
                    }
                    back.abort();
                });
            }
        });
        address
    }
}

/// Opens a relay of the fixture that reaches the API server through a gate.
async fn behind_gate(fixture: &RelayFixture) -> (Relay, Arc<ApiGate>) {
    let (records, units) = (format!("{}-relay", fixture.units), &*fixture.units);
    let mut reach = kubeconfig_of(cluster().await, &records, "ebb-relay");
    let server = reach.clusters[0].cluster.as_mut().unwrap().server.as_mut().unwrap();
    let gate = Arc::new(ApiGate::default());
    let address = gate.clone().open(server.strip_prefix("https://").unwrap().parse().unwrap()).await;
    *server = format!("https://{address}");
    let policy = json!({"namespaces": {units: []}, "kinds": ["ConfigMap"]});
    let settings = RelaySettings {
        policy: serde_json::from_value(policy).unwrap(),
        callback_hosts: ["127.0.0.1".to_owned()].into(),
        api_server_request_timeout: Duration::from_secs(2),
        step_timeout: Duration::from_secs(2),
        ..RelaySettings::new(&records, units, "http://127.0.0.1:1")
    };
    let relay = Relay::open(client_of(reach).await, settings).await.unwrap();
    (relay, gate)
}

/// A step ends, releases its slot and is repeated. The response to a request is that it must be repeated.
#[tokio::test(flavor = "multi_thread")]
async fn an_api_server() {
    let fixture = RelayFixture::new("forgets", &[]).await;
    fixture.kill().await;
    let (relay, gate) = behind_gate(&fixture).await;
    let ask = async |requests: Vec<RelayRequest>| {
        let begun = Instant::now();
        let batch = Batch { v: 1, cluster: fixture.uid.clone(), requests };
        let answers = relay.batch(batch, Duration::ZERO).await.unwrap().responses;
        assert!(begun.elapsed() < ASKER, "{:?}", begun.elapsed());
        answers
    };
    let [waits, ends, comes] = ["waits", "ends", "comes"].map(|unit| name(unit, 1));
    let ensure = |unit: &TaskId, rule| fixture.request(unit, work(unit, rule));
    let waiting = || ensure(&waits, "object.data.done == 'yes'");
    let answers = ask(vec![waiting(), ensure(&ends, "false")]).await;
    assert!(answers.iter().all(|it| matches!(it, RelayResponse::State(TaskState::Running { .. }))), "{answers:?}");
    gate.shut.store(true, SeqCst);
    let answers = ask(vec![waiting(), cancel(&ends), ensure(&comes, "true")]).await;
    assert!(answers.iter().all(too_long), "{answers:?}");
    // Now their steps hang.
    let before = gate.forgotten.load(SeqCst);
    until("the steps", async || (gate.forgotten.load(SeqCst) >= before + 3).then_some(())).await;
    merge(&fixture.api::<ConfigMap>(), "waits", json!({"data": {"done": "yes"}})).await;
    gate.shut.store(false, SeqCst);
    let begun = Instant::now();
    fixture.succeeds(&waits).await;
    // The client of the API server has a limit of its own for connections, 30 s.
    assert!(begun.elapsed() < CLIENT, "{:?}", begun.elapsed());
    for (request, unit) in [(cancel(&ends), &ends), (ensure(&comes, "true"), &comes)] {
        until(&unit.unit, async || match ask(vec![request.clone()]).await.remove(0) {
            RelayResponse::State(TaskState::Running { .. }) if unit.unit == "ends" => None,
            RelayResponse::State(state) => Some(state),
            RelayResponse::Unavailable(_) => None,
            other => panic!("{other:?}"),
        })
        .await;
    }
    fixture.succeeds(&comes).await;
    fixture.close().await;
}

/// What it keeps from being made is tried again until it is too late for it, and can be cancelled.
#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_of_admission() {
    let fixture = RelayFixture::new("admission", &[]).await;
    let maps = fixture.api::<ConfigMap>();
    // It takes connections, and never says a word.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let hook = json!({"metadata": {"name": fixture.units}, "webhooks": [{
        "name": "silent.test.example", "admissionReviewVersions": ["v1"], "sideEffects": "None",
        "clientConfig": {"url": format!("https://{}/", silent.local_addr().unwrap())},
        "failurePolicy": "Fail", "timeoutSeconds": 1,
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": fixture.units}},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}],
    }]});
    let hooks: Api<ValidatingWebhookConfiguration> = Api::all(fixture.client.clone());
    create(&hooks, hook).await;
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let probe: ConfigMap = serde_json::from_value(json!({"metadata": {"name": "probe"}})).unwrap();
    until("the webhook", async || maps.create(&dry, &probe).await.is_err().then_some(())).await;
    let [late, ends, comes] = ["late", "ends", "comes"].map(|unit| name(unit, 1));
    let begun = Instant::now();
    let requests = [(&late, 3_000), (&ends, 60_000), (&comes, 60_000)].map(|(unit, valid_for_ms)| {
        let request = fixture.ensure_of(unit, work(unit, "true"));
        RelayRequest::Ensure(Box::new(ebb_protocol::relay::EnsureTask { valid_for_ms, ..request }))
    });
    let answers = fixture.ask_all(requests.into()).await;
    let asks_again =
        |it: &RelayResponse| matches!(it, RelayResponse::Unavailable(why) if why.contains("silent.test.example"));
    assert!(answers.iter().all(asks_again) && begun.elapsed() < ASKER, "{answers:?}");
    let begun = Instant::now();
    let cancelled = fixture.state(cancel(&ends)).await;
    assert!(cancelled == TaskState::Tombstoned && begun.elapsed() < ASKER, "{cancelled:?}");
    assert_eq!(fixture.reason(&late).await.0, ReasonCode::Lost);
    assert!(matches!(fixture.get(&comes).await, TaskState::Running { .. }));
    hooks.delete(&fixture.units, &DeleteParams::default()).await.unwrap();
    fixture.succeeds(&comes).await;
    fixture.close().await;
}
