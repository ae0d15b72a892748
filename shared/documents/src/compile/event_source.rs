//! Checks sources, and applies their presets.

use std::collections::BTreeMap;

use ebb_engine::Millis;
use serde_json::{Map, Value as Json};

use super::k8s_apply::is_built_in_name;
use super::{DiagnosticCollector, ExpressionRead, MAX_EVENTS, StepCount, params, source_lints, webhook};
use crate::cel::{ReferenceSource, RootVariable, Scope};
use crate::event::{EntryAction, EventEntry, EventFetch, EventListing, EventTarget, EventTextRole, EventTree};
use crate::model::{
    DurationMs, Entries, EventAction, EventRule, ExistsDoc, FetchDoc, LineColumn, Named, ReplayDoc, SourceTarget,
    TemplateTree, VerifyDoc,
};
use crate::presets::{self, SourcePreset};
use crate::{At, Diagnostic, Diagnostics, EventSource, ParsedText, PluginReference, SourceDoc, Template, template};

/// Keys whose texts are scripts. There, `${body}` is a variable of a shell.
const SCRIPTS: [&str; 2] = ["script", "init"];

/// Checks a source and its preset. Returns the source and the warnings.
///
/// # Errors
/// Returns all semantic errors, sorted by position.
pub fn event_source(doc: &SourceDoc) -> Result<(EventSource, Vec<Diagnostic>), Diagnostics> {
    let steps = StepCount::default();
    let mut own = DiagnosticCollector::new(&doc.source, &steps);
    let whole = doc.name.at;
    let preset = match &doc.preset {
        None => SourceDoc::default(),
        Some(name) => presets::preset(&name.value).map(SourcePreset::document).ok_or_else(|| {
            let wrong = own.error("unknown-preset", name.at, format!("unknown preset `{}`", name.value));
            wrong.suggest(&name.value, presets::PRESETS.iter().map(|preset| preset.name))
        })?,
    };
    let with = with(&mut own, doc, &preset);
    let mut of_preset = DiagnosticCollector::new(&preset.source, &steps);
    own.units = Scope::Event;
    let fetch = doc.fetch.as_ref().map(|fetch| self::fetch(&mut own, fetch));
    own.units = if fetch.is_some() { Scope::FetchedEvent } else { Scope::Event };
    of_preset.units = own.units;
    let id = match &doc.id {
        Some(id) => text(&mut own, id),
        None => preset.id.as_ref().and_then(|id| text(&mut of_preset, id)),
    };
    let target = match &doc.target {
        Some(target) => self::target(&mut own, target),
        None => preset.target.as_ref().and_then(|target| self::target(&mut of_preset, target)),
    };
    let has_target = doc.target.is_some() || preset.target.is_some();
    let document = doc.document.as_ref().map(|document| self::document(&mut own, document));
    let mut defaults = EntryDefaults { target, has_target, document, undocumented: None };
    let events = doc.events.as_ref().or(preset.events.as_ref()).map_or(&[][..], Vec::as_slice);
    let report = if doc.events.is_none() && preset.events.is_some() { &mut of_preset } else { &mut own };
    let entries: Vec<_> = events.iter().take(MAX_EVENTS).filter_map(|rule| defaults.entry(report, rule)).collect();
    let missing = |key| format!("the source has no `{key}`");
    if events.is_empty() {
        let help = "add `events:`, or a `preset:` that has them";
        own.push(own.error("missing-key", whole, missing("events")).help(help));
    }
    if let Some(rule) = events.get(MAX_EVENTS) {
        let message = format!("{} entries are more than the limit of {MAX_EVENTS}", events.len());
        own.push(own.error("limit", rule.when.at, message));
    }
    if let Some(at) = defaults.undocumented {
        let at = if doc.events.is_some() { at } else { whole };
        let help = "add `document:` with the resources of a target, such as `{ttl: 72h, resources: {…}}`";
        own.push(own.error("missing-key", at, "`apply` has no `document`").help(help));
    }
    let of_events = std::mem::replace(&mut own.units, Scope::Listing);
    of_preset.units = Scope::Listing;
    let listing = doc.exists.as_ref().and_then(|exists| {
        let preset = preset.exists.as_ref().map(|exists| &exists.value);
        self::listing(&mut own, exists, (&mut of_preset, preset))
    });
    (own.units, of_preset.units) = (of_events, of_events);
    let verify = doc.verify.as_ref().or(preset.verify.as_ref());
    if verify.is_none() {
        let help = "add `verify:` with the scheme of the sender, such as `standard: {secret: NAME}`";
        own.push(own.error("missing-key", whole, missing("verify")).help(help));
    }
    if let Some(replay) = &doc.replay {
        check_replay(&mut own, replay, verify);
    }
    for read in std::mem::take(&mut own.reads) {
        let path = read.spot.text();
        let name = path.strip_prefix("with.").and_then(|rest| rest.split(['.', '[']).next());
        if let Some(name) = name.filter(|name| !name.starts_with('?') && with.get(name).is_none()) {
            let wrong = own.error_in("unknown-param", &read.spot, format!("there is no param `{name}`"));
            own.push(wrong.suggest(name, with.as_object().into_iter().flat_map(Map::keys).map(String::as_str)));
        }
    }
    let mut errors = own.check(whole).err().unwrap_or_default();
    errors.extend(of_preset.check(preset.name.at).err().unwrap_or_default());
    match verify {
        Some(verify) if !errors.has_errors() => {
            // Those of `events` find nothing in a source without its own.
            let mut warnings = source_lints::hidden_ends(doc, &entries);
            let equal = source_lints::equal_bodies(doc, verify, &entries);
            warnings.extend(equal.filter(|_| id.is_none() && fetch.is_none()));
            warnings.extend(source_lints::unsigned_id(doc, verify, id.as_ref(), &entries));
            warnings.extend(source_lints::differing_times(doc, &entries));
            warnings.extend(source_lints::no_end(doc, &entries));
            warnings.extend(source_lints::untimed_replay(doc, &entries));
            warnings.extend(source_lints::long_tolerance(doc));
            if let (None, Some(own), Some(replaced)) = (&doc.events, &defaults.target, &preset.target) {
                let replaced = ParsedText::new(&replaced.name.value, of_preset.units).ok();
                warnings.extend(replaced.and_then(|of| source_lints::uid_of_preset(doc, &own.name, &of, &entries)));
            }
            let (name, verify, fetch, target) =
                (doc.name.value.clone(), verify.clone(), fetch.flatten(), defaults.target);
            let limit = doc.limit.as_ref().map(|limit| (limit.living.value, limit.then));
            let replay = doc.replay.as_ref().map(|replay| replay.value.clone());
            let source = EventSource { name, verify, limit, with, fetch, target, id, entries, listing, replay };
            // The values of params can be wrong, which no check of a text shows.
            let parts = source.listing.as_ref().map(|listing| source.list_parts(listing));
            match (parts, &doc.exists) {
                (Some(Err(error)), Some(exists)) => {
                    let wrong = own.error("param-value", exists.at, error.to_string());
                    own.push(wrong.help("list what the source is about in `with`, such as `repositories: [ID]`"));
                    own.check(whole)?;
                    Ok((source, warnings))
                }
                _ => Ok((source, warnings)),
            }
        }
        _ => Err(errors.sorted()),
    }
}

