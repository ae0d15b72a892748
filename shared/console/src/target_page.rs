//! The page of one target.

use ebb_protocol::api::{
    NotificationDelivery, ResourceDetail, RunDetail, RunState, TargetDetail, TargetDiagnosis, TargetPhase,
};
use ebb_protocol::{limits, words};
use maud::{Markup, html};

use crate::run_graph::graph;
use crate::timeline::timeline;
use crate::{ConsoleViewer, PageRenewal, bulk_pages, diagnosis, frame, paths, target_list, texts, waiting_page};

/// Returns the page of a target. `may_change` is true if the caller may retry and delete it, and `stamp` is what a poll compares.
pub fn target(
    viewer: ConsoleViewer<'_>,
    may_change: bool,
    detail: &TargetDetail,
    why: &TargetDiagnosis,
    stamp: &str,
) -> String {
    let info = &detail.info;
    let name = format!("{}/{}", info.kind, info.name);
    let main = html! {
        h1 { (name) " " (texts::state(&info.phase)) (target_list::notes(info)) }
        (diagnosis::diagnosis(why))
        (target_list::outages(detail.outage.as_slice()))
        @if may_change { (action_links(detail)) }
        (waiting_page::section(&info.waits))
        @for run in detail.runs.iter().rev() { (run_section(run)) }
        (resources(detail))
        (diagnosis::remains(why))
        (values(detail))
        (environment(detail))
        (facts(detail))
        p.actions { a.action href=(paths::history(&info.kind, &info.name, None)) { "History" } }
    };
    let moves = matches!(info.phase, TargetPhase::Starting | TargetPhase::Updating | TargetPhase::Stopping);
    // Starts, progress and heartbeats of the units of an open run are in no stamp.
    let is_open = detail.runs.iter().any(|run| matches!(run.state, RunState::Running | RunState::Cancelling));
    let (seconds, full_seconds) = if moves { (3, 0) } else { (15, if is_open { 15 } else { 600 }) };
    let renewal =
        PageRenewal { seconds: Some(seconds), full_seconds: Some(full_seconds), since: None, stamp: Some(stamp) };
    frame::page(viewer, paths::ROOT, &name, renewal, &main)
}

fn action_links(detail: &TargetDetail) -> Markup {
    let info = &detail.info;
    let link = |action: &str, label: &str| {
        html! { a.action href=(bulk_pages::confirmation_path(action, &info.kind, &info.name, &info.uid)) { (label) } }
    };
    let waits = |run: &RunDetail| run.state == RunState::Running && run.units.iter().any(|unit| unit.next.is_some());
    let retry = bulk_pages::no_retry(info.phase).is_none() || detail.runs.iter().any(waits);
    let delete = bulk_pages::no_deletion(info.phase).is_none();
    html! {
        @if retry || delete {
            p.actions {
                @if retry { (link("retry", "Retry…")) " " }
                @if delete { (link("delete", "Delete…")) }
            }
        }
    }
}

fn facts(detail: &TargetDetail) -> Markup {
    let info = &detail.info;
    html! {
        section {
            h2 { "Details" }
            dl {
                dt { "Instance" } dd { code { (info.uid) } ", generation " (info.generation) }
                dt { "Since" } dd { (texts::time(&info.since)) }
                dt { "Created" } dd { (texts::time(&info.created)) }
                @if let Some(expires) = &info.expires { dt { "Expires" } dd { (texts::time(expires)) } }
                @if let Some(event) = &detail.decided_by {
                    dt { "Decided by" }
                    dd {
                        "source " a href=(paths::source(&event.source)) { (event.source) } ", "
                        (texts::timed(&words::deciding_event(event)))
                    }
                }
                @if let Some(owner) = &info.owner {
                    dt { "Owner" }
                    dd title=[info.owner_name.as_ref().map(|_| owner)] { (limits::printable(info.shown_owner())) }
                }
                @if !info.labels.is_empty() { dt { "Labels" } dd { (target_list::labels(info)) } }
                @if let Some(delivery) = &detail.delivery { dt { "Notification" } dd { (notification(delivery)) } }
            }
        }
    }
}

