//! Everything that is stuck, failed or waits, and the waits of one target.

use ebb_protocol::{
    AwaitedParty, RelayOutage, SourceInfo, SubscriptionInfo, TargetInfo, TargetPhase, TargetWait, limits, words,
};
use maud::{Markup, html};

use crate::frame::{self, ConsoleViewer, PageRenewal};
use crate::{paths, source_pages, subscription_pages, target_list, texts};

/// The heads of the columns of a waiter and of [`rest`].
const HEADS: [&str; 4] = ["Who waits", "Waits for", "Since", "Until"];

/// What the page shows. A list that the caller may not read is `None`.
#[derive(Clone, Debug, Default)]
pub struct WaitingView<'a> {
    /// Living targets. Those that neither wait nor have failed are left out.
    pub targets: &'a [TargetInfo],
    /// True if further targets exist that were not read.
    pub is_partial: bool,
    pub outages: &'a [RelayOutage],
    /// Sources. Those without rejected events are left out.
    pub sources: Option<&'a [SourceInfo]>,
    /// Subscriptions. Those without a problem are left out.
    pub subscriptions: Option<&'a [SubscriptionInfo]>,
    /// The number of the last change of a target that the lists have.
    pub since: &'a str,
}

pub fn waiting(viewer: ConsoleViewer<'_>, view: &WaitingView<'_>) -> String {
    let of = |phase: TargetPhase| view.targets.iter().filter(move |target| target.phase == phase);
    let sources = view.sources.map(|all| source_pages::list(all.iter().filter(|source| source.rejected.is_some())));
    let subscriptions = view.subscriptions.map(|all| {
        let has_problem = |info: &&SubscriptionInfo| {
            info.waiting > 0 || info.undelivered > 0 || info.problem.is_some() || info.unreadable.is_some()
        };
        subscription_pages::list(all.iter().filter(has_problem))
    });
    let main = html! {
        h1 { "Stuck and waiting" }
        (target_list::outages(view.outages))
        (frame::section("Stuck", &targets("Stuck", of(TargetPhase::Stuck))))
        (frame::section("Failed", &targets("Failed", of(TargetPhase::Failed))))
        (frame::section("Waiting", &waits(view.targets)))
        @if view.is_partial { p { "More targets exist than this page reads: use the filters of the list." } }
        @if let Some(sources) = &sources { (frame::section("Sources with rejected events", sources)) }
        @if let Some(subscriptions) = &subscriptions { (frame::section("Subscriptions", subscriptions)) }
    };
    // Sources and subscriptions are not in the feed of changes.
    let renewal = PageRenewal { since: Some(view.since), seconds: Some(15), full_seconds: Some(60), stamp: None };
    frame::page(viewer, paths::WAITING, "Stuck and waiting", renewal, &main)
}

fn targets<'a>(label: &str, targets: impl Iterator<Item = &'a TargetInfo>) -> Markup {
    let rows = targets.map(|target| {
        html! {
            th scope="row" { a href=(paths::target(&target.kind, &target.name)) { (target.kind) "/" (target.name) } }
            td { (texts::time(&target.since)) }
            td { (limits::printable(target.shown_owner())) }
            td { (target_list::cause(target)) }
        }
    });
    frame::table(label, &["Name", "Since", "Owner", "Cause"], rows)
}

/// Returns one row for each wait, except that for an operator: its target is in the list of the stuck ones.
fn waits(targets: &[TargetInfo]) -> Markup {
    let rows = targets.iter().flat_map(|target| {
        target.waits.iter().filter(|wait| wait.awaits != AwaitedParty::Operator).map(move |wait| {
            html! {
                th scope="row" { a href=(paths::target(&target.kind, &target.name)) { (target.kind) "/" (target.name) } }
                td { (limits::printable(target.shown_owner())) }
                td { (words::waiter(wait)) }
                (rest(wait))
            }
        })
    });
    let heads = [&["Name", "Owner"][..], &HEADS].concat();
    frame::table("Waiting", &heads, rows)
}

/// Returns the waits of a target as a section, or nothing without any.
pub(crate) fn section(waits: &[TargetWait]) -> Markup {
    let rows = waits.iter().map(|wait| html! { th scope="row" { (words::waiter(wait)) } (rest(wait)) });
    html! { @if !waits.is_empty() { (frame::section("Who waits", &frame::table("Who waits", &HEADS, rows))) } }
}

/// Returns the cells after that of the waiter.
fn rest(wait: &TargetWait) -> Markup {
    html! {
        td { (words::awaited(wait)) }
        td { (texts::time_if_any(wait.since.as_ref())) }
        td { (texts::timed(&words::one_line(&wait.release))) }
    }
}
