//! Requests of tools to the API, and their errors.

use std::sync::Arc;

use ebb_protocol::{CallerInfo, ProblemDetails};
use futures::future::BoxFuture;
use http::{Method, Request, Response, StatusCode, header};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::mcp::answer::Answer;

/// Sends requests to the API, with the credentials of a caller.
pub trait ApiTransport: Send + Sync + 'static {
    /// Sends a request. Its URI is a path with a query. Its body is JSON, or empty.
    ///
    /// # Errors
    /// Returns the reason why there is no response, for people.
    fn send(&self, request: Request<String>) -> BoxFuture<'_, Result<Response<Vec<u8>>, String>>;
}

/// The reason why a tool has no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ToolError {
    /// The reason, for people.
    #[error("The arguments are invalid.")]
    Arguments(String),
    /// The errors of the document, as lines.
    #[error("The document is invalid.")]
    Document(Vec<String>),
    /// The API did not respond. The value is the reason, for people.
    #[error("The server does not respond.")]
    Unreachable(String),
    /// The tool with this name changes targets.
    #[error("This server is read-only.")]
    ReadOnly(&'static str),
    /// The problem that the API returned. A status that asks for a repetition has one also without the text of the API.
    #[error("The API refused the request: {} {}.", .0.status, .0.code)]
    Refused(ProblemDetails),
    /// The lines of the targets of a call, each with its error. True if a target would lose resources.
    #[error("Every target was refused:")]
    Every(Vec<String>, bool),
}

/// Returns the error of arguments, with its reason for people.
pub(crate) fn invalid<T>(reason: impl Into<String>) -> Result<T, ToolError> {
    Err(ToolError::Arguments(reason.into()))
}

impl ToolError {
    /// Returns the error as an answer, with its fix.
    pub(crate) fn answer(&self) -> Answer {
        let lines = match self {
            Self::Arguments(reason) | Self::Unreachable(reason) => vec![reason.clone()],
            Self::Document(lines) | Self::Every(lines, _) => lines.clone(),
            Self::ReadOnly(tool) => vec![format!(
                "{tool} changes targets, and `ebb mcp` was started without --allow-writes. Nothing was changed."
            )],
            Self::Refused(problem) => problem_lines(problem),
        };
        let of_code = if let Self::Refused(problem) = self { problem.next_step() } else { None };
        Answer::new(self.to_string(), with_tools(of_code.as_deref().unwrap_or(self.step()))).with(lines, |shown| {
            format!("Further errors were left out. Correct the first {shown} lines of errors first.")
        })
    }

    fn step(&self) -> &'static str {
        match self {
            Self::Arguments(_) => "correct the arguments, then call the tool again",
            Self::Document(_) => "correct the document, then call the tool again",
            Self::Unreachable(_) => "`ebb doctor` checks the server and its address",
            Self::ReadOnly(_) => "ask a person to start this server as `ebb mcp --allow-writes`, or to make the change",
            Self::Refused(problem) => refusal_step(problem),
            Self::Every(_, false) => "remove each cause or leave the target out, then call the tool again",
            Self::Every(_, true) => {
                "remove each cause or leave the target out, then call the tool again; if a person accepts that resources are lost, upgrade_plugin with \"allow_replace\": true"
            }
        }
    }
}

fn problem_lines(problem: &ProblemDetails) -> Vec<String> {
    let mut lines: Vec<String> = problem.detail.lines().map(with_tools).collect();
    for error in &problem.errors {
        lines.push(with_tools(&error.to_string()));
        lines.extend(error.help.iter().map(|help| format!("  help: {}", with_tools(help))));
    }
    lines
}

/// The steps of errors that name a command, each with what a caller of tools does instead.
const STEPS: [(&str, &str); 5] = [
    ("publish it: ebb apply -f FILE", "publish it: apply_document"),
    ("publish another version: ebb apply -f FILE", "publish another version: apply_document"),
    (
        "publish it with `ebb apply -f FILE`, or see `ebb get plugins`",
        "publish it with apply_document, or see list_plugins",
    ),
    ("give it: --set ", "write a value in its place: "),
    ("allow it: --allow-replace, or --yes of an upgrade", "call the tool again with \"allow_replace\": true"),
];

