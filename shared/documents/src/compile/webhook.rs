//! The parts of a webhook.

use std::collections::BTreeMap;

use super::collector::{DiagnosticCollector, ExpressionRead};
use crate::model::{At, Entries, Named};
use crate::plan::Template;
use crate::template::{self, TemplatePiece};

const RESERVED_HEADERS: [&str; 5] = ["host", "content-length", "transfer-encoding", "connection", "upgrade"];

/// Parses the URL. It must be absolute, with `http` or `https`, a literal host, and no user or password.
pub(super) fn url<'a>(
    report: &mut DiagnosticCollector,
    url: &'a At<String>,
    uses: &mut Vec<ExpressionRead<'a>>,
) -> Template {
    let made = report.text(&url.value, url.at, report.units, uses);
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
        let help = "only what follows the host can have `${…}`, so that no input can send it elsewhere";
        report.push(report.error("url", url.at, "the host of a webhook's URL is not literal").help(help));
        return made;
    }
    let sample: String = pieces
        .iter()
        .map(|piece| match piece {
            TemplatePiece::Literal(literal) => literal.as_str(),
            TemplatePiece::Expression { .. } => "x",
        })
        .collect();
    match url::Url::parse(&sample) {
        Err(error) => report.push(report.error("url", url.at, format!("`{}` is not a URL: {error}", url.value))),
        Ok(parsed) if !parsed.username().is_empty() || parsed.password().is_some() => {
            let help = "webhooks are signed; the receiver verifies the signature";
            report.push(report.error("url", url.at, "a webhook's URL has no user or password in it").help(help));
        }
        Ok(_) => {}
    }
    made
}

/// Parses the headers.
pub(super) fn headers<'a>(
    report: &mut DiagnosticCollector,
    headers: &'a Entries<At<String>>,
    uses: &mut Vec<ExpressionRead<'a>>,
) -> BTreeMap<String, Template> {
    let mut made = BTreeMap::new();
    for Named { name, inner: value } in headers {
        let lower = name.value.to_ascii_lowercase();
        let valid =
            !lower.is_empty() && lower.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b));
        if !valid {
            report.push(
                report
                    .error("header", name.at, format!("`{}` cannot be a header", name.value))
                    .help("letters, digits and `-`"),
            );
        } else if RESERVED_HEADERS.contains(&lower.as_str()) || lower.starts_with("webhook-") {
            report.push(report.error("header", name.at, format!("header `{}` is set by Ebb", name.value)));
        }
        made.insert(name.value.clone(), report.text(&value.value, value.at, report.units, uses));
    }
    made
}
