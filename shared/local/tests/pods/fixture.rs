//! A state folder, a control plane that receives callbacks, and requests.

use std::future::Future;
use std::sync::Mutex;

use async_trait::async_trait;
use ebb_egress::{CallResult, HttpCall};
use ebb_local::pods::LocalRelayOptions;
use ebb_protocol::callback::FailureReason;
use ebb_protocol::relay::{TaskBody, TaskId};
use serde_json::json;
use tempfile::TempDir;

// Imports of most tests.
pub(crate) use crate::wait::{WAIT_TIMEOUT, until};
pub(crate) use ebb_egress::{CallError, HttpRequest, HttpResponse};
pub(crate) use ebb_flow::ports::{RelayClient as _, RelayError, UnitCluster};
pub(crate) use ebb_local::pods::LocalRelay;
pub(crate) use ebb_protocol::callback::{Callback, CallbackStatus, ReasonCode};
pub(crate) use ebb_protocol::relay::{EnsureTask, ScriptInput, ScriptTask, TaskState};
pub(crate) use ebb_protocol::value::UnitValue;
pub(crate) use std::fs;
pub(crate) use std::path::{Path, PathBuf};
pub(crate) use std::sync::Arc;
pub(crate) use std::time::Duration;

pub(crate) const URL: &str = "http://control.plane/v1/callbacks";

pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap().block_on(future)
}

/// Responds with the given statuses, then with 200, and keeps the requests.
#[derive(Default)]
pub(crate) struct ControlPlane {
    pub(crate) answers: Mutex<Vec<CallResult<u16>>>,
    pub(crate) requests: Mutex<Vec<HttpRequest>>,
}

#[async_trait]
impl HttpCall for ControlPlane {
    async fn call(&self, request: HttpRequest) -> CallResult<HttpResponse> {
        self.requests.lock().unwrap().push(request);
        let answer = {
            let mut answers = self.answers.lock().unwrap();
            if answers.is_empty() { Ok(200) } else { answers.remove(0) }
        };
        answer.map(|status| HttpResponse::new(status, ""))
    }
}

pub(crate) struct PodsFixture {
    pub(crate) relay: LocalRelay,
    pub(crate) control: Arc<ControlPlane>,
    pub(crate) state: TempDir,
}

impl PodsFixture {
    pub(crate) fn new() -> Self {
        Self::in_folder(tempfile::tempdir().unwrap())
    }

    pub(crate) fn in_folder(state: TempDir) -> Self {
        let control = Arc::new(ControlPlane::default());
        let relay = LocalRelay::open(state.path(), options(control.clone())).unwrap();
        Self { relay, control, state }
    }

    pub(crate) async fn ensure(&self, request: EnsureTask<ScriptTask>) -> TaskState {
        self.relay.ensure(UnitCluster::default(), of_script(request)).await.unwrap()
    }

    pub(crate) async fn get(&self, name: &TaskId) -> TaskState {
        self.relay.get(UnitCluster::default(), name).await.unwrap()
    }

    pub(crate) async fn cancel(&self, name: &TaskId, grace: Duration) -> TaskState {
        self.relay.cancel(UnitCluster::default(), name, grace).await.unwrap()
    }

    pub(crate) async fn run(&self, request: EnsureTask<ScriptTask>) -> Callback {
        let name = request.task.clone();
        self.ensure(request).await;
        self.ended(&name).await
    }

    pub(crate) async fn ended(&self, name: &TaskId) -> Callback {
        until("the end of the work", async || match self.get(name).await {
            TaskState::Ended(result) => Some(*result),
            TaskState::Running { .. } | TaskState::Queued { .. } => None,
            other => panic!("{other:?}"),
        })
        .await
    }

    pub(crate) async fn starts(&self, request: &EnsureTask<ScriptTask>, text: &str) -> String {
        self.ensure(request.clone()).await;
        self.prints(&request.task, text).await
    }

