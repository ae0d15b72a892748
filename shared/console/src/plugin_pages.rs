//! Plugins: the fleet, and one plugin with its versions, their users and their difference.

use std::cmp::Reverse;

use ebb_protocol::{PluginDetail, PluginInfo, TargetInfo, TargetPhase, TargetSelection, limits};
use maud::{Markup, html};

use crate::{BulkAction, ConsoleViewer, PageRenewal, bulk_pages, frame, paths, target_list, texts};

const MAX_DEFAULT: usize = 500;
const MAX_LINES: usize = 10_000;

/// The first living targets, or those that use one plugin.
#[derive(Clone, Debug, Default)]
pub struct PluginUsers {
    pub targets: Vec<TargetInfo>,
    pub is_partial: bool,
    /// The number of the last change that they have.
    pub since: String,
}

impl PluginUsers {
    /// Returns the living users of other versions of the plugin in a text `NAME@VERSION`.
    pub fn of_others(&self, plugin: &str) -> impl Iterator<Item = &TargetInfo> {
        let name = plugin.split_once('@').map(|(name, _)| name);
        let is_other = move |used: &String| used != plugin && used.split_once('@').map(|(found, _)| found) == name;
        self.targets.iter().filter(move |target| target.phase.is_alive() && target.plugins.iter().any(is_other))
    }
}

fn note(users: Option<&PluginUsers>) -> Markup {
    html! { @if let Some(users) = users.filter(|users| users.is_partial) { p { "Counted in the first " (users.targets.len()) " targets." } } }
}

struct UserGroup<'a>(Vec<&'a TargetInfo>);

impl<'a> UserGroup<'a> {
    fn of(users: Option<&'a PluginUsers>, name: &str, version: Option<&str>) -> Self {
        let is_used = |used: &String| {
            let found = used.split_once('@');
            found.is_some_and(|found| found.0 == name && version.is_none_or(|version| found.1 == version))
        };
        let targets = users.into_iter().flat_map(|users| &users.targets);
        Self(targets.filter(|target| target.plugins.iter().any(is_used)).collect())
    }

    fn in_phase(&self, phase: TargetPhase) -> usize {
        self.0.iter().filter(|target| target.phase == phase).count()
    }

    fn broken(&self) -> usize {
        self.in_phase(TargetPhase::Failed) + self.in_phase(TargetPhase::Stuck)
    }

    /// Returns links to the users in each of these phases. `plugin` is `NAME` or `NAME@VERSION`.
    fn links(&self, plugin: &str, phases: &[TargetPhase]) -> Markup {
        html! {
            @for phase in phases.iter().filter(|phase| self.in_phase(**phase) > 0) {
                a.chip href=(paths::targets(&[("plugin", plugin), ("phase", phase.name())])) { (texts::state(phase)) " " (self.in_phase(*phase)) }
                " "
            }
        }
    }

    fn all(&self, plugin: &str) -> Markup {
        html! { a href=(paths::targets(&[("plugin", plugin)])) { (self.0.len()) } }
    }
}

/// Returns the page with a row for each plugin, that with the most failed and stuck users first. `listed` has the versions that
/// are not withdrawn, the highest one of each plugin first. A caller who may not read targets sees no `users`.
pub fn plugins(
    viewer: ConsoleViewer<'_>,
    listed: &[PluginInfo],
    users: Option<&PluginUsers>,
    may_upgrade: bool,
) -> String {
    let groups = listed.chunk_by(|one, next| one.name == next.name);
    let mut rows: Vec<_> = groups.map(|of| (of, UserGroup::of(users, &of[0].name, None))).collect();
    rows.sort_by_key(|(_, group)| Reverse(group.broken()));
    let rows = rows.iter().map(|(of, group)| {
        let PluginInfo { name, version, created, .. } = &of[0];
        html! {
            th scope="row" { a href=(paths::versions(name)) { (name) } }
            td data-label="Highest" { (version) }
            td.number data-label="Versions" { (of.len()) }
            td data-label="Published" { (texts::time(created)) }
            @if users.is_some() {
                td.number data-label="Users" { (group.all(name)) }
                td data-label="Broken" { (group.links(name, &[TargetPhase::Stuck, TargetPhase::Failed])) }
                td data-label="Upgrade" { @if may_upgrade { (upgrade((name, version), users, paths::PLUGINS)) } }
            }
        }
    });
    let heads = ["Plugin", "Highest version", "Versions", "Published", "Users", "Failed or stuck", "Upgrade"];
    let intro = (paths::PLUGINS, "Plugins", "A plugin makes and removes a resource of a target, such as a database.");
    let none = "No plugin is published. Write one, check it, and publish it:";
    let commands = ["ebb plugin new tenant-db", "ebb validate tenant-db.yaml", "ebb apply -f tenant-db.yaml"];
    let table = frame::table("Plugins", if users.is_some() { &heads } else { &heads[..4] }, rows);
    let list = html! { (table) (note(users)) };
    let list = Some(&list).filter(|_| !listed.is_empty());
    frame::list_page(viewer, intro, (none, &commands, "plugins.html"), renewal(users), list)
}

