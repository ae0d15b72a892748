//! `POST /v1/clusters/NAME/register`: bootstrap tokens, and polls of registered relays.

use ebb_flow::RequestError;
use ebb_protocol::pull::PollResponse;
use ebb_protocol::registration::{RegisterRelay, issue_token};
use ebb_protocol::{ClusterBootstrap, WebhookKeys};
use ebb_relay_client::ClusterRegistry;
use ebb_store::suite::Meter;
use ebb_store::{ClusterFaultKind, PolicyRecord};

use super::polls::{self, PINNED, secret};
use crate::harness::*;

const TABLE: &str = "security/registrations.yaml";

/// Registers a cluster, and returns its bootstrap token.
async fn bootstrap(harness: &Harness, name: &str) -> String {
    let put = json!({"entrypointImage": "r", "options": {"profile": "restricted"}});
    let created = harness.request(Method::PUT, &format!("/v1/clusters/{name}"), Some(put)).await;
    created.is(200).json::<ClusterBootstrap>().bootstrap_token.unwrap()
}

fn request(uid: &str, of: u8) -> RegisterRelay {
    RegisterRelay { v: 1, uid: uid.to_owned(), secret: secret(of).reveal().to_string(), version: "1".to_owned() }
}

async fn register(harness: &Harness, name: &str, token: &str, request: &RegisterRelay) -> ApiReply {
    let body = serde_json::to_value(request).unwrap();
    harness.with_token(token, &format!("POST /v1/clusters/{name}/register"), Some(body)).await
}

async fn poll(harness: &Harness, name: &str, of: u8) -> ApiReply {
    polls::poll(harness, name, of, &[], vec![]).await
}

/// Starts a stack with the registered cluster `eu`. Returns its bootstrap token, too.
async fn registered() -> (Harness, String) {
    let harness = Harness::with_clusters(&json!({})).await;
    let token = bootstrap(&harness, "eu").await;
    register(&harness, "eu", &token, &request(PINNED, 1)).await.is(200);
    (harness, token)
}

/// An entry of the configuration pins its cluster as well.
pub(crate) async fn an_entry_keeps_its_cluster() {
    let entry = |uid: &str| json!({"eu": {"secret": *secret(8).reveal(), "uid": uid, "entrypointImage": "r"}});
    let harness = Harness::with_clusters(&entry(PINNED)).await;
    request_table::play(&harness, TABLE, "an_entry_keeps_its_cluster", &[]).await;
    // The registered secret cannot be decrypted. An entry of another cluster does not replace it.
    for (uid, connected) in [(PINNED, 1), ("uid-of-copy", 0)] {
        let registry = ClusterRegistry::parse(&entry(uid).to_string()).unwrap();
        let registry = registry.with_registered(harness.stack().store().clone(), WebhookKeys::from(secret(9)));
        assert_eq!(registry.find(Some("eu")).await.is_ok(), connected == 1, "{uid}");
        assert_eq!(registry.connected().await.unwrap().len(), connected, "{uid}");
    }
}

pub(crate) async fn concurrent_relays_share_no_token() {
    let harness = Harness::with_clusters(&json!({})).await;
    let token = bootstrap(&harness, "eu").await;
    let requests = [1, 2, 3].map(|of| request(PINNED, of));
    register(&harness, "eu", &token.to_uppercase(), &requests[0]).await.is_problem(401, "invalid-token");
    let sent = requests.iter().map(|request| register(&harness, "eu", &token, request));
    let statuses: Vec<u16> = futures::future::join_all(sent).await.iter().map(|reply| reply.status).collect();
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 1, "{statuses:?}");
    for (of, status) in [1, 2, 3].into_iter().zip(statuses) {
        poll(&harness, "eu", of).await.is(status);
    }
}

