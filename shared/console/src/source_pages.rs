//! Sources and the events that they have rejected.

use std::cmp::Reverse;

use ebb_protocol::{ListingState, MissingThing, RejectedEvent, SourceDetail, SourceInfo, limits, rfc3339};
use maud::{Markup, html};

use crate::{ConsoleViewer, PageRenewal, frame, paths, texts};

pub fn sources(viewer: ConsoleViewer<'_>, sources: &[SourceInfo]) -> String {
    let mut sorted: Vec<&SourceInfo> = sources.iter().collect();
    sorted.sort_by_key(|source| Reverse(source.rejected.as_ref().map(|rejected| rejected.count)));
    let intro = (paths::SOURCES, "Sources", "A source turns webhooks of another system into targets.");
    let none = "No source is stored. Print one for a known sender, add resources, and store it:";
    let commands = ["ebb source new --preset github previews > previews.yaml", "ebb apply -f previews.yaml"];
    let list = (!sources.is_empty()).then(|| list(sorted));
    frame::list_page(viewer, intro, (none, &commands, "sources.html"), PageRenewal::NEVER, list.as_ref())
}

pub(crate) fn list<'a>(sources: impl IntoIterator<Item = &'a SourceInfo>) -> Markup {
    let rows = sources.into_iter().map(|SourceInfo { name, changed, rejected, listing }| {
        html! {
            th scope="row" { a href=(paths::source(name)) { (name) } }
            td data-label="Rejected" {
                @if let Some(rejected) = rejected {
                    span.problem { (rejected.count) " since " (texts::time(&rejected.since)) ": " (limits::printable(&rejected.last.detail)) }
                }
            }
            td data-label="Lists" { @if let Some(listing) = listing { (problem(listing)) @if listing.missing_count > 0 { (listing.missing_count) " missing" } } }
            td data-label="Changed" { (texts::time(changed)) }
        }
    });
    frame::table("Sources", &["Name", "Rejected events", "Lists", "Changed"], rows)
}

fn problem(listing: &ListingState) -> Markup {
    html! {
        @if let (Some(problem), Some(since)) = (&listing.problem, &listing.problem_since) {
            p.problem { "Incomplete since " (texts::time(since)) ", nothing is deleted: " (limits::printable(problem)) }
        }
    }
}

/// Returns what the lists of a source have shown, with the targets whose things are missing.
fn drift(listing: &ListingState) -> Markup {
    let rows = listing.missing.iter().map(|MissingThing { target, since, ends_after, .. }| {
        html! {
            th scope="row" { (target_link(target)) }
            td { (texts::time(since)) }
            td { (texts::time(ends_after)) }
        }
    });
    html! {
        (problem(listing))
        @if let (Some(at), Some(things)) = (&listing.complete, listing.things) { p { "Last complete observation at " (texts::time(at)) ": " (things) " things." } }
        @else { p { "No observation is complete yet." } }
        (frame::table("Missing", &["Missing", "Since", "Deleted after, if it stays missing"], rows))
        @if listing.missing_count > listing.missing.len() as u64 { p { (listing.missing_count) " targets are missing." } }
    }
}

/// An event that the caller tries, with its effect.
#[derive(Clone, Debug, Default)]
pub struct SourceTrial<'a> {
    /// A header per line, `NAME: VALUE`.
    pub headers: &'a str,
    pub payload: &'a str,
    /// The body of the response that completes the event.
    pub fetched: &'a str,
    /// The effect, or the reason why the event cannot be evaluated. `None` if nothing was tried.
    pub effect: Option<Result<TrialEffect, String>>,
}

#[derive(Clone, Debug, Default)]
#[cfg_attr(test, derive(serde::Deserialize))]
pub struct TrialEffect {
    /// The numbers of the entries that do not hold, with their reasons.
    pub skipped: Vec<(usize, String)>,
    /// The number of the entry that holds or fails, from 1.
    pub entry: Option<usize>,
    /// `apply`, `delete`, `ignored` or `rejected`.
    #[cfg_attr(test, serde(skip))]
    pub verdict: &'static str,
    /// The reason of `ignored` or `rejected`.
    pub reason: Option<String>,
    pub target: Option<String>,
    pub uid: Option<String>,
    pub time: Option<String>,
    /// The delivery ID that the source selects.
    pub delivery: Option<String>,
    pub document: Option<String>,
}

