//! Completes an event of a source by a request with a connection.

use std::time::Duration;

use ebb_documents::event::EventRequest;
use ebb_egress::{CallError, HttpRequest, HttpResponse};
use ebb_protocol::{MessageId, Millis, id, limits};
use serde_json::{Value, json};

use crate::run::credential::{self, ConnectionUser};
use crate::run::request_headers::is_same_origin;
use crate::{Env, FlowError, FlowResult, response_body};

/// The wait for the response, with that for an access token. The sender of the event waits meanwhile, GitHub for 10 s.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The wait for a part of a list, and its maximum bytes. GitHub's page of 25 pull requests has at most 7 MiB.
pub(super) const LIST: (Duration, usize) = (Duration::from_secs(10), 8 << 20);
/// The wait after a part that was not answered.
pub(super) const RETRY: Millis = Millis(60_000);

/// The maximum wait, although a server asks for a longer one. Most limits of requests are of an hour.
const MAX_WAIT: Millis = Millis(3_600_000);

/// The place of a request at the origin of a connection.
pub(super) enum RequestPlace {
    Path(String),
    /// A URL of the same origin, such as that of a further page.
    Url(String),
}

/// The reason why a request shows nothing.
pub(super) enum FetchProblem {
    /// It can be sent again, after the wait that the server asks for.
    Later(String, Option<Duration>),
    /// The server does not have it, or its answer is too large.
    Never(String),
    /// It is not what was asked for.
    Wrong(String),
    Failed(FlowError),
}

impl From<FlowError> for FetchProblem {
    fn from(error: FlowError) -> Self {
        Self::Failed(error)
    }
}

impl FetchProblem {
    /// Returns true if the server has asked for a wait.
    pub(super) fn is_limit(&self) -> bool {
        matches!(self, Self::Later(_, Some(_)))
    }

    /// Returns the reason, and the wait if the request can be sent again.
    pub(super) fn shown(self) -> FlowResult<(String, Option<Millis>)> {
        match self {
            Self::Later(why, wait) => {
                let wait = wait.and_then(|wait| u64::try_from(wait.as_millis()).ok());
                Ok((why, Some(wait.map_or(RETRY, Millis).clamp(RETRY, MAX_WAIT))))
            }
            Self::Never(why) | Self::Wrong(why) => Ok((why, None)),
            Self::Failed(error) => Err(error),
        }
    }
}

/// Returns `status` and `body` of the response, of at most `max_values`, or the reason why the event cannot be completed
/// now. A missing resource completes the event, too.
pub(super) async fn fetch(
    env: &Env,
    source: &str,
    EventRequest { connection, path, headers }: EventRequest,
    max_values: usize,
) -> FlowResult<Result<Value, String>> {
    let most = (TIMEOUT, limits::RESPONSE_BODY);
    let (_, response) = match send(env, source, (&connection, headers), RequestPlace::Path(path), most).await {
        Ok(found) => found,
        Err(problem) => return Ok(Err(problem.shown()?.0)),
    };
    if !matches!(response.status, 200..=299 | 404) {
        return Ok(Err(format!("the server of the connection {connection} answered {}", response.status_text())));
    }
    let body = response_body::parse(&response.body, max_values);
    Ok(body
        .map(|body| json!({"status": response.status, "body": body}))
        .map_err(|problem| format!("the response of the connection {connection} has {problem}")))
}

/// Asks for a part of a list, which `what` names. Returns the URL and the response.
pub(super) async fn ask(
    env: &Env,
    source: &str,
    connection: (&str, Vec<(String, String)>),
    place: RequestPlace,
    what: &str,
) -> Result<(String, HttpResponse), FetchProblem> {
    let name = connection.0;
    let (url, response) = send(env, source, connection, place, LIST).await?;
    let answered = format!("{what} of the connection {name} was answered {}", response.status_text());
    match response.status {
        202 | 206 => Err(FetchProblem::Wrong(answered)),
        200..=299 => Ok((url, response)),
        404 | 410 => Err(FetchProblem::Never(answered)),
        status if matches!(status, 408 | 500..=599) || response.is_limited() => {
            Err(FetchProblem::Later(answered, response.retry_after(env.now())))
        }
        _ => Err(FetchProblem::Wrong(answered)),
    }
}

/// Sends a `GET` request with a connection of a source. Returns the URL and the response.
pub(super) async fn send(
    env: &Env,
    source: &str,
    (connection, own): (&str, Vec<(String, String)>),
    place: RequestPlace,
    (timeout, largest): (Duration, usize),
) -> Result<(String, HttpResponse), FetchProblem> {
    let later = |why| FetchProblem::Later(why, None);
    let found = credential::of_user(env, connection, ConnectionUser::Source(source)).await?;
    let (origin, credential) = found.map_err(later)?;
    let credential = credential.ready(env, timeout).await?.map_err(|problem| later(problem.why))?;
    let url = match place {
        RequestPlace::Path(path) => format!("{origin}{path}"),
        RequestPlace::Url(url) if is_same_origin(&url, &origin) => url,
        RequestPlace::Url(_) => return Err(later(format!("the connection {connection} has another origin now"))),
    };
    let mut headers = vec![("accept".to_owned(), "application/json".to_owned())];
    let is_sent = |name: &str| credential.header.iter().any(|(sent, _)| sent.eq_ignore_ascii_case(name));
    headers.extend(own.into_iter().filter(|(name, _)| !is_sent(name)));
    let id = MessageId::parse(&id::digest(url.as_bytes())).map_err(|error| FlowError::Broken(error.to_string()))?;
    headers.extend(credential.headers(env, &id, &[]));
    let request = HttpRequest { largest, ..HttpRequest::new("GET", &url, headers, Vec::new(), timeout) };
    let (response, _permit) = credential.call(env, request).await.map_err(|error| {
        let why = format!("the server of the connection {connection} gave no answer: {error}");
        match error {
            CallError::Unread(_, cause) if matches!(*cause, CallError::TooLarge(_)) => FetchProblem::Never(why),
            _ => later(why),
        }
    })?;
    Ok((url, response))
}