/// Names tools in place of commands in a line of an error.
pub(crate) fn with_tools(line: &str) -> String {
    STEPS.iter().fold(line.to_owned(), |line, (command, tool)| line.replace(command, tool))
}

fn refusal_step(problem: &ProblemDetails) -> &'static str {
    match problem.status {
        401 | 403 => "ask a person for a token with the needed scope: ebb token create NAME --scope SCOPE",
        404 => "correct the argument; list_targets, list_plugins, list_clusters and history show what exists",
        400 | 413 | 422 => "correct the document or the argument, then call the tool again",
        429 => "wait for some seconds, then call the tool again",
        500.. => "call the tool again; if it fails again, `ebb doctor` checks the server",
        _ => "why_not_ready shows the state of a target",
    }
}

/// The characters of names that are encoded in paths and queries.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Returns a path of the API, with the parameters that have a value.
fn path(segments: &[&str], query: &[(&str, Option<&str>)]) -> Result<String, ToolError> {
    let mut path = "/v1".to_owned();
    for segment in segments {
        // An HTTP client resolves these, so that the request would go to another path.
        if matches!(*segment, "" | "." | "..") {
            return invalid(format!("{segment:?} is not a name"));
        }
        path.push('/');
        path.extend(utf8_percent_encode(segment, ENCODED));
    }
    let given = query.iter().filter_map(|(name, value)| Some((name, utf8_percent_encode((*value)?, ENCODED))));
    let given: Vec<String> = given.map(|(name, value)| format!("{name}={value}")).collect();
    Ok(if given.is_empty() { path } else { format!("{path}?{}", given.join("&")) })
}

#[derive(Clone)]
pub(crate) struct ApiCalls(Arc<dyn ApiTransport>);

impl ApiCalls {
    pub(crate) fn new(transport: impl ApiTransport) -> Self {
        Self(Arc::new(transport))
    }

    /// Returns the data of a path. `query` are its parameters; those without a value are not sent.
    pub(crate) async fn get<T: DeserializeOwned>(
        &self,
        segments: &[&str],
        query: &[(&str, Option<&str>)],
    ) -> Result<T, ToolError> {
        self.send(Method::GET, segments, query, None).await
    }

    pub(crate) async fn text(&self, segments: &[&str], query: &[(&str, Option<&str>)]) -> Result<String, ToolError> {
        Ok(String::from_utf8_lossy(&self.exchange(Method::GET, path(segments, query)?, None).await?).into_owned())
    }

    pub(crate) async fn send<T: DeserializeOwned>(
        &self,
        method: Method,
        segments: &[&str],
        query: &[(&str, Option<&str>)],
        body: Option<Value>,
    ) -> Result<T, ToolError> {
        let body = self.exchange(method, path(segments, query)?, body).await?;
        serde_json::from_slice(&body)
            .map_err(|error| ToolError::Unreachable(format!("the response has not the form of the API: {error}")))
    }

    async fn exchange(&self, method: Method, path: String, body: Option<Value>) -> Result<Vec<u8>, ToolError> {
        let mut request = Request::builder().method(method).uri(path);
        if body.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        let request = request.body(body.map(|body| body.to_string()).unwrap_or_default());
        let request =
            request.map_err(|error| ToolError::Arguments(format!("a name or a filter cannot be sent: {error}")))?;
        let response = self.0.send(request).await.map_err(ToolError::Unreachable)?;
        if response.status().is_success() {
            return Ok(response.into_body());
        }
        let status = response.status();
        Err(match serde_json::from_slice(response.body()) {
            Ok(problem) => ToolError::Refused(problem),
            // A gateway before the API refuses requests for the moment.
            Err(_) if matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) => {
                let (code, detail) = ("busy".to_owned(), "the server is busy".to_owned());
                ToolError::Refused(ProblemDetails { status: status.as_u16(), code, detail, errors: Vec::new() })
            }
            Err(_) => ToolError::Unreachable(format!("status {status}")),
        })
    }

    /// Returns the scopes of the caller, or `None` if the API does not say them now. An unknown caller has none.
    pub(crate) async fn scopes(&self) -> Option<Vec<String>> {
        match self.get::<CallerInfo>(&["caller"], &[]).await {
            Ok(caller) => Some(caller.scopes),
            Err(ToolError::Refused(problem)) if matches!(problem.status, 401 | 403) => Some(Vec::new()),
            Err(_) => None,
        }
    }
}
