//! Actions on several targets by one request: rights, hostile selections, limits, dry runs, and refusals of some targets.

use std::sync::atomic::{AtomicU64, Ordering};

use ebb_flow::ports::{Clock, SteadyTime};
use ebb_protocol::api::{TargetOutcome, TargetOutcomes, TargetSelection};

use super::api_tokens::with_clock;
use super::target_access::store_targets;
use crate::harness::*;
use crate::request_table;

const TABLE: &str = "security/target_actions.yaml";

async fn send(harness: &Harness, token: &str, select: Value, action: Value, is_dry_run: bool) -> ApiReply {
    let body = json!({"select": select, "action": action, "dryRun": is_dry_run});
    harness.with_token(token, "POST /v1/targets/actions", Some(body)).await
}

fn named_targets(names: &[&str]) -> Value {
    let targets: Vec<Value> = names.iter().map(|name| json!({"kind": "sandbox", "name": name})).collect();
    json!({"targets": targets})
}

/// Returns each outcome as its name with its code, or with `ok`.
fn outcomes(reply: &ApiReply) -> Vec<String> {
    let TargetOutcomes { outcomes, .. } = reply.is(200).json();
    let shown =
        |TargetOutcome { name, code, .. }: TargetOutcome| format!("{name} {}", code.unwrap_or_else(|| "ok".to_owned()));
    outcomes.into_iter().map(shown).collect()
}

/// Each target is judged as by its own route. What a caller may not read looks as if it did not exist.
pub(crate) async fn an_action_has_the_rights_of_its_caller() {
    let harness = Harness::simple().await;
    let own = ["read:own", "targets:write:own"];
    let ann = harness.token("ann", &own).await;
    let bob = harness.token("bob", &own).await;
    let viewer = harness.token("viewer", &["read", "targets:write:own"]).await;
    for (token, name) in [(&ann, "a"), (&bob, "b")] {
        harness.with_token(token, "POST /v1/targets", Some(simple_request(name, ""))).await.is(202);
        harness.phase(name, TargetPhase::Ready).await;
    }
    for action in [json!({"delete": {}}), json!({"retry": {}}), json!({"upgrade": {"plugin": "simple@1.0.0"}})] {
        let reply = send(&harness, &ann, named_targets(&["b", "none"]), action.clone(), false).await;
        let found: TargetOutcomes = reply.is(200).json();
        let [foreign, missing] = &found.outcomes[..] else { panic!("{reply:?}") };
        let as_missing = foreign.error.as_ref().map(|error| error.replace("\"b\"", "\"none\""));
        assert_eq!((&as_missing, &foreign.code), (&missing.error, &missing.code), "{action}");
        assert!(foreign.uid.is_none() && foreign.phase.is_none() && foreign.owner.is_none(), "{reply:?}");
        let reply = send(&harness, &viewer, named_targets(&["b"]), action, false).await;
        assert_eq!(outcomes(&reply), ["b forbidden"]);
        assert!(reply.body.contains("belongs to token bob"), "{reply:?}");
    }
    let names = [("ANN", ann.as_str()), ("BOB", &bob), ("VIEWER", &viewer)];
    request_table::play(&harness, TABLE, "an_action_has_the_rights_of_its_caller", &names).await;
}

/// The table has the selections of usual sizes.
pub(crate) async fn hostile_selections_change_nothing() {
    let harness = Harness::simple().await;
    harness.ready("a", "simple").await;
    let operator = harness.stack().token();
    let delete = || json!({"delete": {}});
    let target = json!({"kind": "sandbox", "name": "a"});
    let long = json!({"kind": "sandbox", "name": "x".repeat(9_000)});
    let upgrade = json!({"upgrade": {"plugin": format!("simple@{}", "9".repeat(9_000))}});
    for (select, action, status, code) in [
        (json!({"targets": vec![target.clone(); 101]}), delete(), 413, "too-large"),
        (json!({"targets": [target, long]}), delete(), 422, "invalid-field"),
        (json!({"filter": {"q": "x".repeat(1_001)}}), delete(), 400, "invalid-query"),
        (json!({"filter": {"label": vec!["a=b"; 51]}}), delete(), 400, "invalid-query"),
        (json!({"filter": {"q": "x".repeat(300_000)}}), delete(), 413, "too-large"),
        (named_targets(&["a"]), upgrade, 404, "unknown-version"),
    ] {
        send(&harness, operator, select, action, false).await.is_problem(status, code);
    }
    request_table::play(&harness, TABLE, "hostile_selections_change_nothing", &[]).await;
}

/// The rest of a selection follows from each answer, so that a program that was killed continues. Its place names no target
/// that the caller may not know.
pub(crate) async fn a_selection_is_handled_in_parts() {
    const TARGETS: usize = 230;
    let harness = Harness::new().await;
    let bob = harness.token("bob", &["read:own", "targets:write:own"]).await;
    store_targets(&harness, TARGETS, |number| if number % 2 == 0 { "token bob" } else { "token ann" }).await;
    for (token, is_limited, expected) in [(harness.stack().token(), false, 230), (&bob, true, 115)] {
        let (mut select, mut found) = (Some(json!({"filter": {"q": "t0"}})), Vec::new());
        while let Some(part) = select.take() {
            let reply = send(&harness, token, part, json!({"delete": {}}), true).await;
            let TargetOutcomes { outcomes, next, .. } = reply.is(200).json();
            assert!(
                outcomes.len() <= TargetSelection::MAX_TARGETS && outcomes.iter().all(|it| it.dry_run),
                "{reply:?}"
            );
            found.extend(outcomes.into_iter().map(|outcome| outcome.name));
            if let Some(TargetSelection::Filter(rest)) = &next {
                assert_eq!(rest.next_token.as_ref().is_some_and(|token| token.contains('/')), !is_limited, "{reply:?}");
            }
            select = next.map(|next| json!(next));
        }
        assert!(found.len() == expected && found.is_sorted(), "{found:?}");
    }
}

/// A clock by which 16 s pass between two reads of an age.
struct HurriedClock(AtomicU64);

impl Clock for HurriedClock {
    fn now(&self) -> Timestamp {
        now()
    }

    fn steady(&self) -> SteadyTime {
        SteadyTime(Millis(self.0.fetch_add(16_000, Ordering::Relaxed)))
    }
}

/// The targets of a request begin 25 at a time. After 15 s, the answer has the selection of the others.
pub(crate) async fn a_target_is_not_begun_late() {
    let harness = Harness::new().await;
    let url = with_clock(&harness, Arc::new(HurriedClock(AtomicU64::new(0)))).await;
    let targets: Vec<Value> = (0..30).map(|number| json!({"kind": "sandbox", "name": format!("t{number}")})).collect();
    let body = json!({"select": {"targets": targets}, "action": {"delete": {}}, "dryRun": true});
    let writer = ApiClient::new(&harness.http, &url, &harness.token("writer", &["targets:write"]).await);
    let reply = writer.post("/v1/targets/actions", body).await;
    let TargetOutcomes { outcomes, next, .. } = reply.is(200).json();
    let Some(TargetSelection::Targets(left)) = next else { panic!("{reply:?}") };
    let left: Vec<&str> = left.iter().map(|target| target.name.as_str()).collect();
    assert_eq!((outcomes.len(), left), (25, vec!["t25", "t26", "t27", "t28", "t29"]));
}