/// Returns the values of the params of a source and its preset. Reports those of `with` that do not fit.
fn with(report: &mut DiagnosticCollector, doc: &SourceDoc, preset: &SourceDoc) -> Json {
    let (mut declared, mut values) = (BTreeMap::new(), Map::new());
    for Named { name, inner: param } in doc.params.iter().chain(preset.params.iter()) {
        declared.insert(name.value.as_str(), params::check_declaration(report, name, param));
        values.extend(param.default.iter().map(|default| (name.value.clone(), default.value.clone())));
    }
    for Named { name, inner: given } in &doc.with {
        let Some(param) = declared.get(name.value.as_str()) else {
            let wrong = report.error("unknown-param", name.at, format!("there is no param `{}`", name.value));
            let known = declared.keys().copied().collect::<Vec<_>>().join("`, `");
            let help = if known.is_empty() { "the preset has none".to_owned() } else { format!("there is `{known}`") };
            report.push(wrong.help(help));
            continue;
        };
        if let Err(wrong) = params::fits(report, param, &given.value) {
            let wrong = report.error("param-value", given.at, format!("`{}` {wrong}", name.value));
            report.push(params::nearest(report, param.doc, given.value.as_str().unwrap_or_default(), wrong));
        }
        let never_fits = |entry: &Json| match entry.as_str() {
            None => Some(("an entry that is not a text", "quote it")),
            Some("") => Some(("an empty entry, which fits nothing", "remove it")),
            Some(text) => (name.value == "base" && text.strip_suffix('*').unwrap_or(text).contains('*'))
                .then_some(("an entry with `*` before its end", "write `*` at the end only: it stands for any text")),
        };
        if let Some((what, help)) = given.value.as_array().into_iter().flatten().find_map(never_fits) {
            let wrong = report.error("param-value", given.at, format!("`{}` has {what}", name.value));
            report.push(wrong.help(help));
        }
        values.insert(name.value.clone(), given.value.clone());
    }
    values.into()
}

