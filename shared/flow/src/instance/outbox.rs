//! Notifications of subscriptions. The write that moves a target appends them to the target, and an invocation with a
//! lease delivers them one after the other.
//!
//! 1. The lease is a write of the target. It lasts until a request that was sent with it can no longer arrive.
//! 2. Send the first notification of a subscription.
//! 3. Remove it, or plan its repetition. A crash before this write repeats the request after the lease.
//!
//! The list of subscriptions is read once in [`MAX_AGE`]. A target without a notification has no attribute, no due time
//! and no message for it.

use std::sync::Arc;
use std::time::Duration;

use ebb_documents::compile;
use ebb_documents::load::{self, DocumentVars, NoFiles};
use ebb_documents::model::NotificationPhase;
use ebb_documents::notification::{
    NotificationFacts, NotificationReceiver, NotificationRequest, NotificationRule, NotifiedTarget,
};
use ebb_documents::plan::TargetSpec;
use ebb_egress::{CallError, DeliveryOutcome, HttpRequest, HttpResponse, WebhookMessage, deliver as post};
use ebb_engine::{Backoff, Millis, TargetPhase, Timestamp};
use ebb_protocol::lifecycle::TargetStopCause;
use ebb_protocol::sign::{self, MessageId, WebhookKeys};
use ebb_protocol::time::rfc3339;
use ebb_protocol::{cloudevents, limits};
use ebb_store::{NamedDocument, NamedKind, PhaseNotice, ReceiverState, TargetHead, TargetOutbox};
use serde_json::{Value, json};

use crate::env::Env;
use crate::error::FlowError;
use crate::instance::{due, notify};
use crate::offload::offload;
use crate::ports::QueueMessage;
use crate::run::cause;
use crate::run::credential::{self, RequestCredential};
use crate::run::head::Run;
use crate::run::records;
use crate::sweep::permits::OriginPermit;
use crate::telemetry;

/// The time after which the list of subscriptions is read again.
pub const MAX_AGE: Millis = Millis(60_000);
/// The age at which an undelivered notification is given up.
pub const MAX_DELIVERY_AGE: Millis = Millis(3 * 24 * 3_600_000);
/// The waits of a receiver that does not accept its notification.
const BACKOFF: Backoff = Backoff { base: Millis(1_000), max: Millis(600_000) };
/// The time in which an invocation begins further deliveries.
const WINDOW: Millis = Millis(5_000);
/// Maximum requests for one notification: a comment is looked for, then written.
const MAX_REQUESTS: u64 = 4;
const TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum bytes of the end of a log.
const MAX_LOG: usize = 2_000;
/// Comments of a page, and pages that are searched for the comment of a target.
const COMMENTS: usize = 100;
const MAX_PAGES: usize = 3;

/// Forgets the subscriptions, after a change by this program.
pub async fn forget_rules(env: &Env) {
    *env.cache.subscriptions.0.lock().await = None;
}

/// Returns the subscriptions, as they were at most [`MAX_AGE`] ago.
pub async fn rules(env: &Env) -> Result<Arc<Vec<NotificationRule>>, FlowError> {
    let mut known = env.cache.subscriptions.0.lock().await;
    let now = env.now();
    if let Some((at, rules)) = known.as_ref()
        && now.since(*at).0 < MAX_AGE.0
    {
        return Ok(Arc::clone(rules));
    }
    let items = env.store.list_documents(NamedKind::Subscription).await?;
    let parse = move || items.iter().filter_map(parsed).collect::<Vec<_>>();
    let rules = Arc::new(offload(parse).await?);
    *known = Some((now, Arc::clone(&rules)));
    Ok(rules)
}

fn parsed(item: &NamedDocument) -> Option<NotificationRule> {
    let loaded = load::subscription("document", &item.document, &NoFiles, &DocumentVars::none());
    let rule = loaded.and_then(|document| compile::subscription(&document));
    rule.inspect_err(|errors| tracing::error!(name = item.name, %errors, "a subscription has errors; apply it again"))
        .ok()
}

