//! Sends a notification to the receiver of its subscription, and judges the response.

use std::time::Duration;

use ebb_documents::model::NotificationPhase;
use ebb_documents::notification::{NotificationFacts, NotificationReceiver, NotificationRequest, NotifiedTarget};
use ebb_egress::deliver::DELIVERY_TIMEOUT;
use ebb_egress::{BytePermit, CallError, DeliveryOutcome, HttpRequest, HttpResponse, WebhookMessage, deliver as post};
use ebb_engine::Timestamp;
use ebb_protocol::sign::{self, MessageId, WebhookKeys};
use ebb_protocol::time::rfc3339;
use ebb_protocol::{cloudevents, id};
use ebb_store::{NamedKind, PhaseNotice};
use serde_json::{Value, json};

use super::parsed;
use crate::env::Env;
use crate::error::FlowError;
use crate::instance::notify;
use crate::offload::offload;
use crate::run::cause;
use crate::run::credential::{self, RequestCredential};
use crate::run::head::Run;
use crate::run::records;
use crate::sweep::permits::OriginPermit;

/// Maximum time of all requests of one notification.
pub(super) const TIMEOUT: Duration = DELIVERY_TIMEOUT;
/// Maximum bytes of the end of a log.
const MAX_LOG: usize = 2_000;
/// Comments that are searched for the one of a target, and those of a page. A large page is read in small ones.
const MAX_COMMENTS: usize = 300;
const LARGE_PAGE: usize = 100;
const SMALL_PAGE: usize = 10;
/// Derives the key of the marks in comments. It is not the name of a plugin.
const COMMENT_KEY: &str = "#comment";

/// The result of a delivery.
pub(super) enum NotificationDelivery {
    Accepted,
    /// It is repeated, at the earliest after this time.
    Failed(String, Option<Duration>),
    /// The subscription does not exist any more.
    Obsolete,
    /// The receiver rejects all further requests.
    Final(String),
}

/// Returns the id of a notification. Repetitions have the same one.
pub(super) fn notice_id(notice: &PhaseNotice) -> String {
    let key = notice.target.get("key").and_then(Value::as_str).unwrap_or_default();
    format!("{key}-{}-{}", notice.phase, notice.number)
}

pub(super) async fn send(
    env: &Env,
    notice: &PhaseNotice,
    subscription: &str,
) -> Result<NotificationDelivery, FlowError> {
    let failed = |reason: String| Ok(NotificationDelivery::Failed(reason, None));
    let Some(item) = env.store.get_document(NamedKind::Subscription, subscription).await? else {
        tracing::info!(subscription, "a notification of a deleted subscription is dropped");
        return Ok(NotificationDelivery::Obsolete);
    };
    let Some(rule) = offload(move || parsed(&item)).await? else {
        return failed(format!("the subscription {subscription} has errors; apply it again"));
    };
    let Ok(target) = serde_json::from_value::<NotifiedTarget>(notice.target.clone()) else {
        return Ok(NotificationDelivery::Final("the stored notification is damaged".to_owned()));
    };
    let facts = match facts(env, notice, &target).await? {
        Some(facts) => facts,
        None => return Ok(NotificationDelivery::Final("the stored notification is damaged".to_owned())),
    };
    let request = match rule.render(&target, &facts) {
        Ok(request) => request,
        Err(problem) => return failed(problem),
    };
    let id = MessageId::parse(&facts.id).map_err(|error| FlowError::Broken(error.to_string()))?;
    match (&rule.to, request) {
        (NotificationReceiver::Standard { url, secret }, NotificationRequest::Standard { data }) => {
            let keys = match secret_value(env, secret) {
                Ok(value) => {
                    WebhookKeys::parse(&value).map_err(|error| format!("the secret {secret} cannot sign: {error}"))
                }
                Err(problem) => Err(problem),
            };
            let keys = match keys {
                Ok(keys) => keys,
                Err(problem) => return failed(problem),
            };
            let event_type = format!("dev.ebb.target.{}.v1", notice.phase);
            let subject = format!("{}/{}", target.kind, target.name);
            let (content_type, body) = cloudevents::subscribed(
                &facts.id,
                &env.settings.source,
                &event_type,
                &subject,
                Timestamp(notice.at),
                &data,
            );
            let Some(permit) = OriginPermit::acquire(env, url).await else {
                return failed("no time remains".to_owned());
            };
            let begun = env.now();
            let outgoing = WebhookMessage { url, id: &id, content_type, body: &body };
            let outcome = post((env.egress.as_ref(), &env.cache.byte_budget), &keys, outgoing, begun).await;
            permit.end(env, begun);
            Ok(match outcome {
                DeliveryOutcome::Accepted => NotificationDelivery::Accepted,
                DeliveryOutcome::Gone => NotificationDelivery::Final("the server answered 410".to_owned()),
                DeliveryOutcome::Refused(reason) => NotificationDelivery::Failed(reason, None),
                DeliveryOutcome::Retry { after, reason } => NotificationDelivery::Failed(reason, after),
            })
        }
        (NotificationReceiver::Slack { secret }, NotificationRequest::Slack { body }) => {
            let url = match secret_value(env, secret) {
                Ok(url) => url,
                Err(problem) => return failed(problem),
            };
            // An error of the client can name the URL, which is the credential.
            let is_url = url::Url::parse(&url).is_ok_and(|url| matches!(url.scheme(), "http" | "https"));
            if !is_url {
                return failed(format!("the secret {secret} is not the URL of an incoming webhook"));
            }
            let receiver =
                SubscriptionOrigin { env, url: url.to_string(), credential: None, id: &id, begun: env.now() };
            Ok(verdict(
                receiver
                    .call("POST", "", Some(&body))
                    .await
                    .map(|(response, _)| response)
                    .map_err(|_| "Slack gave no answer".to_owned()),
                env,
            ))
        }
        (to, request) => {
            let Some(name) = to.connection() else { return failed("the subscription has changed".to_owned()) };
            let (url, credential) = match credential::of_subscription(env, name, subscription).await? {
                Ok(found) => found,
                Err(why) => return failed(why),
            };
            let receiver = SubscriptionOrigin { env, url, credential: Some(credential), id: &id, begun: env.now() };
            let response = match request {
                NotificationRequest::Connection { method, path, body } => {
                    let answer = receiver.call(&method, &path, Some(&body)).await;
                    answer.map(|(response, _)| response).map_err(|error| error.to_string())
                }
                NotificationRequest::Comment { path, edit, subject, text } => {
                    receiver.comment(&path, &edit, (&subject, &text)).await
                }
                NotificationRequest::Standard { .. } | NotificationRequest::Slack { .. } => {
                    return failed("the subscription has changed".to_owned());
                }
            };
            Ok(verdict(response, env))
        }
    }
}

