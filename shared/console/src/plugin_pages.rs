//! Plugins and their versions.

use std::collections::BTreeMap;

use ebb_protocol::{PluginDetail, PluginInfo, limits};
use maud::{Markup, html};

use crate::{ConsoleViewer, PageRenewal, frame, paths, texts};

const MAX_DEFAULT: usize = 500;
const MAX_LINES: usize = 10_000;

/// Returns the page with all versions that are not withdrawn.
pub fn plugins(viewer: ConsoleViewer<'_>, plugins: &[PluginInfo]) -> String {
    let rows = plugins.iter().map(|PluginInfo { name, version, dialect, created, .. }| {
        html! {
            th scope="row" { a href=(paths::plugin(name, version)) { (name) "@" (version) } }
            td { (dialect) }
            td { (texts::time(created)) }
        }
    });
    let main = html! { h1 { "Plugins" } (frame::table("Versions", &["Version", "Format", "Published"], rows)) };
    frame::page(viewer, paths::PLUGINS, "Plugins", PageRenewal::NEVER, &main)
}

#[derive(Clone, Debug)]
#[cfg_attr(test, derive(serde::Deserialize), serde(rename_all = "camelCase"))]
pub struct PluginParam {
    pub name: String,
    /// The type, with `sensitive` before that of a sensitive one.
    pub kind: String,
    /// The default as JSON.
    pub default: Option<String>,
    /// True if each document has to set it.
    pub is_required: bool,
    pub description: String,
}

/// A version of a plugin with all others.
#[derive(Clone, Copy, Debug)]
pub struct PluginView<'a> {
    pub detail: &'a PluginDetail,
    pub params: &'a [PluginParam],
    /// All versions, the highest first, also withdrawn ones.
    pub versions: &'a [PluginDetail],
    /// The version that a document without a version gets.
    pub latest: Option<&'a str>,
    /// The number of living targets by version and phase. `None` if the caller may not read targets.
    pub users: Option<&'a BTreeMap<String, BTreeMap<&'static str, usize>>>,
    /// True if more targets use the plugin than were counted.
    pub is_partial: bool,
}

pub fn plugin(viewer: ConsoleViewer<'_>, view: &PluginView<'_>) -> String {
    let PluginDetail { info, withdrawn, document } = view.detail;
    let full = format!("{}@{}", info.name, info.version);
    let params = view.params.iter().map(param);
    let rows = view.versions.iter().map(|row| version(view, row));
    let main = html! {
        h1 { (full) }
        @if let Some(at) = withdrawn { p.problem { "Withdrawn at " (texts::time(at)) ". New targets cannot use it." } }
        dl {
            dt { "Published" } dd { (texts::time(&info.created)) }
            dt { "Format" } dd { (info.dialect) }
            dt { "Digest" } dd { code { (info.digest) } }
            dt { "Used by" } dd {
                a href=(paths::targets(&[("plugin", full.as_str())])) { "targets of this version" } ", "
                a href=(paths::targets(&[("plugin", info.name.as_str())])) { "of any version" }
            }
        }
        (frame::section("Parameters", &frame::table("Parameters", &["Name", "Type", "Default", "Description"], params)))
        section {
            h2 { "Versions" }
            (frame::table("Versions", &["Version", "State", "Published", "Targets"], rows))
            @if view.is_partial { p { "More targets use the plugin than this page counts." } }
            @if view.versions.len() > 1 { (choice(&info.name, view.versions, ("", &info.version))) }
        }
        (frame::section("Document", &texts::listing("Document", document)))
    };
    frame::page(viewer, paths::PLUGINS, &full, PageRenewal::NEVER, &main)
}

fn param(PluginParam { name, kind, default, is_required, description }: &PluginParam) -> Markup {
    html! {
        th scope="row" { code { (limits::printable(name)) } }
        td { (kind) }
        td {
            @match default {
                Some(default) => { code { (limits::excerpt(&limits::printable(default), MAX_DEFAULT)) } }
                None if *is_required => { "required" }
                None => { "optional" }
            }
        }
        td { (limits::printable(description)) }
    }
}

