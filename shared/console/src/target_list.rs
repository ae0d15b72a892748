//! The list of targets: the worst first, equal failures as one group, with a search box and counts by phase.

use std::collections::{BTreeMap, BTreeSet};

use ebb_protocol::{
    Millis, RelayOutage, TargetInfo, TargetPage, TargetPhase, TargetSelection, limits, parse_rfc3339, words,
};
use maud::{Markup, html};

use crate::target_filter::{TargetListFilter, word};
use crate::{BulkAction, ConsoleViewer, PageRenewal, bulk_pages, frame, paths, texts};

/// The columns, each with its name in the parameter `sort`. Without one, the worst is the first.
const COLUMNS: [(&str, Option<&str>); 7] = [
    ("Name", Some("name")),
    ("State", Some("")),
    ("Age", Some("age")),
    ("PR or branch", Some("change")),
    ("Owner", Some("owner")),
    ("Cause", Some("cause")),
    ("Plugins", None),
];
/// Maximum words that complete the text of the search box.
const MAX_WORDS: usize = 200;
/// The labels that name a change, each with the sign before its number.
const CHANGES: [(&str, &str); 4] = [("pull-request", "#"), ("merge-request", "!"), ("branch", ""), ("environment", "")];
const REPOSITORIES: [&str; 2] = ["repository", "project"];
const AUTHORS: [&str; 2] = ["author", "owner"];
const LABEL: usize = 100;
const MAX: usize = TargetSelection::MAX_TARGETS;
/// The number of equal failures that are one group.
const GROUPED: usize = 3;
/// The value of the parameter `select` of a list whose rows are all selected.
const SELECT_ALL: &str = "all";

#[derive(Clone, Debug)]
pub struct TargetListView<'a> {
    pub filter: &'a TargetListFilter,
    /// The first targets that pass the filter without its phase.
    pub counted: &'a [TargetPage],
    /// True if further targets exist that were not counted.
    pub is_partial: bool,
    /// The targets of this page. Those of other phases are left out.
    pub shown: &'a [TargetPage],
    /// The parameter `select` of the page. `None` if the caller may change no target.
    pub selection: Option<&'a str>,
    /// The token of the page. The first page has an empty one.
    pub page_token: &'a str,
    /// The number of the last change that the list has.
    pub since: &'a str,
}

pub fn targets(viewer: ConsoleViewer<'_>, view: &TargetListView<'_>) -> String {
    let (filter, state) = (view.filter, view.filter.state());
    let mut rows: Vec<&TargetInfo> = view.shown.iter().flat_map(|page| &page.targets).collect();
    rows.retain(|target| state.is_none_or(|phase| target.phase == phase));
    sort(&mut rows);
    sort_by(&mut rows, &filter.sort);
    let count = rows.len();
    // Without rows there is nothing to select. A target that is gone has no action.
    let selection = view.selection.filter(|_| count > 0 && state != Some(TargetPhase::Gone));
    let all_selected = selection.map(|select| select == SELECT_ALL && count <= MAX);
    let mut groups = if filter.sort.is_empty() { causes(&rows) } else { BTreeMap::new() };
    groups.retain(|_, alike| alike.len() >= GROUPED);
    rows.retain(|target| cause_key(target).is_none_or(|key| !groups.contains_key(&key)));
    let next_token = view.shown.last().and_then(|page| page.next_token.as_deref());
    let list = html! {
        @for (number, ((_, cause), alike)) in groups.iter().enumerate() {
            section {
                details id={ "group-" (number) } {
                    summary { (texts::state(&alike[0].phase)) " " (alike.len()) " targets: " (limits::printable(cause)) }
                    (table(filter, &format!("Group {}", number + 1), alike, all_selected))
                }
                @if all_selected.is_some() {
                    @for one in alike.iter().take(MAX) { input type="hidden" name={ "group-" (number) } value=(bulk_pages::value(&one.kind, &one.name, &one.uid)); }
                    p { button name="group" value=(number) { "Retry " @if alike.len() > MAX { (MAX) " of" } @else { "all" } " " (alike.len()) } }
                }
            }
        }
        @if !rows.is_empty() { (table(filter, "Targets", &rows, all_selected)) }
    };
    let main = html! {
        h1 { "Targets" }
        (outages(view.shown.first().map_or(&[][..], |page| &page.outages[..])))
        @for reason in view.shown.iter().flat_map(|page| &page.damaged) { p.problem { "A target cannot be read: " (reason) } }
        (search(filter, view.counted))
        (counts(view))
        @if count == 0 { p.none { "There is nothing to show." } }
        @if let Some(all_selected) = all_selected {
            form method="post" action=(paths::SELECTION) {
                (frame::form_token(viewer))
                input type="hidden" name=(bulk_pages::BACK) value=(filter.page(view.page_token, ""));
                // The first button is that of the key Enter.
                p.selection {
                    @for action in BulkAction::ALL { button id={ "selected-" (action.field()) } name=(bulk_pages::ACTION) value=(action.field()) { (action.label("")) " selected" } }
                    @if all_selected { a href=(filter.page(view.page_token, "")) { "Select none" } }
                    @else if count <= MAX { a href=(filter.page(view.page_token, SELECT_ALL)) { "Select all shown" } }
                }
                (list)
            }
        } @else { (list) }
        @if next_token.is_some() || !view.page_token.is_empty() {
            p.note { "Pages follow the names of targets. Only the " (count) " targets of this page are in the order of the list." }
        }
        (frame::pages((!view.page_token.is_empty()).then(|| filter.page("", "")), next_token.map(|next| filter.page(next, ""))))
    };
    let renewal = match all_selected {
        // A renewal would select targets that the caller has not seen.
        Some(true) => PageRenewal::NEVER,
        _ => PageRenewal { since: Some(view.since), seconds: Some(5), full_seconds: Some(600), stamp: None },
    };
    frame::page(viewer, paths::TARGETS, "Targets", renewal, &main)
}

