//! Formats the diagnosis of a target as text.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use ebb_protocol::words::{self, DiagnosisLine, DiagnosisPart, DiagnosisSection};
use ebb_protocol::{DecidingEvent, OutputValue, ResourceDetail, TargetDiagnosis};

use crate::{printable, timing};

/// Returns the diagnosis, as text that ends with a line break.
pub(crate) fn text(why: &TargetDiagnosis) -> String {
    let (phase, summary) = (why.phase.name(), timing::clocks(&printable(why.summary.trim())));
    // Some summaries begin with the phase.
    let summary = if summary.starts_with(phase) { summary } else { format!("{phase}: {summary}") };
    let mut text = format!("{} {} {summary}\n", why.target, why.phase.verb());
    if let Some(event) = &why.decided_by {
        let _ = writeln!(text, "by {}", event_line(event));
    }
    for DiagnosisSection { part, title, lines } in words::diagnosis(why) {
        let _ = writeln!(text, "\n{title}");
        for (number, DiagnosisLine { label, text: line, values, listing }) in (1_usize..).zip(lines) {
            let number = if part == DiagnosisPart::NextSteps { format!("{number}. ") } else { String::new() };
            let label = if label.is_empty() { label } else { format!("{label}  ") };
            let _ = writeln!(text, "  {number}{label}{}", timing::clocks(&line));
            text.extend(values.iter().map(|value| format!("    {value}\n")));
            text.extend(listing.iter().map(|line| format!("    | {}\n", printable(line))));
        }
    }
    text
}

pub(crate) fn event_line(event: &DecidingEvent) -> String {
    format!("source {}, {}", event.source, timing::clocks(&words::deciding_event(event)))
}

pub(crate) fn value_line(value: &OutputValue) -> String {
    words::quoted(&words::output(value).0)
}

/// Returns the outputs of resources, one per line: `resource.output = value`.
pub(crate) fn output_lines(resources: &BTreeMap<String, ResourceDetail>) -> String {
    resources.iter().map(|(name, resource)| value_lines(&format!("{name}."), &resource.outputs)).collect()
}

/// Returns values, one per line. The prefix precedes each name.
pub(crate) fn value_lines(prefix: &str, values: &BTreeMap<String, OutputValue>) -> String {
    values.iter().map(|(name, value)| format!("{prefix}{name} = {}\n", value_line(value))).collect()
}
