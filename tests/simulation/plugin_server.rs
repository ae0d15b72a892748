//! A plugin of InfraKit, which every cluster has. It makes another instance with each `Provision`.
//!
//! The plugin keeps these rules, without which no client could know what exists:
//!
//! 1. It lists an instance within the processing time of its unit, and at once if the `Provision` failed.
//! 2. While it has no access, and for [`PAUSE_MS`] after that, it rejects `Provision`.
//! 3. What it has listed during the teardown of a unit stays accessible.

use ebb_protocol::infrakit::{self, KEY_TAG};

use super::*;

/// The longest wait of a relay for a response of the plugin.
const RESPONSE_MS: u64 = 13_000;
const EMPTY_MS: u64 = 300_000;
/// More than the time of an invocation, which may have seen the empty list.
const PAUSE_MS: u64 = 60_000;

#[derive(Clone, Default)]
pub(super) struct SimPlugin(Arc<Mutex<PluginState>>);

#[derive(Default)]
struct PluginState {
    made: u64,
    /// The times before which instances are not listed.
    listed_at: BTreeMap<String, u64>,
    /// The instances that were listed during their teardown.
    found: BTreeSet<String>,
    empty_until: u64,
}

fn key_of(unit: &SimUnit) -> String {
    let (resource, name) = unit.unit_key.split_once('/').unwrap_or(("", &unit.unit_key));
    let scope = key_scope(&id::instance_key(KIND, &unit.target, &unit.uid), unit.generation, unit.hook);
    id::unit_key(&scope, document_name(resource), name)
}

impl SimPlugin {
    /// Returns the response to a request, or `None` if it takes too long.
    pub(super) async fn respond(&self, executor: &Arc<SimExecutor>, request: &str) -> Option<String> {
        let request: Value = serde_json::from_str(request).expect("the functions send JSON");
        let params = &request["params"];
        let (is_empty, rejects) = {
            let mut state = lock(&self.0);
            let is_empty = executor.is_away(FaultKind::PluginEmpty, &mut state.empty_until, EMPTY_MS);
            let was_empty = state.empty_until > 0 && executor.runtime.elapsed() < state.empty_until + PAUSE_MS;
            (is_empty, is_empty || was_empty)
        };
        let result = match request["method"].as_str().expect("a request has a method") {
            "Handshake.Hello" => Ok(json!({"Objects": {infrakit::INSTANCE: []}})),
            "Instance.Validate" => Ok(json!({"OK": true})),
            "Instance.Provision" if rejects => Err("there is no access as planned".to_owned()),
            "Instance.Provision" => self.provision(executor, &params["Spec"]["Tags"][KEY_TAG]).await?,
            "Instance.DescribeInstances" => Ok(self.describe(executor, &params["Tags"][KEY_TAG], is_empty)),
            "Instance.Destroy" => self.destroy(executor, &params["Instance"], is_empty),
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
        let number = {
            let mut state = lock(&self.0);
            state.made += 1;
            state.made - 1
        };
        let ended = Arc::new(Mutex::new(None));
        let (work, end, own) = (Arc::clone(executor), Arc::clone(&ended), self.clone());
        let asked = executor.runtime.elapsed();
        let task = executor.runtime.spawn(async move {
            let _active = work.ledger.activity();
            let id = format!("{}.{number}", unit.key);
            work.runtime.sleep(unit.millis).await;
            // One that was not listed yet could not be found before the request.
            let is_listed = |id: &String| lock(&own.0).listed_at.get(id).is_none_or(|at| *at <= asked);
            let mut objects = work.ledger.state().objects.clone().into_iter();
            if objects.any(|(other, object)| object.unit.key == unit.key && is_listed(&other)) {
                work.ledger.report_violation(format!("{} makes {id} beside another instance", unit.name));
            }
            work.ledger.trace(|| format!("{} makes {id}", unit.name));
            work.ledger.state().objects.insert(id.clone(), SimObject { unit: Arc::clone(&unit), unreported: false });
            let fails = work.faults.should_inject(FaultKind::AttemptFails);
            if !fails && let Some(late) = work.inject_below(FaultKind::InstanceListedLate, unit.processing_ms / 4) {
                lock(&own.0).listed_at.insert(id.clone(), work.runtime.elapsed() + late);
            }
            *lock(&end) = Some(if fails { Err("it fails as planned".to_owned()) } else { Ok(json!({"ID": id})) });
        });
        let gives_up = executor.faults.should_inject(FaultKind::GatewayGivesUp);
        let wait = if gives_up { 0 } else { RESPONSE_MS };
        executor.runtime.first(task, executor.runtime.sleep(wait)).await;
        lock(&ended).take()
    }

    fn describe(&self, executor: &SimExecutor, key: &Value, is_empty: bool) -> Value {
        let own: Vec<(String, Arc<SimUnit>)> = {
            let state = executor.ledger.state();
            let own = state.objects.iter().filter(|(_, object)| *key == key_of(&object.unit));
            own.map(|(id, object)| (id.clone(), Arc::clone(&object.unit))).collect()
        };
        let mut found = Vec::new();
        for (id, unit) in own {
            let is_torn_down = executor.ledger.is_torn_down(&unit);
            let mut state = lock(&self.0);
            let is_late = state.listed_at.get(&id).is_some_and(|at| executor.runtime.elapsed() < *at);
            if is_late || (is_empty && !state.found.contains(&id)) {
                continue;
            }
            if is_torn_down {
                state.found.insert(id.clone());
            }
            found.push(json!({"ID": id, "Tags": {KEY_TAG: key}, "Properties": {"gateway": "10.20.0.1"}}));
        }
        json!({"Descriptions": found})
    }

    fn destroy(&self, executor: &SimExecutor, id: &Value, is_empty: bool) -> Result<Value, String> {
        let id = id.as_str().unwrap_or_default();
        if is_empty && !lock(&self.0).found.contains(id) {
            return Err("there is no such instance".to_owned());
        }
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
}
