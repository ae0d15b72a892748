//! Sends a notification to the receiver of its subscription, and reads the response.

use std::collections::BTreeMap;
use std::time::Duration;

use ebb_documents::TargetFacts;
use ebb_documents::model::ReceiverDoc;
use ebb_documents::notification::{self, NotificationFacts, NotificationRequest, NotificationRule};
use ebb_documents::template::is_loopback;
use ebb_egress::{BytePermit, CallError, HttpCall, HttpRequest, HttpResponse};
use ebb_engine::{Hook, Millis, TargetChange, TargetPhase, Timestamp};
use ebb_protocol::lifecycle::OutcomeData;
use ebb_protocol::sign::sign_with;
use ebb_protocol::{
    MessageId, OutputValue, RunId, SecretText, TargetKey, TargetStopCause, WebhookKeys, cloudevents, id, rfc3339,
};
use ebb_store::{NamedKind, PhaseNotice, TargetHead};
use serde::Serialize;
use serde_json::{Value, json};

use super::parsed;
use crate::instance::target_outputs::{SensitiveValues, target_outputs};
use crate::run::credential::{self, ConnectionUser, RequestCredential};
use crate::run::{cause, records};
use crate::{Env, FlowError, FlowResult, PendingCall, circuit_wait, offload};

/// Maximum time of all requests of one notification (Standard Webhooks: 15 to 30 seconds).
pub(super) const TIMEOUT: Duration = Duration::from_secs(15);
/// Maximum bytes of the end of a log.
const MAX_LOG: usize = 2_000;
/// Maximum bytes of the values of a target in a notification, and of one of them. Larger ones are left out.
const MAX_VALUES: usize = 64 << 10;
const MAX_VALUE: usize = 8 << 10;
/// Maximum redirects of a request that are followed.
const MAX_REDIRECTS: usize = 3;

/// The last response to a notification, with the permit of its bytes.
pub(super) type LastResponse = (HttpResponse, BytePermit);

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
        if let Self::Failed(_, at_least) = self { *at_least } else { None }
    }
}

/// Returns the id of a notification. Repetitions have the same one.
pub(super) fn notice_id(notice: &PhaseNotice) -> String {
    let key = notice.target.get("key").and_then(Value::as_str).unwrap_or_default();
    format!("{key}-{}-{}", notice.phase.name(), notice.number)
}

/// Sends a notification once. It must not block others, so nothing is sent if its stored data is lost or damaged. An error is
/// the result of a delivery, too.
pub(super) async fn send(
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
            let (event, url) = ((&id, notice.phase.name(), notice.at), standard.url.value.as_str());
            Ok(post_event(env, (env.egress.as_ref(), url, &keys), Some(url), event, key, &data).await)
        }
        (ReceiverDoc::Slack(slack), NotificationRequest::Slack { body }) => {
            let url = slack_url(env, &slack.secret.value).map_err(not_sent)?;
            let receiver =
                SubscriptionOrigin { env, url: url.to_string(), credential: None, id: &id, begun: env.now() };
            // An error names the host and the address, and nothing else of the URL.
            let (response, _) = receiver.call("POST", "", Some(&body)).await?;
            Ok(verdict(&response, env.now()))
        }
        (to, request) => {
            let name = &to.connection().ok_or_else(changed)?.value;
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
                NotificationRequest::Deployment { path, query, body, status, is_end } => {
                    let answered = receiver.deployment((&path, &query), &body, &status, is_end).await?;
                    let Some(answered) = answered else { return Ok(NotificationDelivery::Accepted) };
                    answered
                }
                NotificationRequest::Standard { .. } | NotificationRequest::Slack { .. } => return Err(changed()),
            };
            // GitLab rejects the state that a status has already.
            let is_repeated = |body: &[u8]| String::from_utf8_lossy(body).contains("Cannot transition status");
            if matches!(to, ReceiverDoc::Gitlab(_)) && response.status == 400 && is_repeated(&response.body) {
                return Ok(NotificationDelivery::Accepted);
            }
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
    let mut message = format!("{instance}-{}-{name}-{}", data.generation, since.0);
    // Several events can end at one time.
    if let Some(run) = data.run.as_ref().filter(|_| data.event.is_some()) {
        message = format!("{message}-{}", id::short_digest(&[run], 8));
    }
    let id = MessageId::parse(&message).map_err(|error| FlowError::Broken(error.to_string()))?;
    let phase = match phase {
        TargetChange::Ready if data.reason.is_some() => TargetChange::Failed,
        phase => phase,
    };
    let platform = (env.platform.as_ref(), url, &env.settings.platform_keys);
    let delivery = post_event(env, platform, None, (&id, phase.name(), since), target, data).await;
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
    limited: Option<&str>,
    (id, phase, time): (&MessageId, &str, Timestamp),
    target: TargetKey<'_>,
    data: &impl Serialize,
) -> NotificationDelivery {
    let event_type = format!("dev.ebb.target.{phase}.v1");
    let (content_type, body) =
        cloudevents::event(id.as_str(), &env.settings.source, &event_type, &target.to_string(), time, data);
    let mut headers = vec![("content-type".to_owned(), content_type.to_owned())];
    headers.extend(sign_with(keys, id, env.now(), &body).map(|(name, value)| (name.to_owned(), value)));
    let request = HttpRequest::new("POST", url, headers, body, TIMEOUT);
    match send_request(env, (call, None), limited, (request, false), env.now()).await {
        Ok((response, _)) => verdict(&response, env.now()),
        Err(delivery) => delivery,
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
            CallError::TooLarge(_) => Self::Failed(reason, None),
            _ => Self::NoResponse(reason),
        }
    }
}

