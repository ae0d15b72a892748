//! Forms: the proof that a page of the console sent them, and their fields.

use axum::body::Body;
use axum::http::{HeaderMap, header};
use ebb_console::FORM_TOKEN;
use ebb_protocol::error_code::ErrorCode;
use url::{Url, form_urlencoded};

use super::sessions::ConsoleSession;
use crate::{HttpProblem, HttpResult, ServerState};

/// The fields of a form, in its order.
#[derive(Debug, Default)]
pub(super) struct FormFields(Vec<(String, String)>);

impl FormFields {
    pub(super) fn parse(body: &[u8]) -> Self {
        Self(form_urlencoded::parse(body).into_owned().collect())
    }

    /// Returns a field. Of repeated fields, the last one counts. A missing one is empty.
    pub(super) fn get(&self, name: &str) -> &str {
        self.all(name).next_back().unwrap_or_default()
    }

    pub(super) fn all(&self, name: &str) -> impl DoubleEndedIterator<Item = &str> {
        self.0.iter().filter(move |(found, _)| found == name).map(|(_, value)| value.as_str())
    }
}

impl ConsoleSession {
    /// Returns the fields of a form of at most `limit` bytes that a page of this session sent.
    ///
    /// # Errors
    /// Returns 403 for a form of another site or of another session, and 413 for a larger one.
    pub(super) async fn form(&self, body: Body, limit: usize) -> HttpResult<FormFields> {
        check_origin(&self.server, &self.request)?;
        let fields = FormFields::parse(&crate::routes::read(body, limit).await?);
        if self.id.has_form_token(fields.get(FORM_TOKEN)) {
            return Ok(fields);
        }
        Err(HttpProblem::new(ErrorCode::ForeignForm, "the form is not of this session: open the page again"))
    }
}

/// Checks that a page of this server sent a form. Browsers send the header `Origin` with each form that is posted.
///
/// # Errors
/// Returns 403 for another origin, and without one.
pub(super) fn check_origin(server: &ServerState, headers: &HeaderMap) -> HttpResult<()> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let (origin, host) = (text(header::ORIGIN), text(header::HOST));
    let own = Url::parse(&server.env.settings.source).map(|url| url.origin());
    // An opaque origin, such as that of a URL without a host, is written as `null`. It equals no other origin.
    let is_own = own.is_ok_and(|own| own.is_tuple() && own.ascii_serialization() == origin);
    // A gateway or a proxy may have another name for the server. The browser sends the same one in both headers.
    let is_host = origin.split_once("://").is_some_and(|(_, of_page)| !host.is_empty() && of_page == host);
    if is_own || is_host {
        return Ok(());
    }
    Err(HttpProblem::new(ErrorCode::ForeignForm, "the form is of another site"))
}
