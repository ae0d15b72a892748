//! Plugins and their versions.

use ebb_protocol::api::{PluginDetail, PluginInfo};
use maud::{Markup, html};

use crate::frame::{self, ConsoleViewer, PageRenewal};
use crate::{paths, texts};

/// Returns the page with all versions that are not withdrawn.
pub fn plugins(viewer: ConsoleViewer<'_>, plugins: &[PluginInfo]) -> String {
    let main = html! { h1 { "Plugins" } (versions(plugins)) };
    frame::page(viewer, paths::PLUGINS, "Plugins", PageRenewal::Never, &main)
}

/// Returns the page of a version. `others` are all versions of the plugin that are not withdrawn.
pub fn plugin(viewer: ConsoleViewer<'_>, detail: &PluginDetail, others: &[PluginInfo]) -> String {
    let PluginDetail { info, withdrawn, document } = detail;
    let full = format!("{}@{}", info.name, info.version);
    let main = html! {
        h1 { (full) }
        @if let Some(at) = withdrawn { p.problem { "Withdrawn at " (texts::time(at)) ". New targets cannot use it." } }
        dl {
            dt { "Published" } dd { (texts::time(&info.created)) }
            dt { "Form" } dd { (info.dialect) }
            dt { "Digest" } dd { code { (info.digest) } }
            dt { "Used by" } dd {
                a href=(paths::targets(&[("plugin", full.as_str())])) { "targets of this version" } ", "
                a href=(paths::targets(&[("plugin", info.name.as_str())])) { "of any version" }
            }
        }
        (frame::section("Document", &texts::listing("Document", document)))
        (frame::section("Versions", &versions(others)))
    };
    frame::page(viewer, paths::PLUGINS, &full, PageRenewal::Never, &main)
}

fn versions(plugins: &[PluginInfo]) -> Markup {
    let rows: Vec<Markup> = plugins
        .iter()
        .map(|PluginInfo { name, version, dialect, created, .. }| {
            html! {
                th scope="row" { a href=(paths::plugin(name, version)) { (name) "@" (version) } }
                td { (dialect) }
                td { (texts::time(created)) }
            }
        })
        .collect();
    frame::table("Versions", &["Version", "Form", "Published"], &rows)
}
