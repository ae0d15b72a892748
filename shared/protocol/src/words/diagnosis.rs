//! The diagnosis of a target in sections, in the order in which a reader asks.

use crate::api::{FailedUnit, RemainingEffect, RootCause, TargetDiagnosis, TargetPhase, TargetWait};
use crate::{Evidence, ResourceRemoval, limits, words};

/// Maximum characters of a line of a response.
const LINE: usize = 200;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiagnosisPart {
    Cause,
    Waits,
    OtherWaits,
    Failed,
    Remaining,
    Removals,
    Warnings,
    NextSteps,
}

/// A section, with at least one line.
#[derive(Clone, Debug)]
pub struct DiagnosisSection {
    pub part: DiagnosisPart,
    pub title: String,
    pub lines: Vec<DiagnosisLine>,
}

/// A line with what belongs to it.
#[derive(Clone, Debug, Default)]
pub struct DiagnosisLine {
    /// What the text is about. Empty for a sentence.
    pub label: String,
    pub text: String,
    /// Values as `NAME = VALUE`.
    pub values: Vec<String>,
    /// The lines of a log or a response.
    pub listing: Vec<String>,
}

impl From<String> for DiagnosisLine {
    fn from(text: String) -> Self {
        Self { text, ..Self::default() }
    }
}

impl From<(String, String)> for DiagnosisLine {
    fn from((label, text): (String, String)) -> Self {
        Self { label, text, ..Self::default() }
    }
}

pub fn diagnosis(why: &TargetDiagnosis) -> Vec<DiagnosisSection> {
    let text = |text: &String| DiagnosisLine::from(words::one_line(text));
    let shown: usize = why.open.iter().map(|open| open.count).sum();
    let more = why.open_units.checked_sub(shown).filter(|more| *more > 0);
    let more = more.map(|more| DiagnosisLine::from(format!("{more} more units are open")));
    let others = why.failed.iter().filter(|failed| why.cause.as_ref().is_none_or(|cause| cause.unit != failed.unit));
    let mut sections = Vec::new();
    let mut add = |part, title: &str, lines: Vec<DiagnosisLine>| {
        if !lines.is_empty() {
            sections.push(DiagnosisSection { part, title: title.to_owned(), lines });
        }
    };
    if let Some(cause) = &why.cause {
        let RootCause { run, unit, attempt, attempt_in_series, .. } = cause;
        let attempt = words::attempt(*attempt, *attempt_in_series, None);
        add(DiagnosisPart::Cause, &format!("first cause: {unit}, {attempt} of {run}"), of_cause(cause));
    }
    let waits = why.open.iter().map(|open| DiagnosisLine::from(words::open_units(open))).chain(more);
    add(DiagnosisPart::Waits, "waits", waits.collect());
    let waits = TargetWait::of_others(&why.target_waits).map(|wait| DiagnosisLine::from(words::target_wait(wait)));
    add(DiagnosisPart::OtherWaits, "other waits", waits.collect());
    add(DiagnosisPart::Failed, "also failed", others.map(failed_unit).collect());
    let title =
        if why.phase.is_alive() && why.phase != TargetPhase::Failed { "resources" } else { "remaining resources" };
    add(DiagnosisPart::Remaining, title, why.remaining.iter().map(remaining).collect());
    add(DiagnosisPart::Removals, "removals", why.removals.iter().map(removal).collect());
    add(DiagnosisPart::Warnings, "warnings", why.notes.iter().map(text).collect());
    add(DiagnosisPart::NextSteps, "next steps", why.next_steps.iter().map(text).collect());
    sections
}

fn of_cause(cause: &RootCause) -> Vec<DiagnosisLine> {
    let RootCause { reason, file, line, column, inputs, log, evidence, .. } = cause;
    let place = format!("at {}:{line}:{column}", words::one_line(file));
    let mut lines: Vec<DiagnosisLine> = vec![words::reason(reason).into(), place.into()];
    lines.extend(evidence.iter().flat_map(of_evidence));
    if !inputs.is_empty() {
        let values = inputs.iter().map(|(name, value)| format!("{name} = {}", words::quoted(value)));
        lines.push(DiagnosisLine { values: values.collect(), ..DiagnosisLine::from("inputs".to_owned()) });
    }
    if !log.is_empty() {
        let last = if log.len() == 1 { "line".to_owned() } else { format!("{} lines", log.len()) };
        lines.push(DiagnosisLine { listing: log.clone(), ..format!("last {last} of its log").into() });
    }
    lines
}

fn of_evidence(evidence: &Evidence) -> Vec<DiagnosisLine> {
    let Evidence { method, url, status, content_type, limits, body, truncated, damaged } = evidence;
    if let Some(damaged) = damaged {
        return vec![format!("evidence is damaged: {}", words::one_line(damaged)).into()];
    }
    let request = ("request".to_owned(), format!("{} {}", words::one_line(method), words::one_line(url)));
    let Some(status) = status else { return vec![request.into(), "no response".to_owned().into()] };
    let kind = content_type.as_deref().map(|kind| format!(", {}", words::one_line(kind))).unwrap_or_default();
    let listing = body.iter().flat_map(|body| body.lines()).map(|line| limits::excerpt(line, LINE));
    let listing = listing.chain(truncated.then(|| "…".to_owned())).collect();
    let response = DiagnosisLine { listing, ..("response".to_owned(), format!("{status}{kind}")).into() };
    let limits = limits.as_ref().map(|limits| ("limits".to_owned(), words::one_line(limits)));
    [DiagnosisLine::from(request), response].into_iter().chain(limits.map(DiagnosisLine::from)).collect()
}

fn failed_unit(FailedUnit { unit, attempt, attempt_in_series, reason }: &FailedUnit) -> DiagnosisLine {
    let attempt = words::attempt(*attempt, *attempt_in_series, None);
    format!("{unit}, {attempt}: {}", words::reason(reason)).into()
}

fn remaining(RemainingEffect { unit, certainty, outputs, .. }: &RemainingEffect) -> DiagnosisLine {
    let values = outputs.iter().map(|(name, value)| format!("{name} = {}", words::quoted(&words::output(value).0)));
    DiagnosisLine { values: values.collect(), ..(of_former(unit), words::certainty(*certainty).to_owned()).into() }
}

fn removal(ResourceRemoval { unit, by, evidence }: &ResourceRemoval) -> DiagnosisLine {
    let by = by.as_ref().map(|undo| format!(" by {}", of_former(undo))).unwrap_or_default();
    let answer = words::removal_answer(evidence);
    let answer = if answer.is_empty() { answer } else { format!(": {answer}") };
    (of_former(unit), format!("{}{by}{answer}", words::name(&evidence.grade))).into()
}

/// Returns a unit for people. The update `N` calls the resources that it removes `NAME~N`.
fn of_former(unit: &str) -> String {
    let parts = unit.split_once('/').and_then(|(owner, name)| Some((owner.split_once('~')?, name)));
    parts.map_or_else(|| unit.to_owned(), |((owner, update), name)| format!("{owner}/{name} (until update {update})"))
}
