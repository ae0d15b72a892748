//! Clusters and their policies.

use std::collections::BTreeSet;

use ebb_protocol::{ClusterDetail, ClusterInfo, ClusterState, Millis, ReportedNamespace, ReportedPolicy, limits};
use maud::{Markup, html};

use crate::{ConsoleViewer, PageRenewal, frame, paths, target_list, texts};

const HEADS: [&str; 8] =
    ["Name", "State", "Problem", "Answers", "Tasks", "Permitted kinds", "Transport", "Version of the relay"];

pub fn clusters(viewer: ConsoleViewer<'_>, clusters: &[ClusterInfo]) -> String {
    let mut sorted: Vec<&ClusterInfo> = clusters.iter().collect();
    sorted.sort_by_key(|info| info.state == Some(ClusterState::Up));
    let rows = sorted.into_iter().map(|info| {
        html! {
            th scope="row" { a href=(paths::cluster(&info.name)) { (info.name) } }
            td data-label="State" { @if let Some(state) = &info.state { (texts::state(state)) } }
            td data-label="Problem" { span.problem { (limits::printable(info.error.as_deref().unwrap_or_default())) } }
            td data-label="Answers" { (answers(info)) }
            td.number data-label="Tasks" { @if let Some(tasks) = info.tasks { (tasks) } }
            td data-label="Kinds" { @if let Some(policy) = &info.policy { (names(&policy.kinds)) } }
            td data-label="Transport" { (texts::word(&info.transport)) }
            td data-label="Relay" { (info.version.as_deref().unwrap_or_default()) }
        }
    });
    let intro = (paths::CLUSTERS, "Clusters", "A cluster runs pods and objects of units, through its relay.");
    let connect = "ebb cluster connect default --image REGISTRY/ebb-relay:0.1.0 --entrypoint-image REGISTRY/ebb-entrypoint:0.1.0 --apply";
    let none = "No cluster is connected. Register one, install its relay, and see its state:";
    let list = (!clusters.is_empty()).then(|| frame::table("Clusters", &HEADS, rows));
    let commands = [connect, "ebb cluster list"];
    frame::list_page(viewer, intro, (none, &commands, "operations/clusters.html"), PageRenewal::NEVER, list.as_ref())
}

/// Returns how long the relay runs, or since when it is silent. The server asks the relay when it makes the page.
fn answers(info: &ClusterInfo) -> Markup {
    html! {
        @match (&info.outage, info.up_seconds) {
            (Some(outage), _) => { "silent since " (texts::time(&outage.since)) }
            (None, Some(seconds)) => { "now, runs for " (Millis(seconds.saturating_mul(1_000))) }
            (None, None) => {}
        }
    }
}

fn names(names: &BTreeSet<String>) -> String {
    limits::printable(&names.iter().map(String::as_str).collect::<Vec<_>>().join(", "))
}

pub fn cluster(viewer: ConsoleViewer<'_>, detail: &ClusterDetail) -> String {
    let info = &detail.info;
    let facts = html! {
        span { "transport " (texts::word(&info.transport)) }
        @if let Some(version) = &info.version { span { "version of the relay " (version) } }
        @if info.outage.is_some() || info.up_seconds.is_some() { span { "answers: " (answers(info)) } }
        @if let Some(tasks) = info.tasks { span { "tasks: " (tasks) } }
        @if let Some(uid) = &info.uid { span { "UID " code { (uid) } } }
    };
    let main = html! {
        (frame::head(&html! { "Cluster " (info.name) " " @if let Some(state) = &info.state { (texts::state(state)) } }, &facts, &html! {}))
        (target_list::outages(info.outage.as_slice()))
        @if let Some(error) = &info.error { p.problem { (limits::printable(error)) } }
        @if let Some(registration) = &detail.registration {
            dl {
                dt { "Registered by" } dd { (registration.created_by) " at " (texts::time(&registration.created)) }
                dt { "Image of the entrypoint" } dd { (registration.entrypoint_image) }
                @if let Some(registered) = &registration.registered { dt { "Relay registered" } dd { (texts::time(registered)) } }
                @if let Some(expires) = &registration.bootstrap_expires { dt { "Bootstrap token expires" } dd { (texts::time(expires)) } }
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
        ("Namespaces of bind", &policy.bind_namespaces),
        ("Runtime classes", &policy.runtime_classes),
        ("Priority classes", &policy.priority_classes),
    ];
    html! {
        section {
            h2 { "Policy" }
            @if let Some(since) = since { p { "The relay does not respond. The policy is that of " (texts::time(since)) "." } }
            p { "The relay refuses everything else." }
            dl {
                @for (label, list) in lists { dt { (label) } dd { @if list.is_empty() { "none" } @else { (names(list)) } } }
                @if let Some(namespace) = &policy.unit_namespace { dt { "Namespace of units" } dd { (limits::printable(namespace)) } }
            }
            h3 { "Namespaces" }
            (frame::table("Namespaces", &["Name", "Level of pods", "Service accounts", "Pull secrets"], namespaces))
        }
    }
}
