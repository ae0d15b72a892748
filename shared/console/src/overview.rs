//! The start page: numbers of targets, and what is stuck, has failed or waits.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use ebb_protocol::{
    AwaitedParty, SourceInfo, SubscriptionInfo, TargetInfo, TargetPage, TargetPhase, TargetWait, Timestamp, limits,
    parse_rfc3339, words,
};
use maud::{Markup, html};

use crate::{
    ConsoleViewer, PageRenewal, TargetListFilter, frame, paths, source_pages, subscription_pages, target_list, texts,
};

/// Maximum targets that need attention.
const ROWS: usize = 20;
/// Maximum causes.
const CAUSES: usize = 5;
const HOURS: usize = 24;
/// The milliseconds of an hour.
const HOUR: u64 = 3_600_000;

/// The content of the start page. A list is empty if the caller may not read it.
#[derive(Clone, Debug, Default)]
pub struct OverviewView<'a> {
    /// The first living targets. The page counts them by phase.
    pub counted: &'a [TargetPage],
    /// True if further targets exist that were not counted.
    pub is_partial: bool,
    /// Living targets.
    pub troubled: &'a [TargetPage],
    pub sources: &'a [SourceInfo],
    pub subscriptions: &'a [SubscriptionInfo],
    pub url: &'a str,
    /// The name of a plugin, which is read if no target exists.
    pub plugin: Option<&'a str>,
    pub now: Timestamp,
    /// The number of the last change of a target that the lists have.
    pub since: &'a str,
}

pub fn overview(viewer: ConsoleViewer<'_>, view: &OverviewView<'_>) -> String {
    let sources: Vec<_> = view.sources.iter().filter(|one| one.rejected.is_some()).collect();
    let has_problem = |info: &&SubscriptionInfo| {
        info.waiting > 0 || info.undelivered > 0 || info.problem.is_some() || info.unreadable.is_some()
    };
    let subscriptions: Vec<_> = view.subscriptions.iter().filter(has_problem).collect();
    let all: Vec<&TargetInfo> = view.counted.iter().flat_map(|page| &page.targets).collect();
    let has_trouble = |target: &&TargetInfo| is_down(target) || waits(target).next().is_some();
    let mut troubled: Vec<&TargetInfo> =
        view.troubled.iter().flat_map(|page| &page.targets).filter(has_trouble).collect();
    target_list::sort(&mut troubled);
    let main = html! {
        h1 { "Overview" }
        (target_list::outages(view.counted.first().map_or(&[][..], |page| &page.outages[..])))
        @if all.is_empty() && !view.is_partial { (first_steps(view.url, view.plugin)) } @else {
            (target_list::search(&TargetListFilter::default(), view.counted))
            (numbers(view, &all))
            @if view.is_partial { p.note { "The numbers are those of the first " (all.len()) " targets." } }
            (day(&all, view.now))
            (top_causes(&all))
            @if troubled.is_empty() { p.none { "No target is stuck, has failed or waits." } }
            @else { (frame::section("Needs attention", &attention(&troubled))) }
            @if view.is_partial && view.troubled.iter().any(|page| page.next_token.is_some()) {
                p.note { "More targets exist than this page reads: use the search of the list." }
            }
        }
        @if !sources.is_empty() { (frame::section("Sources with rejected events", &source_pages::list(sources))) }
        @if !subscriptions.is_empty() { (frame::section("Subscriptions with a backlog", &subscription_pages::list(subscriptions))) }
    };
    // Sources and subscriptions are not in the feed of changes.
    let renewal = PageRenewal { since: Some(view.since), seconds: Some(15), full_seconds: Some(60), stamp: None };
    frame::page(viewer, paths::ROOT, "Overview", renewal, &main)
}

/// Returns the commands that make the first plugin, or with the name of a plugin those that make the first sandbox.
pub(crate) fn first_steps(url: &str, plugin: Option<&str>) -> Markup {
    let server = format!("export EBB_URL={}", url.trim_end_matches('/'));
    if let Some(plugin) = plugin {
        let text = "Create a sandbox: a document that names plugins. The page of a plugin lists its parameters.";
        let document =
            format!("{{apiVersion: ebb.dev/v1, kind: Sandbox, name: first, resources: {{one: {{plugin: {plugin}}}}}}}");
        let write = format!("echo '{document}' > sandbox.yaml");
        return frame::empty(text, &[&server, &write, "ebb apply -f sandbox.yaml"], "sandboxes.html");
    }
    let text = "No sandbox exists. A plugin makes and removes a resource. The document of a sandbox names plugins.";
    frame::empty(text, &[&server, "ebb plugin new notes", "ebb apply -f notes.yaml"], "first-hour.html")
}

