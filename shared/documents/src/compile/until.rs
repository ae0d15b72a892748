//! The state for which a webhook unit waits, and the values that it reads beside the response.

use ebb_engine::{Hook, Millis};

use super::collector::{DiagnosticCollector, ExpressionRead};
use super::defaults::{MAX_UNTIL_EVERY_MS, UNTIL_EVERY_MS, UNTIL_MAX_EVERY_MS};
use super::sensitive::TextRole;
use super::webhook;
use crate::cel::{ReferenceSource, RootVariable, Scope};
use crate::model::{At, UnitDoc, UntilDoc};
use crate::plan::UntilPlan;

/// Returns the scope of expressions over the answers to the requests of a unit.
pub(super) fn answers(report: &DiagnosticCollector) -> Scope {
    if report.units == Scope::Own { Scope::OwnResponse } else { Scope::Response }
}

/// Compiles `until` of a webhook unit.
pub(super) fn compile<'a>(
    report: &mut DiagnosticCollector,
    doc: &'a UnitDoc,
    hook: Hook,
    connection: Option<&At<String>>,
    until: &'a UntilDoc,
    found: &mut Vec<ExpressionRead<'a>>,
) -> UntilPlan {
    let scope = answers(report);
    let units = std::mem::replace(&mut report.units, scope);
    let url = webhook::destination(report, &doc.name, connection, (&until.url, &until.path), found);
    report.units = units;
    let at = until.url.as_ref().or(until.path.as_ref()).map_or(doc.name.at, |url| url.at);
    let polls = |found: &ExpressionRead<'_>| found.source == ReferenceSource::Root(RootVariable::Poll);
    if let Some(poll) = found.iter().find(|found| polls(found)) {
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
    let mut expression = |what: &str, text: &'a Option<At<String>>| {
        let (text, known) = (text.as_ref()?, found.len());
        let expression = report.expression(what, text, scope, found)?;
        // A wrong use of `poll` has its own error.
        if !found[known..].iter().any(polls) && !text.value.contains("poll") {
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
    UntilPlan { url, ready, gone: is_gone, failed, every_ms, max_every_ms }
}

/// Reports a use of `poll` by a unit without `until`, and a use of an input that the unit does not have.
pub(super) fn check_answers(report: &mut DiagnosticCollector, doc: &UnitDoc, uses: &[(TextRole, ExpressionRead<'_>)]) {
    for (_, found) in uses.iter().filter(|(role, _)| *role == TextRole::Answer) {
        match &found.source {
            ReferenceSource::Root(RootVariable::Poll) if doc.until.is_none() => {
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
