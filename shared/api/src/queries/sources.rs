//! Publishes, lists and deletes sources.

use std::collections::BTreeMap;

use ebb_documents::compile;
use ebb_documents::diagnostic::{Diagnostic, Diagnostics};
use ebb_documents::load::{self, DocumentVars, NoFiles};
use ebb_engine::Timestamp;
use ebb_flow::env::{Env, HttpStore};
use ebb_flow::error::{FlowError, RequestError};
use ebb_flow::source::reconcile;
use ebb_protocol::api::{DecidingEvent, RejectedEvent, RejectionSummary, SourceDetail, SourceInfo};
use ebb_protocol::time::rfc3339;
use ebb_store::{DesiredKey, DesiredTargets, NamedDocument, NamedKind, Rejection, SourceRejections, TargetHead};

use super::named_documents;

/// Returns all sources by name, with a summary of their rejected events.
pub async fn list(store: &dyn HttpStore) -> Result<Vec<SourceInfo>, FlowError> {
    let rejected = store.list_rejections().await?.into_iter().map(|rejections| (rejections.source, rejections.events));
    let mut rejected: BTreeMap<_, _> = rejected.collect();
    let sources = store.list_documents(NamedKind::Source).await?.into_iter();
    let about = |source: NamedDocument| SourceInfo {
        rejected: rejected.remove(&source.name).and_then(summary),
        name: source.name,
        changed: rfc3339(source.changed),
    };
    Ok(sources.map(about).collect())
}

fn summary(events: Vec<Rejection>) -> Option<RejectionSummary> {
    let (count, since) = (events.len(), rfc3339(Timestamp(events.last()?.time)));
    Some(RejectionSummary { count, since, last: rejected_event(events.into_iter().next()?) })
}

fn rejected_event(Rejection { time, delivery, target, uid, detail }: Rejection) -> RejectedEvent {
    RejectedEvent { time: rfc3339(Timestamp(time)), delivery, target, uid, detail }
}

/// Returns the last rejected event of a target, with the name of its source.
pub async fn rejected_event_of(
    store: &dyn HttpStore,
    kind: &str,
    name: &str,
) -> Result<Option<(String, RejectedEvent)>, FlowError> {
    let target = Some(format!("{kind}/{name}"));
    let last = |SourceRejections { source, events, .. }: SourceRejections| {
        Some((source, events.into_iter().find(|event| event.target == target)?))
    };
    let found = store.list_rejections().await?.into_iter().filter_map(last).max_by_key(|(_, event)| event.time);
    Ok(found.map(|(source, event)| (source, rejected_event(event))))
}

/// Returns the event that decided whether a target exists, if a source controls the target.
pub async fn deciding_event(
    store: &dyn DesiredTargets,
    target: &TargetHead,
) -> Result<Option<DecidingEvent>, FlowError> {
    let Some(source) = target.owner.clone() else { return Ok(None) };
    let uid = (!reconcile::is_derived(&target.uid)).then(|| target.uid.clone());
    let key = DesiredKey { source, kind: target.kind.clone(), name: target.name.clone(), uid };
    Ok(store.read_desired(&key).await?.map(|state| DecidingEvent {
        source: state.key.source,
        delivery: state.delivery,
        time: rfc3339(Timestamp(state.time)),
        outcome: state.result,
    }))
}

/// Returns a source with its last rejected events, the newest first.
pub async fn get(store: &dyn HttpStore, name: &str) -> Result<Option<SourceDetail>, FlowError> {
    let Some(source) = store.get_document(NamedKind::Source, name).await? else { return Ok(None) };
    let rejected = store.read_rejections(name).await?.map_or_else(Vec::new, |rejections| rejections.events);
    Ok(Some(SourceDetail {
        path: format!("/v1/sources/{name}"),
        name: source.name,
        changed: rfc3339(source.changed),
        document: source.document,
        rejected: rejected.into_iter().map(rejected_event).collect(),
    }))
}

/// Creates or replaces the source `name`. A source with the same document stays unchanged.
pub async fn put(
    env: &Env,
    store: &dyn HttpStore,
    name: &str,
    document: &str,
) -> Result<(), RequestError<Diagnostics>> {
    named_documents::put(env, store, NamedKind::Source, (name, document), checked).await.map(drop)
}

/// Loads and checks the source of a document.
fn checked(name: &str, text: &str) -> Result<NamedDocument, Diagnostics> {
    let source = load::event_source("document", text, &NoFiles, &DocumentVars::none())?;
    let wrong = |code, message: String| Diagnostic::error(code, &source.source, source.name.at, message);
    let checked = named_documents::check(name, &source.name.value, source.expanded.clone(), wrong)?;
    compile::event_source(&source)?;
    Ok(checked)
}