/// Returns the place of a phase in the list: stuck, failed, updating, starting, stopping, ready, gone.
pub(crate) fn rank(phase: TargetPhase) -> usize {
    [3, 5, 2, 1, 4, 0, 6][phase as usize]
}

/// Orders targets: the worst is the first, and in a phase the newest change.
pub(crate) fn sort(targets: &mut [&TargetInfo]) {
    targets.sort_by(|one, other| (rank(one.phase), &other.since).cmp(&(rank(other.phase), &one.since)));
}

/// Orders targets by a column. Those without a value come last, and first in the reverse order.
fn sort_by(targets: &mut [&TargetInfo], column: &str) {
    let name = |target: &TargetInfo| (target.kind.clone(), target.name.clone());
    match column.trim_start_matches('-') {
        "name" => targets.sort_by_cached_key(|target| name(target)),
        "age" => targets.sort_by(|one, other| other.created.cmp(&one.created)),
        "change" => targets.sort_by_cached_key(|target| {
            let (_, value) = change_label(target).unzip();
            (value.is_none(), value.and_then(|value| value.parse::<u64>().ok()), value.cloned())
        }),
        "owner" => targets.sort_by_cached_key(|target| {
            let owner = label(target, &AUTHORS).unwrap_or_else(|| target.shown_owner()).to_owned();
            (owner.is_empty(), owner)
        }),
        "cause" => targets.sort_by_cached_key(|target| (target.first_cause.is_none(), target.first_cause.clone())),
        _ => {}
    }
    if column.starts_with('-') {
        targets.reverse();
    }
}

fn cause_key(target: &TargetInfo) -> Option<(usize, &str)> {
    Some((rank(target.phase), target.first_cause.as_deref()?))
}