/// Returns the plugins that must be published, because documents of targets name them.
pub fn named_plugins(source: &EventSource) -> Vec<PluginReference> {
    let mut plugins: Vec<PluginReference> = Vec::new();
    for entry in &source.entries {
        let EntryAction::Apply(_, document) = &entry.action else { continue };
        let resources = match fixed_parts(document)["resources"].take() {
            Json::Object(by_name) => by_name.into_iter().map(|(_, resource)| resource).collect(),
            Json::Array(list) => list,
            _ => Vec::new(),
        };
        plugins.extend(resources.iter().filter_map(|resource| resource["plugin"].as_str()?.parse().ok()));
    }
    plugins.retain(|plugin| !is_built_in_name(&plugin.name, plugin.version.as_ref()));
    plugins.sort_by(|a, b| (&a.name, &a.version).cmp(&(&b.name, &b.version)));
    plugins.dedup();
    plugins
}

/// Returns the parts of a document that do not depend on an event. Texts of an event are `null`.
fn fixed_parts(tree: &EventTree) -> Json {
    match tree {
        EventTree::Literal(literal) => literal.clone(),
        EventTree::List(items) => items.iter().map(fixed_parts).collect(),
        EventTree::Map(entries) => entries.iter().map(|(name, entry)| (name.clone(), fixed_parts(entry))).collect(),
        EventTree::Text(..) => Json::Null,
        EventTree::Param(tree) => fixed_parts(tree),
    }
}

/// The values of entries that set none.
struct EntryDefaults {
    target: Option<EventTarget>,
    has_target: bool,
    document: Option<EventTree>,
    /// The position of an `apply` without a document.
    undocumented: Option<LineColumn>,
}

