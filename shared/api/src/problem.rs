//! Errors of the API, as in RFC 9457.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use ebb_documents::diagnostic::{Diagnostic, Diagnostics};
use ebb_protocol::{DocumentError, ErrorCode, FieldError, ProblemDetails};

use ebb_flow::{FlowError, Rejection, RequestError};

/// `Retry-After` of responses 503, in seconds.
const RETRY_AFTER_SECONDS: &str = "1";

#[derive(Debug)]
pub struct HttpProblem(pub ProblemDetails);

pub type HttpResult<T> = Result<T, HttpProblem>;

impl HttpProblem {
    /// Creates a problem with the usual status of its code. `detail` describes the error and its fix.
    pub fn new(code: ErrorCode, detail: impl Into<String>) -> Self {
        let (status, code) = (code.statuses()[0], code.name().to_owned());
        Self(ProblemDetails { status, code, detail: detail.into(), errors: Vec::new() })
    }

    /// Replaces the status by another one of the code.
    #[must_use]
    pub(crate) fn with_status(mut self, status: StatusCode) -> Self {
        self.0.status = status.as_u16();
        self
    }

    pub(crate) fn is(&self, code: ErrorCode) -> bool {
        self.0.code == code.name()
    }

    pub fn not_found(detail: impl Into<String>) -> Self {
        Self::new(ErrorCode::NotFound, detail)
    }

    pub fn document_error(diagnostic: &Diagnostic) -> DocumentError {
        let position = diagnostic.at.map(|at| diagnostic.source.author(at));
        DocumentError {
            file: diagnostic.source.name.clone(),
            code: diagnostic.code.to_owned(),
            message: diagnostic.message.clone(),
            help: diagnostic.help.clone(),
            line: position.map(|at| at.line),
            column: position.map(|at| at.column),
        }
    }
}

impl IntoResponse for HttpProblem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.0.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = serde_json::to_string(&self.0).unwrap_or_default();
        let mut response = (status, [(header::CONTENT_TYPE, "application/problem+json")], body).into_response();
        if status == StatusCode::SERVICE_UNAVAILABLE {
            // The server that completes an event may limit requests.
            let seconds = if self.is(ErrorCode::IncompleteEvent) { "30" } else { RETRY_AFTER_SECONDS };
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static(seconds));
        }
        response
    }
}

impl From<FlowError> for HttpProblem {
    fn from(error: FlowError) -> Self {
        // Internal errors are only logged. The response shows the caller whether a repetition can succeed.
        if let FlowError::Damaged { .. } = error {
            tracing::error!(%error, "stored data is damaged");
            return Self::new(ErrorCode::Damaged, error.to_string());
        }
        if error.is_retryable() {
            tracing::warn!(%error, "request failed; the client may retry");
            Self::new(ErrorCode::Unavailable, "the state cannot be read or written now: send the same request again")
        } else {
            tracing::error!(%error, "request failed");
            Self::new(ErrorCode::Internal, "the request failed; the log of the server has the cause")
        }
    }
}

impl From<Rejection> for HttpProblem {
    fn from(rejection: Rejection) -> Self {
        match rejection {
            Rejection::Refused(code, detail) => Self::new(code, detail),
            Rejection::Document(errors) => errors.into(),
        }
    }
}

impl From<FieldError> for HttpProblem {
    /// Creates the problem of a wrong query parameter.
    fn from(error: FieldError) -> Self {
        Self::new(ErrorCode::InvalidQuery, error.to_string())
    }
}

impl From<RequestError> for HttpProblem {
    fn from(error: RequestError) -> Self {
        match error {
            RequestError::Rejected(rejection) => rejection.into(),
            RequestError::Failed(error) => error.into(),
        }
    }
}

impl From<Diagnostics> for HttpProblem {
    /// Creates a 422 with the errors of a document.
    fn from(errors: Diagnostics) -> Self {
        let list: Vec<DocumentError> = errors.iter().map(Self::document_error).collect();
        let first = list.first().map(|error| error.message.clone()).unwrap_or_default();
        let mut problem = Self::new(ErrorCode::InvalidDocument, first);
        problem.0.errors = list;
        problem
    }
}

impl From<ebb_store::StoreError> for HttpProblem {
    fn from(error: ebb_store::StoreError) -> Self {
        FlowError::from(error).into()
    }
}