pub(crate) fn causes<'a>(targets: &[&'a TargetInfo]) -> BTreeMap<(usize, &'a str), Vec<&'a TargetInfo>> {
    let mut causes = BTreeMap::<_, Vec<&TargetInfo>>::new();
    for target in targets {
        if let Some(key) = cause_key(target) {
            causes.entry(key).or_default().push(target);
        }
    }
    causes
}

pub(crate) fn phases(pages: &[TargetPage]) -> [(TargetPhase, usize); 7] {
    let targets = |phase| pages.iter().flat_map(|page| &page.targets).filter(move |target| target.phase == phase);
    let mut phases = TargetPhase::ALL.map(|phase| (phase, targets(phase).count()));
    phases.sort_by_key(|(phase, _)| rank(*phase));
    phases
}

/// Returns the search box with the words that occur in `pages`. `live.js` completes the last word by them.
pub(crate) fn search(filter: &TargetListFilter, pages: &[TargetPage]) -> Markup {
    let words = filter.words();
    let mut known: BTreeSet<String> = TargetPhase::ALL.map(|phase| word("phase", ':', phase.name())).into();
    for target in pages.iter().flat_map(|page| &page.targets) {
        known.extend(target.owner.iter().map(|owner| word("owner", ':', owner)));
        known.extend(target.plugins.iter().map(|plugin| word("plugin", ':', plugin)));
        known.extend(target.labels.iter().map(|(name, value)| word(name, '=', &value.replace(',', "\\,"))));
    }
    html! {
        form.filters method="get" action=(paths::TARGETS) role="search" {
            input #search type="search" name="q" value=(words.join(" ")) list="words" autocomplete="off" aria-label="Search" placeholder="phase:failed team=maps owner:me plugin:db text";
            datalist #words { @for word in known.iter().take(MAX_WORDS) { option value=(limits::printable(word)) {} } }
            @if !filter.sort.is_empty() { input type="hidden" name="sort" value=(filter.sort); }
            button { "Search" }
        }
        @if !words.is_empty() {
            ul.chips aria-label="Filters" {
                @for (position, word) in words.iter().enumerate() {
                    @let others = [&words[..position], &words[position + 1..]].concat().join(" ");
                    li { a.chip href=(paths::targets(&[("q", &others)])) title="Remove this filter" { (limits::printable(word)) " ×" } }
                }
                li { a href=(paths::TARGETS) { "Reset" } }
            }
        }
    }
}

/// Returns the times from the request to `ready`, the shortest first, of targets that are ready since their first run.
pub(crate) fn times_to_ready(targets: &[&TargetInfo]) -> Vec<Millis> {
    let first = targets.iter().filter(|target| target.phase == TargetPhase::Ready && target.generation == 1);
    let time = |target: &&TargetInfo| Some(parse_rfc3339(&target.since)?.since(parse_rfc3339(&target.created)?));
    let mut times: Vec<Millis> = first.filter_map(time).collect();
    times.sort_unstable();
    times
}

/// Returns the shortest time that so many percent of the times do not exceed.
pub(crate) fn percentile(times: &[Millis], percent: usize) -> Option<Millis> {
    times.get((times.len() * percent).div_ceil(100).saturating_sub(1)).copied()
}

/// Returns a link for each phase. Targets that were not counted may have a phase without a counted one.
fn counts(view: &TargetListView<'_>) -> Markup {
    let (filter, state) = (view.filter, view.filter.state());
    let of = |phase: &str| TargetListFilter { phase: phase.to_owned(), ..filter.clone() }.page("", "");
    let may_have =
        |phase: TargetPhase| view.is_partial && (phase == TargetPhase::Gone) == (state == Some(TargetPhase::Gone));
    let counted: usize = view.counted.iter().map(|page| page.targets.len()).sum();
    html! {
        ul.counts aria-label="Targets by phase" {
            @for (phase, count) in phases(view.counted).into_iter().filter(|(phase, count)| *count > 0 || may_have(*phase)) {
                li { a href=(of(phase.name())) aria-current=[(state == Some(phase)).then_some("true")] { (texts::state(&phase)) " " (count) @if view.is_partial { "+" } } }
            }
            @if state != Some(TargetPhase::Gone) {
                li { a.chip href=(TargetListFilter { owner: "me".to_owned(), ..filter.clone() }.page("", "")) { "mine" } }
                li { a.chip href=(of("gone")) { "gone" } }
            }
            @if view.is_partial { li { "counted in the first " (counted) " targets" } }
        }
    }
}

pub(crate) fn outages(outages: &[RelayOutage]) -> Markup {
    html! {
        @for outage in outages {
            p.problem { "Cluster " a href=(paths::cluster(&outage.cluster)) { (outage.cluster) } " " (texts::timed(&words::silence(outage))) }
        }
    }
}

/// Returns the head of a column, which orders the list by it, or in the reverse if it does already.
fn column(filter: &TargetListFilter, title: &str, sort: Option<&str>) -> Markup {
    let current = sort.filter(|sort| filter.sort.trim_start_matches('-') == *sort);
    let is_reverse = filter.sort.starts_with('-');
    let order = current.map(|_| if is_reverse { "descending" } else { "ascending" });
    let path = |sort: &str| {
        let sort = if current.is_some() && !is_reverse { format!("-{sort}") } else { sort.to_owned() };
        TargetListFilter { sort, ..filter.clone() }.page("", "")
    };
    html! { th scope="col" aria-sort=[order] { @if let Some(sort) = sort { a href=(path(sort)) { (title) } } @else { (title) } } }
}

/// Returns a table of targets. Without `all_selected`, its rows cannot be selected.
fn table(filter: &TargetListFilter, label: &str, targets: &[&TargetInfo], all_selected: Option<bool>) -> Markup {
    html! {
        div.wide tabindex="0" role="region" aria-label=(label) {
            table {
                thead { tr { @if all_selected.is_some() { th scope="col" { "Select" } } @for (title, sort) in COLUMNS { (column(filter, title, sort)) } } }
                tbody { @for target in targets {
                    @let (kind, name) = (&target.kind, &target.name);
                    tr {
                        @if let Some(is_selected) = all_selected {
                            td { input type="checkbox" name=(bulk_pages::TARGET) value=(bulk_pages::value(kind, name, &target.uid)) checked[is_selected] aria-label={ (kind) "/" (name) }; }
                        }
                        th scope="row" { (texts::target(kind, name)) }
                        td data-label="State" { (texts::state(&target.phase)) (notes(target)) }
                        td data-label="Age" { (texts::time(&target.created)) }
                        td data-label="PR or branch" { (change(target)) }
                        td data-label="Owner" { (owner(target)) }
                        td data-label="Cause" { (limits::printable(target.first_cause.as_deref().or(target.waits_for.as_deref()).unwrap_or_default())) }
                        td data-label="Plugins" { @for version in &target.plugins { a href=(paths::plugin_of(version)) { (version) } " " } }
                    }
                } }
            }
        }
    }
}

fn label<'a>(target: &'a TargetInfo, names: &[&str]) -> Option<&'a str> {
    names.iter().find_map(|name| target.labels.get(*name)).map(String::as_str)
}

