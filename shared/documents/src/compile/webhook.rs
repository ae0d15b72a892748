//! The parts of a webhook.

use std::collections::BTreeMap;

use ebb_engine::Hook;

use super::collector::{DiagnosticCollector, TextRole};
use crate::body::BodyFormat;
use crate::cel::convert::json_type;
use crate::{At, Entries, Named, Template, TemplatePiece, TemplateTree, template};

const RESERVED_HEADERS: [&str; 5] = ["host", "content-length", "transfer-encoding", "connection", "upgrade"];

/// Parses the destination of a request: an absolute URL, or the path at a connection.
pub(super) fn destination(
    report: &mut DiagnosticCollector,
    unit: &At<String>,
    connection: Option<&At<String>>,
    (url, path): (&Option<At<String>>, &Option<At<String>>),
) -> Template {
    let choice = "a webhook has `url`, or `connection` and `path`";
    let (message, help) = match (url, path, connection) {
        (Some(url), None, None) => return self::url(report, url),
        (None, Some(path), Some(_)) => return self::path(report, path),
        (Some(_), Some(_), _) => ("a webhook cannot have `url` and `path`", choice),
        (None, None, _) => ("a webhook needs `url` or `path`", choice),
        (Some(_), None, Some(_)) => {
            ("a webhook with a `connection` has no `url`", "write `path:`; the connection has the origin")
        }
        (None, Some(_), None) => ("a `path` needs a `connection`", "add `connection: NAME`, or write `url:`"),
    };
    let at = url.as_ref().or(path.as_ref()).map_or(unit.at, |text| text.at);
    report.push(report.error("url", at, message).help(help));
    Template::Literal(serde_json::Value::Null)
}

/// Parses the path at a connection. Its text must be what a server receives, so that no part of it changes the origin
/// or the path before it.
pub(super) fn path(report: &mut DiagnosticCollector, path: &At<String>) -> Template {
    let made = report.text(&path.value, path.at, report.units);
    let sample = sample(&path.value);
    let (message, help) = if !path.value.starts_with('/') {
        ("the path does not begin with `/`", "such as `/api/v2/projects`; the connection has the origin")
    } else if sample.starts_with("//") {
        ("the path begins with `//`", "write one `/`")
    } else if sample.contains('#') {
        ("the path has a fragment", "leave out `#` and the text after it, or write `%23`")
    } else if !template::is_normal_path(&sample) {
        (
            "the path is not written as a URL has it",
            "leave out `.`, `..` and `\\`, and percent-encode special characters",
        )
    } else {
        return made;
    };
    report.push(report.error("path", path.at, message).help(help));
    made
}

/// Returns a text with `x` for each expression.
fn sample(text: &str) -> String {
    // Errors of the pieces are reported elsewhere.
    let pieces = template::split(text).unwrap_or_default();
    let texts = pieces.iter().map(|piece| match piece {
        TemplatePiece::Literal(literal) => literal.as_str(),
        TemplatePiece::Expression { .. } => "x",
    });
    texts.collect()
}

/// Parses the URL. It must be absolute, with `http` or `https`, a literal host, and no user or password.
pub(super) fn url(report: &mut DiagnosticCollector, url: &At<String>) -> Template {
    let made = report.text(&url.value, url.at, report.units);
    // `report.text` has reported errors of the pieces.
    let pieces = template::split(&url.value).unwrap_or_default();
    let Some(first) = pieces.first() else { return made };
    let head = match first {
        TemplatePiece::Literal(literal) => literal.as_str(),
        TemplatePiece::Expression { .. } => "",
    };
    let rest = head.strip_prefix("https://").or_else(|| head.strip_prefix("http://"));
    let Some(rest) = rest else {
        let message = "a webhook's URL begins with `https://` or `http://`";
        let help = match first {
            TemplatePiece::Expression { .. } => "scheme and host are literal; only path and query can have `${…}`",
            TemplatePiece::Literal(_) => "such as `https://billing.example.org/tenants`",
        };
        report.push(report.error("url", url.at, message).help(help));
        return made;
    };
    if pieces.len() > 1 && !rest.contains(['/', '?', '#']) {
        let help = "only what follows the host can have `${…}`; for another host, `until` has `within`";
        report.push(report.error("url", url.at, "the host of a webhook's URL is not literal").help(help));
        return made;
    }
    match url::Url::parse(&sample(&url.value)) {
        Err(error) => report.push(report.error("url", url.at, format!("`{}` is not a URL: {error}", url.value))),
        Ok(parsed) if !parsed.username().is_empty() || parsed.password().is_some() => {
            let help = "webhooks are signed; the receiver verifies the signature";
            report.push(report.error("url", url.at, "a webhook's URL has no user or password in it").help(help));
        }
        Ok(_) => {}
    }
    made
}

