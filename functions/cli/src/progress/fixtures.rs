//! Views of targets for tests, a client of a server for one test, and rows of tables.

use std::collections::BTreeMap;

use axum::Router;
use ebb_protocol::api::{RunDetail, RunState, TargetDetail, UnitDetail, UnitState, UnitWait};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::{AddressOrigin, ApiClient, ServerAccess, TargetRef, WatchedInstance};

pub(crate) const NOW: &str = "2026-11-21T09:00:10Z";

/// Returns the rows of a test in `tests/rows.yaml`.
pub(crate) fn rows<T: DeserializeOwned>(test: &str) -> Vec<T> {
    let mut all: BTreeMap<String, Value> = serde_saphyr::from_str(include_str!("../../tests/rows.yaml")).unwrap();
    serde_json::from_value(all.remove(test).unwrap()).unwrap()
}

pub(crate) fn unit(key: &str, state: UnitState) -> UnitDetail {
    unit_of(&json!({"unit": key, "state": state}))
}

/// Returns the first of three attempts of a script, with other fields.
fn unit_of(fields: &Value) -> UnitDetail {
    let mut unit = json!({"kind": "pod", "attempt": 1, "maxAttempts": 3, "attemptInSeries": 1});
    unit.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    serde_json::from_value(unit).unwrap()
}

pub(crate) fn run(id: &str, hook: &str, state: RunState, started: &str, units: Vec<UnitDetail>) -> RunDetail {
    RunDetail { id: id.to_owned(), hook: hook.to_owned(), state, started: started.to_owned(), units, next_token: None }
}

/// Returns a target without runs.
pub(crate) fn target(phase: &str, since: &str) -> TargetDetail {
    let target = json!({
        "kind": "sandbox", "name": "pr-1", "uid": "a", "generation": 2, "phase": phase,
        "since": since, "created": since, "plugins": [], "resources": {}, "runs": [],
    });
    serde_json::from_value(target).unwrap()
}

/// Returns the instance of all views.
pub(crate) fn instance() -> WatchedInstance {
    let target = TargetRef { kind: "sandbox".to_owned(), name: "pr-1".to_owned() };
    WatchedInstance { target, uid: "a".to_owned(), generation: 2 }
}

/// Returns a view with a unit in every state.
pub(crate) fn busy() -> TargetDetail {
    let run = first_run(include_str!("fixtures.json"), RunState::Running);
    TargetDetail { runs: vec![run], ..target("starting", STARTED) }
}

const STARTED: &str = "2026-11-21T09:00:00Z";

fn first_run(units: &str, state: RunState) -> RunDetail {
    let units: Vec<Value> = serde_json::from_str(units).unwrap();
    run("k3-1-pre-start", "preStart", state, STARTED, units.iter().map(unit_of).collect())
}

pub(crate) async fn client_of(router: Router) -> ApiClient {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    tokio::spawn(axum::serve(listener, router).into_future());
    let (token, origin) = (None, AddressOrigin::Given);
    ApiClient::new(ServerAccess { url, token, has_given_token: false, webhook_secret: None, origin }).unwrap()
}

/// Returns the view of `busy` in which the running unit waits: first for a rollout, then for what a person has to end.
pub(crate) fn waiting(message: &str) -> TargetDetail {
    let mut view = busy();
    let wait = |object: &str, message: &str, resolves: &str| -> UnitWait {
        let wait = json!({
            "object": object, "code": "timeout", "message": message, "since": "2026-11-21T09:00:08Z", "resolves": resolves,
        });
        serde_json::from_value(wait).unwrap()
    };
    let mut waits = vec![wait("Job units/a", "it runs", "itself"), wait("Deployment units/web", message, "person")];
    waits[1].fails_at = Some("2026-11-21T09:01:08Z".to_owned());
    view.runs[0].units[1].waits = waits;
    view
}

/// Returns the view of `busy` in which the running unit waits for a cluster that does not respond.
pub(crate) fn outage() -> TargetDetail {
    let outage = json!({"cluster": "eu", "since": "2026-11-21T09:00:06Z", "reason": "it polls", "units": ["db/seed"]});
    TargetDetail { outage: Some(serde_json::from_value(outage).unwrap()), ..busy() }
}

/// Returns the view of `busy` after its run has ended, while the target stops.
pub(crate) fn done() -> TargetDetail {
    let started = "2026-11-21T09:00:09Z";
    let undo = UnitDetail { started: Some(started.to_owned()), ..unit("db/drop", UnitState::Running) };
    let teardown = run("k3-1-post-stop", "postStop", RunState::Running, started, vec![undo]);
    let setup = first_run(include_str!("ended.json"), RunState::Failed);
    TargetDetail { runs: vec![setup, teardown], ..target("stopping", STARTED) }
}

/// Returns a view with `count` units: one failed, three running.
pub(crate) fn wide(count: usize) -> TargetDetail {
    let mut view = busy();
    view.runs[0].units = (0..count)
        .map(|number| {
            let state = match number {
                7 => UnitState::Failed,
                500..=502 => UnitState::Running,
                ..500 => UnitState::Succeeded,
                _ => UnitState::Waiting,
            };
            UnitDetail { max_attempts: 1, ..unit(&format!("fan/unit-{number}"), state) }
        })
        .collect();
    view
}
