//! `POST /v1/clusters/NAME/register`: bootstrap tokens, and polls of registered relays.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ebb_protocol::api::{
    CheckList, ClusterBootstrap, ClusterDetail, ClusterList, ClusterState, CreatedToken, DocumentError, PlanPreview,
    TargetReceipt,
};
use ebb_protocol::listing::{RelayInfo, ReportedPolicy};
use ebb_protocol::pull::{PollRequest, PollResponse, QueuedReply, ReplyOutcome, SealedBatch};
use ebb_protocol::registration::{RegisterRelay, issue_token};
use ebb_protocol::relay::{BatchResponse, RelayResponse};
use ebb_protocol::seal;
use ebb_protocol::sign::WebhookKeys;
use ebb_relay_client::{ClusterRegistry, RegistrationRejection};
use ebb_store::{Meter, PolicyRecord, Store};
use ebb_tests::platform::{self, SignedRequest};

use super::api::SCRIPT;
use super::secrets::{contains, stored};
use crate::harness::*;

const PINNED: &str = "uid-of-eu";

fn secret(of: u8) -> WebhookSecret {
    WebhookSecret::from_bytes(&[of; 32]).unwrap()
}

/// Registers a cluster, and returns its bootstrap token.
async fn bootstrap(harness: &Harness, name: &str) -> String {
    let put = json!({"entrypointImage": "r", "options": {"profile": "restricted"}});
    let created = harness.request(Method::PUT, &format!("/v1/clusters/{name}"), Some(put)).await;
    created.is(200).json::<ClusterBootstrap>().bootstrap_token.unwrap()
}

async fn rotate(harness: &Harness, name: &str) -> String {
    let rotated = harness.request(Method::POST, &format!("/v1/clusters/{name}/rotate"), None).await;
    rotated.is(200).json::<ClusterBootstrap>().bootstrap_token.unwrap()
}

fn request(uid: &str, of: u8) -> RegisterRelay {
    RegisterRelay { v: 1, uid: uid.to_owned(), secret: secret(of).reveal().to_string(), version: "1".to_owned() }
}

async fn register(harness: &Harness, name: &str, token: &str, request: &RegisterRelay) -> ApiReply {
    let body = serde_json::to_value(request).unwrap();
    harness.with_token(token, &format!("POST /v1/clusters/{name}/register"), Some(body)).await
}

async fn poll(harness: &Harness, name: &str, of: u8) -> ApiReply {
    poll_with(harness, name, of, vec![]).await
}

async fn poll_with(harness: &Harness, name: &str, of: u8, replies: Vec<QueuedReply>) -> ApiReply {
    let in_progress = vec![];
    let poll = PollRequest { v: 1, cluster: PINNED.to_owned(), wait_ms: Some(0), in_progress, replies };
    let poll = SignedRequest::new(&secret(of), "poll-1", now(), serde_json::to_vec(&poll).unwrap());
    let url = harness.url(&format!("/v1/clusters/{name}/poll"));
    ApiReply::of(poll.post(&harness.http, &url).send().await.unwrap()).await
}

async fn detail(harness: &Harness, name: &str) -> ClusterDetail {
    harness.get(&format!("/v1/clusters/{name}")).await.is(200).json()
}

