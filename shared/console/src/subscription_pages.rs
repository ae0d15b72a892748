//! Subscriptions, with the notifications that wait and those that were given up.

use ebb_protocol::{DeliveryError, SubscriptionDetail, SubscriptionInfo, UndeliveredNotification, limits};
use maud::{Markup, html};

use crate::source_pages::target_link;
use crate::{ConsoleViewer, PageRenewal, frame, paths, texts};

pub fn subscriptions(viewer: ConsoleViewer<'_>, subscriptions: &[SubscriptionInfo]) -> String {
    let main = html! { h1 { "Subscriptions" } (list(subscriptions)) };
    frame::page(viewer, paths::SUBSCRIPTIONS, "Subscriptions", PageRenewal::NEVER, &main)
}

pub(crate) fn list<'a>(subscriptions: impl IntoIterator<Item = &'a SubscriptionInfo>) -> Markup {
    let rows = subscriptions.into_iter().map(|info| {
        html! {
            th scope="row" { a href=(paths::subscription(&info.name)) { (info.name) } }
            td { (info.on.join(", ")) }
            td { (info.to) " " (info.origin.as_deref().unwrap_or_default()) }
            td { (waiting(info)) }
            td { (last_error(info)) }
            td { (info.undelivered) }
            td { (problem(info)) }
        }
    });
    let heads = ["Name", "Phases", "Receiver", "Waiting", "Last error", "Given up", "Problem"];
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
    let main = html! {
        h1 { "Subscription " (info.name) }
        dl {
            dt { "Phases" } dd { (info.on.join(", ")) }
            dt { "Receiver" } dd { (info.to) " " (info.origin.as_deref().unwrap_or_default()) }
            @if let Some(connection) = &info.connection { dt { "Connection" } dd { (connection) } }
            dt { "Changed" } dd { (texts::time(&info.changed)) }
            dt { "Waiting" } dd { (waiting(info)) }
        }
        p.problem { (problem(info)) }
        @if info.last_error.is_some() { p.problem { "Last error: " (last_error(info)) } }
        (frame::section("Given up", &frame::table("Given up", &["Time", "Target", "Phase", "Reason"], rows)))
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