    /// Returns the number of callbacks.
    pub(crate) fn sent(&self) -> usize {
        self.control.requests.lock().unwrap().len()
    }

    pub(crate) async fn prints(&self, name: &TaskId, text: &str) -> String {
        until("the script prints", async || match self.get(name).await {
            TaskState::Running(task) => task.log.contains(text).then_some(task.log),
            other => panic!("{other:?}"),
        })
        .await
    }

    pub(crate) fn folder(&self, name: &TaskId) -> std::path::PathBuf {
        self.state.path().join("pods").join(&name.unit).join(name.attempt.to_string())
    }
}

pub(crate) fn options(call: Arc<dyn HttpCall>) -> LocalRelayOptions {
    let extra_env = vec![("EXTRA".to_owned(), "from the relay".to_owned())];
    let callbacks = Some((call, URL.to_owned()));
    LocalRelayOptions { callbacks, extra_env, plugins: PathBuf::new(), containers: None }
}

pub(crate) fn name(unit: &str, attempt: u32) -> TaskId {
    TaskId { unit: unit.to_owned(), attempt }
}

/// Returns the request that the control plane sends for a script.
pub(crate) fn of_script(request: EnsureTask<ScriptTask>) -> EnsureTask {
    let EnsureTask { v, task, valid_for_ms, timeout_ms, callback, names, body } = request;
    EnsureTask { v, task, valid_for_ms, timeout_ms, callback, names, body: TaskBody::Script(body) }
}

pub(crate) fn sh(lines: &str) -> EnsureTask<ScriptTask> {
    let text = format!("#!/bin/sh\n{lines}\n");
    let request = json!({
        "v": 1, "task": name("run-0", 1), "validForMs": 600_000, "timeoutMs": 600_000,
        "callback": {"url": URL, "token": "the-token"},
        "body": {"image": "ignored", "text": text, "env": [], "inputs": [], "outputs": []},
    });
    serde_json::from_value(request).unwrap()
}

pub(crate) fn with_outputs(mut request: EnsureTask<ScriptTask>, outputs: &[(&str, &str)]) -> EnsureTask<ScriptTask> {
    let output = |(name, path): &(&str, &str)| json!({"name": name, "path": path});
    request.body.outputs = serde_json::from_value(outputs.iter().map(output).collect()).unwrap();
    request
}

pub(crate) fn input(name: &str, env: Option<&str>, path: Option<&str>, value: Option<UnitValue>) -> ScriptInput {
    let (env, path) = (env.map(str::to_owned), path.map(str::to_owned));
    let sensitive = matches!(value, Some(UnitValue::Secret(_)));
    ScriptInput { name: name.to_owned(), env, path, value, sensitive }
}

pub(crate) fn text(value: &str) -> Option<UnitValue> {
    Some(UnitValue::Json(value.into()))
}

pub(crate) fn attempt(number: u32, mut request: EnsureTask<ScriptTask>) -> EnsureTask<ScriptTask> {
    request.task.attempt = number;
    request
}

pub(crate) fn assert_failed(result: &Callback, code: ReasonCode, part: &str) {
    let reason = reason(result);
    assert!(reason.code == code && reason.message.contains(part), "{code:?} {part:?}: {result:?}");
}

pub(crate) fn reason(result: &Callback) -> &FailureReason {
    result.reason.as_ref().unwrap_or_else(|| panic!("no reason: {result:?}"))
}

pub(crate) fn output<'a>(result: &'a Callback, name: &str) -> &'a str {
    result.outputs.get(name).and_then(|value| value.as_str()).unwrap_or_else(|| panic!("{result:?}"))
}

/// Returns true if a process lives and is no zombie.
pub(crate) fn lives(pid: &str) -> bool {
    std::fs::read_to_string(Path::new("/proc").join(pid.trim()).join("stat"))
        .is_ok_and(|stat| !stat.rsplit_once(") ").unwrap().1.starts_with(['Z', 'X']))
}
