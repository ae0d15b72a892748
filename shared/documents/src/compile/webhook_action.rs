//! Compiles the action of a webhook unit.

use ebb_engine::{Hook, Millis};

use super::collector::DiagnosticCollector;
use super::defaults::{MAX_TIMEOUT_MS, TIMEOUT_MS, UNTIL_TIMEOUT_MS};
use super::sensitive::{TextRole, UnitReads};
use super::until::{self, answers};
use super::webhook;
use crate::model::{UnitDoc, WebhookDoc, WebhookMethod};
use crate::plan::{BoundConnection, WebhookAction};

/// Compiles the request of a unit, and the questions about it.
pub(super) fn compile<'a>(
    report: &mut DiagnosticCollector,
    doc: &'a UnitDoc,
    hook: Hook,
    request: &'a WebhookDoc,
    reads: &mut UnitReads<'a>,
) -> WebhookAction {
    max_processing_time(report, doc, request);
    let connection = request.connection.as_ref();
    let url = reads.of(TextRole::Url, |found| {
        webhook::destination(report, &doc.name, connection, (&request.url, &request.path), found)
    });
    let (headers, body) = reads.of(webhook::role(request.url.as_ref()), |found| {
        let headers = webhook::headers(report, &request.headers, found);
        (headers, request.body.as_ref().map(|body| report.strings(body, report.units, found)))
    });
    if connection.is_some() {
        webhook::check_connection_headers(report, &request.headers);
    }
    if let (Some(_), Some(first)) = (&body, doc.inputs.first()) {
        let message = "this webhook has a body, so its inputs go nowhere";
        let help = "put the values into `body`; without `body`, the inputs are sent as an object";
        report.push(report.error("input", first.name.at, message).help(help));
    }
    let describe = request.describe.as_ref();
    let describe_url = reads.of(TextRole::Url, |found| {
        let destination = describe.map(|describe| (&describe.url, &describe.path));
        destination.map(|destination| webhook::destination(report, &doc.name, connection, destination, found))
    });
    let (describe_found, absent, until) = reads.of(TextRole::Answer, |found| {
        let text = describe.and_then(|describe| describe.found.as_ref());
        let describe_found = text.and_then(|text| report.expression("`found`", text, answers(report), found));
        let absent = request.absent.as_ref();
        let absent = absent.and_then(|text| report.expression("`absent`", text, answers(report), found));
        let until = doc.until.as_ref().map(|until| until::compile(report, doc, hook, connection, until, found));
        (describe_found, absent, until)
    });
    WebhookAction {
        method: request.method.as_str().to_owned(),
        connection: connection.map(|name| BoundConnection { name: name.value.clone(), origin: String::new() }),
        url,
        headers,
        body,
        max_processing_time_ms: request.max_processing_time.map(|time| time.0),
        non_idempotent: request.idempotent == Some(false),
        describe: describe_url,
        describe_found,
        until,
        absent,
    }
}

/// Checks `maxProcessingTime` of a webhook. A response 404 of the `describe` URL is final only after that time, and the
/// unit ends at its timeout.
fn max_processing_time(report: &mut DiagnosticCollector, doc: &UnitDoc, webhook: &WebhookDoc) {
    let name = &doc.name.value;
    let time = webhook.max_processing_time.map(|time| time.0);
    if let Some(time) = time
        && time > MAX_TIMEOUT_MS
    {
        let message = format!("`{name}` has a `maxProcessingTime` of {}; it must be at most 24h", Millis(time));
        report.push(report.error("limit", doc.name.at, message));
    }
    let timeout =
        doc.timeout.map_or(if doc.until.is_some() { UNTIL_TIMEOUT_MS } else { TIMEOUT_MS }, |timeout| timeout.0);
    let Some(describe) = &webhook.describe else { return };
    let at = describe.url.as_ref().or(describe.path.as_ref()).map_or(doc.name.at, |url| url.at);
    if webhook.method == WebhookMethod::Delete {
        let help = "a repeated `DELETE` is harmless: leave out `describe` and `idempotent: false`";
        report.push(report.error("contradiction", at, "`describe` does not fit a `DELETE`").help(help));
    } else if webhook.idempotent != Some(false) {
        let help = "a request that is idempotent is sent again instead";
        report.push(report.error("contradiction", at, "`describe` needs `idempotent: false`").help(help));
    } else if time.unwrap_or(timeout) >= timeout {
        let message = format!(
            "`describe` needs a `maxProcessingTime` below the timeout of `{name}`, which is {}",
            Millis(timeout)
        );
        let help = "set `maxProcessingTime` to the longest time for which the receiver processes a request";
        report.push(report.error("limit", at, message).help(help));
    }
}
