//! Completes an event of a source by a request with a connection.

use std::time::Duration;

use ebb_documents::event::EventRequest;
use ebb_egress::HttpRequest;
use ebb_protocol::{MessageId, id};
use serde_json::{Value, json};

use crate::run::credential::{self, ConnectionUser};
use crate::{Env, FlowError, FlowResult, response_body};

/// The wait for the response, with that for an access token. The sender of the event waits meanwhile, GitHub for 10 s.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Returns `status` and `body` of the response, of at most `max_values`, or the reason why the event cannot be completed
/// now. A missing resource completes the event, too.
pub(super) async fn fetch(
    env: &Env,
    source: &str,
    EventRequest { connection, path, headers: own }: EventRequest,
    max_values: usize,
) -> FlowResult<Result<Value, String>> {
    let (origin, credential) = match credential::of_user(env, &connection, ConnectionUser::Source(source)).await? {
        Ok(found) => found,
        Err(why) => return Ok(Err(why)),
    };
    let credential = match credential.ready(env, TIMEOUT).await? {
        Ok(credential) => credential,
        Err(problem) => return Ok(Err(problem.why)),
    };
    let mut headers = vec![("accept".to_owned(), "application/json".to_owned())];
    let is_sent = |name: &str| credential.header.iter().any(|(sent, _)| sent.eq_ignore_ascii_case(name));
    headers.extend(own.into_iter().filter(|(name, _)| !is_sent(name)));
    let id = MessageId::parse(&id::digest(path.as_bytes())).map_err(|error| FlowError::Broken(error.to_string()))?;
    headers.extend(credential.headers(env, &id, &[]));
    let url = format!("{origin}{path}");
    let request = HttpRequest { method: "GET".to_owned(), url, headers, body: Vec::new(), timeout: TIMEOUT };
    Ok(match credential.call(env, request).await {
        Ok((response, _permit)) if matches!(response.status, 200..=299 | 404) => {
            let body = response_body::parse(&response.body, max_values);
            body.map(|body| json!({"status": response.status, "body": body}))
                .map_err(|problem| format!("the response of the connection {connection} has {problem}"))
        }
        Ok((response, _)) => {
            Err(format!("the server of the connection {connection} answered {}", response.status_text()))
        }
        Err(error) => Err(format!("the server of the connection {connection} gave no answer: {error}")),
    })
}
