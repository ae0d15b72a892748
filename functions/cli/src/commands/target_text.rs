//! A target with its resources and runs, once or while it changes, as `ebb get` shows it.

use std::fmt::Write as _;

use ebb_protocol::{OutputValue, RelayOutage, ResourceDetail, RunDetail, TargetDetail, UnitDetail, UnitState, words};
use jiff::Timestamp;

use crate::{
    ApiClient, Exit, FollowEnd, FollowGoal, FollowLimits, InterruptCount, OutputArgs, ProgressScreen, Result,
    TargetRef, follow, labels, named, output, timing, watched, why,
};

pub(super) fn show(seen: &TargetDetail, output: OutputArgs) -> Result<Exit> {
    output.write(seen, |seen| text(seen, timing::now()))
}

/// Shows the progress of a target until it is ready, failed, stuck or gone, and then the target.
pub(super) async fn watch(client: &ApiClient, seen: &TargetDetail, output: OutputArgs) -> Result<Exit> {
    let instance = watched(&TargetRef::from(&seen.info), seen);
    let mut screen = if output.format.is_some() { ProgressScreen::data(output) } else { ProgressScreen::new() };
    let interrupts = InterruptCount::listen()?;
    let limits = FollowLimits { timeout: None, interrupts: (&interrupts, 0) };
    let (ended, last) = follow(client, None, &instance, FollowGoal::Ready, limits, &mut screen).await?;
    if let Some(last) = last.filter(|_| output.format.is_none() && ended != FollowEnd::Interrupted) {
        show(&last, output)?;
    }
    Ok(match ended {
        FollowEnd::Reached | FollowEnd::Deleted => Exit::Done,
        FollowEnd::Failed => Exit::Failed,
        FollowEnd::TimedOut => Exit::TimedOut,
        FollowEnd::Interrupted => Exit::Interrupted,
    })
}

/// Returns a target as text that ends with a line break.
fn text(detail: &TargetDetail, now: Timestamp) -> String {
    let mut text: String = facts(detail).into_iter().map(|(label, value)| format!("{label:<12} {value}\n")).collect();
    text += &resources(detail);
    for run in &detail.runs {
        let _ = writeln!(text, "\n{}  {}  {}", run.hook, labels::name(&run.state), run.id);
        for unit in &run.units {
            add_unit(&mut text, unit, run, now);
        }
    }
    text
}

/// Returns what is known of the target itself, by labels. A row without a label continues the one before.
fn facts(detail: &TargetDetail) -> Vec<(&'static str, String)> {
    let info = &detail.info;
    let printable = |text: &String| output::printable(text);
    let clock = |time: &String| timing::clock(time);
    let mut rows = vec![("Name:", format!("{}/{}", info.kind, info.name)), ("UID:", info.uid.clone())];
    rows.extend(info.owner.as_ref().map(|_| ("Owner:", output::printable(info.shown_owner()))));
    let pending = detail.pending_generation.map(|next| format!(" (update to {next} waits)")).unwrap_or_default();
    rows.push(("Generation:", format!("{}{pending}", info.generation)));
    rows.push(("Phase:", format!("{} since {}", labels::target_state(info), clock(&info.since))));
    rows.extend(info.first_cause.as_ref().map(|cause| ("First cause:", printable(cause))));
    rows.push(("Created:", clock(&info.created)));
    rows.extend(info.expires.as_ref().map(|expires| ("Expires:", clock(expires))));
    rows.extend(detail.decided_by.as_ref().map(|event| ("Decided by:", why::event_line(event))));
    let protected = detail.resources.iter().filter(|(_, resource)| resource.protect).map(|(name, _)| name.as_str());
    let protected: Vec<&str> = protected.collect();
    rows.extend((!protected.is_empty()).then(|| ("Protected:", protected.join(", "))));
    let labels: Vec<String> = info.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
    rows.extend((!labels.is_empty()).then(|| ("Labels:", output::printable(&labels.join(", ")))));
    let next = detail.delivery.as_ref().and_then(|delivery| delivery.next.as_ref());
    rows.extend(next.map(|next| ("Next delivery:", clock(next))));
    rows.extend(info.waits_for.as_ref().map(|waits| ("Waits for:", printable(waits))));
    rows.extend(info.waits.iter().map(|wait| ("", timing::clocks(&words::target_wait(wait)))));
    let first_wait = detail.first_wait.as_ref().map(words::open_units);
    rows.extend(first_wait.map(|(units, wait)| ("First wait:", format!("{units}  {}", timing::clocks(&wait)))));
    if let Some(RelayOutage { cluster, since, reason, units }) = &detail.outage {
        let (since, reason, named) = (clock(since), printable(reason), named(&TargetRef::from(info)));
        let outage = format!("cluster {cluster} has not responded since {since}: {reason}");
        let units = format!("waiting units: {}", units.join(", "));
        rows.extend([("Outage:", outage), ("", units), ("", format!("next step: ebb why {named}"))]);
    }
    rows.extend(detail.outputs_error.as_ref().map(|problem| ("Values:", printable(problem))));
    rows
}

