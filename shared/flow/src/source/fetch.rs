//! Completes an event of a source by a request with a connection.

use std::time::Duration;

use ebb_documents::event::EventRequest;
use ebb_egress::{HttpRequest, HttpResponse};
use ebb_protocol::{MessageId, id};
use serde_json::{Value, json};

use crate::run::credential::{self, ConnectionUser};
use crate::run::request_headers::is_same_origin;
use crate::{Env, FlowError, FlowResult, response_body};

/// The wait for the response, with that for an access token. The sender of the event waits meanwhile, GitHub for 10 s.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The place of a request at the origin of a connection.
pub(super) enum RequestPlace {
    Path(String),
    /// A URL of the same origin, such as that of a further page.
    Url(String),
}

/// Returns `status` and `body` of the response, of at most `max_values`, or the reason why the event cannot be completed
/// now. A missing resource completes the event, too.
pub(super) async fn fetch(
    env: &Env,
    source: &str,
    EventRequest { connection, path, headers }: EventRequest,
    max_values: usize,
) -> FlowResult<Result<Value, String>> {
    let (_, response) = match send(env, source, (&connection, headers), RequestPlace::Path(path), TIMEOUT).await? {
        Ok(found) => found,
        Err(why) => return Ok(Err(why)),
    };
    if !matches!(response.status, 200..=299 | 404) {
        return Ok(Err(format!("the server of the connection {connection} answered {}", response.status_text())));
    }
    let body = response_body::parse(&response.body, max_values);
    Ok(body
        .map(|body| json!({"status": response.status, "body": body}))
        .map_err(|problem| format!("the response of the connection {connection} has {problem}")))
}

/// Sends a `GET` request with a connection of a source. Returns the URL and the response, or the reason why there is none.
pub(super) async fn send(
    env: &Env,
    source: &str,
    (connection, own): (&str, Vec<(String, String)>),
    place: RequestPlace,
    timeout: Duration,
) -> FlowResult<Result<(String, HttpResponse), String>> {
    let (origin, credential) = match credential::of_user(env, connection, ConnectionUser::Source(source)).await? {
        Ok(found) => found,
        Err(why) => return Ok(Err(why)),
    };
    let credential = match credential.ready(env, timeout).await? {
        Ok(credential) => credential,
        Err(problem) => return Ok(Err(problem.why)),
    };
    let url = match place {
        RequestPlace::Path(path) => format!("{origin}{path}"),
        RequestPlace::Url(url) if is_same_origin(&url, &origin) => url,
        RequestPlace::Url(_) => return Ok(Err(format!("the connection {connection} has another origin now"))),
    };
    let mut headers = vec![("accept".to_owned(), "application/json".to_owned())];
    let is_sent = |name: &str| credential.header.iter().any(|(sent, _)| sent.eq_ignore_ascii_case(name));
    headers.extend(own.into_iter().filter(|(name, _)| !is_sent(name)));
    let id = MessageId::parse(&id::digest(url.as_bytes())).map_err(|error| FlowError::Broken(error.to_string()))?;
    headers.extend(credential.headers(env, &id, &[]));
    let request = HttpRequest { method: "GET".to_owned(), url: url.clone(), headers, body: Vec::new(), timeout };
    Ok(match credential.call(env, request).await {
        Ok((response, _permit)) => Ok((url, response)),
        Err(error) => Err(format!("the server of the connection {connection} gave no answer: {error}")),
    })
}
