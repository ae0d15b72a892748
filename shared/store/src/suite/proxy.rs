//! A proxy between the SDK and the table, as the HTTP client of the SDK. It passes requests on and injects faults of a
//! network or a busy table.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use aws_sdk_dynamodb::config::http::{HttpRequest, HttpResponse};
use aws_sdk_dynamodb::config::{HttpClient as _, SharedHttpClient};
use aws_sdk_dynamodb::error::ConnectorError;
use aws_smithy_http_client::Builder;
use aws_smithy_http_client::tls::Provider;
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use aws_smithy_runtime_api::client::http::{HttpConnector, HttpConnectorFuture, SharedHttpConnector, http_client_fn};
use aws_smithy_runtime_api::client::retries::ErrorKind;
use serde_json::{Value, json};

#[derive(Clone, Debug)]
pub(super) enum ProxyFault {
    /// The proxy responds, and the request does not reach the table.
    Respond(u16, Value),
    /// The connection is closed, and the request does not reach the table.
    LoseRequest,
    /// The request reaches the table, and the connection is closed without a response.
    LoseReply,
}

impl ProxyFault {
    pub(super) fn error(status: u16, code: &str) -> Self {
        let kind = format!("com.amazonaws.dynamodb.v20120810#{code}");
        Self::Respond(status, json!({"__type": kind, "message": "injected"}))
    }

    /// Returns the response of a transaction that was cancelled for these reasons, one per item.
    pub(super) fn cancelled(codes: &[&str]) -> Self {
        let reasons: Vec<Value> = codes.iter().map(|code| json!({"Code": code, "Message": "injected"})).collect();
        let Self::Respond(status, mut body) = Self::error(400, "TransactionCanceledException") else {
            unreachable!("an error is a response")
        };
        body["CancellationReasons"] = Value::Array(reasons);
        Self::Respond(status, body)
    }
}

#[derive(Debug, Default)]
struct ProxyState {
    plan: BTreeMap<String, VecDeque<ProxyFault>>,
    hits: usize,
    requests: Vec<(String, Value)>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct FaultProxy {
    state: Arc<Mutex<ProxyState>>,
}

impl FaultProxy {
    /// Returns the client that the SDK has by default, behind the proxy.
    pub(super) fn http_client(&self) -> SharedHttpClient {
        let proxy = self.clone();
        let table = Builder::new().tls_provider(Provider::Rustls(CryptoMode::AwsLc)).build_https();
        http_client_fn(move |settings, components| {
            let table = table.http_connector(settings, components);
            SharedHttpConnector::new(ProxyConnector { table, proxy: proxy.clone() })
        })
    }

    fn state(&self) -> MutexGuard<'_, ProxyState> {
        self.state.lock().unwrap()
    }

    /// Injects these faults into the next requests of `operation`, one each.
    pub(super) fn plan(&self, operation: &str, faults: impl IntoIterator<Item = ProxyFault>) {
        self.state().plan.entry(operation.to_owned()).or_default().extend(faults);
    }

    /// Awaits a request to the store. The first response to `operation` is lost.
    pub(super) async fn losing<T>(&self, operation: &str, request: impl Future<Output = T>) -> T {
        self.plan(operation, [ProxyFault::LoseReply]);
        let response = request.await;
        assert_eq!(self.hits(), 1, "{operation}");
        response
    }

    /// Returns the number of faults since the last call, and removes those that were not reached.
    pub(super) fn hits(&self) -> usize {
        let mut state = self.state();
        state.plan.clear();
        std::mem::take(&mut state.hits)
    }

    /// Returns operation and body of the requests since the last call.
    pub(super) fn requests(&self) -> Vec<(String, Value)> {
        std::mem::take(&mut self.state().requests)
    }
}

#[derive(Debug)]
struct ProxyConnector {
    table: SharedHttpConnector,
    proxy: FaultProxy,
}

impl HttpConnector for ProxyConnector {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let target = request.headers().get("x-amz-target").unwrap_or_default();
        let operation = target.rsplit('.').next().unwrap_or_default().to_owned();
        let input: Value = serde_json::from_slice(request.body().bytes().unwrap()).unwrap();
        let fault = {
            let mut state = self.proxy.state();
            let fault = state.plan.get_mut(&operation).and_then(VecDeque::pop_front);
            state.hits += usize::from(fault.is_some());
            state.requests.push((operation, input));
            fault
        };
        match fault {
            Some(ProxyFault::Respond(status, body)) => {
                let response = HttpResponse::new(status.try_into().unwrap(), body.to_string().into());
                HttpConnectorFuture::ready(Ok(response))
            }
            Some(ProxyFault::LoseRequest) => HttpConnectorFuture::ready(Err(closed())),
            Some(ProxyFault::LoseReply) => {
                let response = self.table.call(request);
                HttpConnectorFuture::new(async move { response.await.and_then(|_| Err(closed())) })
            }
            None => self.table.call(request),
        }
    }
}

/// Returns the error of the SDK's client for a connection that a server closes without a response.
fn closed() -> ConnectorError {
    ConnectorError::other("injected".into(), Some(ErrorKind::TransientError))
}
