//! The page of one target: its result, what is wrong and how to repair it, its runs, and what it has made.

use ebb_protocol::api::{NotificationDelivery, ResourceDetail, RunDetail, RunState, TargetDetail, TargetPhase};
use ebb_protocol::{OutputValue, limits, words};
use maud::{Markup, html};

use crate::unit_panel::panel;
use crate::waterfall::waterfall;
use crate::{
    BulkAction, ConsoleViewer, PageRenewal, TargetView, bulk_pages, diagnosis, frame, paths, target_list, texts,
};

/// Maximum buttons that open URLs of a target.
const MAX_LINKS: usize = 4;
/// The first characters of a commit that are shown.
const SHA: usize = 12;

pub fn target(viewer: ConsoleViewer<'_>, view: &TargetView<'_>) -> String {
    let TargetView { detail, why, stamp, selected, .. } = *view;
    let info = &detail.info;
    let name = format!("{}/{}", info.kind, info.name);
    let title = html! { (name) " " (texts::state(&info.phase)) (target_list::notes(info)) };
    let has_result = !matches!(info.phase, TargetPhase::Failed | TargetPhase::Stuck) || !detail.env.is_empty();
    // The run of the query has all its units, and can be that of an earlier instance.
    let others = detail.runs.iter().rev().filter(|run| selected.is_none_or(|selected| selected.run.id != run.id));
    let others: Vec<&RunDetail> = others.collect();
    let main = html! {
        (frame::head(&title, &facts(detail), &actions(view)))
        @if has_result { (result(detail)) }
        (diagnosis::diagnosis(view))
        @if !has_result { (result(detail)) }
        (target_list::outages(detail.outage.as_slice()))
        @if let Some(selected) = selected { (run_section(view, &selected.run)) }
        @for (position, run) in others.iter().enumerate() {
            @if position == 0 && selected.is_none() || is_open(run) { (run_section(view, run)) } @else {
                details id={ "run-" (run.id) } {
                    summary { (run.hook) " " (texts::state(&run.state)) " " (texts::time(&run.started)) }
                    (run_section(view, run))
                }
            }
        }
        (resources(detail))
        (diagnosis::remains(why))
        (inputs(detail))
        (details(detail))
    };
    let moves = matches!(info.phase, TargetPhase::Starting | TargetPhase::Updating | TargetPhase::Stopping);
    // Starts, progress and heartbeats of the units of an open run are in no stamp.
    let is_live = selected.map(|selected| &selected.run).into_iter().chain(others.iter().copied()).any(is_open);
    let at_rest = if is_live { 15 } else { 600 };
    let full_seconds = if moves { 0 } else { at_rest };
    let renewal = PageRenewal { seconds: Some(3), full_seconds: Some(full_seconds), since: None, stamp: Some(stamp) };
    frame::page(viewer, paths::TARGETS, &name, renewal, &main)
}

fn is_open(run: &RunDetail) -> bool {
    matches!(run.state, RunState::Running | RunState::Cancelling)
}

fn facts(TargetDetail { info, decided_by, .. }: &TargetDetail) -> Markup {
    let owner = info.owner.as_ref().filter(|_| info.owner_name.is_some());
    let change = target_list::change(info);
    let short = |sha: &String| limits::printable(sha).chars().take(SHA).collect::<String>();
    html! {
        @if info.owner.is_some() { span title=[owner] { "Owner " (limits::printable(info.shown_owner())) } }
        span { "Created " (texts::time(&info.created)) }
        @if let Some(expires) = &info.expires { span { "Expires " (texts::time(expires)) } }
        @if !change.0.is_empty() { span { (change) } }
        @if let Some(sha) = info.labels.get("sha") { span title=(limits::printable(sha)) { "Commit " code { (short(sha)) } } }
        @if let Some(event) = decided_by {
            span { "Source " a href=(paths::source(&event.source)) { (event.source) } ", " (texts::timed(&words::deciding_event(event))) }
        }
    }
}

fn actions(view: &TargetView<'_>) -> Markup {
    let info = &view.detail.info;
    let waits = |run: &RunDetail| run.state == RunState::Running && run.units.iter().any(|unit| unit.next.is_some());
    let has_failed = bulk_pages::no_retry(info.phase).is_none();
    let retry = view.may_change && (has_failed || view.detail.runs.iter().any(waits));
    let delete = view.may_change && bulk_pages::no_deletion(info.phase).is_none();
    let path = |action| bulk_pages::confirmation_path(action, info);
    html! {
        @if retry { a.button.primary[has_failed] href=(path(BulkAction::Retry)) { "Retry…" } " " }
        @if delete { a.button.danger href=(path(BulkAction::Delete)) { "Delete…" } " " }
        a.button href=(paths::history(&info.kind, &info.name, None)) { "History" }
    }
}

