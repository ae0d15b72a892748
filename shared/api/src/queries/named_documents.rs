//! Checks, stores and reads documents that have a name: sources, connections and subscriptions.

use std::sync::Arc;

use ebb_documents::{At, Diagnostic, Diagnostics, SourceText};
use ebb_flow::{Env, FlowResult, RequestError, offload};
use ebb_protocol::{ErrorCode, Timestamp, limits};
use ebb_store::{NamedDocument, NamedKind, Store};
use serde::Deserialize;
use utoipa::IntoParams;

use super::clusters;
use crate::{HttpProblem, HttpResult};

#[derive(Clone, Copy, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub(crate) struct ChangeDocumentQuery {
    /// Checks the request, and changes nothing.
    pub(crate) dry_run: bool,
    /// Makes the change although living targets need the document as it is.
    pub(crate) force: bool,
}

/// A kind of document that a deployment stores by name.
pub(crate) trait StoredKind: 'static {
    const KIND: NamedKind;
    type List;
    type Detail;

    /// Rejects the document `name` if it would be one too many.
    async fn admit(_store: &Store, _name: &str, _document: &str) -> Result<(), RequestError> {
        Ok(())
    }

    /// Loads and checks the document that is to be stored as `name`.
    fn checked(name: &str, text: &str) -> Result<NamedDocument, Diagnostics>;

    async fn list(env: &Env) -> FlowResult<Self::List>;

    /// Describes a stored document. One that no longer loads has the reason, so that it can be replaced.
    async fn detail(env: &Env, item: NamedDocument) -> FlowResult<Self::Detail>;

    /// The effect on the targets that need the document.
    const LOSS: &str = "";

    /// Returns the living targets that lose something with the document, as [`clusters::users`] does.
    async fn users(_env: &Env, _name: &str) -> FlowResult<Option<Vec<String>>> {
        Ok(Some(Vec::new()))
    }

    /// Returns the living targets that lose something if `new` replaces `former`, as [`clusters::users`] does.
    async fn losers(_env: &Env, _former: &NamedDocument, _new: &NamedDocument) -> FlowResult<Option<Vec<String>>> {
        Ok(Some(Vec::new()))
    }

    /// Writes what a document needs before it is stored.
    async fn prepare(_env: &Env, _new: &NamedDocument) -> FlowResult<()> {
        Ok(())
    }

    /// Forgets what this program has read, after a change.
    async fn forget(_env: &Env) {}
}

pub(crate) async fn get<K: StoredKind>(env: &Env, name: &str) -> FlowResult<Option<K::Detail>> {
    let Some(item) = env.store.get_document(K::KIND, name).await? else { return Ok(None) };
    K::detail(env, item).await.map(Some)
}

/// Creates or replaces the document `name`. If the stored document is the same, its time stays. A dry run only checks.
///
/// # Errors
/// Returns 409 as [`check_losers`] does, unless the change is forced.
pub(crate) async fn put<K: StoredKind>(
    env: &Env,
    name: &str,
    document: &str,
    ChangeDocumentQuery { dry_run, force }: ChangeDocumentQuery,
) -> HttpResult<K::Detail> {
    K::admit(&env.store, name, document).await?;
    let (own, text) = (name.to_owned(), document.to_owned());
    let checked = offload(move || K::checked(&own, &text)).await??;
    let new = NamedDocument { changed: env.now(), ..checked };
    if let Some(present) = env.store.get_document(K::KIND, name).await? {
        if present.document == new.document {
            return Ok(K::detail(env, present).await?);
        }
        if !force {
            check_losers::<K>(K::losers(env, &present, &new).await?, name, "replace")?;
        }
    }
    if !dry_run {
        K::prepare(env, &new).await?;
        env.store.put_document(K::KIND, &new).await?;
        K::forget(env).await;
    }
    Ok(K::detail(env, new).await?)
}

/// Checks that no living target and no subscription loses something.
///
/// # Errors
/// Returns 409 with the count and the first names of those that do.
fn check_losers<K: StoredKind>(losers: Option<Vec<String>>, name: &str, verb: &str) -> HttpResult<()> {
    let why = match losers.as_deref() {
        None => "there are too many targets to check in time whether they need it".to_owned(),
        Some([]) => return Ok(()),
        Some([only]) => format!("{only} needs it"),
        Some(found) => {
            let least = if found.len() < clusters::MAX_NAMED { "" } else { "at least " };
            format!("{least}{} need it: {}", found.len(), found.join(", "))
        }
    };
    let detail = format!("{name}: {why}. {}; a request with `force` {verb}s it all the same", K::LOSS);
    Err(HttpProblem::new(ErrorCode::DocumentInUse, detail))
}

/// Deletes the document `name`. Returns false if it does not exist. A dry run only checks.
///
/// # Errors
/// Returns 409 as [`check_losers`] does, unless the deletion is forced.
pub(crate) async fn delete<K: StoredKind>(env: &Env, name: &str, how: ChangeDocumentQuery) -> HttpResult<bool> {
    if !how.force {
        check_losers::<K>(K::users(env, name).await?, name, "delete")?;
    }
    if how.dry_run {
        return Ok(env.store.get_document(K::KIND, name).await?.is_some());
    }
    let is_deleted = env.store.delete_document(K::KIND, name).await?;
    K::forget(env).await;
    Ok(is_deleted)
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
    (own, source): (&At<String>, &Arc<SourceText>),
    document: String,
) -> Result<NamedDocument, Diagnostics> {
    let wrong = |code, message: String| Err(Diagnostic::error(code, source, own.at, message).into());
    if own.value != name {
        return wrong("other-name", format!("the document is named {:?}, the path names {name:?}", own.value));
    }
    let (length, most) = (document.len(), NamedDocument::MAX_DOCUMENT);
    if length > most {
        return wrong("too-large", format!("the document has {length} bytes, at most {most} are allowed"));
    }
    Ok(NamedDocument { name: name.to_owned(), document, changed: Timestamp(0) })
}
