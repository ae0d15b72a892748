//! Clusters and their policies.

use std::collections::BTreeSet;

use ebb_protocol::api::{ClusterDetail, ClusterInfo};
use ebb_protocol::limits;
use ebb_protocol::listing::ReportedPolicy;
use maud::{Markup, html};

use crate::frame::{self, ConsoleViewer, PageRenewal};
use crate::{paths, target_list, texts};

/// Returns the page with all clusters.
pub fn clusters(viewer: ConsoleViewer<'_>, clusters: &[ClusterInfo]) -> String {
    let rows: Vec<Markup> = clusters
        .iter()
        .map(|info| {
            html! {
                th scope="row" { a href=(paths::cluster(&info.name)) { (info.name) } }
                td { (state(info)) }
                td { (texts::word(&info.transport)) }
                td { (info.version.as_deref().unwrap_or_default()) }
                td { @if let Some(tasks) = info.tasks { (tasks) } }
                td { (limits::printable(info.error.as_deref().unwrap_or_default())) }
            }
        })
        .collect();
    let main = html! {
        h1 { "Clusters" }
        (frame::table("Clusters", &["Name", "State", "Transport", "Version of the relay", "Tasks", "Problem"], &rows))
    };
    frame::page(viewer, paths::CLUSTERS, "Clusters", PageRenewal::Never, &main)
}

fn state(info: &ClusterInfo) -> Markup {
    html! { @if let Some(state) = &info.state { (texts::state(state)) } }
}

/// Returns the page of a cluster.
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
            @if let Some(tasks) = info.tasks { dt { "Tasks" } dd { (tasks) } }
            @if let Some(registration) = &detail.registration {
                dt { "Registered by" } dd { (registration.created_by) " at " (texts::time(&registration.created)) }
                dt { "Image of the entrypoint" } dd { (registration.entrypoint_image) }
                @if let Some(expires) = &registration.bootstrap_expires {
                    dt { "Bootstrap token expires" } dd { (texts::time(expires)) }
                }
            }
        }
        @if let Some(known) = &info.policy { (policy(known, info.policy_since.as_ref())) }
    };
    frame::page(viewer, paths::CLUSTERS, &format!("Cluster {}", info.name), PageRenewal::Never, &main)
}

fn policy(policy: &ReportedPolicy, since: Option<&String>) -> Markup {
    let names = |names: &BTreeSet<String>| names.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
    let namespaces: Vec<&str> = policy.namespaces.keys().map(String::as_str).collect();
    html! {
        section {
            h2 { "Policy" }
            @if let Some(since) = since { p { "The relay does not respond. The policy is that of " (texts::time(since)) "." } }
            @if let Some(error) = &policy.error { p.problem { (limits::printable(error)) } }
            dl {
                dt { "Namespaces" } dd { (namespaces.join(", ")) }
                dt { "Kinds" } dd { (names(&policy.kinds)) }
                dt { "Kinds outside of namespaces" } dd { (names(&policy.cluster_kinds)) }
                dt { "Services" } dd { (names(&policy.services)) }
            }
        }
    }
}