impl EntryDefaults {
    /// Returns a checked entry. It has no use after a reported error.
    fn entry(&mut self, report: &mut DiagnosticCollector, rule: &EventRule) -> Option<EventEntry> {
        let when = report.condition(&rule.when, report.units);
        let time = rule.time.as_ref().and_then(|time| text(report, time));
        let order = rule.order.as_ref().and_then(|order| text(report, order));
        if let Some(wrong) =
            rule.order.as_ref().filter(|order| !order.value.contains("${") && order.value.trim().parse::<u8>().is_err())
        {
            report.push(report.error("order", wrong.at, "expected a whole number from 0 to 255, or an expression"));
        }
        let uid = rule.uid.as_ref().and_then(|uid| text(report, uid));
        let own_target = match &rule.action {
            EventAction::Apply(apply) => apply.target.as_ref(),
            EventAction::Delete(delete) => delete.target.as_ref(),
            EventAction::Ignore(_) => None,
        };
        let target = match own_target {
            Some(own) => target(report, own),
            None if self.has_target || matches!(rule.action, EventAction::Ignore(_)) => self.target.clone(),
            None => {
                let wrong = report.error("missing-key", rule.when.at, "the entry has no `target`");
                let help = "add `target: {kind: sandbox, name: \"…\"}` to the source, or to `apply` or `delete`";
                report.push(wrong.help(help));
                None
            }
        };
        let action = match &rule.action {
            EventAction::Ignore(reason) => Some(EntryAction::Ignore(reason.value.clone())),
            EventAction::Delete(delete) => target.map(|target| EntryAction::Delete(target, delete.reason.clone())),
            EventAction::Apply(apply) => {
                let own = apply.document.as_ref().map(|document| self::document(report, document));
                let labels = labels(report, &apply.labels);
                let document = own.or_else(|| self.document.clone());
                if document.is_none() {
                    self.undocumented.get_or_insert(rule.when.at);
                }
                target.zip(document).map(|(target, document)| EntryAction::Apply(target, labelled(document, labels)))
            }
        };
        Some(EventEntry { when: when?, time, order, uid, action: action? })
    }
}

fn fetch(report: &mut DiagnosticCollector, fetch: &FetchDoc) -> Option<EventFetch> {
    let when = fetch.when.as_ref().and_then(|when| report.condition(when, report.units));
    webhook::path(report, &fetch.path);
    literal_headers(report, &fetch.headers);
    let path = ParsedText::new(&fetch.path.value, report.units).ok()?;
    let headers = fetch.headers.iter().map(|header| (header.name.value.clone(), header.inner.value.clone())).collect();
    Some(EventFetch { when, connection: fetch.connection.value.clone(), path, headers })
}

fn check_replay(report: &mut DiagnosticCollector, replay: &At<ReplayDoc>, verify: Option<&VerifyDoc>) {
    let (at, path) = (replay.value.path.at, replay.value.path.value.as_str());
    let id = path.rsplit_once("/hooks/").map_or("", |(_, id)| id);
    let is_hook = path.ends_with("/app/hook") || (!id.is_empty() && id.bytes().all(|digit| digit.is_ascii_digit()));
    if !is_hook || !path.starts_with('/') || !template::is_normal_path(path) {
        let message = format!("`{path}` is not the path of a webhook of GitHub");
        let help = "write `/repos/OWNER/NAME/hooks/ID`, `/orgs/NAME/hooks/ID` or `/app/hook`";
        report.push(report.error("path", at, message).help(help));
    }
    if verify.is_some_and(|verify| !matches!(verify, VerifyDoc::Github(_))) {
        let wrong = report.error("contradiction", replay.at, "`replay` needs the scheme `github` of `verify`");
        report.push(wrong.help("only GitHub lists its deliveries: use `exists` for other senders"));
    }
}

const MINUTE: u64 = 60_000;
/// Checks headers of a request with a connection, which have no expressions.
fn literal_headers(report: &mut DiagnosticCollector, headers: &Entries<At<String>>) {
    webhook::headers(report, headers);
    webhook::check_connection_headers(report, headers);
    for Named { name, inner: value } in headers.iter().filter(|header| header.inner.value.contains("${")) {
        let message = format!("header `{}` has an expression; expected a literal text", name.value);
        report.push(report.error("header", value.at, message));
    }
}

/// The least and the greatest value, and the default, in milliseconds and in percent.
const EVERY: (u64, u64, u64) = (5 * MINUTE, 24 * 60 * MINUTE, 15 * MINUTE);
const GRACE: (u64, u64, u64) = (5 * MINUTE, 7 * 24 * 60 * MINUTE, 10 * MINUTE);
const SHRINK: (u64, u64, u64) = (1, 100, 20);

