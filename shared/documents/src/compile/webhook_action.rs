//! Compiles the action of a webhook unit: its request, the state for which it waits, and the values that it reads beside the
//! response.

use ebb_engine::{Hook, Millis};
use ebb_kube::podspec::is_service_header;

use super::defaults::{
    self, MAX_REPEATS, MAX_TIMEOUT_MS, MAX_UNTIL_EVERY_MS, REPEAT_EVERY_MS, REPEATS, UNTIL_EVERY_MS, UNTIL_MAX_EVERY_MS,
};
use super::{DiagnosticCollector, ExpressionRead, TextRole, webhook};
use crate::cel::{ReferenceSource, RootVariable, Scope};
use crate::plan::{BoundConnection, DescribePlan, GRAPHQL, RepeatPlan, Template, UntilPlan, WebhookAction};
use crate::{ActionDoc, At, Named, RepeatDoc, TemplatePiece, UnitDoc, UntilDoc, WebhookDoc, WebhookMethod, template};

pub(super) fn compile(
    report: &mut DiagnosticCollector,
    doc: &UnitDoc,
    hook: Hook,
    request: &WebhookDoc,
) -> WebhookAction {
    max_processing_time(report, doc, hook, request);
    if doc.cluster.is_some() {
        check_services(report, doc, request);
    }
    let connection = request.connection.as_ref();
    let (units, first) = (report.units, report.reads.len());
    let repeat = doc.repeat.as_ref().map(|written| repeat(report, doc, connection, written));
    if repeat.as_ref().is_some_and(|repeat| repeat.url.is_some()) {
        report.units = answers(report);
    }
    report.role = TextRole::Url;
    let url = webhook::destination(report, &doc.name, connection, (&request.url, &request.path));
    // The operator of the cluster has allowed the Service, and the way to the relay is encrypted.
    report.role = webhook::role(request.url.as_ref().filter(|_| doc.cluster.is_none()));
    let headers = webhook::headers(report, &request.headers);
    webhook::check_body(report, &request.headers, request.body.as_ref(), !doc.inputs.is_empty());
    let body = request.body.as_ref().map(|body| report.strings(body, report.units));
    if report.units != units {
        let is_response = |found: &&ExpressionRead| found.source == ReferenceSource::Root(RootVariable::Response);
        if let Some(found) = report.reads[first..].iter().find(is_response) {
            let wrong = report.error_in("repeat", &found.spot, "the request cannot read its own answer");
            report.push(wrong.help("read `poll`, the answer to the question of `repeat`"));
        }
        report.units = units;
    }
    if connection.is_some() {
        webhook::check_connection_headers(report, &request.headers);
    }
    if let (Some(_), Some(first)) = (&body, doc.inputs.first()) {
        let message = "this webhook has a body, so its inputs go nowhere";
        let help = "put the values into `body`; without `body`, the inputs are sent as an object";
        report.push(report.error("input", first.name.at, message).help(help));
    }
    let scope = answers(report);
    let describe = request.describe.as_ref().map(|describe| {
        report.role = TextRole::Url;
        let url = webhook::destination(report, &doc.name, connection, (&describe.url, &describe.path));
        report.role = TextRole::Answer;
        let body = describe.body.as_ref().map(|body| report.strings(body, report.units));
        let found = describe.found.as_ref().and_then(|text| report.expression("`found`", text, scope));
        DescribePlan { url, body, found }
    });
    report.role = TextRole::Answer;
    let failed = request.failed.as_ref().and_then(|text| match text.value.as_str() {
        GRAPHQL => Some(GRAPHQL.to_owned()),
        _ => report.expression("`failed`", text, scope),
    });
    let next = request.next.as_ref().map(|next| report.strings(next, scope));
    let first = report.reads.len();
    let absent = request.absent.as_ref().and_then(|text| report.expression("`absent`", text, scope));
    let until = doc.until.as_ref().map(|written| until(report, doc, hook, connection, written, first));
    WebhookAction {
        repeat,
        method: request.method.as_str().to_owned(),
        connection: connection.map(|name| BoundConnection { name: name.value.clone(), ..BoundConnection::default() }),
        url,
        headers,
        body,
        max_processing_time_ms: request.max_processing_time.map(|time| time.0),
        non_idempotent: request.idempotent == Some(false),
        describe,
        failed,
        next,
        until,
        absent,
    }
}