/// Returns a bar per hour of the last day, with the targets that are in their phase since that hour.
fn day(all: &[&TargetInfo], now: Timestamp) -> Markup {
    let hour = |target: &TargetInfo| usize::try_from(now.since(parse_rfc3339(&target.since)?).0 / HOUR).ok();
    let mut hours = vec![BTreeMap::<usize, (TargetPhase, usize)>::new(); HOURS];
    for target in all {
        if let Some(of_hour) = hour(target).and_then(|ago| hours.get_mut(ago)) {
            of_hour.entry(target_list::rank(target.phase)).or_insert((target.phase, 0)).1 += 1;
        }
    }
    let most = hours.iter().map(|phases| phases.values().map(|(_, count)| count).sum()).max().unwrap_or(0).max(1);
    html! {
        section {
            h2 { "Last 24 hours" }
            svg.day viewBox={ "0 0 " (HOURS * 10) " 60" } preserveAspectRatio="none" role="img" aria-label="Targets by the hour since which they are in their phase" {
                @for (ago, phases) in hours.iter().enumerate() {
                    @let mut y = 60;
                    @for (phase, count) in phases.values().rev() {
                        @let height = (60 * count).div_ceil(most);
                        @let top = { y -= height.min(y); y };
                        rect.bar.(texts::word(phase)) x=((HOURS - 1 - ago) * 10 + 1) y=(top) width="8" height=(height) {
                            title { (count) " " (texts::word(phase)) ", " (ago) " h ago" }
                        }
                    }
                }
            }
            p.note { "Each bar has the targets that are in their phase since that hour." }
        }
    }
}

/// Returns the causes that several targets have.
fn top_causes(all: &[&TargetInfo]) -> Markup {
    let mut causes: Vec<_> = target_list::causes(all).into_iter().collect();
    causes.retain(|(_, alike)| alike.len() > 1 && is_down(alike[0]));
    causes.sort_by_key(|(_, alike)| Reverse(alike.len()));
    let rows = causes.iter().take(CAUSES).map(|((_, cause), alike)| {
        let words = TargetListFilter {
            phase: alike[0].phase.name().to_owned(),
            q: (*cause).to_owned(),
            ..TargetListFilter::default()
        };
        html! {
            td.number { a href=(words.page("", "")) { (alike.len()) } }
            td { (texts::state(&alike[0].phase)) }
            td { (limits::printable(cause)) }
        }
    });
    html! { @if !causes.is_empty() { (frame::section("Top causes", &frame::table("Top causes", &["Targets", "State", "Cause"], rows))) } }
}

fn is_down(target: &TargetInfo) -> bool {
    matches!(target.phase, TargetPhase::Stuck | TargetPhase::Failed)
}

fn numbers(view: &OverviewView<'_>, all: &[&TargetInfo]) -> Markup {
    let stat = |parameters: &[(&str, &str)], number: &str, label: &str| {
        html! { li { a.stat href=(paths::targets(parameters)) { b { (number) } span { (label) } } } }
    };
    let more = if view.is_partial { "+" } else { "" };
    let times = target_list::times_to_ready(all);
    html! {
        ul.stats aria-label="Numbers" {
            @for (phase, count) in target_list::phases(view.counted).into_iter().filter(|(_, count)| *count > 0) {
                (stat(&[("phase", phase.name())], &format!("{count}{more}"), phase.name()))
            }
            @for percent in [50, 95] {
                @if let Some(time) = target_list::percentile(&times, percent) { (stat(&[("phase", "ready")], &time.to_string(), &format!("time to ready, p{percent}"))) }
            }
        }
    }
}

/// Returns the waits of a target, except that for an operator: the target is stuck, and has a cause.
fn waits(target: &TargetInfo) -> impl Iterator<Item = &TargetWait> {
    target.waits.iter().filter(|wait| wait.awaits != AwaitedParty::Operator)
}

fn attention(troubled: &[&TargetInfo]) -> Markup {
    let rows = troubled.iter().take(ROWS).map(|target| {
        html! {
            th scope="row" { (texts::target(&target.kind, &target.name)) }
            td data-label="State" { (texts::state(&target.phase)) (target_list::notes(target)) }
            td data-label="Since" { (texts::time(&target.since)) }
            td data-label="Owner" { (target_list::owner(target)) }
            td data-label="Cause" {
                @if let Some(cause) = &target.first_cause { div { (limits::printable(cause)) } }
                @for wait in waits(target) { div { (texts::timed(&words::target_wait(wait))) } }
            }
        }
    });
    html! {
        (frame::table("Needs attention", &["Name", "State", "Since", "Owner", "Cause or wait"], rows))
        @if troubled.len() > ROWS { p { a href=(paths::TARGETS) { "The first " (ROWS) " of " (troubled.len()) } } }
    }
}
