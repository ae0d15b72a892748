//! A plugin of InfraKit, which every cluster has. It makes another instance with each `Provision`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use ebb_documents::plan::document_name;
use ebb_protocol::id;
use ebb_protocol::infrakit::{self, KEY_TAG};
use serde_json::{Value, json};

use super::executor::SimExecutor;
use super::ledger::{SimActivity, SimObject};
use super::registry::{SimUnit, key_scope};
use super::runtime::lock;
use super::{FaultKind, KIND};

/// The longest wait of a relay for a response of the plugin.
const RESPONSE_MS: u64 = 13_000;

#[derive(Clone, Default)]
pub(super) struct SimPlugin {
    count: Arc<AtomicU64>,
}

fn key_of(unit: &SimUnit) -> String {
    let (resource, name) = unit.unit_key.split_once('/').unwrap_or(("", &unit.unit_key));
    let scope = key_scope(&id::instance_key(KIND, &unit.target, &unit.uid), unit.generation, unit.hook.into());
    id::unit_key(&scope, document_name(resource), name)
}

impl SimPlugin {
    /// Returns the response to a request, or `None` if it takes too long.
    pub(super) async fn respond(&self, executor: &Arc<SimExecutor>, request: &str) -> Option<String> {
        let request: Value = serde_json::from_str(request).expect("the functions send JSON");
        let params = &request["params"];
        let result = match request["method"].as_str().expect("a request has a method") {
            "Handshake.Hello" => Ok(json!({"Objects": {infrakit::INSTANCE: []}})),
            "Instance.Validate" => Ok(json!({"OK": true})),
            "Instance.Provision" => self.provision(executor, &params["Spec"]["Tags"][KEY_TAG]).await?,
            "Instance.DescribeInstances" => Ok(describe(executor, &params["Tags"][KEY_TAG])),
            "Instance.Destroy" => destroy(executor, &params["Instance"]),
            other => Err(format!("there is no method {other}")),
        };
        let (key, value) = match result {
            Ok(result) => ("result", result),
            Err(message) => ("error", json!({"code": -32000, "message": message})),
        };
        Some(json!({"jsonrpc": "2.0", "id": request["id"], key: value}).to_string())
    }

    async fn provision(&self, executor: &Arc<SimExecutor>, key: &Value) -> Option<Result<Value, String>> {
        let unit = executor.ledger.state().units.values().find(|unit| *key == key_of(unit)).cloned();
        let unit = unit.expect("the tag is that of a unit");
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        let ended = Arc::new(Mutex::new(None));
        let (work, end) = (Arc::clone(executor), Arc::clone(&ended));
        let task = executor.runtime.spawn(async move {
            let _active = SimActivity::new(&work.ledger);
            let id = format!("{}.{number}", unit.key);
            work.runtime.sleep(unit.millis).await;
            let others = work.ledger.state().objects.values().filter(|object| object.unit.key == unit.key).count();
            if others > 0 {
                work.ledger.report_violation(format!("{} makes {id} beside another instance", unit.name));
            }
            work.ledger.trace(|| format!("{} makes {id}", unit.name));
            let object = SimObject { unit: Arc::clone(&unit), unreported: false };
            work.ledger.state().objects.insert(id.clone(), object);
            let fails = work.faults.should_inject(FaultKind::AttemptFails);
            *lock(&end) = Some(if fails { Err("it fails as planned".to_owned()) } else { Ok(json!({"ID": id})) });
        });
        let gives_up = executor.faults.should_inject(FaultKind::GatewayGivesUp);
        let wait = if gives_up { 0 } else { RESPONSE_MS };
        executor.runtime.first(task, executor.runtime.sleep(wait)).await;
        lock(&ended).take()
    }
}

fn describe(executor: &SimExecutor, key: &Value) -> Value {
    let state = executor.ledger.state();
    let found = state.objects.iter().filter(|(_, object)| *key == key_of(&object.unit));
    let found: Vec<Value> = found
        .map(|(id, _)| json!({"ID": id, "Tags": {KEY_TAG: key}, "Properties": {"gateway": "10.20.0.1"}}))
        .collect();
    json!({"Descriptions": found})
}

fn destroy(executor: &SimExecutor, id: &Value) -> Result<Value, String> {
    let id = id.as_str().unwrap_or_default();
    let (object, undo) = {
        let mut state = executor.ledger.state();
        let object = state.objects.remove(id).ok_or("there is no such instance")?;
        let undo = state.units.values().find(|undo| undo.undoes.contains(&object.unit.key)).cloned();
        (object, undo)
    };
    executor.ledger.trace(|| format!("destroys {id}"));
    match undo {
        Some(undo) => executor.ledger.check_undone(&undo, "destroys"),
        None => executor.ledger.report_violation(format!("nothing undoes {}", object.unit.name)),
    }
    Ok(json!({"OK": true}))
}