/// Checks `maxProcessingTime` of a webhook. A response 404 of the `describe` URL is final only after that time, and the
/// unit ends at its timeout.
fn max_processing_time(report: &mut DiagnosticCollector, doc: &UnitDoc, hook: Hook, webhook: &WebhookDoc) {
    let name = &doc.name.value;
    let time = webhook.max_processing_time.map(|time| time.0);
    if let Some(time) = time.filter(|&time| time > MAX_TIMEOUT_MS) {
        let message = format!("`{name}` has a `maxProcessingTime` of {}; it must be at most 24h", Millis(time));
        report.push(report.error("limit", doc.name.at, message));
    }
    let timeout = defaults::timeout(doc);
    let Some(describe) = &webhook.describe else { return };
    let at = describe.url.as_ref().or(describe.path.as_ref()).map_or(doc.name.at, |url| url.at);
    if webhook.method == WebhookMethod::Delete {
        let help = "a repeated `DELETE` is harmless: leave out `describe` and `idempotent: false`";
        report.push(report.error("contradiction", at, "`describe` does not fit a `DELETE`").help(help));
    } else if describe.found.is_none() && matches!(hook, Hook::Update(_) | Hook::Event(_)) {
        let help = "add `found`, such as `found: ${response.body.version == params.version}`";
        let message =
            format!("`describe` of `{name}` does not say whether the change is made: the thing exists in any case");
        report.push(report.error("contradiction", at, message).help(help));
    } else if time.unwrap_or(timeout) >= timeout {
        let message = format!(
            "`describe` needs a `maxProcessingTime` below the timeout of `{name}`, which is {}",
            Millis(timeout)
        );
        let help = "set `maxProcessingTime` to the longest time for which the receiver processes a request";
        report.push(report.error("limit", at, message).help(help));
    }
}

/// Checks the requests of a unit with `cluster`, which the relay of the cluster sends.
fn check_services(report: &mut DiagnosticCollector, doc: &UnitDoc, request: &WebhookDoc) {
    let urls = [
        request.url.as_ref(),
        request.describe.as_ref().and_then(|describe| describe.url.as_ref()),
        doc.until.as_ref().and_then(|until| until.url.as_ref()),
        doc.repeat.as_ref().and_then(|repeat| repeat.url.as_ref()),
    ];
    for url in urls.into_iter().flatten().filter(|url| !webhook::is_url(url, template::is_service)) {
        let message = format!("`{}` is not at a Service of a cluster", url.value);
        let help = "such as `http://NAME.NAMESPACE.svc:8080/tenants`; another URL needs no `cluster`";
        report.push(report.error("cluster", url.at, message).help(help));
    }
    if let Some(domain) = doc.until.as_ref().and_then(|until| until.within.as_ref()) {
        let wrong = report.error("cluster", domain.at, "`within` cannot be used with `cluster`");
        report.push(wrong.help("leave out `within`; the relay asks Services alone"));
    }
    let is_wrong = |name: &str| !is_service_header(&name.to_ascii_lowercase());
    for Named { name, .. } in request.headers.iter().filter(|header| is_wrong(&header.name.value)) {
        let message = format!("header `{}` cannot pass the API server of a cluster", name.value);
        report.push(report.error("header", name.at, message).help("such as `X-Tenant`"));
    }
}

fn repeat(
    report: &mut DiagnosticCollector,
    doc: &UnitDoc,
    connection: Option<&At<String>>,
    repeat: &RepeatDoc,
) -> RepeatPlan {
    let at = repeat.condition.at;
    let asks = repeat.url.is_some() || repeat.path.is_some();
    report.role = TextRole::Url;
    let url = asks.then(|| webhook::destination(report, &doc.name, connection, (&repeat.url, &repeat.path)));
    report.role = TextRole::Answer;
    let condition = report.expression("`while`", &repeat.condition, answers(report)).unwrap_or_default();
    let every_ms = repeat.every.as_ref().map_or(REPEAT_EVERY_MS, |every| every.value.0);
    let max = repeat.max.as_ref().map_or(REPEATS, |max| max.value);
    let is_once = matches!(&doc.action, ActionDoc::Webhook(webhook) if webhook.idempotent == Some(false));
    let (message, help) = if !(1000..=MAX_UNTIL_EVERY_MS).contains(&every_ms) || !(2..=MAX_REPEATS).contains(&max) {
        ("`repeat` has a wrong `every` or `max`", "`every` is from 1s to 15m, and `max` from 2 to 10000")
    } else if is_once {
        ("a request with `idempotent: false` cannot be repeated", "leave out `idempotent: false` or `repeat`")
    } else if asks && (doc.until.is_some() || !doc.outputs.is_empty()) {
        let help = "put them into another unit, which is `after` this one";
        ("a request that is repeated while a question is answered has no `until` and no outputs", help)
    } else {
        return RepeatPlan { condition, url, every_ms, max };
    };
    report.push(report.error("repeat", at, message).help(help));
    RepeatPlan { condition, url, every_ms, max }
}

/// Returns the scope of expressions over the answers to the requests of a unit.
pub(super) fn answers(report: &DiagnosticCollector) -> Scope {
    if report.units == Scope::Own { Scope::OwnResponse } else { Scope::Response }
}

/// Returns true if a path is one expression, whose value is the URL of an operation.
fn is_of_answer(path: &str) -> bool {
    matches!(template::split(path).as_deref(), Ok([TemplatePiece::Expression { .. }]))
}