/// Parses the URL of a question whose host is in `domain`. Its host is checked when it is known.
pub(super) fn url_within(
    report: &mut DiagnosticCollector,
    url: &At<String>,
    domain: &At<String>,
    hook: Hook,
) -> Template {
    let name = &domain.value;
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || ".-".contains(c);
    let is_domain = name.contains('.') && name.chars().all(is_plain) && url::Host::parse(name).is_ok();
    let (at, message, help) = if !is_domain || name.starts_with('.') {
        (domain.at, format!("`within` is `{name}`, not a domain"), "such as `db.example.org`, without `*.`")
    } else if hook.is_teardown() {
        let help = "ask the API, whose credential sees the thing; only a unit that makes something can ask elsewhere";
        (domain.at, "an undo cannot ask a host of a response".to_owned(), help)
    } else if !["https://", "http://"].iter().any(|scheme| url.value.starts_with(scheme)) {
        (url.at, "a webhook's URL begins with `https://` or `http://`".to_owned(), "only what follows can have `${…}`")
    } else {
        return report.text(&url.value, url.at, report.units);
    };
    report.push(report.error("until", at, message).help(help));
    Template::Literal(serde_json::Value::Null)
}

/// Returns true if a URL is of the kind that `is` tests, whatever the values of its expressions.
pub(super) fn is_url(url: &At<String>, is: impl FnOnce(&url::Url) -> bool) -> bool {
    url::Url::parse(&sample(&url.value)).is_ok_and(|url| is(&url))
}

/// Returns the role of headers, body and inputs of a request to a URL. Without one, the connection has an origin that is
/// encrypted, on this machine, or in a cluster.
pub(super) fn role(url: Option<&At<String>>) -> TextRole {
    match url.is_some_and(|url| is_url(url, |url| url.scheme() == "http" && !template::is_loopback(url))) {
        true => TextRole::PlainWebhook,
        false => TextRole::Webhook,
    }
}

pub(super) fn headers(report: &mut DiagnosticCollector, headers: &Entries<At<String>>) -> BTreeMap<String, Template> {
    let mut made = BTreeMap::new();
    for Named { name, inner: value } in headers {
        let lower = name.value.to_ascii_lowercase();
        let valid =
            !lower.is_empty() && lower.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b));
        if !valid {
            let wrong = report.error("header", name.at, format!("`{}` cannot be a header", name.value));
            report.push(wrong.help("letters, digits and `-`"));
        } else if RESERVED_HEADERS.contains(&lower.as_str()) || lower.starts_with("webhook-") {
            report.push(report.error("header", name.at, format!("header `{}` is set by Ebb", name.value)));
        }
        made.insert(name.value.clone(), report.text(&value.value, value.at, report.units));
    }
    made
}

/// Reports a body, or inputs that are sent as one, that contradict the content type, and a content type that is not literal.
pub(super) fn check_body(
    report: &mut DiagnosticCollector,
    headers: &Entries<At<String>>,
    body: Option<&At<TemplateTree>>,
    has_inputs: bool,
) {
    let header = headers.iter().find(|header| header.name.value.eq_ignore_ascii_case("content-type"));
    let (Some(Named { inner: written, .. }), true) = (header, body.is_some() || has_inputs) else { return };
    if written.value.contains("${") {
        let help = "write it literally, such as `application/json`";
        let message = "the content type is computed, so the format of the body is unknown";
        report.push(report.error("body", written.at, message).help(help));
        return;
    }
    let (at, got) =
        body.map_or((written.at, "a mapping of the inputs"), |body| (body.at, json_type(&body.value.to_json())));
    let (message, help) = match (BodyFormat::of(Some(&written.value)), body.map(|body| &body.value)) {
        (BodyFormat::Form, Some(TemplateTree::List(_) | TemplateTree::Scalar(_))) => {
            let help = "such as `{name: a, metadata: {team: b}, items: [{price: c}]}`";
            (format!("a form is a mapping, or the text of one, not {got}"), help)
        }
        (BodyFormat::Plain, None | Some(TemplateTree::List(_) | TemplateTree::Map(_))) => {
            let help = "write `body` as one text, or the content type `application/json`";
            (format!("a body of the type `{}` is a text, not {got}", written.value), help)
        }
        _ => return,
    };
    report.push(report.error("body", at, message).help(help));
}

pub(super) fn check_connection_headers(report: &mut DiagnosticCollector, headers: &Entries<At<String>>) {
    for Named { name, .. } in headers.iter().filter(|header| is_credential_header(&header.name.value)) {
        let message = format!("header `{}` is set by the connection", name.value);
        report.push(report.error("header", name.at, message).help("leave it out"));
    }
}

/// Returns true for a header that always contains credentials.
pub(super) fn is_credential_header(name: &str) -> bool {
    ["authorization", "proxy-authorization", "cookie"].iter().any(|own| own.eq_ignore_ascii_case(name))
}