/// Appends the notification of a change of `target`, which has its new phase and version, for the subscriptions that
/// report it.
pub fn append(target: &mut TargetHead, rules: &[NotificationRule], plan: &TargetSpec) {
    if rules.is_empty() {
        return;
    }
    let phase = NotificationPhase::from(target.phase);
    let notified = NotifiedTarget {
        kind: target.kind.clone(),
        name: target.name.clone(),
        uid: target.uid.clone(),
        key: target.instance_key(),
        generation: target.generation,
        namespace: plan.namespace.clone(),
        cluster: plan.cluster.clone(),
        labels: plan.labels.clone(),
    };
    let to: Vec<String> =
        rules.iter().filter(|rule| rule.reports(phase, &notified)).map(|rule| rule.name.clone()).collect();
    if to.is_empty() {
        return;
    }
    if target.outbox.notices.len() >= TargetOutbox::MAX_NOTICES {
        let lost = target.outbox.notices.remove(0);
        tracing::error!(kind = target.kind, name = target.name, to = ?lost.to, phase = lost.phase,
            "too many notifications wait; the oldest is given up");
        telemetry::notification_undelivered();
    }
    let ended = match (target.phase, target.is_overridden, target.stop_cause) {
        (TargetPhase::Stopping | TargetPhase::Stuck | TargetPhase::Gone, true, _) => Some("forced"),
        (TargetPhase::Stopping | TargetPhase::Stuck | TargetPhase::Gone, _, TargetStopCause::Expired) => {
            Some("expired")
        }
        (TargetPhase::Stopping | TargetPhase::Stuck | TargetPhase::Gone, ..) => Some("deleted"),
        _ => None,
    };
    target.outbox.notices.push(PhaseNotice {
        number: target.version,
        phase: phase.name().to_owned(),
        at: target.since.0,
        run: target.hook.map(|hook| target.run(hook)),
        ended: ended.map(str::to_owned),
        target: json!(notified),
        to,
    });
}

/// Sends a message that delivers the notifications of a target, if it has any.
pub async fn announce(env: &Env, target: &TargetHead) {
    if !target.outbox.notices.is_empty() {
        let message = QueueMessage::Target(target.kind.clone(), target.name.clone());
        env.queue.send(message, Duration::ZERO).await;
    }
}

/// The result of a delivery.
enum NotificationDelivery {
    Accepted,
    /// It is repeated, at the earliest after this time.
    Failed(String, Option<Duration>),
    /// The subscription does not exist any more.
    Obsolete,
    /// The receiver rejects all further requests.
    Final(String),
}

/// Delivers the notifications of a target that are due. Another invocation may hold the lease; then the target is due
/// again.
pub async fn deliver(env: &Env, kind: &str, name: &str) -> Result<(), FlowError> {
    let begun = env.now();
    // A change while a lease is written makes the write fail.
    for _ in 0..TargetOutbox::MAX_NOTICES {
        let Some(seen) = env.store.read_target(kind, name).await? else { return Ok(()) };
        let now = env.now();
        if seen.outbox.leased_until > now.0 {
            return Ok(());
        }
        let Some((notice, subscription)) = seen.outbox.next(now) else { return Ok(()) };
        if now.since(begun).0 >= WINDOW.0 {
            announce(env, &seen).await;
            return Ok(());
        }
        let (notice, subscription) = (notice.clone(), subscription.to_owned());
        let requests = Millis(TIMEOUT.as_millis() as u64 * MAX_REQUESTS);
        let lease = now.plus(env.settings.max_in_flight).plus(requests).0;
        let leased = seen.update(|after| {
            after.outbox.leased_until = lease;
            after.due = due::next_due(env, after);
        });
        if !env.store.move_target(&leased).await? {
            continue;
        }
        let delivery = send(env, &notice, &subscription).await?;
        finish(env, (kind, name), &notice, &subscription, (lease, delivery)).await?;
    }
    Ok(())
}

/// Records the result of a delivery, and ends its lease.
async fn finish(
    env: &Env,
    (kind, name): (&str, &str),
    notice: &PhaseNotice,
    subscription: &str,
    (lease, delivery): (u64, NotificationDelivery),
) -> Result<(), FlowError> {
    let now = env.now();
    let reason = match &delivery {
        NotificationDelivery::Failed(reason, _) if now.0.saturating_sub(notice.at) < MAX_DELIVERY_AGE.0 => {
            tracing::warn!(kind, name, subscription, reason, "a notification was not accepted; it is repeated");
            None
        }
        NotificationDelivery::Failed(reason, _) | NotificationDelivery::Final(reason) => Some(reason),
        NotificationDelivery::Accepted | NotificationDelivery::Obsolete => None,
    };
    if let Some(reason) = reason {
        give_up(env, notice, subscription, reason).await?;
    }
    for _ in 0..crate::ATTEMPTS {
        let Some(seen) = env.store.read_target(kind, name).await? else { return Ok(()) };
        let mut wait = None;
        let after = seen.update(|after| {
            match &delivery {
                NotificationDelivery::Failed(text, at_least) if reason.is_none() => {
                    let failed = after.outbox.failed.get(subscription).map_or(0, |state| state.attempts);
                    let attempts = failed.saturating_add(1);
                    let backoff = BACKOFF.wait(attempts, env.random.next()).max(Millis(250));
                    let pause = backoff.max(at_least.map_or(Millis(0), Millis::from).min(BACKOFF.max));
                    wait = Some(pause);
                    let state = ReceiverState { attempts, next: now.plus(pause).0, reason: limits::message(text) };
                    after.outbox.failed.insert(subscription.to_owned(), state);
                }
                _ => drop(after.outbox.remove(notice.number, subscription)),
            }
            if after.outbox.leased_until == lease {
                after.outbox.leased_until = 0;
            }
            after.due = due::next_due(env, after);
        });
        if env.store.move_target(&after).await? {
            if let Some(wait) = wait {
                let message = QueueMessage::Target(kind.to_owned(), name.to_owned());
                env.queue.send(message, Duration::from_millis(wait.0)).await;
            }
            return Ok(());
        }
    }
    // The request is repeated after the lease.
    Err(FlowError::Contended(format!("{kind}/{name}")))
}