fn shown(label: &str) -> String {
    limits::excerpt(&limits::printable(label), LABEL)
}

/// Returns the label that names the change of a target, with the sign before its number.
fn change_label(target: &TargetInfo) -> Option<(&'static str, &String)> {
    CHANGES.iter().find_map(|(name, sign)| Some((*sign, target.labels.get(*name)?)))
}

/// Returns the change of a target: its number as a link if a label has the page of it, its branch, and its repository.
pub(crate) fn change(target: &TargetInfo) -> Markup {
    let page = label(target, &["link"]).filter(|page| texts::is_web(page));
    html! {
        @if let Some((sign, value)) = change_label(target) {
            span {
                @if let Some(page) = page { a.external href=(page) target="_blank" rel="noreferrer noopener" { (sign) (shown(value)) } }
                @else { @if !value.contains("://") { (sign) } (texts::link(&shown(value))) }
            }
            @if !sign.is_empty() && let Some(branch) = label(target, &["branch"]) { " " (shown(branch)) }
            @if let Some(repository) = label(target, &REPOSITORIES) { " " span.kind { (shown(repository)) } }
        }
    }
}

pub(crate) fn owner(target: &TargetInfo) -> Markup {
    let owner = limits::printable(target.shown_owner());
    html! { @if let Some(author) = label(target, &AUTHORS) { (shown(author)) div.kind { (owner) } } @else { (owner) } }
}

pub(crate) fn labels(target: &TargetInfo) -> Markup {
    html! { @for (name, value) in &target.labels { div { (limits::printable(name)) "=" (limits::printable(value)) } } }
}

pub(crate) fn notes(target: &TargetInfo) -> Markup {
    html! { @for note in words::target_notes(target) { " " (note) } }
}
