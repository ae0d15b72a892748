//! Renders URLs of webhooks. Rendered values cannot change the destination of a URL.

use super::context::{PendingOutputs, RenderContext, capped, mistyped};
use super::{RenderResult, evaluate};
use crate::cel::{Expression, ReferenceSource, RootVariable, url_encoded};
use crate::plan::Template;
use crate::template::{TextPart, is_normal_url};

/// Returns the URL with percent-encoded values. With the `origin` of a connection, the template is the path after it.
pub(super) fn render(context: RenderContext<'_>, origin: Option<&str>, template: &Template) -> RenderResult<String> {
    let Some(origin) = origin else { return text(context, template, |_| false) };
    let url = format!("{origin}{}", text(context, template, |_| false)?);
    match context.unknowns == PendingOutputs::Shown || is_normal_url(&url) {
        true => Ok(url),
        false => Err(mistyped("url", "a path that stays as it is written", "another one")),
    }
}

/// Returns the URL for people. `***` replaces each value that is made of a response, because such a value can be a credential
/// that no document has declared.
pub(super) fn shown(context: RenderContext<'_>, origin: Option<&str>, template: &Template) -> RenderResult<String> {
    let is_hidden = |of: &Expression| {
        of.references.iter().any(|found| found.source == ReferenceSource::Root(RootVariable::Response))
    };
    Ok(format!("{}{}", origin.unwrap_or_default(), text(context, template, is_hidden)?))
}

/// Returns true if the host of a URL is `domain` or below it.
pub(super) fn is_within(url: &str, domain: &str) -> bool {
    let host = url::Url::parse(url).ok().and_then(|url| url.domain().map(str::to_owned));
    host.is_some_and(|host| host.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.')))
}

fn text(context: RenderContext<'_>, template: &Template, is_hidden: fn(&Expression) -> bool) -> RenderResult<String> {
    let place = "url";
    let text = match template {
        Template::Literal(serde_json::Value::String(text)) => return Ok(text.clone()),
        Template::Text(text) => text,
        _ => return Err(mistyped(place, "text", "no text")),
    };
    let mut url = String::new();
    for part in &evaluate::text(text, place)?.0 {
        match part {
            TextPart::Literal(text) => url.push_str(text),
            TextPart::Expression(expression) if is_hidden(expression) => url.push_str("***"),
            TextPart::Expression(expression) => {
                let piece = context.piece(expression, place)?;
                if piece.is_empty() && !url.contains(['?', '#']) {
                    // `DELETE /tenants/` is a different request from `DELETE /tenants/ID`.
                    return Err(mistyped(place, "text that is not empty", "empty text"));
                }
                match context.unknowns {
                    PendingOutputs::Missing => url.push_str(&url_encoded(&piece)),
                    PendingOutputs::Shown => url.push_str(&piece),
                }
            }
        }
        capped(place, url.len())?;
    }
    let path = url.split(['?', '#']).next().unwrap_or_default();
    match path.split('/').any(|segment| segment == "." || segment == "..") {
        true => Err(mistyped(place, "a path without `.` and `..`", "such a path")),
        false => Ok(url),
    }
}