/// Stores a notification that is not repeated any more, and raises an alarm.
async fn give_up(env: &Env, notice: &PhaseNotice, subscription: &str, reason: &str) -> Result<(), FlowError> {
    let id = format!("{subscription}/{}", notice_id(notice));
    tracing::error!(subscription, id, reason, "a notification is given up");
    let document = json!({"subscription": subscription, "notice": notice, "reason": reason}).to_string();
    let item = NamedDocument { name: id, document, changed: env.now() };
    env.store.put_undelivered(&item).await?;
    telemetry::notification_undelivered();
    Ok(())
}

/// Returns the id of a notification. Repetitions have the same one.
fn notice_id(notice: &PhaseNotice) -> String {
    let key = notice.target.get("key").and_then(Value::as_str).unwrap_or_default();
    format!("{key}-{}-{}", notice.phase, notice.number)
}

async fn send(env: &Env, notice: &PhaseNotice, subscription: &str) -> Result<NotificationDelivery, FlowError> {
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
            let outcome = post(env.egress.as_ref(), &keys, outgoing, begun).await;
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
            let receiver = SubscriptionOrigin { env, url: url.to_string(), credential: None, id: &id };
            Ok(verdict(
                receiver.call("POST", "", Some(&body)).await.map_err(|_| "Slack gave no answer".to_owned()),
                env,
            ))
        }
        (to, request) => {
            let Some(name) = to.connection() else { return failed("the subscription has changed".to_owned()) };
            let (url, credential) = match credential::of_subscription(env, name, subscription).await? {
                Ok(found) => found,
                Err(why) => return failed(why),
            };
            let receiver = SubscriptionOrigin { env, url, credential: Some(credential), id: &id };
            let response = match request {
                NotificationRequest::Connection { method, path, body } => {
                    receiver.call(&method, &path, Some(&body)).await.map_err(|error| error.to_string())
                }
                NotificationRequest::Comment { path, edit, marker, text } => {
                    receiver.comment(&path, &edit, &marker, &text).await
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
}

impl SubscriptionOrigin<'_> {
    async fn call(&self, method: &str, path: &str, body: Option<&Value>) -> Result<HttpResponse, CallError> {
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
        let request = HttpRequest { method: method.to_owned(), url, headers, body, timeout: TIMEOUT };
        let response = match &self.credential {
            Some(credential) => credential.call(self.env, request).await,
            None => self.env.egress.call(request).await,
        };
        permit.end(self.env, begun);
        response
    }

    /// Changes the comment with the marker, or creates it.
    async fn comment(&self, path: &str, edit: &str, marker: &str, text: &str) -> Result<HttpResponse, String> {
        let body = json!({"body": text});
        for page in 1..=MAX_PAGES {
            let list = format!("{path}?per_page={COMMENTS}&page={page}");
            let response = self.call("GET", &list, None).await.map_err(|error| error.to_string())?;
            if !matches!(response.status, 200..=299) {
                return Ok(response);
            }
            let comments: Vec<Value> =
                serde_json::from_slice(&response.body).map_err(|_| "the list of comments is not JSON".to_owned())?;
            let is_own = |comment: &&Value| comment["body"].as_str().is_some_and(|body| body.contains(marker));
            if let Some(id) = comments.iter().find(is_own).and_then(|comment| comment["id"].as_u64()) {
                let path = format!("{edit}/{id}");
                return self.call("PATCH", &path, Some(&body)).await.map_err(|error| error.to_string());
            }
            if comments.len() < COMMENTS {
                break;
            }
        }
        self.call("POST", path, Some(&body)).await.map_err(|error| error.to_string())
    }
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
