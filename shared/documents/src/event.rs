//! Evaluates a source on an event: finds the entry that holds, and renders its target document.
//!
//! The content of an event is hostile. A rendered text is escaped, so that a `${…}` or `@{…}` in it stays text, and the
//! written document is read again and compared. Errors name entries, keys and expressions, and no values of the event.

pub mod listing;

use std::cell::Cell;
use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Map, Value as Json, json};

use crate::cel::convert::{self, CelOutput, json_type};
use crate::cel::{self, EvaluationError, Expression, SharedCost};
use crate::load::names::{MAX_NAME, NameSyntax, is_name};
use crate::load::{self, Document, MAX_DEPTH, yaml};
use crate::model::{LimitAction, ReplayDoc};
use crate::{DocumentVars, NoFiles, ParsedText, SandboxDoc, VerifyDoc, canonical, durations, escaping, template};

/// The maximum size of the target document that a source renders, in bytes: 128 KiB. It is stored as JSON, which may double
/// it, in an item of at most 400 KB.
const MAX_EVENT_DOCUMENT: usize = 128 << 10;

/// The kind of a target whose document is a `kind: Sandbox`.
const SANDBOX: &str = "sandbox";
/// The number of digits of the hash in a name.
const HASH_DIGITS: usize = 16;
/// The maximum number of characters of a UID or delivery ID, and of its bytes.
const MAX_ID: (usize, usize) = (128, 300);
/// The maximum number of values that all expressions of a source touch for one event.
const MAX_EVENT_COST: u64 = 2 * cel::MAX_COST;
/// Times at or above are milliseconds, times below are seconds. As seconds, it is in the year 5138.
const FIRST_MILLISECONDS: f64 = 1e11;

/// An event of a third party.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EventInput {
    /// The first value of each header, by the name in lower case.
    pub headers: BTreeMap<String, String>,
    pub body: Json,
    /// The `status` and `body` of the response to the request of [`EventSource::fetch`].
    pub fetched: Option<Json>,
}

/// The request by which a source completes an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventRequest {
    pub connection: String,
    /// The path and query. Values of the event are percent-encoded.
    pub path: String,
    pub headers: Vec<(String, String)>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "outcome", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum EventOutcome {
    Apply {
        kind: String,
        name: String,
        /// At most 128 characters.
        uid: Option<String>,
        /// Milliseconds since 1970.
        time_ms: Option<u64>,
        /// The place among the events with this time.
        order: u8,
        /// A `kind: Sandbox` or `kind: Target` as YAML, at most 128 KiB.
        document: String,
    },
    Delete {
        kind: String,
        name: String,
        uid: Option<String>,
        time_ms: Option<u64>,
        order: u8,
        /// An explanation for the sender.
        reason: Option<String>,
    },
    Ignored {
        /// An explanation for the sender.
        reason: String,
    },
}

/// The effect of an event, and the way to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventExplanation {
    /// The entries that do not hold, before the one that does.
    pub skipped: Vec<SkippedEntry>,
    /// The number of the entry that holds or fails, from 1.
    pub entry: Option<usize>,
    pub outcome: Result<EventOutcome, SourceEventError>,
}

/// An entry that does not hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SkippedEntry {
    /// The number of the entry, from 1.
    pub entry: usize,
    pub reason: String,
}

/// An expression or document that fails on an event. The texts contain no values of the event.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct SourceEventError {
    /// The number of the entry, from 1. `None` for `id`.
    pub entry: Option<usize>,
    /// The key in the entry, such as `target.name`.
    pub key: String,
    /// The expression that fails.
    pub expression: Option<String>,
    pub problem: String,
}

impl std::fmt::Display for SourceEventError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(entry) = self.entry {
            write!(f, "entry {entry}: ")?;
        }
        write!(f, "`{}`", self.key)?;
        if let Some(expression) = &self.expression {
            write!(f, ": `${{{}}}`", expression.trim())?;
        }
        write!(f, ": {}", self.problem)
    }
}

/// A checked source. [`compile::event_source`](crate::compile::event_source) creates it.
#[derive(Clone, Debug)]
pub struct EventSource {
    pub name: String,
    /// The scheme that verifies requests, with the name of its secret.
    pub verify: VerifyDoc,
    /// The most living targets, and the treatment of an event that would begin one more.
    pub limit: Option<(u32, LimitAction)>,
    /// The values of the params.
    pub(crate) with: Json,
    pub(crate) fetch: Option<EventFetch>,
    /// The target of the entries that have none.
    pub(crate) target: Option<EventTarget>,
    pub(crate) id: Option<ParsedText>,
    pub(crate) entries: Vec<EventEntry>,
    pub listing: Option<EventListing>,
    /// The webhook whose failed deliveries are fetched.
    pub replay: Option<ReplayDoc>,
}