pub(crate) async fn a_bootstrap_token_registers_one_relay() {
    let harness = Harness::with_clusters(&json!({})).await;
    let (token, others) = (bootstrap(&harness, "eu").await, bootstrap(&harness, "us").await);
    let waiting = detail(&harness, "eu").await;
    assert_eq!(waiting.info.state, Some(ClusterState::WaitingForRelay));
    assert!(waiting.info.error.unwrap().contains("the bootstrap token expires at"));
    poll(&harness, "eu", 1).await.is_problem(401, "invalid-signature");
    let operator = harness.stack().token().to_owned();
    for (name, wrong) in [
        ("eu", others.clone()),
        ("us", token.clone()),
        ("none", token.clone()),
        ("eu", format!("{token}x")),
        ("eu", token.to_uppercase()),
        ("eu", issue_token([7; 4]).to_string()),
        ("eu", operator),
    ] {
        register(&harness, name, &wrong, &request(PINNED, 1)).await.is_problem(401, "invalid-token");
    }
    // An invalid request does not use the token.
    let short = RegisterRelay { secret: "whsec_AAAA".to_owned(), ..request(PINNED, 1) };
    let newer = RegisterRelay { v: 2, ..request(PINNED, 1) };
    for invalid in [request("", 1), request("a b", 1), request("a\u{7}", 1), request(&"a".repeat(200), 1), short, newer]
    {
        let problem = register(&harness, "eu", &token, &invalid).await.is_problem(422, "invalid-field");
        assert!(!problem.detail.contains("AAAA"), "{problem:?}");
    }
    let large = RegisterRelay { version: "x".repeat(5 << 10), ..request(PINNED, 1) };
    register(&harness, "eu", &token, &large).await.is_problem(413, "too-large");
    // The response to the relay may be lost. Another relay cannot use the token.
    for _ in 0..2 {
        register(&harness, "eu", &token, &request(PINNED, 1)).await.is(200);
    }
    let problem = register(&harness, "eu", &token, &request(PINNED, 2)).await.is_problem(401, "invalid-token");
    assert!(problem.detail.contains("another relay has used the bootstrap token"), "{problem:?}");
    register(&harness, "eu", &token, &request("uid-of-copy", 1)).await.is_problem(409, "wrong-cluster");
    poll(&harness, "eu", 1).await.is(200);
    poll(&harness, "eu", 2).await.is_problem(401, "invalid-signature");
    poll(&harness, "us", 1).await.is_problem(401, "invalid-signature");
    // Neither a token nor a secret is stored in clear or shown.
    let shown = harness.get("/v1/clusters/eu").await.is(200).body.clone();
    let files = stored(&harness.folder().join("state"));
    assert!(files.values().any(|bytes| contains(bytes, PINNED.as_bytes())), "the cluster is not stored");
    let key = STANDARD.encode([1; 32]);
    for text in [&token, &others, &key] {
        assert!(!shown.contains(text.as_str()), "{shown}");
        let file = files.iter().find(|(_, bytes)| contains(bytes, text.as_bytes()));
        assert!(file.is_none(), "{:?} has a secret", file.map(|(path, _)| path));
    }
    assert!(shown.contains(PINNED) && shown.contains("restricted"), "{shown}");
}

/// An entry of the configuration pins its cluster as well.
pub(crate) async fn an_entry_keeps_its_cluster() {
    let entry = |uid: &str| json!({"eu": {"secret": *secret(8).reveal(), "uid": uid, "entrypointImage": "r"}});
    let harness = Harness::with_clusters(&entry(PINNED)).await;
    let token = bootstrap(&harness, "eu").await;
    let problem = register(&harness, "eu", &token, &request("uid-of-copy", 1)).await.is_problem(409, "wrong-cluster");
    assert!(problem.detail.contains("EBB_CLUSTERS") && problem.detail.contains(PINNED), "{problem:?}");
    poll(&harness, "eu", 8).await.is(200);
    register(&harness, "eu", &token, &request(PINNED, 1)).await.is(200);
    poll(&harness, "eu", 1).await.is(200);
    // The registered secret cannot be decrypted. An entry of another cluster does not replace it.
    for (uid, connected) in [(PINNED, 1), ("uid-of-copy", 0)] {
        let registry = ClusterRegistry::parse(&entry(uid).to_string()).unwrap();
        let registry = registry.with_registered(harness.stack().store().clone(), WebhookKeys::from(secret(9)));
        assert_eq!(registry.find(Some("eu")).await.is_ok(), connected == 1, "{uid}");
        assert_eq!(registry.connected().await.unwrap().len(), connected, "{uid}");
    }
}

