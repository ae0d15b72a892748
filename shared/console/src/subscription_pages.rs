//! Subscriptions, with the notifications that wait and those that were given up.

use std::cmp::Reverse;

use ebb_protocol::{DeliveryError, SubscriptionDetail, SubscriptionInfo, UndeliveredNotification, limits};
use maud::{Markup, html};

use crate::source_pages::target_link;
use crate::{ConsoleViewer, PageRenewal, frame, paths, texts};

pub fn subscriptions(viewer: ConsoleViewer<'_>, subscriptions: &[SubscriptionInfo]) -> String {
    let mut sorted: Vec<&SubscriptionInfo> = subscriptions.iter().collect();
    let trouble = |info: &SubscriptionInfo| (info.unreadable.is_some() || info.problem.is_some(), info.undelivered);
    sorted.sort_by_key(|info| Reverse((trouble(info), info.last_error.is_some(), info.waiting)));
    let intro = (paths::SUBSCRIPTIONS, "Subscriptions", "A subscription reports phases of targets to another system.");
    let none = "No subscription is stored. Print one, and store it:";
    let commands = ["ebb subscription new failures --to slack > failures.yaml", "ebb apply -f failures.yaml"];
    let list = (!subscriptions.is_empty()).then(|| list(sorted));
    frame::list_page(viewer, intro, (none, &commands, "subscriptions.html"), PageRenewal::NEVER, list.as_ref())
}

pub(crate) fn list<'a>(subscriptions: impl IntoIterator<Item = &'a SubscriptionInfo>) -> Markup {
    let rows = subscriptions.into_iter().map(|info| {
        html! {
            th scope="row" { a href=(paths::subscription(&info.name)) { (info.name) } }
            td data-label="Problem" { span.problem { (problem(info)) } }
            td.number data-label="Given up" { (info.undelivered) }
            td data-label="Waiting" { (waiting(info)) }
            td data-label="Last error" { (last_error(info)) }
            td data-label="Phases" { (info.on.join(", ")) }
            td data-label="Receiver" { (info.to) " " (info.origin.as_deref().unwrap_or_default()) }
        }
    });
    let heads = ["Name", "Problem", "Given up", "Waiting", "Last error", "Phases", "Receiver"];
    frame::table("Subscriptions", &heads, rows)
}

fn waiting(info: &SubscriptionInfo) -> Markup {
    html! {
        @if info.waiting_incomplete { "at least " }
        (info.waiting)
        @if let Some(oldest) = &info.oldest { ", the oldest since " (texts::time(oldest)) }
    }
}

fn last_error(info: &SubscriptionInfo) -> Markup {
    html! {
        @if let Some(DeliveryError { target, at, reason, next }) = &info.last_error {
            (texts::time(at)) ", " (target_link(target)) ": " (limits::printable(reason)) "; the next attempt is "
            (texts::time(next))
        }
    }
}

fn problem(info: &SubscriptionInfo) -> Markup {
    let problem = info.unreadable.as_deref().or(info.problem.as_deref()).unwrap_or_default();
    html! { (limits::printable(problem)) }
}

pub fn subscription(viewer: ConsoleViewer<'_>, detail: &SubscriptionDetail) -> String {
    let info = &detail.info;
    let rows = detail.failures.iter().map(undelivered);
    let facts = html! {
        span { (info.to) " " (info.origin.as_deref().unwrap_or_default()) }
        span { (info.on.join(", ")) }
        @if let Some(connection) = &info.connection { span { "connection " (connection) } }
        span { "changed at " (texts::time(&info.changed)) }
        span { "waiting: " (waiting(info)) }
    };
    let main = html! {
        (frame::head(&html! { "Subscription " (info.name) }, &facts, &html! {}))
        p.problem { (problem(info)) }
        @if info.last_error.is_some() { p.problem { "Last error: " (last_error(info)) } }
        section {
            h2 { "Given up" }
            (frame::table("Given up", &["Time", "Target", "Phase", "Reason"], rows))
            @if !detail.failures.is_empty() { p { "Send them again: " (texts::copy(&format!("ebb subscription retry {}", info.name))) } }
        }
        (frame::section("Document", &texts::listing("Document", &detail.document)))
    };
    frame::page(viewer, paths::SUBSCRIPTIONS, &format!("Subscription {}", info.name), PageRenewal::every(15), &main)
}

fn undelivered(UndeliveredNotification { target, phase, at, reason }: &UndeliveredNotification) -> Markup {
    html! {
        td { (texts::time(at)) }
        td { (target_link(target)) }
        td { (phase) }
        td { (limits::printable(reason)) }
    }
}
