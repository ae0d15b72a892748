//! Renders URLs of webhooks. Rendered values cannot change the destination of a URL.

use percent_encoding::percent_decode_str;

use super::context::{PendingOutputs, RenderContext, capped, mistyped};
use super::{RenderResult, evaluate};
use crate::cel::convert::json_type;
use crate::cel::{Expression, ReferenceSource, RootVariable, url_encoded};
use crate::plan::Template;
use crate::template::{TextPart, is_normal_url, joinable};

/// Returns the URL with percent-encoded values. With the `origin` of a connection, the template is the path after it.
pub(super) fn render(context: RenderContext<'_>, origin: Option<&str>, template: &Template) -> RenderResult<String> {
    let Some(origin) = origin else { return text(context, template, |_| false) };
    let url = format!("{origin}{}", text(context, template, |_| false)?);
    match context.unknowns == PendingOutputs::Shown || is_normal_url(&url) {
        true => Ok(url),
        false => Err(mistyped("url", "a path that stays as it is written", "another one")),
    }
}

/// Returns the URL of a question. If its path is one expression, its value is a URL at the origin, or a path, such as that of an
/// operation in the header `Location`.
/// A relative one is resolved against the URL of the `request`, if that can be rendered.
pub(super) fn of_answer(
    context: RenderContext<'_>,
    origin: Option<&str>,
    (template, request): (&Template, &Template),
) -> RenderResult<String> {
    let (Some(origin), Template::Text(text)) = (origin, template) else { return render(context, origin, template) };
    let parts = evaluate::text(text, "url")?.0;
    let [TextPart::Expression(expression)] = parts.as_slice() else { return render(context, Some(origin), template) };
    let value = joinable(context.part(expression, "url")?);
    let wanted = || mistyped("url", &format!("a URL at {origin}, or a path"), "another one");
    let base = render(context, Some(origin), request).unwrap_or_else(|_| origin.to_owned());
    let base = url::Url::parse(&base).map_err(|_| wanted())?;
    let joined = base.join(&value).map_err(|_| wanted())?;
    match joined.origin() == base.origin() && !value.is_empty() && joined.username().is_empty() {
        true => Ok(joined.into()),
        false => Err(wanted()),
    }
}

/// Returns the URL for people. `***` replaces each value that is made of a response, because such a value can be a credential
/// that no document has declared.
pub(super) fn shown(context: RenderContext<'_>, origin: Option<&str>, template: &Template) -> RenderResult<String> {
    let is_hidden = |of: &Expression| {
        use RootVariable::{Poll, Response};
        of.references.iter().any(|found| matches!(found.source, ReferenceSource::Root(Response | Poll)))
    };
    Ok(format!("{}{}", origin.unwrap_or_default(), text(context, template, is_hidden)?))
}

/// Returns the first expression whose value gives the URL a line feed.
pub(super) fn line_feed(context: RenderContext<'_>, template: &Template) -> Option<String> {
    let Template::Text(text) = template else { return None };
    evaluate::text(text, "url").ok()?.0.into_iter().find_map(|part| match part {
        TextPart::Expression(of) if context.piece(&of, "url").is_ok_and(|piece| piece.contains('\n')) => Some(of.text),
        TextPart::Expression(_) | TextPart::Literal(_) => None,
    })
}

/// Returns an error if the host of a URL is not `domain` or below it.
pub(super) fn check_within(url: &str, domain: &str) -> RenderResult<()> {
    let parsed = url::Url::parse(url);
    let host = parsed.as_ref().ok().and_then(url::Url::domain).and_then(|host| host.strip_suffix(domain));
    if host.is_some_and(|rest| rest.is_empty() || rest.ends_with('.')) {
        return Ok(());
    }
    // A value is encoded, so it ends before the path of the document. Its user, password, path and query are not shown.
    let written = url.split_once("://").map_or(url, |(_, rest)| rest).split(['/', '?', '#']).next().unwrap_or_default();
    let written = percent_decode_str(written).decode_utf8_lossy();
    let (scheme, host) = written.split_once("://").map_or((None, &*written), |(scheme, rest)| (Some(scheme), rest));
    let host = host.rsplit('@').next().and_then(|host| host.split(['/', '?', '#', '\\']).next()).unwrap_or_default();
    let part = match (scheme, parsed) {
        (Some(_), _) => ", whose value has a scheme",
        (None, _) if written.contains('@') => ", whose value has a user",
        (None, _) if written.contains(['/', '?', '#', '\\']) => ", whose value has more than a host",
        (None, Err(_)) if host.contains(':') => ", whose value has a port",
        (None, _) => "",
    };
    Err(mistyped("url", &format!("at a host in {domain}"), &format!("`{host}`{part}")))
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
                let value = context.part(expression, place)?;
                if value.is_array() || value.is_object() {
                    let place = format!("url: `{}`", expression.text);
                    return Err(mistyped(&place, "a text, a number or a boolean", json_type(&value)));
                }
                let piece = joinable(value);
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
