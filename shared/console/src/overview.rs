//! The start page: numbers of targets, and what is stuck, has failed or waits.

use ebb_protocol::{
    AwaitedParty, SourceInfo, SubscriptionInfo, TargetInfo, TargetPage, TargetPhase, TargetWait, limits, words,
};
use maud::{Markup, html};

use crate::{ConsoleViewer, PageRenewal, frame, paths, source_pages, subscription_pages, target_list, texts};

/// Maximum targets that need attention.
const ROWS: usize = 20;

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
    let is_down = |target: &TargetInfo| matches!(target.phase, TargetPhase::Stuck | TargetPhase::Failed);
    let has_trouble = |target: &&TargetInfo| is_down(target) || waits(target).next().is_some();
    let mut troubled: Vec<&TargetInfo> =
        view.troubled.iter().flat_map(|page| &page.targets).filter(has_trouble).collect();
    target_list::sort(&mut troubled);
    let main = html! {
        h1 { "Overview" }
        (target_list::outages(view.counted.first().map_or(&[][..], |page| &page.outages[..])))
        @if all.is_empty() && !view.is_partial { (first_steps(view.url)) } @else {
            (numbers(view, &all))
            @if view.is_partial { p.note { "The numbers are those of the first " (all.len()) " targets." } }
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

fn first_steps(url: &str) -> Markup {
    let server = format!("export EBB_URL={}", url.trim_end_matches('/'));
    let text = "No sandbox exists. A plugin makes and removes a resource. The document of a sandbox names plugins.";
    frame::empty(
        text,
        &[&server, "ebb plugin new notes", "ebb apply -f notes.yaml", "ebb apply -f sandbox.yaml"],
        "first-hour.html",
    )
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