/// Returns the value of a secret, or the reason why it has none.
fn secret_value(env: &Env, name: &str) -> Result<ebb_protocol::named_secrets::SecretText, String> {
    match env.settings.secrets.secret(name) {
        Ok(Some(value)) => Ok(value),
        Ok(None) => Err(format!("the deployment has no secret {name}")),
        Err(error) => Err(format!("the secrets of the deployment cannot be read: {error}")),
    }
}

fn verdict(response: Result<HttpResponse, String>, env: &Env) -> NotificationDelivery {
    match response {
        Err(reason) => NotificationDelivery::Failed(reason, None),
        Ok(HttpResponse { status: 200..=299, .. }) => NotificationDelivery::Accepted,
        Ok(HttpResponse { status: 410, .. }) => NotificationDelivery::Final("the server answered 410".to_owned()),
        Ok(HttpResponse { status, headers, .. }) => {
            let after = ebb_egress::retry_after(&headers, env.now());
            NotificationDelivery::Failed(format!("the server answered {status}"), after)
        }
    }
}

/// The receiver of requests: an origin with a credential, or a URL.
struct SubscriptionOrigin<'a> {
    env: &'a Env,
    url: String,
    credential: Option<RequestCredential>,
    id: &'a MessageId,
    /// The begin of the first request.
    begun: Timestamp,
}

