//! Notifications of subscriptions. The write that moves a target appends them to the target, and an invocation with a
//! lease delivers them one after the other.
//!
//! 1. The lease is a write of the target. It lasts until a request that was sent with it can no longer arrive. It counts the
//!    attempt, so that a delivery that ends its invocation each time is given up, too.
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
use ebb_egress::deliver::DELIVERY_TIMEOUT;
use ebb_egress::{CallError, DeliveryOutcome, HttpRequest, HttpResponse, WebhookMessage, deliver as post};
use ebb_engine::{Backoff, Millis, TargetPhase, Timestamp};
use ebb_protocol::lifecycle::TargetStopCause;
use ebb_protocol::sign::{self, MessageId, WebhookKeys};
use ebb_protocol::time::rfc3339;
use ebb_protocol::{cloudevents, id, limits};
use ebb_store::{NamedDocument, NamedKind, PhaseNotice, TargetHead, TargetOutbox};
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
/// Maximum time of all requests of one notification.
const TIMEOUT: Duration = DELIVERY_TIMEOUT;
/// Maximum bytes of the end of a log.
const MAX_LOG: usize = 2_000;
/// Maximum bytes of the labels of a notification.
const MAX_LABELS: usize = 8 << 10;
/// Comments that are searched for the one of a target, and those of a page. A large page is read in small ones.
const MAX_COMMENTS: usize = 300;
const LARGE_PAGE: usize = 100;
const SMALL_PAGE: usize = 10;
/// The reason of an attempt without an end.
const INTERRUPTED: &str = "the delivery was interrupted";
/// Derives the key of the marks in comments. It is not the name of a plugin.
const COMMENT_KEY: &str = "#comment";

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
    let mut bytes = 0;
    let notified = NotifiedTarget {
        labels: notified
            .labels
            .into_iter()
            .take_while(|(name, value)| {
                bytes += name.len() + value.len();
                bytes <= MAX_LABELS
            })
            .collect(),
        ..notified
    };
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
    // A delivery gives up and lists what exceeds the limit. Many changes during one delivery must not exceed the item.
    while target.outbox.exceeds(2) {
        let lost = target.outbox.notices.remove(0);
        tracing::error!(kind = target.kind, name = target.name, to = ?lost.to, phase = lost.phase,
            "too many notifications wait; the oldest is dropped");
        telemetry::notification_undelivered();
    }
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
        let oldest = seen.outbox.notices.first().and_then(|notice| Some((notice, notice.to.first()?.as_str())));
        let is_full = seen.outbox.exceeds(1);
        let next = if is_full { oldest } else { seen.outbox.next(now) };
        let Some((notice, subscription)) = next else { return Ok(()) };
        if now.since(begun).0 >= WINDOW.0 {
            announce(env, &seen).await;
            return Ok(());
        }
        let (notice, subscription) = (notice.clone(), subscription.to_owned());
        let lease = now.plus(env.settings.max_in_flight).plus(Millis::from(TIMEOUT)).0;
        let failed = seen.outbox.failed.get(&subscription).cloned();
        let leased = seen.update(|after| {
            after.outbox.leased_until = lease;
            let state = after.outbox.failed.entry(subscription.clone()).or_default();
            state.attempts = state.attempts.saturating_add(1);
            state.next = lease;
            if state.reason.is_empty() {
                state.reason = INTERRUPTED.to_owned();
            }
            after.due = due::next_due(env, after);
        });
        if !env.store.move_target(&leased).await? {
            continue;
        }
        let delivery = match failed {
            _ if is_full => NotificationDelivery::Final("too many notifications of the target wait".to_owned()),
            Some(failed) if now.0.saturating_sub(notice.at) >= MAX_DELIVERY_AGE.0 => {
                NotificationDelivery::Final(failed.reason)
            }
            _ => match send(env, &notice, &subscription).await {
                Ok(delivery) => delivery,
                // It must not block the others, whatever is damaged.
                Err(error) => NotificationDelivery::Failed(error.to_string(), None),
            },
        };
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
    if let NotificationDelivery::Final(reason) = &delivery {
        give_up(env, notice, subscription, reason).await?;
    }
    for _ in 0..crate::ATTEMPTS {
        let Some(seen) = env.store.read_target(kind, name).await? else { return Ok(()) };
        let mut wait = None;
        let after = seen.update(|after| {
            match (&delivery, after.outbox.failed.get_mut(subscription)) {
                (NotificationDelivery::Failed(reason, at_least), Some(state)) => {
                    tracing::warn!(kind, name, subscription, reason, "a notification was not accepted; it is repeated");
                    let backoff = BACKOFF.wait(state.attempts, env.random.next()).max(Millis(250));
                    let pause = backoff.max(at_least.map_or(Millis(0), Millis::from).min(BACKOFF.max));
                    wait = Some(pause);
                    (state.next, state.reason) = (now.plus(pause).0, limits::clean(reason, limits::REFUSAL));
                }
                _ => after.outbox.remove(notice.number, subscription),
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
            let receiver =
                SubscriptionOrigin { env, url: url.to_string(), credential: None, id: &id, begun: env.now() };
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
            let receiver = SubscriptionOrigin { env, url, credential: Some(credential), id: &id, begun: env.now() };
            let response = match request {
                NotificationRequest::Connection { method, path, body } => {
                    receiver.call(&method, &path, Some(&body)).await.map_err(|error| error.to_string())
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
        let timeout = TIMEOUT.saturating_sub(Duration::from_millis(begun.since(self.begun).0));
        if timeout.is_zero() {
            return Err(CallError::Timeout(TIMEOUT));
        }
        let request = HttpRequest { method: method.to_owned(), url, headers, body, timeout };
        let response = match &self.credential {
            Some(credential) => credential.call(self.env, request).await,
            None => self.env.egress.call(request).await,
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
            let response = match self.call("GET", &list, None).await {
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
            if let Some(id) = comments.iter().find(is_own).and_then(|comment| comment["id"].as_u64()) {
                let path = format!("{edit}/{id}");
                return self.call("PATCH", &path, Some(&body)).await.map_err(|error| error.to_string());
            }
            if comments.len() < size {
                break;
            }
            seen += size;
        }
        self.call("POST", path, Some(&body)).await.map_err(|error| error.to_string())
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A hundred subscriptions whose receivers accept nothing, and labels of any size, do not fill the item of a target.
    #[test]
    fn the_waiting_notifications_are_bounded() {
        let rule = |number| {
            let (name, head) = (format!("s{number:062}"), "apiVersion: ebb.dev/v1\nkind: Subscription\non: [ready]");
            let when = if number == 0 { "when: ${size(target.labels.b) > 0}\n" } else { "" };
            let document = format!("{head}\nname: {name}\n{when}to: {{slack: {{secret: S}}}}\n");
            let changed = Timestamp(1);
            parsed(&NamedDocument { name, document, changed }).unwrap()
        };
        let rules: Vec<_> = (0..100).map(rule).collect();
        let long = "x".repeat(2 * MAX_LABELS);
        for (labels, count, kept) in [
            ([("a", "1"), ("b", "2")], 1, 2 * TargetOutbox::MAX_NOTICES),
            ([("a", "1"), ("b", &long)], 100, 30),
            ([("a", "\u{1}\u{1}"), ("b", &long[..MAX_LABELS - 4])], 100, 12),
        ] {
            let labels = labels.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
            let plan = TargetSpec { labels, ..TargetSpec::default() };
            let mut target = TargetHead::new("sandbox", "a", "u", Timestamp(1));
            target.phase = TargetPhase::Ready;
            for version in 1..=250 {
                target.version = version;
                append(&mut target, &rules[..count], &plan);
            }
            let (notices, bytes) = (&target.outbox.notices, json!(target.outbox).to_string().len());
            assert!(bytes <= 2 * TargetOutbox::MAX_BYTES + 1_000, "{bytes}");
            assert!((kept..kept + 10).contains(&notices.len()), "{} of {kept}", notices.len());
            assert_eq!(notices.last().map(|notice| notice.number), Some(250));
            assert_eq!(notices[0].target["labels"]["a"], plan.labels["a"]);
            assert_eq!(notices[0].target["labels"]["b"].is_string(), plan.labels["b"].len() < MAX_LABELS);
        }
    }
}