/// How a source lists what exists at its sender.
#[derive(Clone, Debug)]
pub struct EventListing {
    pub connection: String,
    /// The milliseconds between the begins of two observations.
    pub every_ms: u64,
    /// The least milliseconds between the two observations that lack a thing.
    pub grace_ms: u64,
    /// The percentage of the targets that may be missing at once.
    pub shrink: u64,
    /// True if a thing without a target gets one.
    pub create: bool,
    pub(crate) parts: Option<ParsedText>,
    pub(crate) path: ParsedText,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) next: Option<ParsedText>,
    pub(crate) each: Option<ParsedText>,
    pub(crate) event: Option<ParsedText>,
    pub(crate) names: Option<ParsedText>,
    pub(crate) confirm: Option<ParsedText>,
}

#[derive(Clone, Debug)]
pub(crate) struct EventFetch {
    pub(crate) when: Option<Expression>,
    pub(crate) connection: String,
    pub(crate) path: ParsedText,
    pub(crate) headers: Vec<(String, String)>,
}

#[derive(Clone, Debug)]
pub(crate) struct EventEntry {
    pub(crate) when: Expression,
    pub(crate) time: Option<ParsedText>,
    pub(crate) order: Option<ParsedText>,
    pub(crate) uid: Option<ParsedText>,
    pub(crate) action: EntryAction,
}

#[derive(Clone, Debug)]
pub(crate) enum EntryAction {
    Apply(EventTarget, EventTree),
    Delete(EventTarget, Option<String>),
    Ignore(String),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct EventTarget {
    pub(crate) kind: String,
    pub(crate) name: ParsedText,
}

#[derive(Clone, Debug)]
pub(crate) enum EventTree {
    /// A part that stays as it was written.
    Literal(Json),
    List(Vec<EventTree>),
    Map(Vec<(String, EventTree)>),
    Text(ParsedText, EventTextRole),
    /// The value of a param.
    Param(Box<EventTree>),
}

/// The form in which the target reads a rendered text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventTextRole {
    Plain,
    Duration,
    /// A template of the target.
    Template,
    /// A template of the target. One expression alone keeps the type of its value.
    Value,
}

impl EventListing {
    /// Returns true if an expression gives the next page.
    pub fn has_next(&self) -> bool {
        self.next.is_some()
    }

    /// Returns true if each thing is asked for before its target is deleted.
    pub fn has_confirmation(&self) -> bool {
        self.confirm.is_some()
    }
}

impl EventSource {
    /// Returns the delivery ID that `id` of the source selects: at most 128 characters without blanks, control
    /// characters and `/ # % ? \`. Another text is replaced by its SHA-256. Returns `None` without `id`, or if it has no
    /// value.
    ///
    /// # Errors
    /// Returns an error if the expression fails on this event.
    pub fn delivery_id(&self, input: &EventInput) -> Result<Option<String>, SourceEventError> {
        let Some(id) = &self.id else { return Ok(None) };
        Ok(EventRenderer::new(self, input).text(id, "id", MissingPiece::Rejected)?.map(identity))
    }

    /// Returns the request that completes an event, or `None` if the event needs none.
    ///
    /// # Errors
    /// Returns an error if an expression fails on this event, or if its values do not fit into a path.
    pub fn fetch(&self, input: &EventInput) -> Result<Option<EventRequest>, SourceEventError> {
        let Some(EventFetch { when, connection, path, headers }) = &self.fetch else { return Ok(None) };
        let renderer = EventRenderer::new(self, input);
        if let Some(when) = when
            && renderer.skip_reason(when, "fetch.when")?.is_some()
        {
            return Ok(None);
        }
        let path = renderer.path(path, "fetch.path")?;
        Ok(Some(EventRequest { connection: connection.clone(), path, headers: headers.clone() }))
    }