fn version(view: &PluginView<'_>, PluginDetail { info, withdrawn, .. }: &PluginDetail) -> Markup {
    let full = format!("{}@{}", info.name, info.version);
    let users = view.users.map(|users| users.get(&info.version).cloned().unwrap_or_default());
    html! {
        th scope="row" { a href=(paths::plugin(&info.name, &info.version)) { (full) } }
        td {
            @if let Some(at) = withdrawn { "withdrawn at " (texts::time(at)) } @else { "published" }
            @if view.latest == Some(info.version.as_str()) { ", default" }
        }
        td { (texts::time(&info.created)) }
        td {
            @if let Some(users) = users {
                a href=(paths::targets(&[("plugin", full.as_str())])) { (users.values().sum::<usize>()) }
                @for (phase, count) in &users {
                    ", " a href=(paths::targets(&[("plugin", full.as_str()), ("phase", *phase)])) { (count) " " (phase) }
                }
            }
        }
    }
}

/// Returns the form that chooses two versions to compare. Without a first one, it proposes the version below the second.
fn choice(name: &str, versions: &[PluginDetail], (from, to): (&str, &str)) -> Markup {
    let position = versions.iter().position(|row| row.info.version == to);
    let below = position.and_then(|at| versions.get(at + 1).or_else(|| versions.get(at.checked_sub(1)?)));
    let from = if from.is_empty() { below.map_or("", |row| row.info.version.as_str()) } else { from };
    let select = |field: &str, label: &str, chosen: &str| {
        html! {
            div {
                label for={ "compare-" (field) } { (label) }
                select id={ "compare-" (field) } name=(field) {
                    @for row in versions {
                        option value=(row.info.version) selected[row.info.version == chosen] { (row.info.version) }
                    }
                }
            }
        }
    };
    html! {
        form.filters method="get" action=(paths::versions(name)) {
            (select("from", "Compare", from))
            (select("to", "with", to))
            button { "Compare" }
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct PluginComparison<'a> {
    pub name: &'a str,
    pub from: &'a str,
    pub to: &'a str,
    /// All versions, the highest first.
    pub versions: &'a [PluginDetail],
    /// The unified diff of the documents. Empty if they are equal.
    pub diff: &'a str,
}

pub fn plugin_comparison(viewer: ConsoleViewer<'_>, comparison: PluginComparison<'_>) -> String {
    let PluginComparison { name, from, to, versions, diff } = comparison;
    let title = format!("{name}: {from} and {to}");
    let others = diff.lines().count().saturating_sub(MAX_LINES);
    let main = html! {
        h1 {
            (name) ": " a href=(paths::plugin(name, from)) { (from) } " and " a href=(paths::plugin(name, to)) { (to) }
        }
        (choice(name, versions, (from, to)))
        @if from != to { p { a href=(paths::comparison(name, to, from)) { "Swap" } } }
        @if diff.is_empty() {
            p.none { "The documents are equal." }
        } @else {
            pre.listing.difference tabindex="0" role="region" aria-label="Difference" {
                @for line in diff.lines().take(MAX_LINES) { (diff_line(line)) }
            }
        }
        @if others > 0 { p { (others) " more lines: " code { "ebb plugin diff " (name) "@" (from) " " (name) "@" (to) } } }
    };
    frame::page(viewer, paths::PLUGINS, &title, PageRenewal::NEVER, &main)
}

/// Returns a line of a unified diff. Its first character repeats what its colour says.
fn diff_line(line: &str) -> Markup {
    let text = limits::printable(line);
    match line.chars().next() {
        Some('+') => html! { ins { (text) } "\n" },
        Some('-') => html! { del { (text) } "\n" },
        _ => html! { (text) "\n" },
    }
}
