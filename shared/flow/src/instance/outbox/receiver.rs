//! Sends a notification to the receiver of its subscription, and reads the response.

use std::time::Duration;

use ebb_documents::model::ReceiverDoc;
use ebb_documents::notification::{NotificationFacts, NotificationRequest, NotificationRule};
use ebb_documents::render::TargetFacts;
use ebb_egress::{BytePermit, CallError, CallResult, HttpCall, HttpRequest, HttpResponse};
use ebb_engine::{TargetChange, Timestamp};
use ebb_protocol::id::TargetKey;
use ebb_protocol::lifecycle::{OutcomeData, TargetStopCause};
use ebb_protocol::named_secrets::SecretText;
use ebb_protocol::sign::{MessageId, WebhookKeys, sign_with};
use ebb_protocol::time::rfc3339;
use ebb_protocol::{cloudevents, id};
use ebb_store::{NamedKind, PhaseNotice};
use serde::Serialize;
use serde_json::{Value, json};

use super::parsed;
use crate::pending_call::PendingCall;
use crate::run::credential::{self, ConnectionUser, RequestCredential};
use crate::run::{cause, records};
use crate::{Env, FlowError, FlowResult, offload};

/// Maximum time of all requests of one notification (Standard Webhooks: 15 to 30 seconds).
pub(super) const TIMEOUT: Duration = Duration::from_secs(15);
/// Maximum bytes of the end of a log.
const MAX_LOG: usize = 2_000;
/// Comments that are searched for the one of a target, and those of a page. A large page is read in small ones.
const MAX_COMMENTS: usize = 300;
const LARGE_PAGE: usize = 100;
const SMALL_PAGE: usize = 10;
/// Derives the key of the marks in comments. It is not the name of a plugin.
const COMMENT_KEY: &str = "#comment";

#[derive(Debug, PartialEq, Eq)]
pub(in crate::instance) enum NotificationDelivery {
    Accepted,
    /// The receiver responded that it cannot accept the notification now, or before this time.
    Failed(String, Option<Duration>),
    Refused(String),
    /// The receiver rejects all further requests (410).
    Gone,
    NoResponse(String),
    /// Nothing was sent, because of the configuration.
    NotSent(String),
    /// The subscription does not exist any more.
    Obsolete,
    /// A repetition has the same result.
    Final(String),
}

impl NotificationDelivery {
    /// Ends its request. One that was not sent says nothing about the receiver.
    pub(in crate::instance) fn end(&self, call: PendingCall<'_>) {
        call.end(|circuit, begun, now| match self {
            Self::Accepted | Self::Failed(..) | Self::Refused(_) | Self::Gone => circuit.record_busy(begun, now),
            Self::NoResponse(_) => circuit.record_failure(begun, now),
            Self::NotSent(_) | Self::Obsolete | Self::Final(_) => {}
        });
    }

    /// Returns the reason of a result after which the notification is repeated.
    pub(in crate::instance) fn failure(&self) -> Option<&str> {
        match self {
            Self::Failed(reason, _) | Self::Refused(reason) | Self::NoResponse(reason) | Self::NotSent(reason) => {
                Some(reason)
            }
            Self::Accepted | Self::Gone | Self::Obsolete | Self::Final(_) => None,
        }
    }

    /// Returns the wait that the receiver requests before a repetition.
    pub(in crate::instance) fn at_least(&self) -> Option<Duration> {
        match self {
            Self::Failed(_, at_least) => *at_least,
            _ => None,
        }
    }
}

/// Returns the id of a notification. Repetitions have the same one.
pub(super) fn notice_id(notice: &PhaseNotice) -> String {
    let key = notice.target.get("key").and_then(Value::as_str).unwrap_or_default();
    format!("{key}-{}-{}", notice.phase.name(), notice.number)
}

/// Sends a notification once. It must not block others, so nothing is sent if its stored data is lost or damaged.
pub(super) async fn send(env: &Env, notice: &PhaseNotice, subscription: &str) -> NotificationDelivery {
    let (Ok(delivery) | Err(delivery)) = try_send(env, notice, subscription).await;
    delivery
}