fn renewal(users: Option<&PluginUsers>) -> PageRenewal<'_> {
    let since = users.map(|users| users.since.as_str());
    PageRenewal { since, seconds: since.and(Some(15)), full_seconds: since.and(Some(600)), stamp: None }
}

#[derive(Clone, Debug)]
#[cfg_attr(test, derive(serde::Deserialize), serde(rename_all = "camelCase"))]
pub struct PluginParam {
    pub name: String,
    /// The type, with `sensitive` before that of a sensitive one.
    pub kind: String,
    pub default: Option<String>,
    /// True if each document has to set it.
    pub is_required: bool,
    pub description: String,
}

#[derive(Clone, Copy, Debug)]
pub struct PluginView<'a> {
    pub detail: &'a PluginDetail,
    pub params: &'a [PluginParam],
    /// All versions, the highest first, also withdrawn ones.
    pub versions: &'a [PluginDetail],
    /// The version that a document without a version gets.
    pub latest: Option<&'a str>,
    pub users: Option<&'a PluginUsers>,
    /// Two versions and the unified diff of their documents, which is empty if they are equal.
    pub comparison: Option<(&'a str, &'a str, &'a str)>,
    pub may_upgrade: bool,
}

pub fn plugin(viewer: ConsoleViewer<'_>, view: &PluginView<'_>) -> String {
    let PluginDetail { info, withdrawn, document } = view.detail;
    let full = format!("{}@{}", info.name, info.version);
    let params = view.params.iter().map(param);
    let rows = view.versions.iter().map(|row| version(view, row));
    let heads = ["Version", "State", "Published", "Users", "Failure rate", "Time to ready, p50"];
    let facts = html! {
        @if view.latest == Some(info.version.as_str()) { span { "default" } }
        span { "published at " (texts::time(&info.created)) }
        span { "format " (info.dialect) }
        span { "digest " code { (info.digest) } }
    };
    let targets = html! { a.button href=(paths::targets(&[("plugin", info.name.as_str())])) { "Targets" } };
    let main = html! {
        (frame::head(&html! { (full) }, &facts, &targets))
        @if let Some(at) = withdrawn { p.problem { "Withdrawn at " (texts::time(at)) ". New targets cannot use it." } }
        @if let Some(comparison) = view.comparison { (difference(view, comparison)) }
        section {
            h2 { "Versions" }
            (frame::table("Versions", if view.users.is_some() { &heads } else { &heads[..3] }, rows))
            (note(view.users))
            @if view.versions.len() > 1 { (choice(view, view.comparison.map_or(("", info.version.as_str()), |(from, to, _)| (from, to)))) }
        }
        (frame::section("Parameters", &frame::table("Parameters", &["Name", "Type", "Default", "Description"], params)))
        (frame::section("Document", &texts::listing("Document", document)))
    };
    frame::page(viewer, paths::PLUGINS, &full, renewal(view.users), &main)
}

fn param(PluginParam { name, kind, default, is_required, description }: &PluginParam) -> Markup {
    html! {
        th scope="row" { code { (limits::printable(name)) } }
        td { (kind) }
        td { @if let Some(default) = default { code { (limits::excerpt(&limits::printable(default), MAX_DEFAULT)) } } @else if *is_required { "required" } @else { "optional" } }
        td { (limits::printable(description)) }
    }
}

