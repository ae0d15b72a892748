//! Problems of callers with a token of an issuer.

use ebb_protocol::ErrorCode;

use crate::HttpProblem;

pub(super) fn refused(detail: impl Into<String>) -> HttpProblem {
    HttpProblem::new(ErrorCode::InvalidToken, detail)
}

pub(super) fn unavailable(issuer: &str, reason: &str) -> HttpProblem {
    let detail = format!("the issuer {issuer} cannot be used: {reason}. Try again, or ask an operator");
    HttpProblem::new(ErrorCode::IssuerUnavailable, detail)
}