fn notification(delivery: &NotificationDelivery) -> Markup {
    html! {
        (delivery.notification) " was sent " (delivery.attempts) " times"
        @if let Some(reason) = &delivery.reason { ": " (limits::printable(reason)) }
        @if let Some(next) = &delivery.next { "; the next time is " (texts::time(next)) }
    }
}

fn run_section(run: &RunDetail) -> Markup {
    let is_open = !matches!(run.state, RunState::Succeeded);
    html! {
        section {
            h2 { (run.hook) " " (texts::state(&run.state)) }
            p { "Started " (texts::time(&run.started)) ". Run " a href=(paths::run(&run.id, None)) { (run.id) } "." }
            details id={ "graph-" (run.id) } open[is_open] { summary { "Graph of " (run.hook) } (graph(run)) }
            details id={ "units-" (run.id) } open[is_open] { summary { "Timeline of " (run.hook) } (timeline(run)) }
        }
    }
}

fn resources(detail: &TargetDetail) -> Markup {
    let row = |(name, resource): (&String, &ResourceDetail)| {
        let since = Some(&resource.since).filter(|since| !since.is_empty());
        html! {
            th scope="row" { (name) }
            td { (texts::state(&resource.phase)) }
            td { (texts::time_if_any(since)) }
            td { (limits::printable(resource.reason.as_deref().unwrap_or_default())) }
            td {
                a href=(paths::plugin_of(&resource.plugin)) { (resource.plugin) }
                @if resource.protect { ", protected" }
                @if let Some(version) = &resource.repaired_by {
                    ". The teardown runs " a href=(paths::plugin_of(version)) { (version) } ", which an operator has chosen."
                }
            }
        }
    };
    let rows = detail.resources.iter().map(row);
    let heads = ["Resource", "Phase", "Since", "Reason", "Plugin"];
    html! { @if !detail.resources.is_empty() { (frame::section("Resources", &frame::table("Resources", &heads, rows))) } }
}

fn values(detail: &TargetDetail) -> Markup {
    let has_values = detail.resources.values().any(|one| !one.params.is_empty() || !one.outputs.is_empty());
    if !has_values && detail.outputs_error.is_none() {
        return html! {};
    }
    html! {
        section {
            h2 { "Inputs and outputs" }
            @if let Some(problem) = &detail.outputs_error { p.problem { (limits::printable(problem)) } }
            @for (name, resource) in &detail.resources { (values_of(name, resource)) }
        }
    }
}

fn values_of(name: &str, resource: &ResourceDetail) -> Markup {
    let pair = |name: &str, value: &Markup| html! { th scope="row" { (name) } td { (value) } };
    let params = resource.params.iter().map(|(name, value)| pair(name, &texts::json_value(value)));
    let outputs = resource.outputs.iter().map(|(name, value)| pair(name, &texts::value(value)));
    html! {
        @if !resource.params.is_empty() || !resource.outputs.is_empty() { h3 { (name) } }
        @if !resource.params.is_empty() { (frame::table(&format!("Inputs of {name}"), &["Input", "Value"], params)) }
        @if !resource.outputs.is_empty() { (frame::table(&format!("Outputs of {name}"), &["Output", "Value"], outputs)) }
    }
}

fn environment(detail: &TargetDetail) -> Markup {
    let variables =
        detail.env.iter().map(|(name, value)| html! { th scope="row" { (name) } td { (texts::value(value)) } });
    let workloads: Vec<Markup> = detail
        .workloads
        .iter()
        .flat_map(|(workload, values)| values.iter().map(move |value| (workload, value)))
        .map(|(workload, value)| {
            let place = value.env.as_deref().or(value.file.as_deref()).unwrap_or_default();
            html! { th scope="row" { (workload) } td { (place) } td { (texts::value(&value.value)) } }
        })
        .collect();
    html! {
        @if !detail.env.is_empty() {
            (frame::section("Environment", &frame::table("Environment", &["Variable", "Value"], variables)))
        }
        @if !workloads.is_empty() {
            (frame::section("Workloads", &frame::table("Workloads", &["Workload", "Variable or file", "Value"], workloads)))
        }
    }
}