fn resources(detail: &TargetDetail) -> String {
    let mut text = String::new();
    if !detail.resources.is_empty() {
        let rows = detail.resources.iter().map(|(name, resource)| {
            let repaired = resource.repaired_by.as_deref();
            let repaired = repaired.map(|version| format!(" (teardown: {version})")).unwrap_or_default();
            let plugin = format!("{}{repaired}", output::plugin_name(&resource.plugin));
            let ResourceDetail { phase, since, reason, .. } = resource;
            let reason = reason.as_deref().map(output::joined_lines).unwrap_or_default();
            [name.clone(), plugin, labels::name(phase), timing::clock(since), reason]
        });
        let _ = write!(text, "\n{}", output::table(&["RESOURCE", "PLUGIN", "PHASE", "SINCE", "REASON"], rows));
    }
    let params = detail.resources.iter().map(|(resource, detail)| {
        let params = detail.params.iter().map(|(name, value)| (name.clone(), OutputValue::Value(value.clone())));
        why::value_lines(&format!("{resource}."), &params.collect())
    });
    let (outputs, env) = (why::output_lines(&detail.resources), why::value_lines("", &detail.env));
    for (heading, lines) in [("PARAMS", params.collect()), ("OUTPUTS", outputs), ("ENV", env)] {
        if !lines.is_empty() {
            let _ = write!(text, "\n{heading}\n{lines}");
        }
    }
    let outputs = detail.resources.values().flat_map(|resource| resource.outputs.values());
    if outputs.chain(detail.env.values()).any(|value| matches!(value, OutputValue::Sensitive(_))) {
        let (kind, name) = (&detail.info.kind, &detail.info.name);
        let _ = writeln!(text, "\n(sensitive) is hidden; to print it: ebb get {kind} {name} --reveal");
    }
    text
}

fn add_unit(text: &mut String, unit: &UnitDetail, run: &RunDetail, now: Timestamp) {
    let state = UnitDetail { waits: Vec::new(), ..unit.clone() };
    let _ = writeln!(text, "  {}  {}", unit.key, labels::unit(&state, &run.units, now));
    let heartbeat = unit.heartbeat.as_deref().filter(|_| unit.state == UnitState::Running);
    if let Some(age) = heartbeat.and_then(|at| timing::since(at, now)) {
        let _ = writeln!(text, "    heartbeat: {} ago", timing::length(age));
    }
    text.extend(unit.earlier_attempts.iter().map(|attempt| format!("    {}\n", labels::earlier_attempt(attempt))));
    let awaited = |object: &str| unit.waits.iter().any(|wait| wait.object == object);
    for status in unit.object_states.iter().filter(|status| !awaited(&status.object)) {
        let state = words::object_state(status);
        let _ = writeln!(text, "    object: {}  {state}", output::printable(&status.object));
    }
    for wait in &unit.waits {
        let _ = writeln!(text, "    waits: {}{}", labels::wait(wait, now), labels::resolution(wait.resolves));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::fixtures;

    /// A script in a cluster that waits for two objects, and has two other ones, of which one has failed.
    #[test]
    fn heartbeats_earlier_attempts_objects_and_waits_have_rows() {
        let text = text(&fixtures::target("cluster"), fixtures::NOW.parse().unwrap());
        let rows: Vec<&str> = text.lines().filter(|line| line.starts_with("    ")).collect();
        assert_eq!(rows, fixtures::rows::<String>("heartbeats_earlier_attempts_objects_and_waits_have_rows"));
    }

    #[test]
    fn everything_of_a_target() {
        let mut seen: TargetDetail = serde_json::from_str(include_str!("target_text.json")).unwrap();
        seen.runs = fixtures::target("busy").runs;
        insta::assert_snapshot!(text(&seen, fixtures::NOW.parse().unwrap()));
    }
}