/// Compiles `until` of a webhook unit. The reads of its answers begin at the position `first`.
fn until(
    report: &mut DiagnosticCollector,
    doc: &UnitDoc,
    hook: Hook,
    connection: Option<&At<String>>,
    until: &UntilDoc,
    first: usize,
) -> UntilPlan {
    let scope = answers(report);
    let units = std::mem::replace(&mut report.units, scope);
    let url = match (&until.within, &until.url) {
        (Some(domain), Some(url)) if until.path.is_none() => webhook::url_within(report, url, domain, hook),
        (Some(domain), _) => {
            report.push(report.error("until", domain.at, "`within` is the domain of a `url`").help("write `url:`"));
            Template::Literal(serde_json::Value::Null)
        }
        (None, _) => match until.path.as_ref().filter(|path| until.url.is_none() && is_of_answer(&path.value)) {
            Some(path) if connection.is_some() && until.gone != Some(true) => {
                report.text(&path.value, path.at, report.units)
            }
            _ => webhook::destination(report, &doc.name, connection, (&until.url, &until.path)),
        },
    };
    let body = until.body.as_ref().map(|body| report.strings(body, scope));
    report.units = units;
    let at = until.url.as_ref().or(until.path.as_ref()).map_or(doc.name.at, |url| url.at);
    let polls = |found: &ExpressionRead| found.source == ReferenceSource::Root(RootVariable::Poll);
    if let Some(poll) = report.reads[first..].iter().find(|found| polls(found)) {
        let wrong = report.error_in("until", &poll.spot, "the question cannot read its own answer");
        report.push(wrong.help("read `response`, the answer to the request of the webhook"));
    }
    let is_gone = until.gone == Some(true);
    let teardown = hook.is_teardown();
    match (&until.ready, is_gone) {
        (None, false) => {
            let help = match teardown {
                true => "add `gone: true`, or `ready: ${…}`, which is true when the thing does not exist any more",
                false => "such as `ready: ${poll.body.state == \"ready\"}`",
            };
            report.push(report.error("until", at, "`until` does not say for which state it waits").help(help));
        }
        (_, true) if !teardown => {
            let help = "write `ready: ${…}` alone; only a unit of preStop or postStop waits until something is gone";
            report
                .push(report.error("until", at, "a unit that makes something cannot wait until it is gone").help(help));
        }
        _ => {}
    }
    let mut expression = |what: &str, text: &Option<At<String>>| {
        let (text, known) = (text.as_ref()?, report.reads.len());
        let expression = report.expression(what, text, scope)?;
        // A wrong use of `poll` has its own error.
        if !report.reads[known..].iter().any(polls) && !text.value.contains("poll") {
            let message = format!("{what} does not read `poll`, so no question changes it");
            report.push(report.error("until", text.at, message).help("read `poll`, the answer to the last question"));
        }
        Some(expression)
    };
    let (ready, failed) = (expression("`ready`", &until.ready), expression("`failed`", &until.failed));
    let every_ms = until.every.as_ref().map_or(UNTIL_EVERY_MS, |every| every.value.0);
    let max_every_ms = until.max_every.as_ref().map_or_else(|| UNTIL_MAX_EVERY_MS.max(every_ms), |every| every.value.0);
    if !(1000..=max_every_ms).contains(&every_ms) || max_every_ms > MAX_UNTIL_EVERY_MS {
        let message = format!("`every` is {}, and `maxEvery` is {}", Millis(every_ms), Millis(max_every_ms));
        let help = "`every` is at least 1s and at most `maxEvery`, and that at most 15m";
        let at = until.every.as_ref().or(until.max_every.as_ref()).map_or(at, |every| every.at);
        report.push(report.error("limit", at, message).help(help));
    }
    let within = until.within.as_ref().map(|domain| domain.value.clone());
    UntilPlan { url, within, body, ready, gone: is_gone, failed, every_ms, max_every_ms }
}

/// Reports a use of `poll` by a unit without `until`, and a use of an input that the unit does not have.
pub(super) fn check_answers(report: &mut DiagnosticCollector, doc: &UnitDoc, uses: &[ExpressionRead]) {
    for found in uses.iter().filter(|found| found.role == TextRole::Answer) {
        match &found.source {
            ReferenceSource::Root(RootVariable::Poll) if doc.until.is_none() && doc.repeat.is_none() => {
                let message = format!("`poll` needs `until`, and `{}` has none", doc.name.value);
                let help = match doc.verifies {
                    Some(_) => "read `response`; `retry` of a verification repeats its request",
                    None => "read `response`, or add `until`, which asks until the provider reports a state",
                };
                report.push(report.error_in("until", &found.spot, message).help(help));
            }
            ReferenceSource::Input(name) if !doc.inputs.iter().any(|input| input.name.value == *name) => {
                let message = format!("`{}` has no input `{name}`", doc.name.value);
                let wrong = report.error_in("unknown-input", &found.spot, message);
                let names = doc.inputs.iter().map(|input| input.name.value.as_str());
                report.push(report.found.suggest(wrong, name, names));
            }
            _ => {}
        }
    }
}