/// Does the same as [`send`]. An error is the result of a delivery, too.
async fn try_send(
    env: &Env,
    notice: &PhaseNotice,
    subscription: &str,
) -> Result<NotificationDelivery, NotificationDelivery> {
    let not_sent = NotificationDelivery::NotSent;
    let damaged = || NotificationDelivery::Final("the stored notification is damaged".to_owned());
    if notice.is_for_platform() {
        let TargetFacts { kind, name, uid, generation, .. } =
            serde_json::from_value(notice.target.clone()).map_err(|_| damaged())?;
        let mut data = OutcomeData { kind, name, uid, generation, ..OutcomeData::default() };
        match (notice.phase, &notice.run) {
            (TargetChange::EventSucceeded | TargetChange::EventFailed, Some(id)) => {
                data.event = Some(id.hook().name().to_owned());
                data.run = Some(id.to_string());
                if is_failure(notice.phase)
                    && let Some((run, first)) = cause::of_run(env, id).await?
                {
                    data.unit = run.unit(first.unit).map(|unit| unit.key.clone());
                    data.reason = Some(first.reason);
                }
            }
            (TargetChange::PreStopEnded, _) => {}
            _ => data.stop_cause = Some(TargetStopCause::Deleted),
        }
        let Some(url) = &env.settings.platform_url else { return Ok(NotificationDelivery::Obsolete) };
        return Ok(post_outcome(env, url, notice.phase, notice.at, &data).await?);
    }
    let changed = || NotificationDelivery::NotSent("the subscription has changed".to_owned());
    let item = env.store.get_document(NamedKind::Subscription, subscription).await.map_err(FlowError::from)?;
    let Some(item) = item else {
        tracing::info!(subscription, "a notification of a deleted subscription is dropped");
        return Ok(NotificationDelivery::Obsolete);
    };
    let rule = offload(move || parsed(&item)).await?;
    let rule = rule.ok_or_else(|| not_sent(format!("the subscription {subscription} has errors; apply it again")))?;
    let target: TargetFacts = serde_json::from_value(notice.target.clone()).map_err(|_| damaged())?;
    let facts = facts(env, notice, &target).await?;
    // The values of the notification never change. A corrected subscription applies to later ones.
    let request = rule.render(&target, &facts).map_err(NotificationDelivery::Final)?;
    let id = MessageId::parse(&facts.id).map_err(|error| FlowError::Broken(error.to_string()))?;
    match (&rule.to, request) {
        (ReceiverDoc::Standard(standard), NotificationRequest::Standard { data }) => {
            let keys = signing_keys(env, &standard.secret.value).map_err(not_sent)?;
            let key = TargetKey::new(&target.kind, &target.name);
            let event = (&id, notice.phase.name(), notice.at);
            Ok(post_event(env, (env.egress.as_ref(), standard.url.value.as_str(), &keys), event, key, &data).await)
        }
        (ReceiverDoc::Slack(slack), NotificationRequest::Slack { body }) => {
            let url = slack_url(env, &slack.secret.value).map_err(not_sent)?;
            let receiver =
                SubscriptionOrigin { env, url: url.to_string(), credential: None, id: &id, begun: env.now() };
            Ok(match receiver.call("POST", "", Some(&body)).await {
                Err(_) => NotificationDelivery::NoResponse("Slack gave no answer".to_owned()),
                Ok((response, _)) => verdict(&response, env.now()),
            })
        }
        (to, request) => {
            let name = to.connection().ok_or_else(changed)?;
            let user = ConnectionUser::Subscription(subscription);
            let (url, credential) = credential::of_user(env, name, user).await?.map_err(not_sent)?;
            let credential = credential.ready(env, TIMEOUT).await?.map_err(|problem| not_sent(problem.why))?;
            let receiver = SubscriptionOrigin { env, url, credential: Some(credential), id: &id, begun: env.now() };
            let (response, _bytes) = match request {
                NotificationRequest::Connection { method, path, body } => {
                    receiver.call(&method, &path, Some(&body)).await?
                }
                NotificationRequest::Comment { path, edit, subject, text } => {
                    receiver.comment(&path, &edit, (&subject, &text)).await?
                }
                NotificationRequest::Standard { .. } | NotificationRequest::Slack { .. } => return Err(changed()),
            };
            Ok(verdict(&response, env.now()))
        }
    }
}