/// A relay whose response was lost repeats its registration, maybe after the expiry or a rotation of the root secrets.
pub(crate) async fn a_bootstrap_token_expires() {
    let harness = Harness::with_clusters(&json!({})).await;
    let token = bootstrap(&harness, "eu").await;
    let (meter, later) = (Arc::<Meter>::default(), |minutes: u64| Timestamp(now().0 + minutes * 60_000));
    let store = Arc::new(harness.stack().store().observed(meter.clone()));
    let registry = |keys: WebhookKeys| ClusterRegistry::default().with_registered(store.clone(), keys);
    // Anyone can send a token, so wrong ones share a read for a second. It may have passed.
    let of_strangers = registry(secret(7).into());
    for number in 0..50 {
        of_strangers.register("eu", &issue_token([number; 4]), &request(PINNED, 1), now()).await.unwrap_err();
    }
    assert!((1..=2).contains(&meter.take().requests["Query"]));
    let (former, other) = (registry(secret(7).into()), registry(secret(8).into()));
    let rotated = registry(WebhookKeys::new(secret(8), vec![secret(7)]).unwrap());
    let expired = former.register("eu", &token, &request(PINNED, 1), later(61)).await.unwrap_err();
    let RequestError::Rejected(Rejection::Refused(code, detail)) = expired else { panic!("{expired:?}") };
    assert_eq!(code, ErrorCode::InvalidToken);
    assert!(detail.starts_with("the bootstrap token has expired at "), "{detail}");
    former.register("eu", &token, &request(PINNED, 1), later(59)).await.unwrap();
    // A repetition grants nothing. Without the former root secret, the relay cannot be recognised.
    for (registry, of, is_accepted) in
        [(&former, 1, true), (&former, 2, false), (&rotated, 1, true), (&rotated, 2, false), (&other, 1, false)]
    {
        let repeated = registry.register("eu", &token, &request(PINNED, of), later(61)).await;
        assert_eq!(repeated.is_ok(), is_accepted, "{of}: {repeated:?}");
    }
}

/// A registered cluster gets batches at once, and a deleted one none.
pub(crate) async fn a_registered_cluster_is_used_at_once() {
    let (harness, token) = registered().await;
    let relay = harness.stack().env().relay.clone();
    let pending = tokio::spawn(async move { relay.about("eu").await });
    let batch =
        until("a batch", async || poll(&harness, "eu", 1).await.is(200).json::<PollResponse>().batches.pop()).await;
    assert!(batch.open(&WebhookKeys::from(secret(1)), "eu").is_some());
    pending.abort();
    request_table::play(&harness, TABLE, "a_deleted_cluster_is_used_no_more", &[("ITS_TOKEN", &token)]).await;
    assert_eq!(harness.stack().store().list_clusters().await.unwrap(), []);
}

/// A function that has not seen the deletion of a cluster yet may record more about it. The next scan removes it.
pub(crate) async fn nothing_is_left_of_a_deleted_cluster() {
    let kept = json!({"secret": *secret(1).reveal(), "uid": PINNED, "entrypointImage": "r"});
    let harness = Harness::with_clusters(&json!({ "kept": kept })).await;
    bootstrap(&harness, "eu").await;
    bootstrap(&harness, "waits").await;
    let store = harness.stack().store();
    // No scan of these clusters is due.
    for name in ["kept", "waits", "eu"] {
        store.claim_scan(name, None, Timestamp(now().0 + 3_600_000)).await.unwrap();
    }
    harness.request(Method::DELETE, "/v1/clusters/eu", None).await.is(204);
    let known = async || store.read_scans().await.unwrap().into_keys().collect::<Vec<_>>();
    assert_eq!(known().await, ["kept", "waits"]);
    store.begin_fault(ClusterFaultKind::Outage, "eu", now(), "it is silent").await.unwrap();
    ebb_flow::sweep::orphans::scan(harness.stack().env()).await.unwrap();
    assert_eq!(known().await, ["kept", "waits"]);
}

/// Documents are compared with the policy of the relay, or with the last one while the relay does not respond. Nothing is
/// refused, because the policy may change before a unit runs.
pub(crate) async fn documents_are_checked_against_the_reported_policy() {
    let (harness, _) = registered().await;
    let play = async |test: &str| request_table::play(&harness, TABLE, test, &[]).await;
    let store = harness.stack().store();
    let mut recorded = None;
    for _ in 0..2 {
        play("a_policy_is_reported").await;
        let record = store.read_policy("eu").await.unwrap();
        assert!(record.is_some());
        assert_eq!(recorded.get_or_insert_with(|| record.clone()), &record, "an unchanged policy is not written");
    }
    play("documents_are_checked_against_the_reported_policy").await;
    // A policy from before the registration belongs to another cluster of the same name.
    let policy = recorded.flatten().unwrap().policy;
    store.note_policy("eu", &PolicyRecord { at: Timestamp(1), policy }).await.unwrap();
    play("a_policy_is_not_known").await;
}
