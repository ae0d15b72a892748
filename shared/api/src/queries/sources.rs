//! Publishes, lists and deletes sources.

use ebb_documents::compile;
use ebb_documents::diagnostic::{Diagnostic, Diagnostics};
use ebb_documents::load::{self, Document, DocumentVars, NoFiles};
use ebb_documents::model::SourceText;
use ebb_engine::Timestamp;
use ebb_flow::env::HttpStore;
use ebb_flow::error::{FlowError, RequestError};
use ebb_flow::offload::offload;
use ebb_protocol::api::{FailedDelivery, SourceDetail, SourceInfo};
use ebb_protocol::time::rfc3339;
use ebb_store::SourceItem;

pub async fn list(store: &dyn HttpStore) -> Result<Vec<SourceInfo>, FlowError> {
    let sources = store.list_sources().await?.into_iter();
    Ok(sources.map(|source| SourceInfo { name: source.name, changed: rfc3339(source.changed) }).collect())
}

/// Returns a source with the events of it that were rejected, the newest first.
pub async fn get(store: &dyn HttpStore, name: &str) -> Result<Option<SourceDetail>, FlowError> {
    let Some(source) = store.get_source(name).await? else { return Ok(None) };
    let mut failed = store.list_failed().await?;
    failed.retain(|state| state.source == name);
    failed.sort_by_key(|state| std::cmp::Reverse(state.time));
    let failed = failed.into_iter().filter_map(|state| {
        Some(FailedDelivery { delivery: state.delivery, time: rfc3339(Timestamp(state.time)), outcome: state.result? })
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
    store: &dyn HttpStore,
    name: &str,
    document: &str,
    now: Timestamp,
) -> Result<(), RequestError<Diagnostics>> {
    let (name, text) = (name.to_owned(), document.to_owned());
    let source = offload(move || checked(&name, &text)).await??;
    let present = store.get_source(&source.name).await?;
    if present.is_none_or(|present| present.document != source.document) {
        store.put_source(&SourceItem { changed: now, ..source }).await?;
    }
    Ok(())
}

/// Loads and checks the source of a document.
fn checked(name: &str, document: &str) -> Result<SourceItem, Diagnostics> {
    let loaded = load::document("document", document, &NoFiles, &DocumentVars::none())?;
    let Document::Source(source) = loaded else {
        let text = SourceText::new("document", document);
        let message = "this is not a source; expected a document with `kind: Source`";
        return Err(Diagnostic::error("not-a-source", &text, None, message).into());
    };
    let wrong = |code, message: String| Diagnostic::error(code, &source.source, Some(source.name.at), message);
    if source.name.value != name {
        let message = format!("the document is named {:?}, the path names {name:?}", source.name.value);
        return Err(wrong("other-name", message).into());
    }
    if source.expanded.len() > SourceItem::MAX_DOCUMENT {
        let (length, most) = (source.expanded.len(), SourceItem::MAX_DOCUMENT);
        return Err(wrong("too-large", format!("the document has {length} bytes, at most {most} are allowed")).into());
    }
    compile::event_source(&source)?;
    Ok(SourceItem { name: name.to_owned(), document: source.expanded, changed: Timestamp(0) })
}
