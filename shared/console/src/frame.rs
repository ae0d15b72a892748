//! The parts that all pages share: head, navigation and sign-out.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::{assets, paths, texts};

#[derive(Clone, Copy, Debug)]
pub struct ConsoleViewer<'a> {
    /// `token NAME`, `role ROLE` or `ISSUER SUBJECT`.
    pub name: &'a str,
    /// The text that is shown instead of the name.
    pub display: Option<&'a str>,
    /// The name of the server, such as its host.
    pub deployment: &'a str,
    /// The text that proves that a form comes from a page of the session. Each response has another one.
    pub form_token: &'a str,
    /// The paths of the sections that the caller may not read.
    pub hidden: &'a [&'a str],
}

impl ConsoleViewer<'_> {
    fn sections(&self) -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
        SECTIONS.into_iter().filter(|(path, ..)| !self.hidden.contains(path))
    }

    pub fn start_page(&self) -> Option<&'static str> {
        self.sections().next().map(|(path, ..)| path)
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

/// The sections by path, name and lines of their icon.
const SECTIONS: [(&str, &str, &str); 6] = [
    (paths::ROOT, "Overview", "M2 9h3.5l1.5 4 3-10 1.5 6H14"),
    (paths::TARGETS, "Targets", "M2 4.5 8 2l6 2.5L8 7zM2 8l6 2.5L14 8M2 11.5 8 14l6-2.5"),
    (paths::PLUGINS, "Plugins", "M6 2v3M10 2v3M4 5h8v3a4 4 0 0 1-8 0zM8 12v2"),
    (paths::SOURCES, "Sources", "M14 8H6M9 5 6 8l3 3M10 2H2v12h8"),
    (paths::SUBSCRIPTIONS, "Subscriptions", "M4 11V7a4 4 0 0 1 8 0v4l1.5 1h-11zM7 14h2"),
    (paths::CLUSTERS, "Clusters", "M2 3h12v4H2zM2 9h12v4H2zM5 5h0M5 11h0"),
];

/// The icon of the pages. It has no text of others.
const MARK: PreEscaped<&str> = PreEscaped(include_str!("../assets/icon.svg"));

fn brand(deployment: &str) -> Markup {
    html! { a.brand href=(paths::ROOT) { (MARK) b { "Ebb" } @if !deployment.is_empty() { span { (deployment) } } } }
}

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
            (brand(viewer.deployment))
            nav aria-label="Sections" {
                @for (path, name, icon) in viewer.sections() {
                    a href=(path) aria-current=[(path == section).then_some("page")] {
                        svg viewBox="0 0 16 16" aria-hidden="true" { path d=(icon) {} }
                        (name)
                    }
                }
            }
            form.caller method="post" action=(paths::SIGN_OUT) {
                (form_token(viewer))
                span title=[viewer.display.map(|_| viewer.name)] { (viewer.display.unwrap_or(viewer.name)) }
                button { "Sign out" }
            }
        }
        main #main data-renew-seconds=[seconds] data-full-seconds=[full_seconds] data-since=[since] data-stamp=[stamp] { (main) }
        footer { "Times are UTC without JavaScript." }
    };
    document(title, &body)
}

pub(crate) fn form_token(viewer: ConsoleViewer<'_>) -> Markup {
    html! { input type="hidden" name=(FORM_TOKEN) value=(viewer.form_token); }
}

pub(crate) fn bare_page(deployment: &str, title: &str, main: &Markup) -> String {
    document(title, &html! { main #main { (brand(deployment)) (main) } })
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
        @if rows.peek().is_none() { p.none { "There is nothing to show." } } @else {
            div.wide tabindex="0" role="region" aria-label=(label) {
                table { thead { tr { @for head in heads { th scope="col" { (head) } } } } tbody { @for row in rows { tr { (row) } } } }
            }
        }
    }
}

/// Returns the title of a page, with facts as `span` elements below it and actions beside it.
pub(crate) fn head(title: &Markup, facts: &Markup, actions: &Markup) -> Markup {
    html! { div.head { div { h1 { (title) } p.facts { (facts) } } div.actions { (actions) } } }
}

/// Returns what a page shows without entries: what they are, commands that make the first one, and their page of the book.
pub(crate) fn empty(text: &str, commands: &[&str], page: &str) -> Markup {
    html! {
        div.empty {
            p { (text) }
            @for command in commands { p { (texts::copy(command)) } }
            p { "Documentation: " code { "docs/src/" (page.replace(".html", ".md")) } }
        }
    }
}

/// Returns the page of a list with its title and what its entries are, or without a list what [`empty`] shows.
pub(crate) fn list_page(
    viewer: ConsoleViewer<'_>,
    (section, title, what): (&str, &str, &str),
    (none, commands, book): (&str, &[&str], &str),
    renewal: PageRenewal<'_>,
    list: Option<&Markup>,
) -> String {
    let head = head(&html! { (title) }, &html! { span { (what) } }, &html! {});
    let main = html! { (head) @if let Some(list) = list { (list) } @else { (empty(none, commands, book)) } };
    page(viewer, section, title, renewal, &main)
}

pub(crate) fn pages(first: Option<String>, next: Option<String>) -> Markup {
    html! { p.pages { @if let Some(first) = first { a href=(first) { "First page" } } @if let Some(next) = next { a rel="next" href=(next) { "Next page" } } } }
}

pub(crate) fn section(title: &str, content: &Markup) -> Markup {
    html! { section { h2 { (title) } (content) } }
}