/// Returns a checked list, whose keys are those of the document or of its preset.
fn listing(
    own: &mut DiagnosticCollector,
    exists: &At<ExistsDoc>,
    (of_preset, preset): (&mut DiagnosticCollector, Option<&ExistsDoc>),
) -> Option<EventListing> {
    let doc = &exists.value;
    let mut parsed =
        |key: fn(&ExistsDoc) -> &Option<At<String>>| match (key(doc), preset.and_then(|of| key(of).as_ref())) {
            (Some(written), _) => text(own, written),
            (None, of) => of.and_then(|of| text(of_preset, of)),
        };
    let (parts, next, each) = (parsed(|doc| &doc.parts), parsed(|doc| &doc.next), parsed(|doc| &doc.each));
    let (event, names) = (parsed(|doc| &doc.event), parsed(|doc| &doc.names));
    let mut of_path = |written: &Option<At<String>>, of: Option<&At<String>>| {
        if let Some(written) = written {
            webhook::path(own, written);
        }
        ParsedText::new(&written.as_ref().or(of)?.value, Scope::Listing).ok()
    };
    let path = of_path(&doc.path, preset.and_then(|of| of.path.as_ref()));
    let confirm = of_path(&doc.confirm, preset.and_then(|of| of.confirm.as_ref()));
    let names_part = doc.names.as_ref().is_none_or(|names| names.value.contains("listing.part"));
    // Own names apply to the lists of the preset, too.
    let has_parts = parts.as_ref().and(doc.names.as_ref());
    if let Some(at) = doc.parts.as_ref().or(has_parts).filter(|_| names.is_none() || !names_part).map(|text| text.at) {
        let wrong = own.error("contradiction", at, "`exists` has `parts`, and `names` does not read `listing.part`");
        own.push(
            wrong.help("write `${listing.part}` in `names`: otherwise each list removes the targets of the others"),
        );
    }
    for (name, text) in [("parts", &doc.parts), ("each", &doc.each), ("event", &doc.event)] {
        if let Some(text) = text
            && ParsedText::new(&text.value, Scope::Listing).is_ok_and(|parsed| parsed.whole().is_none())
        {
            let message = format!("`{name}` is not one expression");
            own.push(own.error("wrong-type", text.at, message).help("write one `${…}`"));
        }
    }
    if let Some(names) = doc.names.as_ref().filter(|names| names.value.matches('*').count() > 1) {
        own.push(own.error("names", names.at, "`names` has more than one `*`").help("such as `pr-*-${listing.part}`"));
    }
    let has_path = path.is_some() || doc.path.is_some();
    for (key, is_missing, help) in [
        ("connection", doc.connection.is_none(), "name a connection that lists this source in `sources`"),
        ("path", !has_path, "write the path of the list at the sender"),
    ] {
        if is_missing {
            own.push(own.error("missing-key", exists.at, format!("`exists` has no `{key}`")).help(help));
        }
    }
    let time = |time: &Option<At<DurationMs>>| time.as_ref().map(|time| (time.value.0, time.at));
    let shown = |value| Millis(value).to_string();
    let every_ms = within(own, "every", (time(&doc.every), EVERY), shown);
    let grace_ms = within(own, "grace", (time(&doc.grace), GRACE), shown);
    let share = doc.shrink.as_ref().map(|share| (share.value, share.at));
    let shrink = within(own, "shrink", (share, SHRINK), |value| value.to_string());
    literal_headers(own, &doc.headers);
    let headers = if doc.headers.is_empty() { preset.map(|preset| &preset.headers) } else { Some(&doc.headers) };
    let headers = headers.into_iter().flat_map(|headers| headers.iter());
    let headers = headers.map(|header| (header.name.value.clone(), header.inner.value.clone())).collect();
    let create = doc.create || preset.is_some_and(|preset| preset.create);
    let (connection, path) = (doc.connection.as_ref()?.value.clone(), path?);
    let of = EventListing {
        connection,
        every_ms,
        grace_ms,
        shrink,
        create,
        parts,
        path,
        headers,
        next,
        each,
        event,
        names,
        confirm,
    };
    Some(of)
}