/// Returns the values that a target is for: its URLs, its environment, its outputs, and what its workloads read.
fn result(detail: &TargetDetail) -> Markup {
    let outputs: Vec<(String, &OutputValue, bool)> = detail
        .resources
        .iter()
        .flat_map(|(resource, of)| {
            of.outputs.iter().map(move |(name, value)| (format!("{resource}.{name}"), value, of.links.contains(name)))
        })
        .collect();
    let marked = outputs.iter().filter(|output| output.2).map(|(name, value, _)| (name, *value));
    let mut links: Vec<(&String, String)> = Vec::new();
    for (name, value) in marked.chain(&detail.env) {
        let (url, is_masked) = words::output(value);
        if !is_masked && texts::is_web(&url) && links.iter().all(|(_, known)| *known != url) {
            links.push((name, url));
        }
    }
    links.truncate(MAX_LINKS);
    let row = |name: &String, value: &OutputValue| html! { th scope="row" { (name) } td { (texts::value(value)) } };
    let environment = detail.env.iter().map(|(name, value)| row(name, value));
    let workloads = detail.workloads.iter().flat_map(|(workload, values)| {
        values.iter().map(move |value| {
            let place = value.env.as_deref().or(value.file.as_deref()).unwrap_or_default();
            html! { th scope="row" { (workload) } td { (place) } td { (texts::value(&value.value)) } }
        })
    });
    let rows: Vec<Markup> = environment.chain(outputs.iter().map(|(name, value, _)| row(name, value))).collect();
    let workloads: Vec<Markup> = workloads.collect();
    html! {
        @if !rows.is_empty() || !workloads.is_empty() || detail.outputs_error.is_some() {
            section.result {
                h2 { "Result" }
                p.actions {
                    @for (position, (name, url)) in links.iter().enumerate() {
                        a.button.external.primary[position == 0] href=(url) target="_blank" rel="noreferrer noopener" { "Open " (name) }
                    }
                }
                @if let Some(problem) = &detail.outputs_error { p.problem { (limits::printable(problem)) } }
                @if !rows.is_empty() { (frame::table("Environment and outputs", &["Name", "Value"], rows)) }
                @if !workloads.is_empty() { (frame::table("Workloads", &["Workload", "Variable or file", "Value"], workloads)) }
            }
        }
    }
}

fn details(detail: &TargetDetail) -> Markup {
    let info = &detail.info;
    html! {
        section {
            h2 { "Details" }
            dl {
                dt { "Instance" } dd { code { (info.uid) } ", generation " (info.generation) }
                dt { "Since" } dd { (texts::time(&info.since)) }
                @if !info.labels.is_empty() { dt { "Labels" } dd { (target_list::labels(info)) } }
                @if let Some(NotificationDelivery { notification, attempts, reason, next, .. }) = &detail.delivery {
                    dt { "Notification" }
                    dd {
                        (notification) " was sent " (attempts) " times"
                        @if let Some(reason) = reason { ": " (limits::printable(reason)) }
                        @if let Some(next) = next { "; the next time is " (texts::time(next)) }
                    }
                }
            }
        }
    }
}

fn run_section(view: &TargetView<'_>, run: &RunDetail) -> Markup {
    let target = (view.detail.info.kind.as_str(), view.detail.info.name.as_str());
    let selected = view.selected.filter(|selected| selected.run.id == run.id);
    let counts = selected.map_or_else(|| words::unit_counts(&run.units), |selected| selected.counts.clone());
    let page_token = selected.and_then(|selected| selected.page_token.as_deref());
    let path = |page_token: Option<&str>| paths::run(target, &run.id, page_token);
    html! {
        section.run id=[selected.map(|_| "run")] {
            h2 { (run.hook) " " (texts::state(&run.state)) }
            p.facts {
                span { "Started " (texts::time(&run.started)) }
                @if selected.is_some() || run.next_token.is_none() { span { (counts) } }
                span { a href=(path(None)) { "All units" } }
                span { a href=(paths::log(&run.id, "", None)) { "Logs" } }
                span { code { (run.id) } }
            }
            div.beside { (waterfall(view, run)) @if let Some(selected) = selected { (panel(view, selected)) } }
            @if let Some(token) = page_token {
                (frame::pages((!token.is_empty()).then(|| path(None)), run.next_token.as_deref().map(|next| path(Some(next)))))
            }
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
                @if let Some(version) = &resource.repaired_by { ". The teardown runs " a href=(paths::plugin_of(version)) { (version) } ", which an operator has chosen." }
            }
        }
    };
    let rows = detail.resources.iter().map(row);
    let heads = ["Resource", "Phase", "Since", "Reason", "Plugin"];
    html! { @if !detail.resources.is_empty() { (frame::section("Resources", &frame::table("Resources", &heads, rows))) } }
}

fn inputs(detail: &TargetDetail) -> Markup {
    let rows = detail.resources.iter().flat_map(|(resource, of)| {
        of.params.iter().map(move |(name, value)| {
            html! { th scope="row" { (resource) "." (name) } td { (texts::json_value(value)) } }
        })
    });
    let rows: Vec<Markup> = rows.collect();
    html! { @if !rows.is_empty() { (frame::section("Inputs", &frame::table("Inputs", &["Input", "Value"], rows))) } }
}
