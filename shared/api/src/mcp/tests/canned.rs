//! An API of canned responses, with one target whose unit has failed.

use std::sync::{Arc, Mutex};

use ebb_protocol::api::{TargetDetail, TargetDiagnosis, TargetInfo, TargetPhase};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{Request, Response};
use serde_json::{Value, json};

use super::outcome;
use crate::mcp::api_calls::ApiTransport;
use crate::mcp::{EbbTools, ToolAccess};

/// Returns the status and the body of the response to a request `METHOD PATH`.
type CannedReply = dyn Fn(&str) -> (u16, Value) + Send + Sync;

/// An API of canned responses, which records its requests as `METHOD PATH BODY`.
#[derive(Clone)]
pub(super) struct CannedApi {
    reply: Arc<CannedReply>,
    sent: Arc<Mutex<Vec<String>>>,
}

impl CannedApi {
    pub(super) fn new(reply: impl Fn(&str) -> (u16, Value) + Send + Sync + 'static) -> Self {
        Self { reply: Arc::new(reply), sent: Arc::default() }
    }

    /// Returns the API with one response to the requests that contain `part`, and valid ones to the others.
    pub(super) fn with(part: impl Into<String>, status: u16, body: Value) -> Self {
        let part = part.into();
        Self::new(move |request| if request.contains(&part) { (status, body.clone()) } else { reply(request) })
    }

    pub(super) fn tools(&self) -> EbbTools {
        EbbTools::new(self.clone(), ToolAccess::ByScopes)
    }

    pub(super) fn take_sent(&self) -> Vec<String> {
        std::mem::take(&mut *self.sent.lock().unwrap())
    }
}

impl ApiTransport for CannedApi {
    fn send(&self, request: Request<String>) -> BoxFuture<'_, Result<Response<Vec<u8>>, String>> {
        let line = format!("{} {}", request.method(), request.uri());
        let (status, body) = (self.reply)(&line);
        let line = if request.body().is_empty() { line } else { format!("{line} {}", request.body()) };
        self.sent.lock().unwrap().push(line);
        let body = body.as_str().map_or_else(|| body.to_string(), str::to_owned).into_bytes();
        async move { Ok(Response::builder().status(status).body(body).unwrap()) }.boxed()
    }
}

pub(super) const DOCUMENT: &str = "apiVersion: ebb.dev/v1\nkind: Sandbox\nname: pr-7\n";
/// The document of the history.
pub(super) const STORED: &str =
    "apiVersion: ebb.dev/v1\nkind: Sandbox\nname: pr-7\nresources: {db: {plugin: db@1.0.0}}\n";
pub(super) const PLUGIN: &str = "apiVersion: ebb.dev/v1
kind: Plugin
name: p@1.0.0
preStart: {a: {webhook: {url: 'https://a.example'}}}
";

pub(super) fn info(name: &str, phase: TargetPhase) -> TargetInfo {
    let waits_for = (phase == TargetPhase::Starting).then(|| "the cluster".to_owned());
    let update = json!([{
        "waiter": "update", "waiterName": "4", "awaits": "units", "since": "2026-11-21T09:00:10.000Z",
        "release": "the present run ends",
    }]);
    let waits = waits_for.as_ref().map(|_| serde_json::from_value(update).unwrap()).unwrap_or_default();
    TargetInfo { kind: "sandbox".to_owned(), name: name.to_owned(), phase, waits_for, waits, ..TargetInfo::default() }
}

/// Returns a target whose unit `db/make` has failed.
pub(super) fn detail() -> TargetDetail {
    let unit = json!({
        "unit": "db/make", "kind": "pod", "state": "failed", "attempt": 2, "maxAttempts": 2, "attemptInSeries": 2,
        "reason": {"code": "exit", "message": "exit code 1"}, "log": true,
    });
    let run = json!({"id": "r-1-pre-start", "hook": "preStart", "state": "failed", "started": "", "units": [unit]});
    let resources = json!({"db": {"plugin": "db@1.0.0", "phase": "failed"}});
    TargetDetail {
        info: TargetInfo { uid: "u".to_owned(), generation: 1, ..info("pr-7", TargetPhase::Failed) },
        resources: serde_json::from_value(resources).unwrap(),
        runs: vec![serde_json::from_value(run).unwrap()],
        ..TargetDetail::default()
    }
}

