//! Publishes, lists and deletes sources.

use std::collections::BTreeMap;

use ebb_documents::compile;
use ebb_documents::diagnostic::{Diagnostic, Diagnostics};
use ebb_documents::load::{self, DocumentVars, NoFiles};
use ebb_engine::Timestamp;
use ebb_flow::env::{Env, HttpStore};
use ebb_flow::error::{FlowError, RequestError};
use ebb_flow::source::reconcile;
use ebb_protocol::api::{DecidingEvent, FailedDelivery, SourceDetail, SourceInfo};
use ebb_protocol::time::rfc3339;
use ebb_store::{DesiredKey, DesiredTarget, DesiredTargets, NamedDocument, NamedKind, TargetHead};

use super::named_documents;

pub async fn list(store: &dyn HttpStore) -> Result<Vec<SourceInfo>, FlowError> {
    let mut rejected: BTreeMap<String, u64> = BTreeMap::new();
    for state in store.list_failed().await? {
        let time = result_time(&state);
        let last = rejected.entry(state.key.source).or_default();
        *last = time.max(*last);
    }
    let sources = store.list_documents(NamedKind::Source).await?.into_iter();
    let about = |source: NamedDocument| SourceInfo {
        rejected: rejected.get(&source.name).map(|time| rfc3339(Timestamp(*time))),
        name: source.name,
        changed: rfc3339(source.changed),
    };
    Ok(sources.map(about).collect())
}

/// Returns the time at which a state got its result.
fn result_time(state: &DesiredTarget) -> u64 {
    state.result_time.unwrap_or(state.time)
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

/// Returns a source with the events of it that were rejected, the newest first.
pub async fn get(store: &dyn HttpStore, name: &str) -> Result<Option<SourceDetail>, FlowError> {
    let Some(source) = store.get_document(NamedKind::Source, name).await? else { return Ok(None) };
    let mut failed = store.list_failed().await?;
    failed.retain(|state| state.key.source == name);
    failed.sort_by_key(|state| std::cmp::Reverse(result_time(state)));
    let failed = failed.into_iter().filter_map(|state| {
        Some(FailedDelivery {
            time: rfc3339(Timestamp(state.time)),
            rejected: rfc3339(Timestamp(result_time(&state))),
            delivery: state.delivery,
            outcome: state.result?,
        })
    });
    Ok(Some(SourceDetail {
        path: format!("/v1/sources/{name}"),
        name: source.name,
        changed: rfc3339(source.changed),
        document: source.document,
        failed: failed.collect(),
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