/// Anyone can send a token.
pub(crate) async fn wrong_tokens_share_a_read() {
    let harness = Harness::with_clusters(&json!({})).await;
    bootstrap(&harness, "eu").await;
    let meter = Arc::new(Meter::new());
    let store = Store::clone(harness.stack().store()).metered(Arc::clone(&meter));
    let keys = harness.stack().env().settings.unit_keys.clone();
    let registry = ClusterRegistry::default().with_registered(Arc::new(store), keys);
    for number in 0..50 {
        let token = issue_token([number; 4]);
        registry.register("eu", &token, &request(PINNED, 1), now()).await.unwrap_err();
    }
    // A second may have passed.
    assert!((1..=2).contains(&meter.take().requests["Query"]));
}

pub(crate) async fn concurrent_relays_share_no_token() {
    let harness = Harness::with_clusters(&json!({})).await;
    let token = bootstrap(&harness, "eu").await;
    let requests = [1, 2, 3].map(|of| request(PINNED, of));
    let sent = requests.iter().map(|request| register(&harness, "eu", &token, request));
    let statuses: Vec<u16> = futures::future::join_all(sent).await.iter().map(|reply| reply.status).collect();
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 1, "{statuses:?}");
    for (of, status) in [1, 2, 3].into_iter().zip(statuses) {
        poll(&harness, "eu", of).await.is(status);
    }
}

pub(crate) async fn a_bootstrap_token_expires() {
    let harness = Harness::with_clusters(&json!({})).await;
    let token = bootstrap(&harness, "eu").await;
    let keys = harness.stack().env().settings.unit_keys.clone();
    let registry = ClusterRegistry::default().with_registered(harness.stack().store().clone(), keys);
    let later = |minutes: u64| Timestamp(now().0 + minutes * 60_000);
    let expired = registry.register("eu", &token, &request(PINNED, 1), later(61)).await.unwrap_err();
    let RegistrationRejection::Unauthenticated(why) = expired else { panic!("{expired:?}") };
    assert!(why.starts_with("the bootstrap token has expired at "), "{why}");
    registry.register("eu", &token, &request(PINNED, 1), later(59)).await.unwrap();
    // The response may come too late for the relay. The repetition grants nothing.
    registry.register("eu", &token, &request(PINNED, 1), later(61)).await.unwrap();
    registry.register("eu", &token, &request(PINNED, 2), later(61)).await.unwrap_err();
    // The stack reads the table again, because the name had no relay.
    tokio::time::sleep(Duration::from_secs(1)).await;
    poll(&harness, "eu", 1).await.is(200);
}

/// A relay whose response was lost repeats its registration, maybe after a rotation of the root secrets.
pub(crate) async fn a_repeated_registration_after_a_rotation_of_root_secrets() {
    let harness = Harness::with_clusters(&json!({})).await;
    let token = bootstrap(&harness, "eu").await;
    let registry =
        |keys: WebhookKeys| ClusterRegistry::default().with_registered(harness.stack().store().clone(), keys);
    let (former, rotated) = (registry(secret(7).into()), WebhookKeys::new(secret(8), vec![secret(7)]).unwrap());
    former.register("eu", &token, &request(PINNED, 1), now()).await.unwrap();
    let rotated = registry(rotated);
    rotated.register("eu", &token, &request(PINNED, 1), now()).await.unwrap();
    rotated.register("eu", &token, &request(PINNED, 2), now()).await.unwrap_err();
    // Without the former root secret, the relay cannot be recognised.
    registry(secret(8).into()).register("eu", &token, &request(PINNED, 1), now()).await.unwrap_err();
}