#[derive(Debug, Default)]
pub struct ReceiverInfo {
    pub origin: Option<String>,
    /// The reason why nothing can be sent. It contains no secret.
    pub problem: Option<String>,
}

/// Returns the receiver of a subscription, without a request to it.
pub async fn receiver_info(env: &Env, rule: &NotificationRule) -> FlowResult<ReceiverInfo> {
    let origin = |url: &str| url::Url::parse(url).ok().map(|url| url.origin().ascii_serialization());
    let found = match &rule.to {
        ReceiverDoc::Standard(standard) => {
            let problem = signing_keys(env, &standard.secret.value).err();
            return Ok(ReceiverInfo { origin: origin(&standard.url.value), problem });
        }
        ReceiverDoc::Slack(slack) => slack_url(env, &slack.secret.value).map(|url| origin(&url)),
        to => {
            let name = to.connection().map_or("", |name| &name.value);
            let user = ConnectionUser::Subscription(&rule.name);
            credential::of_user(env, name, user).await?.map(|(origin, _)| Some(origin))
        }
    };
    Ok(match found {
        Ok(origin) => ReceiverInfo { origin, problem: None },
        Err(problem) => ReceiverInfo { origin: None, problem: Some(problem) },
    })
}

/// Returns the keys of a secret, or the reason why it cannot sign.
fn signing_keys(env: &Env, secret: &str) -> Result<WebhookKeys, String> {
    let value = credential::secret_value(env.settings.secrets.secret(secret), secret, "")?;
    WebhookKeys::parse(&value).map_err(|error| format!("the secret {secret} cannot sign: {error}"))
}

/// Returns the URL of an incoming webhook of Slack. It is a credential, so the error does not repeat it.
fn slack_url(env: &Env, secret: &str) -> Result<SecretText, String> {
    let value = credential::secret_value(env.settings.secrets.secret(secret), secret, "")?;
    let wrong = |problem: &str| format!("the secret {secret} is not the URL of an incoming webhook: {problem}");
    match url::Url::parse(&value) {
        Ok(url) if url.scheme() == "https" || (url.scheme() == "http" && is_loopback(&url)) => Ok(value),
        Ok(url) if url.scheme() == "http" => Err(wrong("it begins with `http://`; expected `https://`")),
        Ok(_) | Err(_) => Err(wrong("expected `https://`")),
    }
}

/// Returns the result of a response. A status of the classes 3xx and 4xx rejects the notification, unless it, `retry-after` or a
/// limit of requests announces that a later request can succeed.
pub(super) fn verdict(response: &HttpResponse, now: Timestamp) -> NotificationDelivery {
    let hint = match response.status {
        200..=299 => return NotificationDelivery::Accepted,
        410 => return NotificationDelivery::Gone,
        300..=399 => ": only three redirects within the origin are followed",
        401 | 403 if !response.is_limited() => ": check the secret or the credential, and its permissions",
        404 => ": check the URL",
        _ => "",
    };
    let reason = format!("the server answered {}{hint}", response.status_text());
    match (response.status, response.retry_after(now)) {
        (300..=499, None) if !matches!(response.status, 408 | 425) => NotificationDelivery::Refused(reason),
        (_, after) => NotificationDelivery::Failed(reason, after),
    }
}