    /// Returns kind, name and UID of the target of an event, as far as they are known. The rest of its entry can fail.
    pub fn target(&self, input: &EventInput) -> Option<(String, String, Option<String>)> {
        let renderer = EventRenderer::new(self, input);
        let entry =
            self.entries.iter().find(|entry| !matches!(renderer.skip_reason(&entry.when, "when"), Ok(Some(_))))?;
        let (EntryAction::Apply(target, _) | EntryAction::Delete(target, _)) = &entry.action else { return None };
        let name = renderer.target_name(target).ok()?;
        Some((target.kind.clone(), name, renderer.uid(entry).ok().flatten()))
    }

    /// Returns an entry as text, such as `delete if body.action == "closed"`. Numbers begin with 1.
    pub fn described(&self, entry: usize) -> String {
        let Some(entry) = self.entries.get(entry.wrapping_sub(1)) else { return String::new() };
        let action = match &entry.action {
            EntryAction::Apply(..) => "apply".to_owned(),
            EntryAction::Delete(_, None) => "delete".to_owned(),
            EntryAction::Delete(_, Some(reason)) => format!("delete ({reason})"),
            EntryAction::Ignore(reason) => format!("ignore ({reason})"),
        };
        format!("{action} if {}", entry.when.text.split_whitespace().collect::<Vec<_>>().join(" "))
    }

    /// Returns the effect of an event, with the entries that do not hold. It is an error if an expression fails on this
    /// event, or if its values do not fit into the target document. A `when` that reads a missing key or a part of `null`
    /// is false, and another text that does has no value.
    pub fn explain(&self, input: &EventInput) -> EventExplanation {
        let mut renderer = EventRenderer::new(self, input);
        let mut skipped = Vec::new();
        for (number, entry) in (1..).zip(&self.entries) {
            renderer.entry = Some(number);
            let outcome = match renderer.skip_reason(&entry.when, "when") {
                Ok(Some(reason)) => {
                    skipped.push(SkippedEntry { entry: number, reason });
                    continue;
                }
                Ok(None) => renderer.outcome(entry),
                Err(error) => Err(error),
            };
            return EventExplanation { skipped, entry: Some(number), outcome };
        }
        let reasons = skipped.iter().map(|skipped| format!("entry {}: {}", skipped.entry, skipped.reason));
        let reason = format!("no entry holds: {}", reasons.collect::<Vec<_>>().join("; "));
        EventExplanation { skipped, entry: None, outcome: Ok(EventOutcome::Ignored { reason }) }
    }
}

/// The treatment of an expression without a value that is a part of a text.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MissingPiece {
    Empty,
    Rejected,
}

struct EventRenderer<'a> {
    variables: BTreeMap<&'static str, cel::CelValue<'a>>,
    entry: Option<usize>,
    bytes: Cell<usize>,
    cost: SharedCost,
}

impl<'a> EventRenderer<'a> {
    fn new(source: &'a EventSource, input: &'a EventInput) -> Self {
        let headers = input.headers.iter().map(|(name, value)| (name.as_str(), convert::from_text(value)));
        let variables = [
            ("headers", convert::from_map(headers)),
            ("body", convert::from_json(&input.body)),
            // An event that was not completed reads missing keys.
            ("fetched", input.fetched.as_ref().map_or_else(|| convert::from_map([]), convert::from_json)),
        ];
        Self::of(source, variables)
    }

    /// Returns a renderer of texts that read these variables, `source` and `with`.
    fn of(source: &'a EventSource, variables: impl IntoIterator<Item = (&'static str, cel::CelValue<'a>)>) -> Self {
        let mut variables = BTreeMap::from_iter(variables);
        variables.insert("source", convert::from_map([("name", convert::from_text(&source.name))]));
        variables.insert("with", convert::from_json(&source.with));
        Self { variables, entry: None, bytes: Cell::new(0), cost: SharedCost::new(MAX_EVENT_COST) }
    }

    fn run(&self, expression: &Expression) -> Result<CelOutput, EvaluationError> {
        cel::evaluate_within(expression, &self.variables, &self.cost, MAX_EVENT_DOCUMENT)
    }

    fn error(&self, key: &str, expression: Option<&Expression>, problem: impl Into<String>) -> SourceEventError {
        let expression = expression.map(|expression| expression.text.clone());
        SourceEventError { entry: self.entry, key: key.to_owned(), expression, problem: problem.into() }
    }

