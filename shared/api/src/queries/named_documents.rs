//! Checks and stores documents that have a name: sources, connections and subscriptions.

use ebb_documents::diagnostic::{Diagnostic, Diagnostics};
use ebb_engine::Timestamp;
use ebb_flow::env::{Env, HttpStore};
use ebb_flow::error::RequestError;
use ebb_flow::offload::offload;
use ebb_protocol::limits;
use ebb_store::{NamedDocument, NamedKind};

/// Creates or replaces the document `name`, which `check` loads. Returns false if the stored document is the same, so that
/// its time stays.
pub(super) async fn put(
    env: &Env,
    store: &dyn HttpStore,
    kind: NamedKind,
    (name, document): (&str, &str),
    check: fn(&str, &str) -> Result<NamedDocument, Diagnostics>,
) -> Result<bool, RequestError<Diagnostics>> {
    let (name, text) = (name.to_owned(), document.to_owned());
    let checked = offload(move || check(&name, &text)).await??;
    let present = store.get_document(kind, &checked.name).await?;
    if present.is_some_and(|present| present.document == checked.document) {
        return Ok(false);
    }
    store.put_document(kind, &NamedDocument { changed: env.now(), ..checked }).await?;
    Ok(true)
}

/// Returns and logs the reason why a stored document no longer loads.
pub(super) fn unreadable(name: &str, errors: &Diagnostics) -> String {
    let reason = limits::message(&errors.to_string());
    tracing::error!(name, reason, "a stored document cannot be read");
    reason
}

/// Checks the name and the size of a document. Returns it without the time of its change.
pub(super) fn check(
    name: &str,
    own: &str,
    document: String,
    wrong: impl Fn(&'static str, String) -> Diagnostic,
) -> Result<NamedDocument, Diagnostics> {
    if own != name {
        return Err(wrong("other-name", format!("the document is named {own:?}, the path names {name:?}")).into());
    }
    let (length, most) = (document.len(), NamedDocument::MAX_DOCUMENT);
    if length > most {
        return Err(wrong("too-large", format!("the document has {length} bytes, at most {most} are allowed")).into());
    }
    Ok(NamedDocument { name: name.to_owned(), document, changed: Timestamp(0) })
}