/// Sends an outcome to the platform once. `since` is the time at which `phase` was entered.
pub(in crate::instance) async fn post_outcome(
    env: &Env,
    url: &str,
    phase: TargetChange,
    since: Timestamp,
    data: &OutcomeData,
) -> FlowResult<NotificationDelivery> {
    let target = TargetKey::new(&data.kind, &data.name);
    // One notification has one id, so that a receiver recognises a repetition. A target that fails again after a retry
    // has a new one.
    let (instance, name) = (target.instance(&data.uid).key(), phase.name());
    let id = format!("{instance}-{}-{name}-{}", data.generation, since.0);
    let id = MessageId::parse(&id).map_err(|error| FlowError::Broken(error.to_string()))?;
    let phase = match phase {
        TargetChange::Ready if data.reason.is_some() => TargetChange::Failed,
        phase => phase,
    };
    let platform = (env.platform.as_ref(), url, &env.settings.platform_keys);
    let delivery = post_event(env, platform, (&id, phase.name(), since), target, data).await;
    if matches!(delivery, NotificationDelivery::Gone) {
        let (kind, name) = (target.kind, target.name);
        tracing::warn!(kind, name, "the platform responded 410; the notification is not repeated");
    }
    Ok(delivery)
}

/// Sends a CloudEvent about a change of a target once, signed with `keys`.
async fn post_event(
    env: &Env,
    (call, url, keys): (&dyn HttpCall, &str, &WebhookKeys),
    (id, phase, time): (&MessageId, &str, Timestamp),
    target: TargetKey<'_>,
    data: &impl Serialize,
) -> NotificationDelivery {
    let event_type = format!("dev.ebb.target.{phase}.v1");
    let (content_type, body) =
        cloudevents::event(id.as_str(), &env.settings.source, &event_type, &target.to_string(), time, data);
    let mut headers = vec![("content-type".to_owned(), content_type.to_owned())];
    headers.extend(sign_with(keys, id, env.now(), &body).map(|(name, value)| (name.to_owned(), value)));
    let request = HttpRequest { method: "POST".to_owned(), url: url.to_owned(), headers, body, timeout: TIMEOUT };
    match call.call_within(request, &env.cache.budgets.bytes).await {
        Ok((response, _)) => verdict(&response, env.now()),
        Err(error) => error.into(),
    }
}

impl From<FlowError> for NotificationDelivery {
    fn from(error: FlowError) -> Self {
        Self::NotSent(error.to_string())
    }
}

impl From<CallError> for NotificationDelivery {
    fn from(error: CallError) -> Self {
        let reason = error.to_string();
        match error {
            CallError::Refused(_) => Self::NotSent(reason),
            CallError::Connect(_) | CallError::Timeout(_) => Self::NoResponse(reason),
            CallError::TooLarge(_) => Self::Failed(reason, None),
        }
    }
}

/// The receiver of a subscription.
#[derive(Debug, Default)]
pub struct ReceiverInfo {
    pub origin: Option<String>,
    /// The reason why nothing can be sent. It contains no secret.
    pub problem: Option<String>,
}

/// Returns the receiver of a subscription, without a request to it.
pub async fn receiver_info(env: &Env, rule: &NotificationRule) -> FlowResult<ReceiverInfo> {
    let origin = |url: &str| url::Url::parse(url).ok().map(|url| url.origin().ascii_serialization());
    Ok(match &rule.to {
        ReceiverDoc::Standard(standard) => ReceiverInfo {
            origin: origin(&standard.url.value),
            problem: signing_keys(env, &standard.secret.value).err(),
        },
        ReceiverDoc::Slack(slack) => match slack_url(env, &slack.secret.value) {
            Ok(url) => ReceiverInfo { origin: origin(&url), problem: None },
            Err(problem) => ReceiverInfo { origin: None, problem: Some(problem) },
        },
        to => {
            let (name, user) = (to.connection().unwrap_or_default(), ConnectionUser::Subscription(&rule.name));
            match credential::of_user(env, name, user).await? {
                Ok((origin, _)) => ReceiverInfo { origin: Some(origin), problem: None },
                Err(problem) => ReceiverInfo { origin: None, problem: Some(problem) },
            }
        }
    })
}

