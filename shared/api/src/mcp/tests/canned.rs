//! An API of canned responses, with one target whose unit has failed.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, Mutex};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{Request, Response};
use serde_json::Value;

use crate::mcp::{ApiTransport, EbbTools, ToolAccess};

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
pub(super) const PLUGIN: &str = "apiVersion: ebb.dev/v1
kind: Plugin
name: p@1.0.0
preStart: {a: {webhook: {url: 'https://a.example'}}}
";

/// The bodies of the responses of `tests/canned_responses.yaml`, by `METHOD PATH`.
static RESPONSES: LazyLock<BTreeMap<String, Value>> =
    LazyLock::new(|| serde_saphyr::from_str(include_str!("../../../tests/canned_responses.yaml")).unwrap());

/// Returns the body of the response to a request `METHOD PATH`.
pub(super) fn canned(request: &str) -> Value {
    RESPONSES.get(request).unwrap_or_else(|| panic!("unexpected request {request}")).clone()
}

/// Returns a response to each request of a tool.
pub(super) fn reply(request: &str) -> (u16, Value) {
    let body = canned(request.split('?').next().unwrap());
    let status = body["status"].as_u64().map_or(200, |status| u16::try_from(status).unwrap());
    (status, body)
}
