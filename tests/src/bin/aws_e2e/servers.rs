//! The servers outside: that of the example with webhooks, one that runs scripts, and the platform.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use axum::{Json, Router};
use ebb_flow::ports::Clock as _;
use ebb_flow::system::SystemClock;
use ebb_protocol::sign::{self, WebhookKeys, WebhookSecret};
use serde_json::{Map, Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::keys::SignedMessage;
use crate::scripts::ScriptRunner;
use crate::steps::{http, say};

const PLATFORM: &str = "/platform";

/// Plugins whose webhook units have their servers here, each with a secret of its own.
const PLUGINS: [&str; 2] = ["tenant-services", "bucket"];

fn units(secret: WebhookSecret) -> anyhow::Result<WebhookKeys> {
    let [first, others @ ..] = PLUGINS.map(|plugin| secret.for_plugin(plugin));
    Ok(WebhookKeys::new(first, others.into())?)
}

/// What has come.
#[derive(Default)]
struct ReceivedRequests {
    /// When, by `POST /a`.
    requests: BTreeMap<String, Vec<Instant>>,
    notifications: Vec<String>,
    /// Where the last one that was accepted is to call back, and the token for that.
    accepted: Option<(String, String)>,
    /// Requests whose signature is not that of who should have sent them, and why.
    violations: Vec<String>,
}

impl ReceivedRequests {
    fn has_outcome(&self, sandbox: &str, outcome: &str) -> bool {
        let (word, subject) = (format!(".{outcome}."), format!(" sandbox/{sandbox}"));
        self.notifications.iter().any(|told| told.contains(&word) && told.ends_with(&subject))
    }
}

/// All of them, at one address. Notifications and the requests of units, those with scripts among them, are signed, each kind with a
/// secret of its own: one that is signed otherwise is refused, and whoever waits for something fails.
#[derive(Clone)]
pub(crate) struct OutsideServers {
    url: String,
    seen: Arc<Mutex<ReceivedRequests>>,
    units: WebhookKeys,
    outcomes: WebhookKeys,
    may_call_back: watch::Sender<bool>,
    scripts: ScriptRunner,
}

impl OutsideServers {
    pub(crate) async fn start(address: IpAddr, scripts: ScriptRunner) -> anyhow::Result<Self> {
        let listener = TcpListener::bind(SocketAddr::from((address, 0))).await?;
        let outside = Self {
            url: format!("http://{}", listener.local_addr()?),
            seen: Arc::default(),
            units: units(SignedMessage::Unit.secret()?)?,
            outcomes: SignedMessage::Outcome.secret()?.into(),
            may_call_back: watch::channel(false).0,
            scripts,
        };
        let router = Router::new().fallback(take).with_state(outside.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(outside)
    }

    /// Where webhook units find their servers.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Where the platform takes notifications.
    pub(crate) fn platform(&self) -> String {
        format!("{}{PLATFORM}", self.url)
    }

    fn seen(&self) -> MutexGuard<'_, ReceivedRequests> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets what was accepted call back.
    pub(crate) fn call_back(&self) {
        self.may_call_back.send_replace(true);
    }

    /// When requests such as `POST /a` came.
    pub(crate) fn times(&self, what: &str) -> Vec<Instant> {
        self.seen().requests.get(what).cloned().unwrap_or_default()
    }

    /// How many requests have come that begin like this.
    pub(crate) fn came(&self, what: &str) -> usize {
        self.seen().requests.iter().filter(|(it, _)| it.starts_with(what)).map(|(_, times)| times.len()).sum()
    }

    /// Where the last one that was accepted is to call back, and the token for that.
    pub(crate) fn accepted(&self) -> Option<(String, String)> {
        self.seen().accepted.clone()
    }

    /// Waits until a request such as `POST /a` has come.
    pub(crate) async fn wait(&self, what: &str) -> anyhow::Result<()> {
        self.until(&format!("no {what}"), |seen| seen.requests.contains_key(what)).await
    }

    /// Waits until the platform has been told of a sandbox's notification: `ready`, `gone`.
    pub(crate) async fn wait_for_outcome(&self, sandbox: &str, outcome: &str) -> anyhow::Result<()> {
        let missing = format!("the platform was not told {outcome} of {sandbox}");
        self.until(&missing, |seen| seen.has_outcome(sandbox, outcome)).await
    }

    /// Whether the platform has been told of a notification.
    pub(crate) fn has_outcome(&self, sandbox: &str, outcome: &str) -> anyhow::Result<bool> {
        self.signed()?;
        Ok(self.seen().has_outcome(sandbox, outcome))
    }

    /// Fails if a request was not signed as it should be.
    pub(crate) fn signed(&self) -> anyhow::Result<()> {
        let seen = self.seen();
        ensure!(seen.violations.is_empty(), "wrongly signed: {}", seen.violations.join("; "));
        Ok(())
    }

    async fn until(&self, missing: &str, has_come: impl Fn(&ReceivedRequests) -> bool) -> anyhow::Result<()> {
        let began = Instant::now();
        loop {
            self.signed()?;
            if has_come(&self.seen()) {
                return Ok(());
            }
            if began.elapsed() > Duration::from_secs(120) {
                bail!("{missing}");
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Writes down that a request has come. Gives how many like it there were; `None` for one that is to be refused.
    fn note(&self, what: &str, path: &str, headers: &HeaderMap, body: &[u8]) -> Option<usize> {
        let keys = if path == PLATFORM { &self.outcomes } else { &self.units };
        let verified = sign::verify(keys, headers, body, SystemClock.now());
        let mut seen = self.seen();
        if let Err(error) = verified {
            seen.violations.push(format!("{what}: {error}"));
            return None;
        }
        let times = seen.requests.entry(what.to_owned()).or_default();
        times.push(Instant::now());
        Some(times.len())
    }
}

async fn take(
    State(outside): State<OutsideServers>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let what = format!("{method} {}", uri.path());
    let Some(number) = outside.note(&what, uri.path(), &headers, &body) else {
        return StatusCode::UNAUTHORIZED.into_response();
    };
    match what.as_str() {
        "POST /tenants" => Json(json!({"id": "tenant"})).into_response(),
        "POST /indexes" => {
            outside.seen().accepted = Some(destination(&headers));
            let mut may = outside.may_call_back.subscribe();
            tokio::spawn(async move {
                may.wait_for(|may| *may).await?;
                let body = json!({"status": "succeeded", "outputs": {"endpoint": "index:9200"}});
                call_back(&headers, &body).await
            });
            StatusCode::ACCEPTED.into_response()
        }
        "POST /certificates" if number < 3 => (StatusCode::ACCEPTED, [("retry-after", "1")]).into_response(),
        "POST /certificates" => Json(json!({"id": "certificate"})).into_response(),
        _ if uri.path() == PLATFORM => {
            let event: Value = serde_json::from_slice(&body).unwrap_or_default();
            let text = |name: &str| event[name].as_str().unwrap_or_default();
            outside.seen().notifications.push(format!("{} {}", text("type"), text("subject")));
            StatusCode::NO_CONTENT.into_response()
        }
        _ if uri.path().starts_with("/scripts/") => {
            let name = uri.path().trim_start_matches("/scripts/").to_owned();
            let variables: Map<String, Value> = serde_json::from_slice(&body).unwrap_or_default();
            tokio::spawn(async move {
                match outside.scripts.run(&name, &variables).await {
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