impl SubscriptionOrigin<'_> {
    /// Sends a request. The permit belongs to the bytes of the response.
    async fn call(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<(HttpResponse, BytePermit), CallError> {
        let body = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
        let mut headers = vec![
            ("accept".to_owned(), "application/json".to_owned()),
            ("user-agent".to_owned(), "ebb".to_owned()),
            ("idempotency-key".to_owned(), self.id.as_str().to_owned()),
        ];
        if !body.is_empty() {
            headers.push(("content-type".to_owned(), "application/json".to_owned()));
        }
        if let Some(credential) = &self.credential {
            headers.extend(credential.header.iter().map(|(name, value)| (name.clone(), value.to_string())));
            if let Some(keys) = &credential.keys {
                let signature = sign::sign_with(keys, self.id, self.env.now(), &body);
                headers.extend(signature.into_iter().map(|(name, value)| (name.to_owned(), value)));
            }
        }
        let url = format!("{}{path}", self.url);
        let Some(permit) = OriginPermit::acquire(self.env, &url).await else {
            return Err(CallError::Connect("no time remains".to_owned()));
        };
        let begun = self.env.now();
        let timeout = TIMEOUT.saturating_sub(Duration::from_millis(begun.since(self.begun).0));
        if timeout.is_zero() {
            return Err(CallError::Timeout(TIMEOUT));
        }
        let request = HttpRequest { method: method.to_owned(), url, headers, body, timeout };
        let response = match &self.credential {
            Some(credential) => credential.call(self.env, request).await,
            None => self.env.egress.call_within(request, &self.env.cache.byte_budget).await,
        };
        permit.end(self.env, begun);
        response
    }

    /// Changes the comment about a subject, or creates it.
    async fn comment(&self, path: &str, edit: &str, (subject, text): (&str, &str)) -> Result<HttpResponse, String> {
        let marks = comment_marks(self.env, subject);
        let mark = marks.first().map(String::as_str).unwrap_or_default();
        let body = json!({ "body": format!("{text}\n\n{mark}") });
        let (mut size, mut seen) = (LARGE_PAGE, 0);
        while seen < MAX_COMMENTS {
            let list = format!("{path}?per_page={size}&page={}", seen / size + 1);
            let (response, bytes) = match self.call("GET", &list, None).await {
                Err(CallError::TooLarge(_)) if size > SMALL_PAGE => {
                    size = SMALL_PAGE;
                    continue;
                }
                response => response.map_err(|error| error.to_string())?,
            };
            if !matches!(response.status, 200..=299) {
                return Ok(response);
            }
            let comments: Vec<Value> =
                serde_json::from_slice(&response.body).map_err(|_| "the list of comments is not JSON".to_owned())?;
            // A log or a quotation in another comment can contain the mark, but not at its end.
            let is_own = |comment: &&Value| {
                let text = comment["body"].as_str().unwrap_or_default().trim_end();
                marks.iter().any(|mark| text.ends_with(mark))
            };
            let own = comments.iter().find(is_own).and_then(|comment| comment["id"].as_u64());
            let count = comments.len();
            // The next request needs the permit.
            drop((comments, response, bytes));
            if let Some(id) = own {
                let path = format!("{edit}/{id}");
                let changed = self.call("PATCH", &path, Some(&body)).await;
                return changed.map(|(response, _)| response).map_err(|error| error.to_string());
            }
            if count < size {
                break;
            }
            seen += size;
        }
        let created = self.call("POST", path, Some(&body)).await;
        created.map(|(response, _)| response).map_err(|error| error.to_string())
    }
}

/// Returns the marks of the comment about a subject, the one of the present key first. People who can comment cannot
/// compute the mark before the comment exists, and another installation has another mark.
fn comment_marks(env: &Env, subject: &str) -> Vec<String> {
    let mark =
        |key: &str| format!("<!-- ebb:{} -->", id::short_digest(&[key, &env.settings.installation, subject], 26));
    env.settings.unit_keys.for_plugin(COMMENT_KEY).reveal().iter().map(|key| mark(key)).collect()
}

/// Returns the facts of a notification. The cause of a failure is that of its run, if its data is still stored.
async fn facts(
    env: &Env,
    notice: &PhaseNotice,
    target: &NotifiedTarget,
) -> Result<Option<NotificationFacts>, FlowError> {
    let Ok(phase) = serde_json::from_value::<NotificationPhase>(Value::from(notice.phase.as_str())) else {
        return Ok(None);
    };
    let mut facts = NotificationFacts {
        id: notice_id(notice),
        phase,
        time: rfc3339(Timestamp(notice.at)),
        run: notice.run.as_ref().map(ToString::to_string).unwrap_or_default(),
        unit: String::new(),
        reason: String::new(),
        log: String::new(),
        ended: notice.ended.clone().unwrap_or_default(),
        link: notify::target_url(env, &target.kind, &target.name),
    };
    if let (NotificationPhase::Failed | NotificationPhase::Stuck, Some(id)) = (phase, &notice.run)
        && let Some(run) = Run::load(env, id).await?
        && let Some(first) = cause::first(env, &run).await?
    {
        facts.unit = run.unit(first.unit).map(|unit| unit.key.clone()).unwrap_or_default();
        facts.reason = first.reason.message.clone();
        if let Some(log) = env.store.get_object(&records::log_key(&run, first.unit, first.attempt)).await? {
            facts.log = records::tail(&String::from_utf8_lossy(&log), MAX_LOG).to_owned();
        }
    }
    Ok(Some(facts))
}
