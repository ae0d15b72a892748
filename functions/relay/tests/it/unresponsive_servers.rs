//! Servers that do not respond: the API server, and an admission webhook.

use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use ebb_relay::{Relay, RelaySettings};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;

use crate::fixture::*;
use crate::rights::{client_of, kubeconfig_of};

/// Maximum time that the control plane waits for a response.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(15);

/// Less than the connection timeout of the relay's Kubernetes client.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(20);

fn config_map_task(unit: &TaskId, rule: &str) -> ObjectTask {
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": unit.unit}, "data": {"done": "no"}});
    ObjectTask { until: ready_if(rule), ..objects(vec![map]) }
}

/// A proxy of the API server. A connection with a request while the proxy is closed gets no response any more.
#[derive(Default)]
struct ApiProxy {
    is_closed: AtomicBool,
    dropped_requests: AtomicUsize,
}

impl ApiProxy {
    async fn start(self: Arc<Self>, server: SocketAddr) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let proxy = self.clone();
                tokio::spawn(async move {
                    let (mut near, mut far) =
                        (near.into_split(), TcpStream::connect(server).await.unwrap().into_split());
                    let back = tokio::spawn(async move { tokio::io::copy(&mut far.0, &mut near.1).await });
                    let mut buffer = vec![0; 64 << 10];
                    while let Ok(count @ 1..) = near.0.read(&mut buffer).await {
                        if proxy.is_closed.load(SeqCst) {
                            proxy.dropped_requests.fetch_add(1, SeqCst);
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

async fn relay_behind_proxy(fixture: &RelayFixture) -> (Relay, Arc<ApiProxy>) {
    let (records, units) = (format!("{}-relay", fixture.units), &*fixture.units);
    let mut kubeconfig = kubeconfig_of(cluster().await, &records, "ebb-relay");
    let server = kubeconfig.clusters[0].cluster.as_mut().unwrap().server.as_mut().unwrap();
    let proxy = Arc::new(ApiProxy::default());
    let address = proxy.clone().start(server.strip_prefix("https://").unwrap().parse().unwrap()).await;
    *server = format!("https://{address}");
    let settings = RelaySettings {
        callback_hosts: ["127.0.0.1".to_owned()].into(),
        api_server_request_timeout: Duration::from_secs(2),
        step_timeout: Duration::from_secs(2),
        ..RelaySettings::new(&records, units, "http://127.0.0.1:1")
    };
    let policy = serde_json::from_value(json!({"namespaces": {units: []}, "kinds": ["ConfigMap"]})).unwrap();
    (Relay::open(client_of(kubeconfig).await, settings, policy).await.unwrap(), proxy)
}

/// A reconcile step that hangs times out, releases its slot and is repeated. Requests get the response `Unavailable`.
#[tokio::test(flavor = "multi_thread")]
async fn requests_time_out_while_the_api_server_hangs() {
    let fixture = RelayFixture::new("apihangs", &[]).await;
    fixture.kill().await;
    let (relay, proxy) = relay_behind_proxy(&fixture).await;
    let send = async |requests: Vec<RelayRequest>| {
        let started = Instant::now();
        let batch = Batch { v: 1, cluster: fixture.uid.clone(), requests };
        let responses = relay.batch(batch, Duration::ZERO).await.unwrap().responses;
        assert!(started.elapsed() < RESPONSE_TIMEOUT, "{:?}", started.elapsed());
        responses
    };
    let [waits, cancelled, new] = ["waits", "cancelled", "new"].map(|unit| name(unit, 1));
    let ensure = |unit: &TaskId, rule| fixture.request(unit, config_map_task(unit, rule));
    let ensure_waits = || ensure(&waits, "object.data.done == 'yes'");
    let responses = send(vec![ensure_waits(), ensure(&cancelled, "false")]).await;
    assert!(responses.iter().all(|it| matches!(it, RelayResponse::State(TaskState::Running { .. }))), "{responses:?}");
    proxy.is_closed.store(true, SeqCst);
    let responses = send(vec![ensure_waits(), cancel(&cancelled), ensure(&new, "true")]).await;
    let has_timed_out =
        |it: &RelayResponse| matches!(it, RelayResponse::Unavailable(why) if why.contains("did not respond in time"));
    assert!(responses.iter().all(has_timed_out), "{responses:?}");
    // The reconcile steps of the tasks hang now.
    let before = proxy.dropped_requests.load(SeqCst);
    until("requests of the steps", async || (proxy.dropped_requests.load(SeqCst) >= before + 3).then_some(())).await;
    merge(&fixture.api::<ConfigMap>(), "waits", json!({"data": {"done": "yes"}})).await;
    proxy.is_closed.store(false, SeqCst);
    let started = Instant::now();
    fixture.success(&waits).await;
    // The Kubernetes client has a connection timeout of 30 s.
    assert!(started.elapsed() < CONNECTION_TIMEOUT, "{:?}", started.elapsed());
    for (request, unit) in [(cancel(&cancelled), &cancelled), (ensure(&new, "true"), &new)] {
        until(&unit.unit, async || match send(vec![request.clone()]).await.remove(0) {
            RelayResponse::State(TaskState::Running { .. }) if unit.unit == "cancelled" => None,
            RelayResponse::State(state) => Some(state),
            RelayResponse::Unavailable(_) => None,
            other => panic!("{other:?}"),
        })
        .await;
    }
    fixture.success(&new).await;
    fixture.close().await;
}

/// The relay repeats the creation of an object that an admission webhook blocks, until the request expires or a cancel.
#[tokio::test(flavor = "multi_thread")]
async fn creation_is_repeated_while_an_admission_webhook_hangs() {
    let fixture = RelayFixture::new("admission", &[]).await;
    let maps = fixture.api::<ConfigMap>();
    // The webhook accepts connections and does not respond.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let hook =
        yaml(include_str!("unresponsive_servers/webhook.yaml"), &[("UNITS", &fixture.units), ("ADDRESS", &address)]);
    let hooks: Api<ValidatingWebhookConfiguration> = Api::all(fixture.client.clone());
    create(&hooks, hook).await;
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let probe: ConfigMap = serde_json::from_value(json!({"metadata": {"name": "probe"}})).unwrap();
    until("the webhook", async || maps.create(&dry, &probe).await.is_err().then_some(())).await;
    let [late, cancelled, new] = ["late", "cancelled", "new"].map(|unit| name(unit, 1));
    let started = Instant::now();
    let requests = [(&late, 3_000), (&cancelled, 60_000), (&new, 60_000)].map(|(unit, valid_for_ms)| {
        let request = fixture.ensure_of(unit, config_map_task(unit, "true"));
        RelayRequest::Ensure(Box::new(EnsureTask { valid_for_ms, ..request }))
    });
    let responses = fixture.send_all(requests.into()).await;
    let is_unavailable =
        |it: &RelayResponse| matches!(it, RelayResponse::Unavailable(text) if text.contains("silent.test.example"));
    assert!(responses.iter().all(is_unavailable) && started.elapsed() < RESPONSE_TIMEOUT, "{responses:?}");
    let started = Instant::now();
    let state = fixture.state(cancel(&cancelled)).await;
    assert!(state == TaskState::Tombstoned && started.elapsed() < RESPONSE_TIMEOUT, "{state:?}");
    assert_eq!(fixture.reason(&late).await.0, ReasonCode::Lost);
    assert!(matches!(fixture.get(&new).await, TaskState::Running { .. }));
    hooks.delete(&fixture.units, &DeleteParams::default()).await.unwrap();
    fixture.success(&new).await;
    fixture.close().await;
}

/// A relay with `--attached` ends with its standard input, or at a signal.
#[tokio::test]
async fn the_relay_ends_while_its_api_server_is_silent() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("kubeconfig");
    std::fs::write(&file, include_str!("unresponsive_servers/kubeconfig.yaml").replace("ADDRESS", &address)).unwrap();
    for is_signal in [false, true] {
        let mut relay = Command::new(env!("CARGO_BIN_EXE_ebb-relay"))
            .args(["--attached", "--listen", "127.0.0.1:0", "--advertise-url", "http://127.0.0.1:1"])
            .args(["--callback-hosts", "127.0.0.1", "--context", "silent", "--kubeconfig"])
            .arg(&file)
            .stdin(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let secret = WebhookSecret::from_bytes(&[7; 32]).unwrap();
        relay.stdin.as_mut().unwrap().write_all(format!("{}\n", &**secret.reveal()).as_bytes()).await.unwrap();
        let _connection =
            tokio::time::timeout(WAIT_TIMEOUT, silent.accept()).await.expect("a connection to the API server").unwrap();
        if is_signal {
            assert!(Command::new("kill").arg(relay.id().unwrap().to_string()).status().await.unwrap().success());
        } else {
            drop(relay.stdin.take());
        }
        let status = tokio::time::timeout(WAIT_TIMEOUT, relay.wait()).await.expect("the relay ends").unwrap();
        assert!(status.success(), "{status}");
    }
}
