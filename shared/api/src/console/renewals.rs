//! Answers open pages that ask whether anything has changed. Without news, an answer costs at most one read unit, and the check
//! of the session.

use std::sync::Arc;

use axum::Json;
use axum::response::Response;
use ebb_console::paths;
use ebb_protocol::{ChangeList, TargetDetail, TargetDiagnosis, TargetKey};

use super::responses;
use super::sessions::{ConsoleSession, PathOf, QueryOf};
use super::stamps::{self, TargetStamp};
use crate::routes::target_changes::ChangesQuery;
use crate::routes::targets::DetailQuery;
use crate::{HttpResult, Path, Query, ReadTargets, WriteTargets, routes};

pub(super) async fn changes_since(session: &ConsoleSession, since: Option<String>) -> HttpResult<ChangeList> {
    let list = routes::target_changes::list(session.permitted()?, Query(ChangesQuery { since }));
    Ok(Box::pin(list).await?.0)
}

/// Answers whether targets have changed, to the page of a list.
pub(super) async fn changes(session: ConsoleSession, query: QueryOf<ChangesQuery>) -> HttpResult<Json<ChangeList>> {
    Ok(Json(changes_since(&session, query?.0.since).await?))
}

/// Shows a target, or answers that its page is current.
pub(super) async fn target(session: ConsoleSession, path: PathOf<(String, String)>) -> Response {
    if let Ok(Path((kind, name))) = &path
        && let Some(tag) = current_tag(&session, TargetKey::new(kind, name)).await
    {
        return responses::unchanged(&tag);
    }
    let page = async { render(&session, path?.0).await };
    session.respond_stamped(paths::ROOT, page.await)
}

/// Returns the entity tag of the browser whose stamp is that of the target now. A problem is left to the page.
async fn current_tag(session: &ConsoleSession, key: TargetKey<'_>) -> Option<String> {
    let tags = responses::known_tags(&session.request);
    let (tag, known) = tags.into_iter().find_map(|tag| Some((tag, tag.split_once('.')?.0)))?;
    let present = stamps::of_target(session, key, Some(known)).await.ok()??;
    (present.text == known).then(|| tag.to_owned())
}

/// Returns the page of a target with its stamp, which is read first.
async fn render(session: &ConsoleSession, (kind, name): (String, String)) -> HttpResult<(String, String)> {
    let key = TargetKey::new(&kind, &name);
    let stamp = stamps::of_target(session, key, None).await?;
    let read = async { read(session, key).await.map(Arc::new) };
    let (shown, stamp) = match stamp {
        Some(TargetStamp { text, state }) if session.is_renewal() => {
            session.permitted::<ReadTargets>()?.check_target(key).await?;
            let shared = session.memory.targets.get(session.server.env.steady(), state, read);
            (Box::pin(shared).await?, text)
        }
        stamp => (Box::pin(read).await?, stamp.map(|stamp| stamp.text).unwrap_or_default()),
    };
    let (detail, why) = shown.as_ref();
    let may_change = match session.permitted::<WriteTargets>() {
        Ok(permitted) => permitted.check_target(key).await.is_ok(),
        Err(_) => false,
    };
    let html = ebb_console::target(session.viewer(), may_change, detail, why, &stamp);
    Ok((stamp, html))
}

async fn read(session: &ConsoleSession, key: TargetKey<'_>) -> HttpResult<(TargetDetail, TargetDiagnosis)> {
    let path = || Path((key.kind.to_owned(), key.name.to_owned()));
    let why = routes::targets::why(path(), session.permitted()?);
    let Json(why) = Box::pin(why).await?;
    let detail = routes::targets::get(path(), session.permitted()?, Query(DetailQuery::default()));
    let Json(detail) = Box::pin(detail).await?;
    Ok((detail, why))
}
