//! Sources and the events that they have rejected.

use ebb_protocol::api::{RejectedEvent, SourceDetail, SourceInfo};
use ebb_protocol::limits;
use maud::{Markup, html};

use crate::frame::{self, ConsoleViewer, PageRenewal};
use crate::{paths, texts};

/// Returns the page with all sources.
pub fn sources(viewer: ConsoleViewer<'_>, sources: &[SourceInfo]) -> String {
    let main = html! { h1 { "Sources" } (list(sources)) };
    frame::page(viewer, paths::SOURCES, "Sources", PageRenewal::Never, &main)
}

/// Returns a table of sources with their rejected events.
pub(crate) fn list(sources: &[SourceInfo]) -> Markup {
    let rows: Vec<Markup> = sources
        .iter()
        .map(|SourceInfo { name, changed, rejected }| {
            html! {
                th scope="row" { a href=(paths::source(name)) { (name) } }
                td { (texts::time(changed)) }
                td {
                    @if let Some(rejected) = rejected {
                        (rejected.count) " since " (texts::time(&rejected.since)) ": " (limits::printable(&rejected.last.detail))
                    }
                }
            }
        })
        .collect();
    frame::table("Sources", &["Name", "Changed", "Rejected events"], &rows)
}

/// Returns the page of a source.
pub fn source(viewer: ConsoleViewer<'_>, source: &SourceDetail) -> String {
    let rows: Vec<Markup> = source.rejected.iter().map(rejected).collect();
    let main = html! {
        h1 { "Source " (source.name) }
        dl {
            dt { "Changed" } dd { (texts::time(&source.changed)) }
            dt { "Path of its sender" } dd { code { (source.path) } }
        }
        (frame::section("Rejected events", &frame::table("Rejected events", &["Time", "Delivery", "Target", "Reason"], &rows)))
        (frame::section("Document", &texts::listing("Document", &source.document)))
    };
    frame::page(viewer, paths::SOURCES, &format!("Source {}", source.name), PageRenewal::Every(15), &main)
}

fn rejected(RejectedEvent { time, delivery, target, detail, .. }: &RejectedEvent) -> Markup {
    html! {
        td { (texts::time(time)) }
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