/// The receiver of requests: an origin with a credential, or a URL.
pub(super) struct SubscriptionOrigin<'a> {
    pub(super) env: &'a Env,
    url: String,
    credential: Option<RequestCredential>,
    id: &'a MessageId,
    /// The begin of the first request.
    begun: Timestamp,
}

impl SubscriptionOrigin<'_> {
    /// Sends a request. One without a body is a question, whose answer is read. The permit belongs to the bytes of the response.
    pub(super) async fn call(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<LastResponse, NotificationDelivery> {
        let reads = body.is_none();
        let body = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
        let mut headers = vec![
            ("accept".to_owned(), "application/json".to_owned()),
            ("user-agent".to_owned(), "ebb".to_owned()),
            ("idempotency-key".to_owned(), self.id.as_str().to_owned()),
        ];
        if !body.is_empty() {
            headers.push(("content-type".to_owned(), "application/json".to_owned()));
        }
        headers.extend(self.credential.iter().flat_map(|credential| credential.headers(self.env, self.id, &body)));
        let request = HttpRequest::new(method, format!("{}{path}", self.url), headers, body, TIMEOUT);
        let sender = (self.env.egress.as_ref(), self.credential.as_ref());
        send_request(self.env, sender, Some(&self.url), (request, reads), self.begun).await
    }
}

/// Sends a request within [`TIMEOUT`] after `begun`. A redirect within its origin is followed with the same method, headers and
/// body: GitHub redirects the requests about a repository that was renamed. Each request passes the guard. Unless the caller
/// `reads` the body, the status is enough. While a limit of requests holds for `limited`, a URL or the origin of the credential,
/// nothing is sent.
async fn send_request(
    env: &Env,
    (call, credential): (&dyn HttpCall, Option<&RequestCredential>),
    limited: Option<&str>,
    (mut request, reads): (HttpRequest, bool),
    begun: Timestamp,
) -> Result<LastResponse, NotificationDelivery> {
    let digest = credential.map(|credential| credential.digest(env));
    let of_url = |url| format!("#limit/{}", id::short_digest(&[url, digest.as_ref().map_or("", |it| it.text())], 26));
    let limit = limited.map(of_url);
    let held = limit.as_ref().map_or(Millis(0), |limit| circuit_wait(env, limit));
    if held > Millis(0) {
        let reason = "a limit of requests holds for the receiver".to_owned();
        return Err(NotificationDelivery::Failed(reason, Some(Duration::from_millis(held.0))));
    }
    let mut redirects = 0;
    loop {
        request.timeout = TIMEOUT.saturating_sub(Duration::from_millis(env.now().since(begun).0));
        if request.timeout.is_zero() {
            return Err(CallError::Timeout(TIMEOUT).into());
        }
        let answer = match credential {
            Some(credential) => credential.call(env, request.clone()).await,
            None => call.call_within(request.clone(), &env.cache.budgets.bytes).await,
        };
        let answer = answer.or_else(|error| error.without_body(reads).map(|head| (head, BytePermit::default())))?;
        if let (Some(limit), true) = (&limit, answer.0.is_limited()) {
            let until = answer.0.retry_after(env.now()).map(|wait| env.steady().plus(wait.into()));
            env.cache.breakers.change(limit, |circuit| circuit.retry = circuit.retry.max(until));
        }
        let Some(url) = moved(&request.url, &answer.0).filter(|_| redirects < MAX_REDIRECTS) else {
            return Ok(answer);
        };
        request.url = url;
        redirects += 1;
    }
}

/// Returns the URL of a redirect within the origin of a request. 303 requests another method, and is not followed.
fn moved(url: &str, response: &HttpResponse) -> Option<String> {
    let location = response.header("location").filter(|_| matches!(response.status, 301 | 302 | 307 | 308))?;
    let url = url::Url::parse(url).ok()?;
    url.join(location).ok().filter(|to| to.origin() == url.origin()).map(String::from)
}

/// Returns true for a change whose notification has a cause.
fn is_failure(change: TargetChange) -> bool {
    matches!(change, TargetChange::Failed | TargetChange::Stuck | TargetChange::EventFailed)
}