fn version(view: &PluginView<'_>, PluginDetail { info, withdrawn, .. }: &PluginDetail) -> Markup {
    let full = format!("{}@{}", info.name, info.version);
    let group = UserGroup::of(view.users, &info.name, Some(&info.version));
    html! {
        th scope="row" { a href=(paths::plugin(&info.name, &info.version)) { (full) } }
        td data-label="State" {
            @if let Some(at) = withdrawn { "withdrawn at " (texts::time(at)) } @else { "published" }
            @if view.latest == Some(info.version.as_str()) { ", default" }
        }
        td data-label="Published" { (texts::time(&info.created)) }
        @if view.users.is_some() {
            td data-label="Users" { (group.all(&full)) " " (group.links(&full, &TargetPhase::ALL)) }
            td.number data-label="Failures" { @if let Some(rate) = (100 * group.broken() + group.0.len() / 2).checked_div(group.0.len()) { (rate) " %" } }
            td.number data-label="Ready after" { @if let Some(time) = target_list::percentile(&target_list::times_to_ready(&group.0), 50) { (time) } }
        }
    }
}

/// Returns the form that chooses two versions to compare. Without a first one, it proposes the version below the second.
fn choice(view: &PluginView<'_>, (from, to): (&str, &str)) -> Markup {
    let versions = view.versions;
    let position = versions.iter().position(|row| row.info.version == to);
    let below = position.and_then(|at| versions.get(at + 1)).or(versions.first());
    let from = if from.is_empty() { below.map_or("", |row| row.info.version.as_str()) } else { from };
    html! {
        form.filters method="get" action=(paths::versions(&view.detail.info.name)) {
            @for (field, label, chosen) in [("from", "Compare", from), ("to", "with", to)] {
                div {
                    label for={ "compare-" (field) } { (label) }
                    select id={ "compare-" (field) } name=(field) { @for PluginDetail { info, .. } in versions { option value=(info.version) selected[info.version == chosen] { (info.version) } } }
                }
            }
            button { "Compare" }
        }
    }
}

fn difference(view: &PluginView<'_>, (from, to, diff): (&str, &str, &str)) -> Markup {
    let name = &view.detail.info.name;
    let others = diff.lines().count().saturating_sub(MAX_LINES);
    html! {
        section {
            h2 { "Difference of " a href=(paths::plugin(name, from)) { (from) } " and " a href=(paths::plugin(name, to)) { (to) } }
            @if from != to { p { a href=(paths::comparison(name, to, from)) { "Swap" } } }
            @if diff.is_empty() { p.none { "The documents are equal." } } @else {
                pre.listing.difference tabindex="0" role="region" aria-label="Difference" {
                    @for line in diff.lines().take(MAX_LINES) {
                        // The first character repeats what the colour says.
                        @let text = limits::printable(line);
                        @if line.starts_with('+') { ins { (text) } } @else if line.starts_with('-') { del { (text) } } @else { (text) } "\n"
                    }
                }
            }
            @if others > 0 { p { (others) " more lines: " (texts::copy(&format!("ebb plugin diff {name}@{from} {name}@{to}"))) } }
            @if view.may_upgrade && view.versions.iter().any(|row| row.info.version == to && row.withdrawn.is_none()) {
                p.selection {
                    (upgrade((name, to), view.users, &paths::comparison(name, from, to)))
                    span { "In batches: " (texts::copy(&format!("ebb plugin upgrade {name}@{to} --batch 5 --max-failures 2"))) }
                }
            }
        }
    }
}

/// Returns the button that leads to the confirmation of an upgrade of the users of all other versions.
fn upgrade((name, to): (&str, &str), users: Option<&PluginUsers>, back: &str) -> Markup {
    let full = format!("{name}@{to}");
    let count = users.map_or(0, |users| users.of_others(&full).count());
    let is_all = count <= TargetSelection::MAX_TARGETS && users.is_some_and(|users| !users.is_partial);
    let action = BulkAction::Upgrade(&full).field();
    let path = paths::with(paths::SELECTION, &[(bulk_pages::ACTION, &action), (bulk_pages::BACK, back)]);
    html! {
        @if count > 0 {
            a.button href=(path) { "Upgrade " @if is_all { "all " } @else { "the first " } (count.min(TargetSelection::MAX_TARGETS)) " to " (to) }
        }
    }
}
