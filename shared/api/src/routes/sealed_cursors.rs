//! Positions in lists. A caller with limited scopes, who could read in them about targets of others, gets them encrypted.

use ebb_protocol::{FieldError, open_value, seal_value};

use crate::{HttpResult, Permitted, RoutePermission};

impl<P: RoutePermission> Permitted<P> {
    /// Returns a position in the list `place` as the caller gets it. It is valid in a query without encoding.
    pub(super) fn sealed(&self, place: &str, position: String) -> String {
        if !self.access().is_limited() {
            return position;
        }
        seal_value(&self.env.settings.unit_keys, place, position.as_bytes()).replace('+', "-").replace('/', "_")
    }

    /// Returns the position in a text of [`Self::sealed`], or `None` if a limited caller sent another text.
    pub(super) fn opened(&self, place: &str, text: &str) -> Option<String> {
        if !self.access().is_limited() {
            return Some(text.to_owned());
        }
        let text = text.replace('-', "+").replace('_', "/");
        String::from_utf8(open_value(&self.env.settings.unit_keys, place, &text)?).ok()
    }

    /// Returns the position in a `nextToken` of the list `place`, or 400 if a limited caller sent another text.
    pub(super) fn opened_token(&self, place: &str, token: Option<String>) -> HttpResult<Option<String>> {
        let problem = "is not the `nextToken` of a page of this caller";
        let foreign = || FieldError { field: "nextToken", problem: problem.to_owned() }.into();
        token.map(|token| self.opened(place, &token).ok_or_else(foreign)).transpose()
    }
}