/// The former secret is valid until a relay of the same cluster uses the next token.
pub(crate) async fn a_rotation_replaces_the_secret_of_the_same_cluster() {
    let harness = Harness::with_clusters(&json!({})).await;
    let first = bootstrap(&harness, "eu").await;
    register(&harness, "eu", &first, &request(PINNED, 1)).await.is(200);
    let (unused, second) = (rotate(&harness, "eu").await, rotate(&harness, "eu").await);
    for former in [&first, &unused] {
        register(&harness, "eu", former, &request(PINNED, 2)).await.is_problem(401, "invalid-token");
    }
    register(&harness, "eu", &second, &request("uid-of-copy", 2)).await.is_problem(409, "wrong-cluster");
    poll(&harness, "eu", 1).await.is(200);
    register(&harness, "eu", &second, &request(PINNED, 2)).await.is(200);
    poll(&harness, "eu", 1).await.is_problem(401, "invalid-signature");
    poll(&harness, "eu", 2).await.is(200);
    // Other settings keep the relay, and issue no token unless it is requested.
    let put = json!({"entrypointImage": "other", "options": {"profile": "baseline"}});
    let changed =
        harness.request(Method::PUT, "/v1/clusters/eu", Some(put.clone())).await.is(200).json::<ClusterBootstrap>();
    assert_eq!(changed.bootstrap_token, None);
    assert_eq!(changed.registration.options["profile"], "baseline");
    poll(&harness, "eu", 2).await.is(200);
    let version = changed.registration.version.unwrap();
    let mut outdated = put.clone();
    outdated["expected"] = (version - 1).into();
    let problem = harness.request(Method::PUT, "/v1/clusters/eu", Some(outdated)).await;
    let problem = problem.is_problem(409, "cluster-changed");
    assert!(problem.detail.contains(&format!("it has version {version}")), "{problem:?}");
    let mut again = put;
    again["expected"] = version.into();
    again["rebootstrap"] = true.into();
    let changed = harness.request(Method::PUT, "/v1/clusters/eu", Some(again)).await.is(200).json::<ClusterBootstrap>();
    assert!(changed.bootstrap_token.is_some() && changed.registration.bootstrap_expires.is_some());
    for (name, wrong) in [
        ("A", json!({"entrypointImage": "r"})),
        ("eu", json!({"entrypointImage": ""})),
        ("eu", json!({"entrypointImage": "a b"})),
        ("eu", json!({"entrypointImage": "r", "url": "ftp://r"})),
        ("eu", json!({"entrypointImage": "r", "url": "https://user@r"})),
        ("eu", json!({"entrypointImage": "r", "options": {"a": "x".repeat(65 << 10)}})),
    ] {
        let path = format!("/v1/clusters/{name}");
        harness.request(Method::PUT, &path, Some(wrong)).await.is_problem(422, "invalid-field");
    }
    for line in ["POST /v1/clusters/none/rotate", "DELETE /v1/clusters/none", "GET /v1/clusters/none"] {
        let (method, path) = line.split_once(' ').unwrap();
        harness.request(method.parse().unwrap(), path, None).await.is_problem(404, "not-found");
    }
}

/// A registered cluster gets batches at once, and a deleted one none.
pub(crate) async fn a_registered_cluster_is_used_at_once() {
    let harness = Harness::with_clusters(&json!({})).await;
    let token = bootstrap(&harness, "eu").await;
    register(&harness, "eu", &token, &request(PINNED, 1)).await.is(200);
    let relay = harness.stack().env().relay.clone();
    let pending = tokio::spawn(async move { relay.about("eu").await });
    let batch =
        until("a batch", async || poll(&harness, "eu", 1).await.is(200).json::<PollResponse>().batches.pop()).await;
    let sealed = STANDARD.decode(&batch.ciphertext).unwrap();
    let data = SealedBatch::associated_data("eu", &batch.id);
    assert!(seal::open(&WebhookKeys::from(secret(1)), &data, &sealed).is_some());
    pending.abort();
    harness.publish("simple@1.0.0", SCRIPT).await;
    let document = named("Sandbox", "p", "cluster: eu\nresources: {r: {plugin: simple}}\n");
    harness.post("/v1/targets", json!({"kind": "sandbox", "name": "p", "document": document})).await.is(202);
    let problem = harness.request(Method::DELETE, "/v1/clusters/eu", None).await.is_problem(409, "cluster-in-use");
    assert!(problem.detail.contains("sandbox/p"), "{problem:?}");
    poll(&harness, "eu", 1).await.is(200);
    harness.request(Method::DELETE, "/v1/clusters/eu?force=true", None).await.is(204);
    poll(&harness, "eu", 1).await.is_problem(401, "invalid-signature");
    register(&harness, "eu", &token, &request(PINNED, 1)).await.is_problem(401, "invalid-token");
    assert_eq!(harness.stack().store().list_clusters().await.unwrap(), []);
}