pub fn source(viewer: ConsoleViewer<'_>, source: &SourceDetail, trial: &SourceTrial<'_>) -> String {
    let rows = source.rejected.iter().map(rejected);
    let owner = format!("source {}", source.name);
    let facts = html! {
        span { "changed at " (texts::time(&source.changed)) }
        span { "path for the sender " (texts::copy(&source.path)) }
    };
    let targets = html! { a.button href=(paths::targets(&[("owner", owner.as_str())])) { "Targets of its events" } };
    let tried = frame::section("Try an event", &try_form(viewer, &source.name, trial));
    let main = html! {
        (frame::head(&html! { "Source " (source.name) }, &facts, &targets))
        @if trial.effect.is_some() { (tried) }
        @if let Some(listing) = &source.listing { (frame::section("What exists at the sender", &drift(listing))) }
        (frame::section("Rejected events", &frame::table("Rejected events", &["Time", "Delivery", "Target", "Reason"], rows)))
        @if trial.effect.is_none() { (tried) }
        (frame::section("Document", &texts::listing("Document", &source.document)))
    };
    let renewal = if trial.effect.is_some() { PageRenewal::NEVER } else { PageRenewal::every(15) };
    frame::page(viewer, paths::SOURCES, &format!("Source {}", source.name), renewal, &main)
}

fn try_form(viewer: ConsoleViewer<'_>, name: &str, trial: &SourceTrial<'_>) -> Markup {
    let field = |name: &str, label: &str, rows: u32, text: &str| {
        html! {
            label for={ "try-" (name) } { (label) }
            textarea id={ "try-" (name) } name=(name) rows=(rows) spellcheck="false" { (text) }
        }
    };
    html! {
        @match &trial.effect {
            Some(Ok(effect)) => { (shown_effect(effect)) }
            Some(Err(problem)) => { p.problem role="alert" { (limits::printable(problem)) } }
            None => {}
        }
        p { "Shows the effect that an event would have. Nothing is stored or sent, and no signature is checked." }
        form.trial method="post" action=(paths::source(name)) {
            (frame::form_token(viewer))
            (field("headers", "Headers, one per line: NAME: VALUE", 2, trial.headers))
            (field("payload", "Body, as JSON", 10, trial.payload))
            (field("fetched", "Body of the response to fetch, as JSON, if the source has one", 2, trial.fetched))
            button { "Try" }
        }
    }
}

fn shown_effect(effect: &TrialEffect) -> Markup {
    let TrialEffect { skipped, entry, verdict, reason, target, uid, time, delivery, document } = effect;
    html! {
        p role="status" {
            "Verdict: " strong { (verdict) }
            @if let Some(target) = target { " " (target_link(target)) }
            @if let Some(reason) = reason { ": " (limits::printable(reason)) }
        }
        ul {
            @for (number, reason) in skipped { li { "Entry " (number) " does not hold: " (limits::printable(reason)) } }
            @if let Some(entry) = entry { li { "Entry " (entry) @if *verdict == "rejected" { " fails." } @else { " holds." } } }
        }
        dl {
            @for (name, value) in [("UID", uid), ("Time", time), ("Delivery", delivery)] {
                @if let Some(value) = value { dt { (name) } dd { code { (limits::printable(value)) } } }
            }
        }
        @if let Some(document) = document { (texts::listing("Document of the target", &limits::printable(document))) }
    }
}

fn rejected(RejectedEvent { time, delivery, target, detail, .. }: &RejectedEvent) -> Markup {
    html! {
        td { (texts::time(&rfc3339(*time))) }
        td { (limits::printable(delivery)) }
        td { @if let Some(target) = target { (target_link(target)) } }
        td { (limits::printable(detail)) }
    }
}

/// Returns a link to the target of a text `KIND/NAME`.
pub(crate) fn target_link(target: &str) -> Markup {
    html! {
        @match paths::target_of(target) {
            Some(path) => { a href=(path) { (limits::printable(target)) } }
            None => { (limits::printable(target)) }
        }
    }
}