/// Returns a number, or its default. Reports one that is outside of its range.
fn within(
    report: &mut DiagnosticCollector,
    key: &str,
    (given, (least, most, default)): (Option<(u64, LineColumn)>, (u64, u64, u64)),
    shown: impl Fn(u64) -> String,
) -> u64 {
    let Some((value, at)) = given else { return default };
    if !(least..=most).contains(&value) {
        let message = format!("`{key}` is {}; expected {} to {}", shown(value), shown(least), shown(most));
        report.push(report.error("limit", at, message));
    }
    value
}

fn target(report: &mut DiagnosticCollector, target: &SourceTarget) -> Option<EventTarget> {
    Some(EventTarget { kind: target.kind.value.clone(), name: text(report, &target.name)? })
}

fn text(report: &mut DiagnosticCollector, text: &At<String>) -> Option<ParsedText> {
    report.text(&text.value, text.at, report.units);
    ParsedText::new(&text.value, report.units).ok()
}

fn labelled(mut document: EventTree, labels: Vec<(String, EventTree)>) -> EventTree {
    if let EventTree::Map(entries) = &mut document {
        let at = entries.iter().position(|(key, _)| key == "labels").unwrap_or_else(|| {
            entries.push(("labels".to_owned(), EventTree::Map(Vec::new())));
            entries.len() - 1
        });
        if let EventTree::Map(known) = &mut entries[at].1 {
            known.retain(|(name, _)| labels.iter().all(|(label, _)| label != name));
            known.extend(labels);
        }
    }
    document
}

fn labels(report: &mut DiagnosticCollector, labels: &Entries<At<String>>) -> Vec<(String, EventTree)> {
    let mut value = |label: &At<String>| plain(report, &label.value, label.at, EventTextRole::Plain);
    labels.iter().map(|Named { name, inner }| (name.value.clone(), value(inner))).collect()
}

/// Returns a checked target document. An invalid part is replaced by `null` after it has been reported.
fn document(report: &mut DiagnosticCollector, document: &At<TemplateTree>) -> EventTree {
    map(&document.value, |key, value| match (key, &value.value) {
        ("labels", labels @ TemplateTree::Map(_)) => map(labels, |_, label| match &label.value {
            TemplateTree::Text(text) => plain(report, text, label.at, EventTextRole::Plain),
            _ => literal(report, key, label),
        }),
        ("description", TemplateTree::Text(text)) => plain(report, text, value.at, EventTextRole::Plain),
        ("ttl", TemplateTree::Text(text)) => plain(report, text, value.at, EventTextRole::Duration),
        ("ttl", ttl @ TemplateTree::Map(_)) => map(ttl, |key, value| match (key, &value.value) {
            ("after", TemplateTree::Text(text)) => plain(report, text, value.at, EventTextRole::Duration),
            _ => literal(report, key, value),
        }),
        ("env", env) => map(env, |key, value| match &value.value {
            TemplateTree::Text(text) => deferred(report, text, value.at, EventTextRole::Template),
            _ => literal(report, key, value),
        }),
        ("resources", resources) => map(resources, |_, resource| {
            map(&resource.value, |key, value| match (key, &value.value) {
                ("params", params) => map(params, |_, value| param(report, value)),
                _ => literal(report, key, value),
            })
        }),
        _ => literal(report, key, value),
    })
}

/// Converts the values of a mapping. The loader has reported another type.
fn map(tree: &TemplateTree, mut value: impl FnMut(&str, &At<TemplateTree>) -> EventTree) -> EventTree {
    let TemplateTree::Map(entries) = tree else { return EventTree::Literal(Json::Null) };
    let entries = entries.iter().map(|Named { name, inner }| (name.value.clone(), value(&name.value, inner)));
    EventTree::Map(entries.collect())
}