/// Returns the keys of a secret, or the reason why it cannot sign.
fn signing_keys(env: &Env, secret: &str) -> Result<WebhookKeys, String> {
    let value = secret_value(env, secret)?;
    WebhookKeys::parse(&value).map_err(|error| format!("the secret {secret} cannot sign: {error}"))
}

/// Returns the URL of an incoming webhook of Slack. It is a credential, so the error does not repeat it.
fn slack_url(env: &Env, secret: &str) -> Result<SecretText, String> {
    let value = secret_value(env, secret)?;
    let wrong = |problem: &str| format!("the secret {secret} is not the URL of an incoming webhook: {problem}");
    match url::Url::parse(&value) {
        Ok(url) if url.scheme() == "https" => Ok(value),
        Ok(url) if url.scheme() == "http" => Err(wrong("its credential would not be encrypted; expected `https://`")),
        Ok(_) | Err(_) => Err(wrong("expected `https://`")),
    }
}

/// Returns the value of a secret, or the reason why it has none.
fn secret_value(env: &Env, name: &str) -> Result<SecretText, String> {
    match env.settings.secrets.secret(name) {
        Ok(Some(value)) => Ok(value),
        Ok(None) => Err(format!("the deployment has no secret {name}")),
        Err(error) => Err(format!("the secrets of the deployment cannot be read: {error}")),
    }
}

/// Returns the result of a response. A status of the class 4xx rejects the notification, unless it, `retry-after` or a limit of
/// requests announces that a later request can succeed.
fn verdict(response: &HttpResponse, now: Timestamp) -> NotificationDelivery {
    let hint = match response.status {
        200..=299 => return NotificationDelivery::Accepted,
        410 => return NotificationDelivery::Gone,
        300..=399 => ": redirects are not followed; use the final URL",
        401 | 403 if !response.is_limited() => ": check the secret or the credential, and its permissions",
        404 => ": check the URL",
        _ => "",
    };
    let reason = format!("the server answered {}{hint}", response.status_text());
    match (response.status, response.retry_after(now)) {
        (400..=499, None) if !matches!(response.status, 408 | 425) => NotificationDelivery::Refused(reason),
        (_, after) => NotificationDelivery::Failed(reason, after),
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
    async fn call(&self, method: &str, path: &str, body: Option<&Value>) -> CallResult<(HttpResponse, BytePermit)> {
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
            headers.extend(credential.headers(self.env, self.id, &body));
        }
        let url = format!("{}{path}", self.url);
        let timeout = TIMEOUT.saturating_sub(Duration::from_millis(self.env.now().since(self.begun).0));
        if timeout.is_zero() {
            return Err(CallError::Timeout(TIMEOUT));
        }
        let request = HttpRequest { method: method.to_owned(), url, headers, body, timeout };
        match &self.credential {
            Some(credential) => credential.call(self.env, request).await,
            None => self.env.egress.call_within(request, &self.env.cache.budgets.bytes).await,
        }
    }

    /// Changes the comment about a subject, or creates it.
    async fn comment(
        &self,
        path: &str,
        edit: &str,
        (subject, text): (&str, &str),
    ) -> Result<(HttpResponse, BytePermit), NotificationDelivery> {
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
                response => response?,
            };
            if !matches!(response.status, 200..=299) {
                return Ok((response, bytes));
            }
            let comments: Vec<Value> = serde_json::from_slice(&response.body)
                .map_err(|_| NotificationDelivery::Failed("the list of comments is not JSON".to_owned(), None))?;
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
                return Ok(self.call("PATCH", &path, Some(&body)).await?);
            }
            if count < size {
                break;
            }
            seen += size;
        }
        Ok(self.call("POST", path, Some(&body)).await?)
    }
}

