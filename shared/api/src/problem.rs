//! Errors as RFC 9457 has them.

use axum::extract::rejection::{PathRejection, QueryRejection, RawPathParamsRejection};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use ebb_documents::diagnostic::{Diagnostic, Diagnostics};
use ebb_protocol::api::{DocumentChange, DocumentError, ProblemDetails};

use ebb_flow::error::{FlowError, RequestError};

/// After so many seconds a request that met a passing trouble may be sent again.
const RETRY_AFTER_SECONDS: &str = "1";

/// An answer that says what is wrong.
#[derive(Debug)]
pub struct HttpProblem(pub ProblemDetails);

impl HttpProblem {
    /// A problem with its status, its stable word, and what to do.
    pub fn new(status: StatusCode, code: &str, detail: impl Into<String>) -> Self {
        let (code, detail) = (code.to_owned(), detail.into());
        Self(ProblemDetails { status: status.as_u16(), code, detail, errors: Vec::new(), changes: Vec::new() })
    }

    /// 409 with what an update of a living target would change.
    pub fn changed(changes: Vec<DocumentChange>) -> Self {
        let detail = "a living target cannot be changed: delete it first, then create it again";
        let mut problem = Self::new(StatusCode::CONFLICT, "changed", detail);
        problem.0.changes = changes;
        problem
    }

    /// 404.
    pub fn not_found(what: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not-found", what)
    }

    /// 422 with the errors of a document.
    pub fn document(errors: &Diagnostics) -> Self {
        let list: Vec<DocumentError> = errors.iter().map(Self::document_error).collect();
        let first = list.first().map(|error| error.message.clone()).unwrap_or_default();
        let mut problem = Self::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid-document", first);
        problem.0.errors = list;
        problem
    }

    /// An error or warning of a document, on the wire.
    pub fn document_error(diagnostic: &Diagnostic) -> DocumentError {
        let place = diagnostic.at.map(|at| diagnostic.source.author(at));
        DocumentError {
            file: diagnostic.source.name.clone(),
            code: diagnostic.code.to_owned(),
            message: diagnostic.message.clone(),
            help: diagnostic.help.clone(),
            line: place.map(|at| at.line),
            column: place.map(|at| at.column),
        }
    }
}

impl IntoResponse for HttpProblem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.0.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = serde_json::to_string(&self.0).unwrap_or_default();
        let mut response = (status, [(header::CONTENT_TYPE, "application/problem+json")], body).into_response();
        if status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static(RETRY_AFTER_SECONDS));
        }
        response
    }
}

impl From<QueryRejection> for HttpProblem {
    fn from(rejection: QueryRejection) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid-query", rejection.body_text())
    }
}

impl From<PathRejection> for HttpProblem {
    fn from(rejection: PathRejection) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid-path", rejection.body_text())
    }
}

impl From<RawPathParamsRejection> for HttpProblem {
    fn from(rejection: RawPathParamsRejection) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid-path", rejection.body_text())
    }
}

impl From<FlowError> for HttpProblem {
    fn from(error: FlowError) -> Self {
        // What is wrong inside is for our log; the caller learns whether to come again.
        if let FlowError::Damaged { .. } = error {
            tracing::error!(%error, "damaged");
            return Self::new(StatusCode::INTERNAL_SERVER_ERROR, "damaged", error.to_string());
        }
        if error.is_retryable() {
            tracing::warn!(%error, "the caller is asked to come again");
            let detail = "the state could not be read or written just now: send the same request again";
            Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", detail)
        } else {
            tracing::error!(%error, "broken");
            Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "the request failed; the log says why")
        }
    }
}

impl<R: Into<HttpProblem>> From<RequestError<R>> for HttpProblem {
    fn from(error: RequestError<R>) -> Self {
        match error {
            RequestError::Rejected(rejection) => rejection.into(),
            RequestError::Failed(error) => error.into(),
        }
    }
}

impl From<Diagnostics> for HttpProblem {
    fn from(errors: Diagnostics) -> Self {
        Self::document(&errors)
    }
}

impl From<ebb_store::StoreError> for HttpProblem {
    fn from(error: ebb_store::StoreError) -> Self {
        FlowError::from(error).into()
    }
}