/// A function that has not seen the deletion of a cluster yet may record more about it.
pub(crate) async fn nothing_is_left_of_a_deleted_cluster() {
    let kept = json!({"secret": *secret(1).reveal(), "uid": PINNED, "entrypointImage": "r"});
    let harness = Harness::with_clusters(&json!({ "kept": kept })).await;
    for name in ["eu", "waits"] {
        bootstrap(&harness, name).await;
    }
    let store = harness.stack().store();
    let record = async || {
        store.begin_outage("eu", now(), "it is silent").await.unwrap();
        store.note_denial("eu", now(), "another secret").await.unwrap();
        store.note_policy("eu", &PolicyRecord { at: now(), policy: ReportedPolicy::default() }).await.unwrap();
    };
    let assert_forgotten = async || {
        assert_eq!(store.read_scans().await.unwrap().into_keys().collect::<Vec<_>>(), ["kept", "waits"]);
        assert_eq!(store.read_policy("eu").await.unwrap(), None);
    };
    // No scan of these clusters is due.
    for name in ["kept", "waits", "eu"] {
        store.claim_scan(name, None, Timestamp(now().0 + 3_600_000)).await.unwrap();
    }
    record().await;
    harness.request(Method::DELETE, "/v1/clusters/eu", None).await.is(204);
    assert_forgotten().await;
    record().await;
    ebb_flow::sweep::orphans::scan(harness.stack().env(), store.as_ref()).await.unwrap();
    assert_forgotten().await;
}

/// A relay that is silent after its repair is not shown as denied.
pub(crate) async fn a_denial_ends_with_the_next_right_secret() {
    let entry = json!({"secret": *secret(1).reveal(), "uid": PINNED, "entrypointImage": "r"});
    let harness = Harness::with_clusters(&json!({ "entry": entry })).await;
    let store = harness.stack().store();
    let denied = async || store.read_denials().await.unwrap().into_keys().collect::<Vec<_>>();
    poll(&harness, "entry", 9).await.is_problem(401, "invalid-signature");
    assert_eq!(denied().await, ["entry"]);
    poll(&harness, "entry", 1).await.is(200);
    assert_eq!(denied().await, [""; 0]);
    let token = bootstrap(&harness, "eu").await;
    // Another process has denied it.
    store.note_denial("eu", now(), "another secret").await.unwrap();
    register(&harness, "eu", &token, &request(PINNED, 1)).await.is(200);
    assert_eq!(denied().await, [""; 0]);
}

/// A relay with another secret is told from one that does not respond.
pub(crate) async fn denied_polls_are_shown() {
    let harness = Harness::with_clusters(&json!({
        "denied": {"secret": *secret(1).reveal(), "uid": PINNED, "entrypointImage": "r"},
        "silent": {"secret": *secret(1).reveal(), "uid": PINNED, "entrypointImage": "r"},
    }))
    .await;
    for _ in 0..2 {
        poll(&harness, "denied", 9).await.is_problem(401, "invalid-signature");
    }
    // A wrong poll of an unknown cluster is not stored.
    poll(&harness, "unknown", 9).await.is_problem(401, "invalid-signature");
    harness.publish("simple@1.0.0", SCRIPT).await;
    let waits = platform::sandbox("p", "p-uid", "cluster: denied\nresources: {r: {plugin: simple}}\n");
    harness.lifecycle(LifecycleType::Created, &waits).await.is(202);
    harness.unit("p", "preStart", "hello", UnitState::Running).await;
    let log = harness.log("p", Hook::PreStart, "hello", "");
    let (listed, checked, log) = tokio::join!(harness.get("/v1/clusters"), harness.get("/v1/checks"), log);
    let listed = listed.is(200).json::<ClusterList>().clusters;
    let states: Vec<_> = listed.iter().map(|cluster| (cluster.name.as_str(), cluster.state)).collect();
    assert_eq!(states, [("denied", Some(ClusterState::Denied)), ("silent", Some(ClusterState::Down))]);
    assert!(listed[0].error.as_ref().unwrap().contains("its polls are denied, last at "), "{listed:?}");
    let checks = checked.is(200).json::<CheckList>().checks;
    let check = checks.iter().find(|check| check.name == "relay/denied").unwrap();
    assert!(!check.passed && check.detail.contains("another secret"), "{check:?}");
    let log = log.is_problem(503, "relay-unavailable");
    assert!(log.detail.contains("its polls are denied, last at "), "{log:?}");
}

