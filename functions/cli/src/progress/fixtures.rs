//! Views of targets for tests, a client of a server for one test, and rows of tables.

use std::collections::BTreeMap;

use axum::Router;
use ebb_protocol::api::{TargetDetail, UnitDetail, UnitState};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::{AddressOrigin, ApiClient, ServerAccess, TargetRef, WatchedInstance};

pub(crate) const NOW: &str = "2026-11-21T09:00:10Z";

/// Returns the rows of a test in `tests/rows.yaml`.
pub(crate) fn rows<T: DeserializeOwned>(test: &str) -> Vec<T> {
    let mut all: BTreeMap<String, Value> = serde_saphyr::from_str(include_str!("../../tests/rows.yaml")).unwrap();
    serde_json::from_value(all.remove(test).unwrap()).unwrap()
}

/// Returns a view of `targets.json`. `busy` has a unit in every state. The others have other fields of the target, and of its
/// unit that runs.
pub(crate) fn target(name: &str) -> TargetDetail {
    type Fields = Map<String, Value>;
    let mut views: BTreeMap<String, (Fields, Fields)> = serde_json::from_str(include_str!("targets.json")).unwrap();
    let (fields, unit_fields) = views[name].clone();
    let (mut target, _) = views.remove("busy").unwrap();
    target.extend(fields);
    target["runs"][0]["units"][1].as_object_mut().unwrap().extend(unit_fields);
    serde_json::from_value(target.into()).unwrap()
}

/// Returns the view of `busy` in which the running unit waits: first for a rollout, then for what a person has to end.
pub(crate) fn waiting(message: &str) -> TargetDetail {
    let mut view = target("waiting");
    message.clone_into(&mut view.runs[0].units[1].waits[1].message);
    view
}

/// Returns the instance of all views.
pub(crate) fn instance() -> WatchedInstance {
    let target = TargetRef { kind: "sandbox".to_owned(), name: "pr-1".to_owned() };
    WatchedInstance { target, uid: "a".to_owned(), generation: 2 }
}

pub(crate) async fn client_of(router: Router) -> ApiClient {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    tokio::spawn(axum::serve(listener, router).into_future());
    let (token, origin) = (None, AddressOrigin::Given);
    ApiClient::new(ServerAccess { url, token, has_given_token: false, webhook_secret: None, origin }).unwrap()
}

/// Returns a view with `count` units: one failed, three running.
pub(crate) fn wide(count: usize) -> TargetDetail {
    let mut view = target("busy");
    let skipped = view.runs[0].units.remove(6);
    view.runs[0].units = (0..count)
        .map(|number| {
            let state = match number {
                7 => UnitState::Failed,
                500..=502 => UnitState::Running,
                ..500 => UnitState::Succeeded,
                _ => UnitState::Waiting,
            };
            UnitDetail { key: format!("fan/unit-{number}"), state, max_attempts: 1, ..skipped.clone() }
        })
        .collect();
    view
}
