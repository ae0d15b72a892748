//! Actions on many targets by one request, which handles a part of them. The table has the others.

use std::sync::atomic::{AtomicU64, Ordering};

use ebb_flow::ports::{Clock, SteadyTime};
use ebb_protocol::api::{TargetOutcomes, TargetSelection};

use super::api_tokens::with_clock;
use super::target_access::store_targets;
use crate::harness::*;

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
            let body = json!({"select": part, "action": {"delete": {}}, "dryRun": true});
            let reply = harness.with_token(token, "POST /v1/targets/actions", Some(body)).await;
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