    /// Returns the reason why a condition does not hold, or `None` if it holds.
    fn skip_reason(&self, when: &Expression, key: &str) -> Result<Option<String>, SourceEventError> {
        let problem = match self.run(when) {
            Ok(CelOutput::Json(Json::Bool(true))) => return Ok(None),
            Ok(CelOutput::Json(Json::Bool(false))) => return Ok(Some("`when` is false".to_owned())),
            Ok(CelOutput::Nothing) => return Ok(Some("`when` has no value".to_owned())),
            Ok(CelOutput::Json(Json::Null)) => return Ok(Some("`when` is null".to_owned())),
            Err(EvaluationError::MissingValue(reason)) => return Ok(Some(format!("`when` is false: {reason}"))),
            Ok(CelOutput::Json(other)) => format!("expected true or false, got {}", json_type(&other)),
            Ok(CelOutput::Bytes(_)) => "expected true or false, got bytes".to_owned(),
            Err(error) => error.to_string(),
        };
        Err(self.error(key, Some(when), problem))
    }

    fn outcome(&self, entry: &EventEntry) -> Result<EventOutcome, SourceEventError> {
        let (target, reason) = match &entry.action {
            EntryAction::Ignore(reason) => return Ok(EventOutcome::Ignored { reason: reason.clone() }),
            EntryAction::Apply(target, _) => (target, None),
            EntryAction::Delete(target, reason) => (target, reason.clone()),
        };
        let name = self.target_name(target)?;
        let uid = self.uid(entry)?;
        let time_ms = entry.time.as_ref().map_or(Ok(None), |time| self.time(time))?;
        let order = entry.order.as_ref().map_or(Ok(0), |order| self.order(order))?;
        let kind = target.kind.clone();
        Ok(match &entry.action {
            EntryAction::Apply(_, document) => {
                let document = self.document(&kind, &name, document)?;
                EventOutcome::Apply { kind, name, uid, time_ms, order, document }
            }
            _ => EventOutcome::Delete { kind, name, uid, time_ms, order, reason },
        })
    }

    fn target_name(&self, target: &EventTarget) -> Result<String, SourceEventError> {
        let name = self.text(&target.name, "target.name", MissingPiece::Rejected)?.as_deref().and_then(target_name);
        name.ok_or_else(|| self.error("target.name", target.name.whole(), "the name is empty"))
    }

    fn uid(&self, entry: &EventEntry) -> Result<Option<String>, SourceEventError> {
        let Some(uid) = &entry.uid else { return Ok(None) };
        Ok(self.text(uid, "uid", MissingPiece::Rejected)?.map(identity))
    }

    /// Returns the value of an expression. `None` is a missing value: `null`, an optional without a value, a key that is not
    /// there, or a part of these.
    fn value(&self, expression: &Expression, key: &str) -> Result<Option<Json>, SourceEventError> {
        let problem = match self.run(expression) {
            Ok(CelOutput::Json(Json::Null) | CelOutput::Nothing) | Err(EvaluationError::MissingValue(_)) => {
                return Ok(None);
            }
            Ok(CelOutput::Json(json)) => {
                self.bytes.set(self.bytes.get().saturating_add(json.to_string().len()));
                if self.bytes.get() <= MAX_EVENT_DOCUMENT {
                    return Ok(Some(json));
                }
                format!("the values have more than {MAX_EVENT_DOCUMENT} bytes")
            }
            Ok(CelOutput::Bytes(_)) => "expected text, got bytes that are not UTF-8".to_owned(),
            Err(error) => error.to_string(),
        };
        Err(self.error(key, Some(expression), problem))
    }

    /// Returns a rendered text. Returns `None` for an expression alone that has no value.
    fn text(&self, text: &ParsedText, key: &str, missing: MissingPiece) -> Result<Option<String>, SourceEventError> {
        if let Some(expression) = text.whole() {
            return Ok(self.value(expression, key)?.map(template::joinable));
        }
        let joined = text.joined(|expression| match self.value(expression, key)? {
            Some(json) => Ok(template::joinable(json)),
            None if missing == MissingPiece::Empty => Ok(String::new()),
            None => Err(self.error(key, Some(expression), "the value is missing")),
        });
        joined.map(Some)
    }

