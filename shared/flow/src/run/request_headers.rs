//! Builds the headers of requests to the receiver of a webhook unit.

use ebb_documents::render::RenderedRequest;
use ebb_protocol::{MessageId, unit as headers};
use std::collections::{BTreeMap, BTreeSet};
use url::Url;

use crate::run::attempt::{AttemptContext, undone_name, unit_name};
use crate::{FlowError, FlowResult, RequestCredential, telemetry};

/// The method of questions.
pub(super) const GET: &str = "GET";
/// A plugin may set this header.
pub(super) const CONTENT_TYPE: &str = "content-type";

/// Returns false for a header that is about the content of a request, or that makes its answer conditional or partial.
fn is_of_question(name: &str) -> bool {
    let others = ["range", "prefer", "expect"];
    !name.starts_with("content-") && !name.starts_with("if-") && !others.contains(&name)
}

pub(crate) fn is_same_origin(one: &str, other: &str) -> bool {
    let origin = |url: &str| Url::parse(url).map(|url| url.origin()).ok();
    origin(one).is_some_and(|one| Some(one) == origin(other))
}

/// Adds the headers of a plugin, with names in lower case. Those that Ebb has set stay.
pub(crate) fn add_plugin_headers(list: &mut Vec<(String, String)>, headers: BTreeMap<String, String>) {
    let own: BTreeSet<String> = list.iter().map(|(name, _)| name.clone()).collect();
    let headers = headers.into_iter().map(|(name, value)| (name.to_ascii_lowercase(), value));
    list.extend(headers.filter(|(name, _)| !own.contains(name)));
}

/// Returns the headers of a question to `url` about what the request of a webhook has made. If its origin is the same, it
/// has the headers of the plugin, such as the version of an API.
///
/// # Errors
/// See [`signed_headers`].
pub(crate) fn question_headers(
    context: AttemptContext<'_>,
    credential: &RequestCredential,
    (purpose, url, body): (&str, &str, &[u8]),
    request: &RenderedRequest,
) -> FlowResult<Vec<(String, String)>> {
    let mut list = signed_headers(context, credential, (purpose, body))?;
    if is_same_origin(url, &request.url) {
        let mut headers = request.headers.clone();
        headers.retain(|name, _| is_of_question(&name.to_ascii_lowercase()));
        add_plugin_headers(&mut list, headers);
    }
    Ok(list)
}

/// Returns the signature or credential of a request and the headers that identify the attempt. `purpose` ends the message id, because
/// receivers discard a second message with the same id.
///
/// # Errors
/// Returns [`FlowError::Broken`] if the name of the run cannot be part of an id.
pub(crate) fn signed_headers(
    AttemptContext { env, run, attempt, unit, .. }: AttemptContext<'_>,
    credential: &RequestCredential,
    (purpose, body): (&str, &[u8]),
) -> FlowResult<Vec<(String, String)>> {
    let id = MessageId::parse(&format!("{}-{}-{}{purpose}", run.id, attempt.unit.0, attempt.number.0))
        .map_err(|error| FlowError::Broken(error.to_string()))?;
    let mut list = credential.headers(env, &id, body);
    list.extend([
        (headers::IDEMPOTENCY_KEY.to_owned(), run.idempotency_key(unit_name(run, unit))),
        (headers::ATTEMPT.to_owned(), attempt.number.0.to_string()),
    ]);
    list.extend(
        undone_name(run, unit).map(|undone| (headers::UNDOES_IDEMPOTENCY_KEY.to_owned(), run.idempotency_key(undone))),
    );
    list.extend(telemetry::traceparent(&run.id, attempt).map(|parent| (headers::TRACEPARENT.to_owned(), parent)));
    Ok(list)
}
