//! The pages of the history of a target.

use ebb_protocol::{HistoryDetail, HistoryEntry, HistoryPage, OpenNotification, limits};
use maud::{Markup, html};

use crate::{ConsoleViewer, PageRenewal, frame, paths, texts};

/// Returns a page of the history of a target, the newest entry first. The first page has an empty token.
pub fn history(viewer: ConsoleViewer<'_>, (kind, name): (&str, &str), page: &HistoryPage, page_token: &str) -> String {
    let rows = page.entries.iter().map(|entry| row((kind, name), entry));
    let heads = ["Time", "Change", "By", "Instance", "Run", "Detail", "Document"];
    let title = format!("History of {kind}/{name}");
    let path = |token| paths::history(kind, name, token);
    let notifications = page.notifications.iter().map(notification);
    let main = html! {
        h1 { "History of " (texts::target(kind, name)) }
        @if !page.notifications.is_empty() {
            h2 { "Notifications that were not accepted" }
            (frame::table("Notifications that were not accepted", &["Time", "Phase", "To", "State", "Reason"], notifications))
        }
        (frame::table(&title, &heads, rows))
        (frame::pages((!page_token.is_empty()).then(|| path(None)), page.next_token.as_deref().map(|next| path(Some(next)))))
    };
    frame::page(viewer, paths::TARGETS, &title, PageRenewal::NEVER, &main)
}

fn row((kind, name): (&str, &str), entry: &HistoryEntry) -> Markup {
    let detail = entry.units.iter().chain(&entry.reason).cloned().collect::<Vec<_>>().join(", ");
    html! {
        td { (texts::time(&entry.time)) }
        th scope="row" { (entry.change.words()) }
        td title=[entry.by_name.as_ref().and(entry.by.as_ref())] {
            (limits::printable(entry.by_name.as_ref().or(entry.by.as_ref()).map_or("", String::as_str)))
        }
        td { code { (entry.uid) } ", generation " (entry.generation) }
        td {
            @if let Some(run) = &entry.run {
                a href=(paths::run((kind, name), &run.id, None)) { (run.hook) } " " (texts::state(&run.state))
                @if let Some(at) = &run.notified { ", platform notified at " (texts::time(at)) }
            }
        }
        td { (limits::printable(&detail)) }
        td { @if entry.document.is_some() { a href=(paths::history_entry(kind, name, &entry.id)) { "document" } } }
    }
}

fn notification(open: &OpenNotification) -> Markup {
    html! {
        td { (texts::time(&open.time)) }
        th scope="row" { (limits::printable(&open.phase)) }
        td { (limits::printable(&open.to)) }
        td { @match (&open.next, open.given_up) { (_, true) => "given up", (Some(next), _) => { "next attempt " (texts::time(next)) } _ => "waits" } }
        td { (limits::printable(open.reason.as_deref().unwrap_or_default())) }
    }
}

pub fn history_entry(viewer: ConsoleViewer<'_>, (kind, name): (&str, &str), found: &HistoryDetail) -> String {
    let entry = &found.entry;
    let title = format!("{}/{}, {}", kind, name, entry.change.words());
    let main = html! {
        h1 { (texts::target(kind, name)) ", " (entry.change.words()) }
        p {
            (texts::time(&entry.time))
            @if let Some(by) = entry.by_name.as_ref().or(entry.by.as_ref()) { " by " (limits::printable(by)) }
            ", generation " (entry.generation) ". "
            a href=(paths::history(kind, name, None)) { "History" }
        }
        @match &found.text {
            Some(text) => {
                (texts::listing("Document", &limits::printable(text)))
                p { "Apply it again: " code { "ebb history " (name) " --kind " (kind) " --document " (entry.id) " --pinned | ebb apply -f -" } }
            }
            None => p.none { "The entry has no stored document." },
        }
    };
    frame::page(viewer, paths::TARGETS, &title, PageRenewal::NEVER, &main)
}