/// Returns the facts of a notification. The cause of a failure is that of its run, if its data is still stored.
async fn facts(env: &Env, notice: &PhaseNotice, target: &TargetFacts) -> FlowResult<NotificationFacts> {
    let has_values =
        matches!(notice.phase, TargetChange::Ready | TargetChange::EventSucceeded | TargetChange::EventFailed);
    let mut facts = NotificationFacts {
        id: notice_id(notice),
        phase: notice.phase,
        time: rfc3339(notice.at),
        run: notice.run.as_ref().map(ToString::to_string).unwrap_or_default(),
        ended: notice.ended.clone().unwrap_or_default(),
        link: env.page_url(TargetKey::new(&target.kind, &target.name)),
        owner: notice.owner.clone().unwrap_or_default(),
        event: match notice.run.as_ref().map(RunId::hook) {
            Some(Hook::Event(event)) if has_values && notice.phase != TargetChange::Ready => event.as_str().to_owned(),
            _ => String::new(),
        },
        ..NotificationFacts::default()
    };
    if has_values {
        add_values(env, &mut facts, target).await?;
    }
    if let Some(id) = notice.run.as_ref().filter(|_| is_failure(notice.phase))
        && let Some((run, first)) = cause::of_run(env, id).await?
    {
        facts.unit = run.unit(first.unit).map(|unit| unit.key.clone()).unwrap_or_default();
        facts.reason = first.reason.message.clone();
        if let Some(log) = env.store.bucket.get_object(&records::log_key(&run, first.unit, first.attempt)).await? {
            let log = String::from_utf8_lossy(&log);
            let end = records::tail(&log, MAX_LOG);
            // A cut line would be misread.
            let whole = end.split_once('\n').filter(|_| end.len() < log.len()).map_or(end, |(_, rest)| rest);
            facts.log = whole.chars().filter(|&c| !c.is_control() || matches!(c, '\n' | '\t')).collect();
        }
    }
    Ok(facts)
}

/// Adds the values of a target that is still ready with the same document.
async fn add_values(env: &Env, facts: &mut NotificationFacts, notified: &TargetFacts) -> FlowResult<()> {
    let target = env.store.read_target(TargetKey::new(&notified.kind, &notified.name)).await?;
    let is_same = |target: &TargetHead| target.uid == notified.uid && target.generation == notified.generation;
    let Some(target) = target.filter(|target| is_same(target) && target.phase == TargetPhase::Ready) else {
        return Ok(());
    };
    let loaded = env.plan_of(&target).await?;
    let values = target_outputs(env, &target, &loaded, None, SensitiveValues::Hidden).await?;
    let is_large = |value: &Value, most: usize| value.to_string().len() > most;
    let shown = |value: OutputValue| match value {
        OutputValue::Value(value) => Some(value).filter(|value| !is_large(value, MAX_VALUE)),
        OutputValue::Base64(_) | OutputValue::Secret(_) | OutputValue::Sensitive(_) => None,
    };
    let all_shown = |values: BTreeMap<String, OutputValue>| -> BTreeMap<String, Value> {
        values.into_iter().filter_map(|(name, value)| Some((name, shown(value)?))).collect()
    };
    let outputs = values.outputs.into_iter().map(|(resource, outputs)| (resource, all_shown(outputs)));
    let mut outputs: BTreeMap<_, _> = outputs.filter(|(_, outputs)| !outputs.is_empty()).collect();
    let links = loaded.plan.public_outputs(None).filter(|(.., public)| public.link);
    let mut links = links.filter_map(|(resource, output, _)| outputs.get(resource)?.get(output)?.as_str());
    facts.url = links.find_map(notification::web_url).unwrap_or_default();
    let mut workloads: BTreeMap<String, Value> = values
        .workloads
        .into_iter()
        .map(|(workload, reads)| {
            let reads = reads.into_iter().filter(|read| matches!(read.value, OutputValue::Value(_)));
            (workload, reads.map(|read| json!(read)).collect())
        })
        .collect();
    let mut variables = all_shown(values.env);
    // The values must not make a notification too large.
    if is_large(&json!([variables, outputs, workloads]), MAX_VALUES) {
        (outputs, workloads) = (BTreeMap::new(), BTreeMap::new());
    }
    if is_large(&json!(variables), MAX_VALUES) {
        variables = BTreeMap::new();
    }
    (facts.env, facts.outputs, facts.workloads) = (variables, outputs, workloads);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::rows;

    /// Each row has a status, the header `retry-after`, and the result.
    #[test]
    fn results_of_responses() {
        for (status, wait, expected) in rows::<(u16, Option<String>, String)>("results_of_responses") {
            let headers = wait.map(|wait| ("retry-after".to_owned(), wait)).into_iter().collect();
            let response = HttpResponse { status, headers, body: Vec::new() };
            assert_eq!(format!("{:?}", verdict(&response, Timestamp(1_700_000_000_000))), expected, "{status}");
        }
    }
}
