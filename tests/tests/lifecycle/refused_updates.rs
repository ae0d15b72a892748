//! The policies of clusters that refuse updates. The tables have the updates.

use std::sync::atomic::{AtomicBool, Ordering};

use ebb_protocol::callback::{Callback, CallbackStatus};
use ebb_protocol::listing::{RelayInfo, ReportedPolicy};
use ebb_protocol::relay::{RelayRequest, RelayResponse, TaskState};

use crate::harness::*;
use crate::request_table;

/// Returns the answer of a relay that makes every object. A strict one reports a policy that allows no ConfigMap.
fn respond(request: RelayRequest, is_strict: bool) -> RelayResponse {
    match request {
        RelayRequest::About => {
            let kinds = [if is_strict { "Secret" } else { "ConfigMap" }.to_owned()].into();
            let policy =
                ReportedPolicy { unit_namespace: Some("units".to_owned()), kinds, ..ReportedPolicy::default() };
            RelayResponse::About(RelayInfo { version: "1".to_owned(), up_ms: 1, tasks: 0, policy: Some(policy) })
        }
        RelayRequest::Ensure(_) | RelayRequest::Get(_) | RelayRequest::Status(_) => {
            let outputs = [("id".to_owned(), json!("made"))].into();
            let made = Callback { outputs, ..Callback::new(CallbackStatus::Succeeded) };
            RelayResponse::State(TaskState::Ended(Box::new(made)))
        }
        _ => RelayResponse::Done,
    }
}

/// A policy counts in its own cluster, and when an update begins. One that waits is checked again.
pub(crate) async fn the_policy_of_a_cluster_counts_when_an_update_begins() {
    let [strict, far] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
    let relay = |strict: &Arc<AtomicBool>| {
        let strict = Arc::clone(strict);
        Harness::relay(move |request| respond(request, strict.load(Ordering::Relaxed)))
    };
    let ((_default, default), (_far, other)) = (relay(&strict).await, relay(&far).await);
    let harness = Harness::with_clusters(&json!({"default": default, "far": other})).await;
    let play = async |test: &str| request_table::play(&harness, "lifecycle/refused_updates.yaml", test, &[]).await;
    play("policies_permit").await;
    far.store(true, Ordering::Relaxed);
    strict.store(true, Ordering::Relaxed);
    play("policies_refuse").await;
    strict.store(false, Ordering::Relaxed);
    let hold = harness.receiver.hold("POST /create");
    play("an_update_waits").await;
    strict.store(true, Ordering::Relaxed);
    drop(hold);
    play("the_update_is_refused").await;
    strict.store(false, Ordering::Relaxed);
    play("the_update_is_permitted").await;
}
