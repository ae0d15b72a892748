//! The list of targets, with filters and counts by phase.

use ebb_protocol::{RelayOutage, TargetInfo, TargetPhase, limits, words};
use maud::{Markup, html};
use serde::Deserialize;

use crate::{BulkAction, ConsoleViewer, PageRenewal, bulk_pages, frame, paths, texts};

const LABELS: usize = 10;
/// Maximum characters of the name and of the value of a label in a row.
const LABEL: usize = 100;

/// The filters of the list. An empty text filters nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct TargetListFilter {
    /// A phase. `gone` selects the gone targets, which are not in the list otherwise.
    pub phase: String,
    /// `KEY=VALUE`.
    pub label: String,
    pub owner: String,
    /// `NAME` or `NAME@VERSION`.
    pub plugin: String,
    /// A text in the name, the owner, labels, plugins or the first cause.
    pub q: String,
}

impl TargetListFilter {
    /// Returns the phase of the filter, or `None` without one and for an unknown text.
    pub fn state(&self) -> Option<TargetPhase> {
        TargetPhase::named(&self.phase)
    }

    /// Returns the path of a page of the list with these filters. `previous` is that of [`TargetListView`], and `select` is empty,
    /// or [`SELECT_ALL`].
    fn path(&self, phase: &str, (next_token, previous): (&str, &str), select: &str) -> String {
        paths::targets(&[
            ("phase", phase),
            ("label", self.label.as_str()),
            ("owner", self.owner.as_str()),
            ("plugin", self.plugin.as_str()),
            ("q", self.q.as_str()),
            ("nextToken", next_token),
            ("previous", previous),
            ("select", select),
        ])
    }
}

/// Maximum bytes of the tokens of the pages before. They are in the address, which gateways limit to some KiB.
const MAX_PREVIOUS: usize = 2_048;
/// The value of the parameter `select` of a list whose rows are all selected.
const SELECT_ALL: &str = "all";

#[derive(Clone, Debug)]
pub struct TargetListView<'a> {
    pub filter: &'a TargetListFilter,
    pub targets: &'a [TargetInfo],
    /// The number of targets by phase that pass the other filters.
    pub counts: &'a [(TargetPhase, usize)],
    /// True if further targets exist that were not counted.
    pub is_partial: bool,
    pub outages: &'a [RelayOutage],
    /// Errors of targets that cannot be read.
    pub damaged: &'a [String],
    /// The parameter `select` of the page. `None` if the caller may change no target.
    pub selection: Option<&'a str>,
    /// The token of the page. The first page has an empty one.
    pub page_token: &'a str,
    /// The tokens of the pages before, if the page was reached through them: separated by blanks, the nearest one last. The
    /// first page has no token, and the first ones of many are dropped.
    pub previous: &'a str,
    pub next_token: Option<&'a str>,
    /// The number of the last change that the list has.
    pub since: &'a str,
}

pub fn targets(viewer: ConsoleViewer<'_>, view: &TargetListView<'_>) -> String {
    let filter = view.filter;
    // Without rows there is nothing to select. A target that is gone has no action.
    let selection = view.selection.filter(|_| !view.targets.is_empty() && filter.state() != Some(TargetPhase::Gone));
    let all_selected = selection.map(|select| select == SELECT_ALL);
    let rows = view.targets.iter().map(|target| row(target, all_selected));
    let heads = ["Name", "Phase", "Since", "Owner", "Labels", "Cause", "Plugins"];
    let list = match all_selected {
        Some(all_selected) => {
            let heads: Vec<&str> = ["Select"].into_iter().chain(heads).collect();
            html! {
                form method="post" action=(paths::SELECTION) {
                    (frame::form_token(viewer))
                    input type="hidden" name=(bulk_pages::BACK) value=(page_path(view, ""));
                    (buttons(view, all_selected))
                    (frame::table("Targets", &heads, rows))
                }
            }
        }
        None => frame::table("Targets", &heads, rows),
    };
    let (before, nearest) = view.previous.rsplit_once(' ').unwrap_or(("", view.previous));
    let counted: usize = view.counts.iter().map(|(_, count)| count).sum();
    let main = html! {
        h1 { "Targets" }
        (outages(view.outages))
        @for reason in view.damaged { p.problem { "A target cannot be read: " (reason) } }
        (form(filter))
        ul.counts aria-label="Targets by phase" {
            @for (phase, count) in view.counts.iter().copied().chain(uncounted(view)) {
                li {
                    a href=(filter.path(&texts::word(&phase), ("", ""), "")) {
                        (texts::state(&phase)) " " (count) @if view.is_partial { "+" }
                    }
                }
            }
            @if view.is_partial { li { "counted in the first " (counted) " targets" } }
        }
        (list)
        p.pages {
            @if !view.page_token.is_empty() { a href=(filter.path(&filter.phase, ("", ""), "")) { "First page" } " " }
            @if !nearest.is_empty() {
                a rel="prev" href=(filter.path(&filter.phase, (nearest, before), "")) { "Previous page" } " "
            }
            @if let Some(next) = view.next_token {
                a rel="next" href=(filter.path(&filter.phase, (next, previous_of_next(view).as_str()), "")) { "Next page" }
            }
        }
    };
    let renewal = match all_selected {
        // A renewal would select targets that the caller has not seen.
        Some(true) => PageRenewal::NEVER,
        _ => PageRenewal { since: Some(view.since), seconds: Some(15), full_seconds: Some(600), stamp: None },
    };
    frame::page(viewer, paths::ROOT, "Targets", renewal, &main)
}

