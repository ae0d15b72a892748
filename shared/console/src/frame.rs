//! The parts that all pages share: head, navigation and sign-out.

use maud::{DOCTYPE, Markup, html};

use crate::{assets, paths};

#[derive(Clone, Copy, Debug)]
pub struct ConsoleViewer<'a> {
    /// `token NAME`, `role ROLE` or `ISSUER SUBJECT`.
    pub name: &'a str,
    /// The text that is shown instead of the name.
    pub display: Option<&'a str>,
    /// The text that proves that a form comes from a page of the session. Each response has another one.
    pub form_token: &'a str,
    /// The paths of the sections that the caller may not read.
    pub hidden: &'a [&'a str],
}

impl ConsoleViewer<'_> {
    fn sections(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        SECTIONS.into_iter().filter(|(path, _)| !self.hidden.contains(path))
    }

    /// Returns the path of the first section that the caller may read.
    pub fn start_page(&self) -> Option<&'static str> {
        self.sections().next().map(|(path, _)| path)
    }
}

pub const FORM_TOKEN: &str = "form";

/// The renewal of a page by `live.js`. Without `seconds`, the page is not renewed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageRenewal<'a> {
    /// The seconds between two requests.
    pub(crate) seconds: Option<u32>,
    /// The seconds after which the page is rendered without a change. With 0, each request renders it.
    pub(crate) full_seconds: Option<u32>,
    /// The number of the last change that the page shows. It is requested again after a further change of targets.
    pub(crate) since: Option<&'a str>,
    /// The stamp of the page. It is rendered again only if the stamp has changed.
    pub(crate) stamp: Option<&'a str>,
}

impl PageRenewal<'_> {
    pub(crate) const NEVER: Self = Self { seconds: None, full_seconds: None, since: None, stamp: None };

    pub(crate) fn every(seconds: u32) -> Self {
        Self { seconds: Some(seconds), ..Self::NEVER }
    }
}

const SECTIONS: [(&str, &str); 6] = [
    (paths::ROOT, "Targets"),
    (paths::WAITING, "Waiting"),
    (paths::PLUGINS, "Plugins"),
    (paths::SOURCES, "Sources"),
    (paths::SUBSCRIPTIONS, "Subscriptions"),
    (paths::CLUSTERS, "Clusters"),
];

/// Returns a page. `section` is the path of its link in the navigation, and `main` the content below the title.
pub(crate) fn page(
    viewer: ConsoleViewer<'_>,
    section: &str,
    title: &str,
    renewal: PageRenewal<'_>,
    main: &Markup,
) -> String {
    let PageRenewal { seconds, full_seconds, since, stamp } = renewal;
    let body = html! {
        header {
            a.skip href="#main" { "Skip to the content" }
            nav aria-label="Sections" {
                @for (path, name) in viewer.sections() {
                    a href=(path) aria-current=[(path == section).then_some("page")] { (name) }
                }
            }
            form.caller method="post" action=(paths::SIGN_OUT) {
                (form_token(viewer))
                span title=[viewer.display.map(|_| viewer.name)] { (viewer.display.unwrap_or(viewer.name)) }
                button { "Sign out" }
            }
        }
        main #main data-renew-seconds=[seconds] data-full-seconds=[full_seconds] data-since=[since] data-stamp=[stamp] {
            (main)
        }
        footer { "Times are UTC." }
    };
    document(title, &body)
}

pub(crate) fn form_token(viewer: ConsoleViewer<'_>) -> Markup {
    html! { input type="hidden" name=(FORM_TOKEN) value=(viewer.form_token); }
}

/// Returns a page without navigation, for a caller who is not known.
pub(crate) fn bare_page(title: &str, main: &Markup) -> String {
    document(title, &html! { main #main { (main) } })
}

fn document(title: &str, body: &Markup) -> String {
    let [style, script, icon] = assets::all();
    let document = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " · Ebb" }
                link rel="icon" type="image/svg+xml" href=(icon.path);
                link rel="stylesheet" href=(style.path);
                script type="module" src=(script.path) {}
            }
            body { (body) }
        }
    };
    document.into_string()
}

/// Returns a table in a box that scrolls. `label` describes it. Without rows it is one sentence.
pub(crate) fn table(label: &str, heads: &[&str], rows: impl IntoIterator<Item = Markup>) -> Markup {
    let mut rows = rows.into_iter().peekable();
    html! {
        @if rows.peek().is_none() {
            p.none { "There is nothing to show." }
        } @else {
            div.wide tabindex="0" role="region" aria-label=(label) {
                table {
                    thead { tr { @for head in heads { th scope="col" { (head) } } } }
                    tbody { @for row in rows { tr { (row) } } }
                }
            }
        }
    }
}

pub(crate) fn section(title: &str, content: &Markup) -> Markup {
    html! { section { h2 { (title) } (content) } }
}
