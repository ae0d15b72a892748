//! Scopes that are limited to own targets, or to targets with a label.

use ebb_flow::operator::overrides;
use ebb_protocol::{HistoryPage, Millis, TargetDetail};
use ebb_store::{HistoryItem, TargetHead, TargetTransition};
use futures::StreamExt as _;

use super::api::{SCRIPT, routes};
use super::raw_requests;
use crate::harness::*;

const TABLE: &str = "security/target_access.yaml";
const OWN: [&str; 3] = ["read:own", "targets:write:own", "targets:reveal:own"];

async fn owners(harness: &Harness) -> (String, String) {
    (harness.token("ann", &OWN).await, harness.token("bob", &OWN).await)
}

/// Each route answers as if the target of another owner did not exist.
pub(crate) async fn no_route_reaches_a_foreign_target() {
    let harness = Harness::new().await;
    harness.run("a", "simple", SCRIPT, TargetPhase::Ready).await;
    let bob = harness.caller(&harness.token("bob", &OWN).await);
    let (run, missing) = (run_id("a", Hook::PreStart).to_string(), run_id("none", Hook::PreStart).to_string());
    let mut seen = 0;
    for route in routes(&run) {
        if !["/v1/targets/sandbox/", "/v1/runs/"].iter().any(|prefix| route.path().starts_with(prefix)) {
            continue;
        }
        seen += 1;
        let send = async |path: &str| bob.request(route.method(), path, route.body.clone()).await;
        let reply = send(route.path()).await;
        if route.path().contains("/force-") {
            reply.is_problem(403, "forbidden");
            continue;
        }
        let other = route.path().replace("/sandbox/a", "/sandbox/none").replace(&run, &missing);
        let expected = send(&other).await.is_problem(404, "not-found").detail;
        let expected = expected.replace("none", "a").replace(&missing, &run);
        assert_eq!(reply.is_problem(404, "not-found").detail, expected, "{} {}", route.method(), route.path());
    }
    assert!(seen >= 9, "{seen}");
    for query in ["", "?dryRun=true"] {
        let reply = bob.post(&format!("/v1/targets{query}"), request_for("a", "")).await;
        let problem = reply.is_problem(409, "other-owner");
        assert_eq!(problem.detail, "sandbox/a belongs to another owner: give the target another name");
    }
    assert_eq!(harness.target("a").await.unwrap().info.phase, TargetPhase::Ready);
}

/// The token of a page of the history would name an entry of a former owner, with its time and its run, and short pages
/// would count its entries.
pub(crate) async fn a_history_names_no_foreign_entry() {
    let harness = Harness::simple().await;
    let (ann, bob) = owners(&harness).await;
    let names = [("ANN_TOKEN", ann.as_str()), ("BOB_TOKEN", bob.as_str())];
    request_table::play(&harness, TABLE, "a_history_names_no_foreign_entry", &names).await;
    let page =
        async |query: &str| harness.with_token(&bob, &format!("GET /v1/targets/sandbox/a/history{query}"), None).await;
    // Only a page after very many foreign entries ends at one of them.
    let (store, begin) = (harness.stack().store(), now());
    let foreign = (1..=1_000_u64).map(|number| HistoryItem {
        at: begin.plus(Millis(number)),
        uid: "other".to_owned(),
        generation: number,
        ..HistoryItem::default()
    });
    let written = futures::stream::iter(foreign).for_each_concurrent(64, |entry| async move {
        store.note_history(TargetKey::new("sandbox", "a"), &entry).await.unwrap();
    });
    written.await;
    let all: HistoryPage = harness.get("/v1/targets/sandbox/a/history").await.is(200).json();
    let reply = page("").await;
    let HistoryPage { entries, next_token, .. } = reply.is(200).json();
    let (token, prefix) = (next_token.unwrap(), &all.entries[0].id[..10]);
    assert!(all.entries.len() == 20 && entries.is_empty() && !reply.body.contains(prefix), "{reply:?}");
    let own: HistoryPage = page(&format!("?nextToken={token}")).await.is(200).json();
    assert_eq!((own.entries.len(), own.next_token), (1, None));
}

/// A body that arrives slowly does not keep the permission for a name that another owner gets meanwhile.
pub(crate) async fn a_slow_request_reaches_no_later_owner() {
    let harness = Harness::simple().await;
    let (ann, bob) = owners(&harness).await;
    let send = async |token: &str, line: &str, body: Option<Value>| harness.with_token(token, line, body).await;
    harness.receiver.always("POST /make", 500);
    send(&ann, "POST /v1/targets", Some(simple_request("a", ""))).await.is(202);
    harness.phase("a", TargetPhase::Failed).await;
    let mut slow = Vec::new();
    for body in ["{}", r#"{"plugin":"simple@1.0.0"}"#] {
        let (line, headers) = ("POST /v1/targets/sandbox/a/retry", format!("authorization: Bearer {ann}\r\n"));
        slow.push((raw_requests::send(&harness, line, &headers, body.len(), b"{").await, &body[1..]));
    }
    // Another request shows that the first parts were read.
    let seen: TargetDetail = send(&ann, "GET /v1/targets/sandbox/a", None).await.is(200).json();
    send(&ann, "DELETE /v1/targets/sandbox/a", None).await.is(202);
    harness.phase("a", TargetPhase::Gone).await;
    send(&bob, "POST /v1/targets", Some(simple_request("a", ""))).await.is(202);
    let own = harness.phase("a", TargetPhase::Failed).await.info;
    for (mut request, rest) in slow {
        request.write_all(rest.as_bytes()).await.unwrap();
        assert_eq!(raw_requests::status(request).await, Some(404));
    }
    let uid = seen.info.uid;
    let test = "a_request_for_a_former_instance_is_refused";
    request_table::play(&harness, TABLE, test, &[("SEEN_UID", &uid), ("OWN_UID", &own.uid)]).await;
    // The instance can be replaced after the check of a request.
    let (env, key) = (harness.stack().env(), TargetKey::new("sandbox", "a"));
    let outcome = overrides::force(env, (key, Some(&uid)), None, ("gone", None), None).await;
    assert!(matches!(outcome, Ok(Err(Rejection::Refused(ErrorCode::Outdated, _)))), "{outcome:?}");
    let after = harness.target("a").await.unwrap().info;
    assert_eq!((&after.uid, after.phase, after.since), (&own.uid, TargetPhase::Failed, own.since));
    harness.post("/v1/targets/sandbox/a/retry", json!({"uid": own.uid})).await.is(202);
}

/// Stores ready sandboxes `t0000`, `t0001` and so on, each with the owner that `owner` returns.
pub(super) async fn store_targets(harness: &Harness, count: usize, owner: impl Fn(usize) -> &'static str) {
    let heads = (0..count).map(|number| {
        let head = TargetHead::new("sandbox", &format!("t{number:04}"), "u", now());
        TargetHead { phase: TargetPhase::Ready, owner: Some(owner(number).to_owned()), version: 1, ..head }
    });
    let store = harness.stack().store();
    let written = futures::stream::iter(heads).for_each_concurrent(64, |head| async move {
        assert!(store.move_target(&TargetTransition::new(head, None)).await.unwrap());
    });
    written.await;
}

/// The token of a page names the last target that was read, which the caller may not know.
pub(crate) async fn pages_name_no_foreign_target() {
    const LAST: usize = 1_049;
    let harness = Harness::new().await;
    store_targets(&harness, LAST + 1, |number| if number == LAST { "token bob" } else { "token ann" }).await;
    request_table::play(&harness, TABLE, "pages_name_no_foreign_target", &[]).await;
}
