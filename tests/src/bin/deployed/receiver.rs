//! The servers outside: that of the example with webhooks, one that runs scripts, and the platform.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::bail;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use axum::{Json, Router};
use serde_json::{Map, Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::scripts::Scripts;
use crate::steps::{http, say};

/// What came, and when callbacks may go.
#[derive(Clone)]
pub(crate) struct Receiver {
    url: String,
    came: Arc<Mutex<BTreeMap<String, Vec<Instant>>>>,
    told: Arc<Mutex<Vec<String>>>,
    accepted: Arc<Mutex<Option<(String, String)>>>,
    may: watch::Sender<bool>,
    scripts: Scripts,
}

impl Receiver {
    pub(crate) async fn start(address: IpAddr, scripts: Scripts) -> anyhow::Result<Self> {
        let listener = TcpListener::bind(SocketAddr::from((address, 0))).await?;
        let receiver = Self {
            url: format!("http://{}", listener.local_addr()?),
            came: Arc::default(),
            told: Arc::default(),
            accepted: Arc::default(),
            may: watch::channel(false).0,
            scripts,
        };
        let router = Router::new().fallback(take).with_state(receiver.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(receiver)
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Lets what was accepted call back.
    pub(crate) fn call_back(&self) {
        self.may.send_replace(true);
    }

    /// When requests such as `POST /a` came.
    pub(crate) fn times(&self, what: &str) -> Vec<Instant> {
        self.came.lock().unwrap_or_else(PoisonError::into_inner).get(what).cloned().unwrap_or_default()
    }

    /// How many requests have come that begin like this.
    pub(crate) fn came(&self, what: &str) -> usize {
        let came = self.came.lock().unwrap_or_else(PoisonError::into_inner);
        came.iter().filter(|(it, _)| it.starts_with(what)).map(|(_, times)| times.len()).sum()
    }

    /// Where the last one that was accepted is to call back, and the token for that.
    pub(crate) fn accepted(&self) -> Option<(String, String)> {
        self.accepted.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until a request such as `POST /a` has come.
    pub(crate) async fn wait(&self, what: &str) -> anyhow::Result<()> {
        let began = Instant::now();
        while self.times(what).is_empty() {
            if began.elapsed() > Duration::from_secs(120) {
                bail!("no {what}");
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    /// Waits until the platform has been told of a sandbox's outcome: `ready`, `gone`.
    pub(crate) async fn told(&self, sandbox: &str, outcome: &str) -> anyhow::Result<()> {
        let began = Instant::now();
        while !self.was_told(sandbox, outcome) {
            if began.elapsed() > Duration::from_secs(120) {
                bail!("the platform was not told {outcome} of {sandbox}");
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    /// Whether the platform has been told of an outcome.
    pub(crate) fn was_told(&self, sandbox: &str, outcome: &str) -> bool {
        let (word, subject) = (format!(".{outcome}."), format!(" sandbox/{sandbox}"));
        let told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.iter().any(|told| told.contains(&word) && told.ends_with(&subject))
    }
}

async fn take(
    State(receiver): State<Receiver>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let what = format!("{method} {}", uri.path());
    let number = {
        let mut came = receiver.came.lock().unwrap_or_else(PoisonError::into_inner);
        let number = came.entry(what.clone()).or_default();
        number.push(Instant::now());
        number.len()
    };
    match what.as_str() {
        "POST /tenants" => Json(json!({"id": "tenant"})).into_response(),
        "POST /indexes" => {
            let to = destination(&headers);
            receiver.accepted.lock().unwrap_or_else(PoisonError::into_inner).replace(to);
            let mut may = receiver.may.subscribe();
            tokio::spawn(async move {
                may.wait_for(|may| *may).await?;
                let body = json!({"status": "succeeded", "outputs": {"endpoint": "index:9200"}});
                call_back(&headers, &body).await
            });
            StatusCode::ACCEPTED.into_response()
        }
        "POST /certificates" if number < 3 => (StatusCode::ACCEPTED, [("retry-after", "1")]).into_response(),
        "POST /certificates" => Json(json!({"id": "certificate"})).into_response(),
        "POST /platform" => {
            let event: Value = serde_json::from_slice(&body).unwrap_or_default();
            let text = |name: &str| event[name].as_str().unwrap_or_default();
            let told = format!("{} {}", text("type"), text("subject"));
            receiver.told.lock().unwrap_or_else(PoisonError::into_inner).push(told);
            StatusCode::NO_CONTENT.into_response()
        }
        _ if uri.path().starts_with("/scripts/") => {
            let name = uri.path().trim_start_matches("/scripts/").to_owned();
            let variables: Map<String, Value> = serde_json::from_slice(&body).unwrap_or_default();
            tokio::spawn(async move {
                match receiver.scripts.run(&name, &variables).await {
                    Ok(body) => call_back(&headers, &body).await,
                    Err(error) => {
                        say(&format!("{name}: {error:#}"));
                        Ok(())
                    }
                }
            });
            StatusCode::ACCEPTED.into_response()
        }
        _ if method == Method::DELETE => StatusCode::NO_CONTENT.into_response(),
        _ => StatusCode::NOT_FOUND.into_response(),
    }
}

fn destination(headers: &HeaderMap) -> (String, String) {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    (text("ebb-callback-url").to_owned(), text("ebb-callback-token").to_owned())
}

/// Reports the end of what was accepted, until that is taken.
async fn call_back(headers: &HeaderMap, body: &Value) -> anyhow::Result<()> {
    let ((url, token), http, body) = (destination(headers), http()?, body.to_string());
    loop {
        let request = http.post(&url).bearer_auth(&token);
        let request = request.header("content-type", "application/json").body(body.clone());
        if request.send().await.is_ok_and(|answer| !answer.status().is_server_error()) {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}