/// The advice for a cluster that is lost names the command that ends its registration.
pub(crate) async fn an_outage_of_a_registered_cluster_has_its_commands() {
    let harness = Harness::with_clusters(&json!({})).await;
    let token = bootstrap(&harness, "eu").await;
    register(&harness, "eu", &token, &request(PINNED, 1)).await.is(200);
    harness.publish("simple@1.0.0", SCRIPT).await;
    let waits = platform::sandbox("p", "p-uid", "cluster: eu\nresources: {r: {plugin: simple}}\n");
    harness.lifecycle(LifecycleType::Created, &waits).await.is(202);
    harness.unit("p", "preStart", "hello", UnitState::Running).await;
    let store = harness.stack().store();
    store.begin_outage("eu", Timestamp(1), "it does not poll").await.unwrap();
    poll(&harness, "eu", 9).await.is_problem(401, "invalid-signature");
    let why = harness.why("p").await;
    let steps = why.next_steps.join("\n");
    assert!(steps.contains("ebb cluster disconnect eu --force") && !steps.contains("EBB_CLUSTERS"), "{why:?}");
    assert!(why.summary.contains("`ebb cluster rotate eu --apply`"), "{why:?}");
}

/// Answers the next batch as the relay of the cluster `eu`, with a policy.
async fn report(harness: &Harness, policy: &ReportedPolicy) {
    let batch =
        until("a batch", async || poll(harness, "eu", 1).await.is(200).json::<PollResponse>().batches.pop()).await;
    let about = RelayInfo { version: "1".to_owned(), up_ms: 1, tasks: 0, policy: Some(policy.clone()) };
    let response = BatchResponse { v: 1, cluster: PINNED.to_owned(), responses: vec![RelayResponse::About(about)] };
    let reply = QueuedReply { id: batch.id, outcome: ReplyOutcome::Response(response) };
    poll_with(harness, "eu", 1, vec![reply]).await.is(200);
}

fn with_code<'a>(found: &'a [DocumentError], code: &str) -> Vec<&'a DocumentError> {
    found.iter().filter(|error| error.code == code).collect()
}

