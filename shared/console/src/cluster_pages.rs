//! Clusters and their policies.

use std::collections::BTreeSet;

use ebb_protocol::{ClusterDetail, ClusterInfo, ReportedNamespace, ReportedPolicy, limits};
use maud::{Markup, html};

use crate::{ConsoleViewer, PageRenewal, frame, paths, target_list, texts};

const HEADS: [&str; 8] =
    ["Name", "State", "Transport", "Version of the relay", "Answers", "Tasks", "Permitted kinds", "Problem"];

pub fn clusters(viewer: ConsoleViewer<'_>, clusters: &[ClusterInfo]) -> String {
    let rows = clusters.iter().map(|info| {
        html! {
            th scope="row" { a href=(paths::cluster(&info.name)) { (info.name) } }
            td { (state(info)) }
            td { (texts::word(&info.transport)) }
            td { (info.version.as_deref().unwrap_or_default()) }
            td { (answers(info)) }
            td { @if let Some(tasks) = info.tasks { (tasks) } }
            td { @if let Some(policy) = &info.policy { (names(&policy.kinds)) } }
            td { (limits::printable(info.error.as_deref().unwrap_or_default())) }
        }
    });
    let main = html! { h1 { "Clusters" } (frame::table("Clusters", &HEADS, rows)) };
    frame::page(viewer, paths::CLUSTERS, "Clusters", PageRenewal::NEVER, &main)
}

fn state(info: &ClusterInfo) -> Markup {
    html! { @if let Some(state) = &info.state { (texts::state(state)) } }
}

/// Returns how long the relay runs, or since when it is silent. The server asks the relay when it makes the page.
fn answers(info: &ClusterInfo) -> Markup {
    html! {
        @match (&info.outage, info.up_seconds) {
            (Some(outage), _) => { "silent since " (texts::time(&outage.since)) }
            (None, Some(seconds)) => { "now, runs for " (length(seconds)) }
            (None, None) => {}
        }
    }
}

/// Returns a length of time in its two largest units.
fn length(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min {} s", seconds % 60),
        (0, ..) => format!("{hours} h {} min", minutes % 60),
        _ => format!("{days} d {} h", hours % 24),
    }
}

fn names(names: &BTreeSet<String>) -> String {
    limits::printable(&names.iter().map(String::as_str).collect::<Vec<_>>().join(", "))
}

pub fn cluster(viewer: ConsoleViewer<'_>, detail: &ClusterDetail) -> String {
    let info = &detail.info;
    let main = html! {
        h1 { "Cluster " (info.name) " " (state(info)) }
        (target_list::outages(info.outage.as_slice()))
        @if let Some(error) = &info.error { p.problem { (limits::printable(error)) } }
        dl {
            dt { "Transport" } dd { (texts::word(&info.transport)) }
            @if let Some(uid) = &info.uid { dt { "UID" } dd { code { (uid) } } }
            @if let Some(version) = &info.version { dt { "Version of the relay" } dd { (version) } }
            dt { "Answers" } dd { (answers(info)) }
            @if let Some(tasks) = info.tasks { dt { "Tasks" } dd { (tasks) } }
            @if let Some(registration) = &detail.registration {
                dt { "Registered by" } dd { (registration.created_by) " at " (texts::time(&registration.created)) }
                dt { "Image of the entrypoint" } dd { (registration.entrypoint_image) }
                @if let Some(registered) = &registration.registered {
                    dt { "Relay registered" } dd { (texts::time(registered)) }
                }
                @if let Some(expires) = &registration.bootstrap_expires {
                    dt { "Bootstrap token expires" } dd { (texts::time(expires)) }
                }
            }
        }
        @if let Some(known) = &info.policy { (policy(known, info.policy_since.as_ref())) }
    };
    frame::page(viewer, paths::CLUSTERS, &format!("Cluster {}", info.name), PageRenewal::NEVER, &main)
}

fn policy(policy: &ReportedPolicy, since: Option<&String>) -> Markup {
    let namespaces =
        policy.namespaces.iter().map(|(name, ReportedNamespace { level, service_accounts, image_pull_secrets })| {
            html! {
                th scope="row" { (limits::printable(name)) }
                td { (limits::printable(level)) }
                td { (names(service_accounts)) }
                td { (names(image_pull_secrets)) }
            }
        });
    let lists = [
        ("Permitted kinds", &policy.kinds),
        ("Permitted kinds outside of namespaces", &policy.cluster_kinds),
        ("Services", &policy.services),
        ("Namespaces of `bind`", &policy.bind_namespaces),
        ("Runtime classes", &policy.runtime_classes),
        ("Priority classes", &policy.priority_classes),
    ];
    html! {
        section {
            h2 { "Policy" }
            @if let Some(since) = since { p { "The relay does not respond. The policy is that of " (texts::time(since)) "." } }
            @if let Some(error) = &policy.error { p.problem { (limits::printable(error)) } }
            p { "The relay refuses everything else." }
            dl {
                @for (label, list) in lists { dt { (label) } dd { @if list.is_empty() { "none" } @else { (names(list)) } } }
                @if let Some(namespace) = &policy.unit_namespace {
                    dt { "Namespace of units" } dd { (limits::printable(namespace)) }
                }
            }
            h3 { "Namespaces" }
            (frame::table("Namespaces", &["Name", "Level of pods", "Service accounts", "Pull secrets"], namespaces))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_have_two_units() {
        let lengths = [59, 61, 3_725, 90_061].map(length);
        assert_eq!(lengths, ["59 s", "1 min 1 s", "1 h 2 min", "1 d 1 h"]);
    }
}
