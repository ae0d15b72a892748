//! Sources: webhooks of third parties that create, change and delete targets.
//!
//! An event becomes the desired state of its target, in one conditional write that also deduplicates it. The newest event
//! wins, so events that arrive out of order, repeated or at the same time have the effect of the newest one. Then the
//! state is applied like a lifecycle webhook. After a crash `sweep` applies it.

pub mod delivery;
mod drift;
mod fetch;
mod list;
pub mod observe;
pub mod reconcile;
pub mod record;
mod replay;
pub mod trial;

use std::sync::Arc;

use ebb_documents::model::LimitAction;
use ebb_documents::{Document, DocumentVars, EventSource, NoFiles, compile, load};
use ebb_protocol::{ErrorCode, id};
use ebb_store::NamedKind;

use crate::{Env, FlowError, FlowResult, RequestError, offload};

/// Returns the compiled source of a name.
///
/// # Errors
/// Returns a refusal if the source does not exist.
async fn find(env: &Env, name: &str) -> Result<Arc<EventSource>, RequestError> {
    let Some(item) = env.store.get_document(NamedKind::Source, name).await? else {
        return Err(RequestError::refused(ErrorCode::NotFound, format!("no source {name:?} exists")));
    };
    let digest = id::digest(item.document.as_bytes());
    if let Some(source) = env.cache.sources.get(&digest) {
        return Ok(source);
    }
    let length = item.document.len();
    let source = Arc::new(compiled(name, item.document).await?);
    env.cache.sources.put(&digest, Arc::clone(&source), length);
    Ok(source)
}

/// Returns the limit of a source. A source that does not exist any more has none.
async fn limit(env: &Env, name: &str) -> FlowResult<Option<(u32, LimitAction)>> {
    match find(env, name).await {
        Err(RequestError::Failed(error)) => Err(error),
        found => Ok(found.ok().and_then(|source| source.limit)),
    }
}

async fn compiled(name: &str, document: String) -> FlowResult<EventSource> {
    let broken = |error: &dyn std::fmt::Display| FlowError::Broken(format!("source {name}: {error}"));
    let compiled = offload(move || match load::document("document", &document, &NoFiles, &DocumentVars::none())? {
        Document::Source(source) => Ok(Some(compile::event_source(&source)?.0)),
        _ => Ok::<_, ebb_documents::diagnostic::Diagnostics>(None),
    });
    compiled.await?.map_err(|errors| broken(&errors))?.ok_or_else(|| broken(&"the document is not a source"))
}