/// Returns the marks of the comment about a subject, the one of the present key first. People who can comment cannot
/// compute the mark before the comment exists, and another installation has another mark.
fn comment_marks(env: &Env, subject: &str) -> Vec<String> {
    let mark =
        |key: &str| format!("<!-- ebb:{} -->", id::short_digest(&[key, &env.settings.installation, subject], 26));
    env.settings.unit_keys.for_plugin(COMMENT_KEY).reveal().iter().map(|key| mark(key)).collect()
}

/// Returns true for a change whose notification has a cause.
fn is_failure(change: TargetChange) -> bool {
    matches!(change, TargetChange::Failed | TargetChange::Stuck | TargetChange::EventFailed)
}

/// Returns the facts of a notification. The cause of a failure is that of its run, if its data is still stored.
async fn facts(env: &Env, notice: &PhaseNotice, target: &TargetFacts) -> FlowResult<NotificationFacts> {
    let mut facts = NotificationFacts {
        id: notice_id(notice),
        phase: notice.phase,
        time: rfc3339(notice.at),
        run: notice.run.as_ref().map(ToString::to_string).unwrap_or_default(),
        unit: String::new(),
        reason: String::new(),
        log: String::new(),
        ended: notice.ended.clone().unwrap_or_default(),
        link: env.page_url(TargetKey::new(&target.kind, &target.name)),
    };
    if let Some(id) = notice.run.as_ref().filter(|_| is_failure(notice.phase))
        && let Some((run, first)) = cause::of_run(env, id).await?
    {
        facts.unit = run.unit(first.unit).map(|unit| unit.key.clone()).unwrap_or_default();
        facts.reason = first.reason.message.clone();
        if let Some(log) = env.store.bucket.get_object(&records::log_key(&run, first.unit, first.attempt)).await? {
            facts.log = records::tail(&String::from_utf8_lossy(&log), MAX_LOG).to_owned();
        }
    }
    Ok(facts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_responses() {
        let failed = |reason: &str, seconds: Option<u64>| {
            NotificationDelivery::Failed(reason.to_owned(), seconds.map(Duration::from_secs))
        };
        let refused = |reason: &str| NotificationDelivery::Refused(reason.to_owned());
        let moved = "the server answered 308: redirects are not followed; use the final URL";
        for (status, wait, expected) in [
            (200, None, NotificationDelivery::Accepted),
            (202, Some("3600"), NotificationDelivery::Accepted),
            (299, None, NotificationDelivery::Accepted),
            (308, None, failed(moved, None)),
            (400, None, refused("the server answered 400")),
            (401, None, refused("the server answered 401: check the secret or the credential, and its permissions")),
            (404, None, refused("the server answered 404: check the URL")),
            (409, Some("5"), failed("the server answered 409", Some(5))),
            (410, Some("3600"), NotificationDelivery::Gone),
            (403, Some("5"), failed("the server answered 403 (no requests left)", Some(5))),
            (429, None, failed("the server answered 429", Some(30))),
            (503, Some("Tue, 14 Nov 2023 22:15:20 GMT"), failed("the server answered 503", Some(120))),
            (999, None, failed("the server answered 999", None)),
        ] {
            let headers = wait.map(|wait| ("retry-after".to_owned(), wait.to_owned())).into_iter().collect();
            let response = HttpResponse { status, headers, body: Vec::new() };
            assert_eq!(verdict(&response, Timestamp(1_700_000_000_000)), expected, "{status}");
        }
    }

    #[test]
    fn results_of_calls_without_a_response() {
        let text = str::to_owned;
        for (error, expected) in [
            (CallError::Refused(text("port 22")), NotificationDelivery::NotSent(text("port 22"))),
            (CallError::Connect(text("reset")), NotificationDelivery::NoResponse(text("reset"))),
            (CallError::Timeout(TIMEOUT), NotificationDelivery::NoResponse(text("no response within 15 s"))),
            (CallError::TooLarge(9), NotificationDelivery::Failed(text("the response is larger than 9 bytes"), None)),
        ] {
            let case = error.to_string();
            assert_eq!(NotificationDelivery::from(error), expected, "{case}");
        }
    }
}