    fn path(&self, path: &ParsedText, key: &str) -> Result<String, SourceEventError> {
        let path = path.joined(|expression| {
            let value = self.value(expression, key)?.map(template::joinable).unwrap_or_default();
            match value.is_empty() {
                true => Err(self.error(key, Some(expression), "the value is missing")),
                // The author of the source has written it, such as OWNER/REPOSITORY.
                false if expression.text.trim() == "listing.part" => {
                    Ok(value.split('/').map(cel::url_encoded).collect::<Vec<_>>().join("/"))
                }
                false => Ok(cel::url_encoded(&value)),
            }
        })?;
        match template::is_normal_path(&path) {
            true => Ok(path),
            false => Err(self.error(key, None, "the values change the path")),
        }
    }

    /// Returns a time in milliseconds since 1970.
    fn time(&self, time: &ParsedText) -> Result<Option<u64>, SourceEventError> {
        let value = match time.whole() {
            Some(expression) => self.value(expression, "time")?,
            None => self.text(time, "time", MissingPiece::Rejected)?.map(Json::from),
        };
        let Some(value) = value else { return Ok(None) };
        let milliseconds = match &value {
            Json::String(text) => timestamp(text).and_then(|time| u64::try_from(time.as_millisecond()).ok()),
            Json::Number(number) => number.as_f64().filter(|number| (0.0..1e16).contains(number)).map(|number| {
                let factor = if number < FIRST_MILLISECONDS { 1000.0 } else { 1.0 };
                #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is in range")]
                let milliseconds = (number * factor) as u64;
                milliseconds
            }),
            _ => None,
        };
        let problem = "expected a time after 1970, such as `2026-01-31T10:00:00Z` or `2026-01-31 10:00:00 +0200`, or a \
                       number of seconds or milliseconds; got ";
        let got = || value.to_string().chars().take(MAX_NAME).collect::<String>();
        milliseconds.map(Some).ok_or_else(|| self.error("time", None, problem.to_owned() + &got()))
    }

    fn order(&self, order: &ParsedText) -> Result<u8, SourceEventError> {
        let text = self.text(order, "order", MissingPiece::Rejected)?;
        let order = text.map_or(Some(0), |text| text.parse().ok());
        order.ok_or_else(|| self.error("order", None, "expected a whole number from 0 to 255"))
    }

    fn document(&self, kind: &str, name: &str, document: &EventTree) -> Result<String, SourceEventError> {
        let mut tree = match kind {
            SANDBOX => json!({"apiVersion": "ebb.dev/v1", "kind": "Sandbox", "name": name}),
            kind => json!({"apiVersion": "ebb.dev/v1", "kind": "Target", "targetKind": kind, "name": name}),
        };
        if let (Some(tree), Some(Json::Object(rendered))) = (tree.as_object_mut(), self.tree(document, "document")?) {
            tree.extend(rendered);
        }
        let error = |problem: String| self.error("document", None, problem);
        if yaml::depth(&tree) > MAX_DEPTH {
            return Err(error(format!("the document is nested more than {MAX_DEPTH} levels deep")));
        }
        let text = yaml::write(tree.clone()).map_err(|_| error("the document cannot be written as YAML".to_owned()))?;
        if text.len() > MAX_EVENT_DOCUMENT {
            return Err(error(format!("the document has {} bytes; the limit is {MAX_EVENT_DOCUMENT}", text.len())));
        }
        match load::document("document", &text, &NoFiles, &DocumentVars::none()) {
            Ok(Document::Sandbox(SandboxDoc { name: loaded, .. }))
                if loaded.value == name && load::expanded_tree(&text).as_ref() == Some(&tree) =>
            {
                Ok(text)
            }
            Ok(_) => Err(error("the values change the document".to_owned())),
            // The messages repeat values.
            Err(found) => {
                let codes: Vec<&str> = found.iter().map(|found| found.code).collect();
                Err(error(format!("the document with these values is rejected: {}", codes.join(", "))))
            }
        }
    }