fn diagnosis() -> TargetDiagnosis {
    let cause = json!({
        "run": "r-1-pre-start", "unit": "db/make", "attempt": 2, "attemptInSeries": 2,
        "reason": {"code": "exit", "message": "exit code 1"}, "file": "db@1.0.0", "line": 3, "column": 1,
        "inputs": {}, "log": ["no space"],
    });
    TargetDiagnosis {
        target: "sandbox/pr-7".to_owned(),
        phase: TargetPhase::Failed,
        summary: "db/make failed".to_owned(),
        cause: Some(serde_json::from_value(cause).unwrap()),
        next_steps: vec!["ebb retry pr-7".to_owned()],
        ..TargetDiagnosis::default()
    }
}

/// Returns an entry of a history, alone and with its document.
pub(super) fn history() -> Value {
    let entry = json!({
        "id": "2-a", "time": "", "change": "created", "by": "token ci", "uid": "u", "generation": 1, "document": "d",
    });
    let mut detail = entry.clone();
    detail["text"] = STORED.into();
    json!({"entry": entry, "detail": detail})
}

/// Returns a valid response to each request of a tool.
pub(super) fn reply(request: &str) -> (u16, Value) {
    let path = request.split(['?', ' ']).nth(1).unwrap();
    let receipt =
        json!({"target": "sandbox/pr-7", "uid": "u", "generation": 1, "result": "starting", "url": "http://x"});
    let document = "a: 1\nb: 2\n";
    let version = json!({
        "name": "db", "version": "1.0.0", "dialect": "ebb", "digest": "", "created": "", "document": document,
    });
    let targets = [info("pr-6", TargetPhase::Starting), info("pr-7", TargetPhase::Ready)];
    let body = match (request.split(' ').next().unwrap(), path) {
        ("GET", "/v1/caller") => json!({"name": "token ci", "scopes": ["read", "targets:write:own"]}),
        ("GET", "/v1/targets") => json!({ "targets": targets }),
        ("GET", "/v1/targets/sandbox/pr-7") => json!(detail()),
        ("GET", "/v1/targets/sandbox/pr-7/why") => json!(diagnosis()),
        ("GET", "/v1/runs/r-1-pre-start/logs") => json!("first\nsecond\nthird\n"),
        ("GET", "/v1/targets/sandbox/pr-7/history") => json!({"entries": [history()["entry"]]}),
        ("GET", "/v1/targets/sandbox/pr-7/history/2-a") => history()["detail"].clone(),
        ("GET", "/v1/orphans") => json!({"orphans": []}),
        ("GET", "/v1/clusters") => json!({"clusters": []}),
        ("GET", "/v1/plugins" | "/v1/plugins/db") => json!({"plugins": [version]}),
        ("GET", "/v1/plugins/db/versions/latest" | "/v1/plugins/db/versions/1.0.0") => version,
        ("GET", "/v1/plugins/p/versions/1.0.0") => {
            return (404, json!({"status": 404, "code": "not-found", "detail": "plugin p@1.0.0 is not published"}));
        }
        ("POST", "/v1/plugins") => version,
        ("POST", "/v1/plans") => json!({"digest": "d", "hooks": []}),
        ("POST", "/v1/targets") => receipt,
        ("POST", "/v1/targets/actions") => {
            json!({"outcomes": [outcome(json!({"update": receipt}))], "plugin": "db@1.0.0"})
        }
        ("POST", "/v1/targets/sandbox/pr-7/retry") => json!({"run": "r-1-pre-start", "units": ["db/make"]}),
        _ => panic!("unexpected request {request}"),
    };
    (200, body)
}