/// Documents are compared with the policy of the relay, or with the last one while the relay does not respond. Nothing is
/// refused, because the policy may change before a unit runs.
pub(crate) async fn documents_are_checked_against_the_reported_policy() {
    let harness = Harness::with_clusters(&json!({})).await;
    let token = bootstrap(&harness, "eu").await;
    register(&harness, "eu", &token, &request(PINNED, 1)).await.is(200);
    let placed = SCRIPT.replace("\"busybox:1\"", "\"busybox:1\", namespace: elsewhere");
    harness.publish("placed@1.0.0", &placed).await;
    let document = named("Sandbox", "p", "cluster: eu\nresources: {r: {plugin: placed}}\n");
    let policy = |namespaces: Value| {
        let policy = json!({"digest": "d", "namespaces": namespaces});
        serde_json::from_value::<ReportedPolicy>(policy).unwrap()
    };
    let units = policy(json!({"units": {"level": "restricted"}}));
    let shown = async || {
        let (shown, ()) = tokio::join!(harness.get("/v1/clusters/eu"), report(&harness, &units));
        shown.is(200).json::<ClusterDetail>().info
    };
    let live = shown().await;
    assert_eq!((live.policy.as_ref(), live.policy_since), (Some(&units), None));
    let store = harness.stack().store();
    let recorded = store.read_policy("eu").await.unwrap();
    assert_eq!(recorded.as_ref().map(|record| &record.policy), Some(&units));
    shown().await;
    assert_eq!(store.read_policy("eu").await.unwrap(), recorded, "an unchanged policy is not written");

    let preview = json!({"document": document});
    let (planned, ()) = tokio::join!(harness.post("/v1/plans", preview.clone()), report(&harness, &units));
    let planned = planned.is(200).json::<PlanPreview>().warnings;
    let [violation] = with_code(&planned, "cluster-policy")[..] else { panic!("{planned:?}") };
    assert!(violation.file.starts_with("placed") && violation.line.is_some() && violation.column.is_some());
    assert!(violation.message.contains("`elsewhere`") && violation.help.is_some(), "{violation:?}");
    let allowing = policy(json!({"elsewhere": {"level": "baseline"}}));
    let (planned, ()) = tokio::join!(harness.post("/v1/plans", preview), report(&harness, &allowing));
    let planned = planned.is(200).json::<PlanPreview>().warnings;
    assert!(with_code(&planned, "cluster-policy").is_empty(), "{planned:?}");

    // The relay does not respond any more.
    let apply = json!({"kind": "sandbox", "name": "p", "document": document});
    let dry_run = harness.post("/v1/targets?dryRun=true", apply.clone());
    let author = harness.post("/v1/tokens", json!({"name": "author", "scopes": ["plugins:write:placed"]})).await;
    let author = author.is(201).json::<CreatedToken>().token;
    let seen = harness.with_token(&author, "GET /v1/clusters/eu", None);
    let (silent, receipt, seen) = tokio::join!(harness.get("/v1/clusters/eu"), dry_run, seen);
    let ClusterDetail { info: silent, registration } = silent.is(200).json();
    assert!(registration.is_some() && silent.uid.is_some() && silent.error.is_some(), "{silent:?}");
    // An author sees what a comparison needs.
    let ClusterDetail { info: seen, registration } = seen.is(200).json();
    assert_eq!((&seen.policy, &seen.policy_since, seen.state), (&silent.policy, &silent.policy_since, silent.state));
    assert!(registration.is_none() && seen.uid.is_none() && seen.error.is_none(), "{seen:?}");
    assert_eq!((silent.policy.as_ref(), silent.policy_since.is_some()), (Some(&units), true));
    let found = receipt.is(200).json::<TargetReceipt>().plan.unwrap().warnings;
    assert_eq!(with_code(&found, "cluster-policy").len(), 1, "{found:?}");
    let [unchecked] = with_code(&found, "unchecked-policy")[..] else { panic!("{found:?}") };
    assert!(unchecked.message.contains("does not respond"), "{unchecked:?}");
    harness.post("/v1/targets", apply).await.is(202);

    // A policy from before the registration belongs to another cluster of the same name.
    store.note_policy("eu", &PolicyRecord { at: Timestamp(1), policy: units }).await.unwrap();
    let planned = harness.post("/v1/plans", json!({"document": document})).await.is(200).json::<PlanPreview>().warnings;
    assert!(with_code(&planned, "cluster-policy").is_empty(), "{planned:?}");
    let [unchecked] = with_code(&planned, "unchecked-policy")[..] else { panic!("{planned:?}") };
    assert!(unchecked.message.contains("is not known"), "{unchecked:?}");

    let elsewhere = named("Sandbox", "p", "cluster: none\nresources: {r: {plugin: placed}}\n");
    let planned =
        harness.post("/v1/plans", json!({"document": elsewhere})).await.is(200).json::<PlanPreview>().warnings;
    let [unchecked] = with_code(&planned, "unchecked-policy")[..] else { panic!("{planned:?}") };
    assert!(unchecked.message.contains("ebb cluster connect none --apply"), "{unchecked:?}");
}
