//! Subscriptions, as named documents, with the notifications that wait and those that were given up.

use ebb_documents::{Diagnostic, Diagnostics, DocumentVars, NoFiles, SourceText, SubscriptionDoc, compile, load};
use ebb_flow::instance::outbox::{self, ReceiverInfo};
use ebb_flow::{Env, FlowResult, RequestError, offload};
use ebb_protocol::{SubscriptionDetail, SubscriptionInfo, SubscriptionList, UndeliveredNotification, rfc3339};
use ebb_store::{NamedDocument, NamedKind, Store};

use super::backlog::Backlog;
use super::named_documents::{self, StoredKind};

/// Maximum subscriptions. A target stores the name of each one that waits for its receiver.
const MAX_SUBSCRIPTIONS: usize = 100;
/// Maximum notifications of a subscription that were given up and are read, and those in a response.
pub(super) const MAX_UNDELIVERED: usize = 1_000;
const MAX_FAILURES: usize = 100;

impl StoredKind for SubscriptionDoc {
    const KIND: NamedKind = NamedKind::Subscription;
    type List = SubscriptionList;
    type Detail = SubscriptionDetail;

    async fn admit(store: &Store, name: &str, document: &str) -> Result<(), RequestError> {
        let known = store.list_documents(Self::KIND).await?;
        if known.len() < MAX_SUBSCRIPTIONS || known.iter().any(|one| one.name == name) {
            return Ok(());
        }
        let message = format!("{MAX_SUBSCRIPTIONS} subscriptions exist, which is the limit");
        let source = SourceText::new("document", document);
        let wrong = Diagnostic::error("too-many", &source, None, message).help("delete one first");
        Err(Diagnostics::from(wrong).into())
    }

    fn checked(name: &str, text: &str) -> Result<NamedDocument, Diagnostics> {
        let subscription = load::subscription("document", text, &NoFiles, &DocumentVars::none())?;
        let (own, text) = ((&subscription.name, &subscription.source), subscription.expanded.clone());
        let checked = named_documents::check(name, own, text)?;
        compile::subscription(&subscription)?;
        Ok(checked)
    }

    async fn list(env: &Env) -> FlowResult<SubscriptionList> {
        let backlog = Backlog::read(&env.store).await?;
        let mut subscriptions = Vec::new();
        for item in env.store.list_documents(Self::KIND).await? {
            let undelivered = env.store.count_undelivered(&item.name, MAX_UNDELIVERED).await?;
            subscriptions.push(info(env, &item, &backlog, undelivered).await?);
        }
        Ok(SubscriptionList { subscriptions })
    }

    async fn detail(env: &Env, item: NamedDocument) -> FlowResult<SubscriptionDetail> {
        let backlog = Backlog::read(&env.store).await?;
        let mut failures = env.store.list_undelivered(&format!("{}/", item.name), MAX_UNDELIVERED).await?;
        failures.sort_by_key(|failure| std::cmp::Reverse(failure.changed));
        Ok(SubscriptionDetail {
            info: info(env, &item, &backlog, failures.len()).await?,
            document: item.document,
            failures: failures.iter().take(MAX_FAILURES).map(undelivered).collect(),
            retried: None,
        })
    }

    async fn forget(env: &Env) {
        outbox::forget_rules(env).await;
    }
}

/// Returns a subscription without its document. One that no longer loads is shown with the reason, so that it can be
/// replaced.
async fn info(env: &Env, item: &NamedDocument, backlog: &Backlog, undelivered: usize) -> FlowResult<SubscriptionInfo> {
    let text = item.document.clone();
    let loaded = offload(move || {
        let subscription = load::subscription("document", &text, &NoFiles, &DocumentVars::none())?;
        let rule = compile::subscription(&subscription)?;
        Ok::<_, Diagnostics>((rule, subscription.to.name()))
    });
    let waiting = backlog.of(&item.name);
    let unknown = SubscriptionInfo {
        name: item.name.clone(),
        waiting: waiting.count,
        waiting_incomplete: backlog.is_incomplete,
        oldest: waiting.oldest.map(rfc3339),
        last_error: waiting.failure.map(|(_, error)| error),
        undelivered,
        changed: rfc3339(item.changed),
        ..SubscriptionInfo::default()
    };
    let (rule, to) = match loaded.await? {
        Ok(loaded) => loaded,
        Err(errors) => {
            let unreadable = Some(named_documents::unreadable(&item.name, &errors));
            return Ok(SubscriptionInfo { unreadable, ..unknown });
        }
    };
    let ReceiverInfo { origin, problem } = outbox::receiver_info(env, &rule).await?;
    Ok(SubscriptionInfo {
        on: rule.on.iter().map(|phase| phase.name().to_owned()).collect(),
        to: to.to_owned(),
        connection: rule.to.connection().map(|name| name.value.clone()),
        origin,
        problem,
        ..unknown
    })
}

/// Returns a notification that was given up. Of one that cannot be read, only the time is known.
pub(super) fn undelivered(failure: &NamedDocument) -> UndeliveredNotification {
    let stored: serde_json::Value = serde_json::from_str(&failure.document).unwrap_or_default();
    let text = |path: &str| stored.pointer(path).and_then(|text| text.as_str()).unwrap_or_default().to_owned();
    UndeliveredNotification {
        target: format!("{}/{}", text("/notice/target/kind"), text("/notice/target/name")),
        phase: text("/notice/phase"),
        at: rfc3339(failure.changed),
        reason: text("/reason"),
    }
}