/// Returns the phases without a counted target, each with the number 0. Targets that were not counted may have them.
fn uncounted(view: &TargetListView<'_>) -> impl Iterator<Item = (TargetPhase, usize)> {
    let is_counted = move |phase: TargetPhase| view.counts.iter().any(|(counted, _)| *counted == phase);
    let may_have = view.is_partial && view.filter.state() != Some(TargetPhase::Gone);
    let living = TargetPhase::ALL.into_iter().filter(|phase| *phase != TargetPhase::Gone);
    living.filter(move |phase| may_have && !is_counted(*phase)).map(|phase| (phase, 0))
}

fn previous_of_next(view: &TargetListView<'_>) -> String {
    let all = format!("{} {}", view.previous, view.page_token);
    let begin = all.ceil_char_boundary(all.len().saturating_sub(MAX_PREVIOUS));
    let kept = &all[begin..];
    // The first token may be cut.
    let kept = if begin == 0 { kept } else { kept.split_once(' ').map_or("", |(_, rest)| rest) };
    kept.trim().to_owned()
}

/// Returns the path of the page. `select` is empty, or [`SELECT_ALL`].
fn page_path(view: &TargetListView<'_>, select: &str) -> String {
    view.filter.path(&view.filter.phase, (view.page_token, view.previous), select)
}

/// Returns the buttons for the selected rows. The first one is that of the key Enter.
fn buttons(view: &TargetListView<'_>, all_selected: bool) -> Markup {
    html! {
        p.selection {
            @for action in BulkAction::ALL {
                button id={ "selected-" (action.name()) } name=(bulk_pages::ACTION) value=(action.name()) {
                    (action.verb()) " selected"
                }
            }
            @if all_selected {
                a href=(page_path(view, "")) { "Select none" }
            } @else {
                a href=(page_path(view, SELECT_ALL)) { "Select all shown" }
            }
        }
    }
}

/// Returns a sentence for each cluster that does not respond.
pub(crate) fn outages(outages: &[RelayOutage]) -> Markup {
    html! {
        @for outage in outages {
            p.problem {
                "Cluster " a href=(paths::cluster(&outage.cluster)) { (outage.cluster) } " "
                (texts::timed(&words::silence(outage)))
            }
        }
    }
}

fn form(filter: &TargetListFilter) -> Markup {
    let field = |name: &str, label: &str, value: &str, hint: &str| {
        html! {
            label for={ "filter-" (name) } { (label) }
            input id={ "filter-" (name) } name=(name) value=(value) placeholder=(hint);
        }
    };
    html! {
        form.filters method="get" action=(paths::ROOT) role="search" {
            div {
                label for="filter-phase" { "Phase" }
                select #filter-phase name="phase" {
                    option value="" { "all living" }
                    @for phase in TargetPhase::ALL.map(TargetPhase::name) {
                        option value=(phase) selected[phase == filter.phase] { (phase) }
                    }
                }
            }
            div { (field("label", "Label", &filter.label, "team=shop")) }
            div { (field("owner", "Owner", &filter.owner, "token ci")) }
            div { (field("plugin", "Plugin", &filter.plugin, "db or db@1.0.0")) }
            div { (field("q", "Text", &filter.q, "in names, labels, causes")) }
            button { "Filter" }
            a href=(paths::ROOT) { "Reset" }
        }
    }
}

/// Returns a row. Without `all_selected`, it cannot be selected.
fn row(target: &TargetInfo, all_selected: Option<bool>) -> Markup {
    let TargetInfo { kind, name, uid, .. } = target;
    html! {
        @if let Some(is_selected) = all_selected {
            td {
                input type="checkbox" name=(bulk_pages::TARGET) value=(bulk_pages::value(kind, name, uid))
                    checked[is_selected] aria-label={ (kind) "/" (name) };
            }
        }
        th scope="row" { a href=(paths::target(kind, name)) { (kind) "/" (name) } }
        td { (texts::state(&target.phase)) (notes(target)) }
        td { (texts::time(&target.since)) }
        td { (limits::printable(target.shown_owner())) }
        td { (first_labels(target)) }
        td { (cause(target)) }
        td { (plugins(&target.plugins)) }
    }
}

/// Returns the first labels of a target for a row, one per line. Long ones are shortened.
fn first_labels(target: &TargetInfo) -> Markup {
    let shown = |text: &str| limits::excerpt(&limits::printable(text), LABEL);
    let more = target.labels.len().saturating_sub(LABELS);
    html! {
        @for (name, value) in target.labels.iter().take(LABELS) { div { (shown(name)) "=" (shown(value)) } }
        @if more > 0 { div { (more) " more" } }
    }
}

pub(crate) fn labels(target: &TargetInfo) -> Markup {
    html! { @for (name, value) in &target.labels { div { (limits::printable(name)) "=" (limits::printable(value)) } } }
}

/// Returns the first cause of a failure, or what a target waits for.
pub(crate) fn cause(target: &TargetInfo) -> Markup {
    let cause = target.first_cause.as_deref().or(target.waits_for.as_deref()).unwrap_or_default();
    html! { (limits::printable(cause)) }
}

/// Returns notes about the end of a target.
pub(crate) fn notes(target: &TargetInfo) -> Markup {
    html! { @for note in words::target_notes(target) { " " (note) } }
}

pub(crate) fn plugins(versions: &[String]) -> Markup {
    html! {
        @for (position, version) in versions.iter().enumerate() {
            @if position > 0 { ", " }
            a href=(paths::plugin_of(version)) { (version) }
        }
    }
}