/// Converts a text that the target reads as it is, such as a label.
fn plain(report: &mut DiagnosticCollector, text: &str, at: LineColumn, role: EventTextRole) -> EventTree {
    match report.text(text, at, report.units) {
        Template::Literal(literal) => EventTree::Literal(literal),
        _ => ParsedText::new(text, report.units)
            .map_or(EventTree::Literal(Json::Null), |text| EventTree::Text(text, role)),
    }
}

/// Converts a text that is rendered for an event, or remains a template of the target.
fn deferred(report: &mut DiagnosticCollector, text: &str, at: LineColumn, role: EventTextRole) -> EventTree {
    let scope = if report.units == Scope::Event { Scope::EventDocument } else { Scope::FetchedEventDocument };
    let first = report.reads.len();
    report.text(text, at, scope);
    let reads = report.reads.split_off(first);
    let (of_event, of_target): (Vec<_>, Vec<_>) = reads.iter().partition(|read| is_of_event(read));
    match (of_event.first(), of_target.first()) {
        (Some(event), Some(target)) => {
            let message = format!("the text mixes `{}` with `{}`", event.source, target.source);
            let help = "an event is known when it arrives, outputs and the target are known later: use a text for each";
            report.push(report.error_in("mixed-event", &target.spot, message).help(help));
        }
        (Some(_), None) => {
            if let Ok(text) = ParsedText::new(text, scope) {
                return EventTree::Text(text, role);
            }
        }
        (None, _) => {}
    }
    EventTree::Literal(text.into())
}

/// Returns true for a value that no target has.
fn is_of_event(read: &ExpressionRead) -> bool {
    use RootVariable::{Body, Claims, Fetched, Headers, Notification, Source, With};
    matches!(read.source, ReferenceSource::Root(Headers | Body | Source | With | Fetched | Claims | Notification))
}

fn param(report: &mut DiagnosticCollector, param: &At<TemplateTree>) -> EventTree {
    match param.value.secret() {
        Some(_) => literal(report, "params", param),
        None => EventTree::Param(Box::new(value(report, param))),
    }
}

fn value(report: &mut DiagnosticCollector, tree: &At<TemplateTree>) -> EventTree {
    match &tree.value {
        TemplateTree::Scalar(scalar) => EventTree::Literal(scalar.clone()),
        TemplateTree::Text(text) => deferred(report, text, tree.at, EventTextRole::Value),
        TemplateTree::List(items) => EventTree::List(items.iter().map(|item| value(report, item)).collect()),
        entries @ TemplateTree::Map(_) => map(entries, |_, inner| value(report, inner)),
    }
}

/// Returns a part in which an event selects nothing. Reports the expressions that read an event.
fn literal(report: &mut DiagnosticCollector, key: &str, tree: &At<TemplateTree>) -> EventTree {
    check_literal(report, key, tree);
    EventTree::Literal(tree.value.to_json())
}

fn check_literal(report: &mut DiagnosticCollector, key: &str, tree: &At<TemplateTree>) {
    match &tree.value {
        TemplateTree::Scalar(_) => {}
        TemplateTree::Text(text) => {
            // A text need not be a template here, so its errors are discarded.
            let mut scratch = DiagnosticCollector::new(&report.source, &report.steps);
            scratch.text(text, tree.at, Scope::Plan);
            let reads = scratch.reads;
            let is_variable = |read: &ExpressionRead| read.spot.text() == read.source.to_string();
            let read = reads.iter().find(|read| is_of_event(read) && !(SCRIPTS.contains(&key) && is_variable(read)));
            if let Some(read) = read {
                let message = format!("`{}` cannot be used in `{key}`", read.source);
                let help = "an event supplies values of `labels`, `description`, `ttl`, `env` and `params` only; use \
                            several entries with a literal `document` each to choose between them";
                report.push(report.error_in("event-here", &read.spot, message).help(help));
            }
        }
        TemplateTree::List(items) => items.iter().for_each(|item| check_literal(report, key, item)),
        TemplateTree::Map(entries) => {
            entries.iter().for_each(|entry| check_literal(report, &entry.name.value, &entry.inner));
        }
    }
}
