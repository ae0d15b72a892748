//! Tries an event on a source: shows its effect, and has none.

use axum::Json;
use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::response::Response;
use ebb_console::{SourceTrial, TrialEffect, paths};
use ebb_documents::event::{EventExplanation, EventOutcome};
use ebb_flow::source::trial::{self, EventTrial, TrialEvent};
use ebb_protocol::{ErrorCode, Timestamp, limits, rfc3339};

use super::sessions::{ConsoleSession, PathOf};
use crate::routes::named_documents::sources;
use crate::{HttpProblem, HttpResult, Path};

/// Maximum bytes of a form. The encoding of a form triples many characters of JSON.
const MAX_FORM: usize = 2 << 20;
/// Maximum headers of an event.
const MAX_HEADERS: usize = 100;

pub(super) async fn try_event(session: ConsoleSession, path: PathOf<String>, body: Body) -> Response {
    let page = async {
        let Path(name) = path?;
        let fields = session.form(body, MAX_FORM).await?;
        let Json(source) = sources::get(Path(name.clone()), session.permitted()?).await?;
        let [headers, payload, fetched] = ["headers", "payload", "fetched"].map(|name| fields.get(name));
        let effect = effect(&session, &name, (headers, payload, fetched)).await;
        let effect = effect.map_err(|HttpProblem(problem)| problem.detail);
        let trial = SourceTrial { headers, payload, fetched, effect: Some(effect) };
        HttpResult::Ok(ebb_console::source(session.viewer(), &source, &trial))
    };
    session.respond(paths::SOURCES, page.await)
}

async fn effect(
    session: &ConsoleSession,
    name: &str,
    (headers, body, fetched): (&str, &str, &str),
) -> HttpResult<TrialEffect> {
    let headers = headers_of(headers)?;
    let event = TrialEvent { headers: &headers, body, fetched };
    let tried = Box::pin(trial::try_event(&session.server.env, name, event)).await?;
    let EventTrial { delivery_id: delivery, explanation: EventExplanation { skipped, entry, outcome } } = tried;
    let skipped = skipped.into_iter().map(|skipped| (skipped.entry, skipped.reason)).collect();
    let (verdict, target, uid, time_ms, reason, document) = match outcome {
        Ok(EventOutcome::Apply { kind, name, uid, time_ms, document, .. }) => {
            ("apply", Some((kind, name)), uid, time_ms, None, Some(document))
        }
        Ok(EventOutcome::Delete { kind, name, uid, time_ms, reason, .. }) => {
            ("delete", Some((kind, name)), uid, time_ms, reason, None)
        }
        Ok(EventOutcome::Ignored { reason }) => {
            // Without an entry, the reasons are listed.
            let reason = entry.map_or("no entry holds".to_owned(), |_| reason);
            ("ignored", None, None, None, Some(reason), None)
        }
        Err(error) => ("rejected", None, None, None, Some(error.to_string()), None),
    };
    let target = target.map(|(kind, name)| format!("{kind}/{name}"));
    let time = time_ms.map(|time| rfc3339(Timestamp(time)));
    Ok(TrialEffect { skipped, entry, verdict, reason, target, uid, time, delivery, document })
}

/// Parses headers, one per line.
fn headers_of(text: &str) -> HttpResult<HeaderMap> {
    let invalid = |detail: String| HttpProblem::new(ErrorCode::InvalidHeader, detail);
    let mut headers = HeaderMap::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let parsed = line.split_once(':').and_then(|(name, value)| {
            Some((HeaderName::try_from(name.trim()).ok()?, HeaderValue::try_from(value.trim()).ok()?))
        });
        let (name, value) =
            parsed.ok_or_else(|| invalid(format!("{:?} is not a header: write NAME: VALUE", limits::message(line))))?;
        if headers.len() >= MAX_HEADERS {
            return Err(invalid(format!("more than {MAX_HEADERS} headers are given")));
        }
        headers.append(name, value);
    }
    Ok(headers)
}