    /// Returns a rendered tree. Entries without a value are omitted.
    fn tree(&self, tree: &EventTree, key: &str) -> Result<Option<Json>, SourceEventError> {
        Ok(Some(match tree {
            EventTree::Literal(literal) => literal.clone(),
            EventTree::List(items) => {
                let items: Result<Vec<_>, _> =
                    items.iter().enumerate().map(|(n, item)| self.tree(item, &format!("{key}[{n}]"))).collect();
                items?.into_iter().flatten().collect()
            }
            EventTree::Map(entries) => {
                let mut map = Map::new();
                for (name, entry) in entries {
                    match self.tree(entry, &format!("{key}.{name}"))? {
                        Some(value) => drop(map.insert(name.clone(), value)),
                        // The rest of a `ttl` means nothing without its time.
                        None if matches!(entry, EventTree::Text(_, EventTextRole::Duration)) && name == "after" => {
                            return Ok(None);
                        }
                        None => {}
                    }
                }
                map.into()
            }
            EventTree::Text(text, role) => match (role, text.whole()) {
                (EventTextRole::Value, Some(expression)) => {
                    return Ok(self.value(expression, key)?.map(escaping::escape_tree));
                }
                _ => match (self.text(text, key, MissingPiece::Empty)?, role) {
                    (None, _) => return Ok(None),
                    (Some(text), EventTextRole::Plain) => text.into(),
                    (Some(text), EventTextRole::Duration) => match durations::duration(&text, &durations::UNITS) {
                        Some(_) => text.into(),
                        None => return Err(self.error(key, None, "expected a duration, such as 5m, 2h or 1d")),
                    },
                    (Some(text), EventTextRole::Template | EventTextRole::Value) => escaping::escape(&text).into(),
                },
            },
            EventTree::Param(tree) => {
                let value = self.tree(tree, key)?;
                if value.as_ref().is_some_and(is_secret) {
                    return Err(self.error(key, None, "an event cannot select a Secret"));
                }
                return Ok(value);
            }
        }))
    }
}

/// Parses a time: RFC 3339, also with a blank before the offset, with `UTC` or `GMT`, or without a zone, which is UTC.
fn timestamp(text: &str) -> Option<jiff::Timestamp> {
    // Go writes `2026-01-31 10:00:00 +0200 CEST`, where the offset decides.
    let (text, name) = match text.trim().rsplit_once(' ') {
        Some((rest, name)) if name.bytes().all(|byte| byte.is_ascii_alphabetic()) => (rest, name),
        _ => (text.trim(), ""),
    };
    let text = match text.rsplit_once(' ') {
        Some((time, offset)) if offset.starts_with(['+', '-']) => format!("{time}{offset}"),
        _ => text.to_owned(),
    };
    let in_utc = || {
        text.contains(':').then(|| text.parse::<jiff::civil::DateTime>().ok()?.to_zoned(jiff::tz::TimeZone::UTC).ok())
    };
    match text.parse::<jiff::Timestamp>() {
        Ok(time) => Some(time),
        Err(_) if matches!(name, "" | "UTC" | "GMT" | "Z") => Some(in_utc()??.timestamp()),
        Err(_) => None,
    }
}

/// Returns true for a value that a param of a target reads as a reference to a Secret.
fn is_secret(value: &Json) -> bool {
    let is_text = |key| value.get(key).is_some_and(Json::is_string);
    value.as_object().is_some_and(|map| map.len() == 2) && is_text("secret") && is_text("key")
}

/// Returns a text that is a name of a target. Other texts get a hash at their end, so that two texts never have the same
/// name. Returns `None` for an empty text.
fn target_name(text: &str) -> Option<String> {
    // A name with a hash is hashed again, because its text could have been chosen to equal another one's name.
    let hashed = text.rsplit_once('-').is_some_and(|(_, end)| {
        end.len() == HASH_DIGITS && end.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
    });
    if text.len() <= MAX_NAME && is_name(text, NameSyntax::Signadot) && !hashed {
        return Some(text.to_owned());
    }
    if text.trim().is_empty() {
        return None;
    }
    let dashed = text.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' });
    let start: String = dashed.skip_while(|c| !c.is_ascii_alphabetic()).take(MAX_NAME - HASH_DIGITS - 1).collect();
    let start = if start.is_empty() { "target" } else { start.trim_end_matches('-') };
    let hash = canonical::digest(text);
    let hash = hash.trim_start_matches("sha256:").get(..HASH_DIGITS)?;
    Some(format!("{start}-{hash}"))
}

/// Returns a text that is a UID of a target. Other texts are replaced by their hash.
fn identity(text: String) -> String {
    // Other characters have a meaning in a path, or are not visible.
    let is_safe = |c: char| (c.is_ascii_graphic() || c.is_alphanumeric()) && !"/#%?\\".contains(c);
    let short = text.chars().count() <= MAX_ID.0 && text.len() <= MAX_ID.1;
    let plain = !matches!(text.as_str(), "" | "." | "..") && text.chars().all(is_safe);
    // A text that has the form of a hash could have been chosen to equal the hash of another one.
    if short && plain && !text.starts_with("sha256:") { text } else { canonical::digest(&text) }
}
