//! The kinds of documents as data: their names, their paths in the API, and what a list or a page of one shows.

use std::ffi::OsStr;
use std::sync::LazyLock;

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use clap::{Arg, Command};
use ebb_documents::load::Document;
use ebb_protocol::api::TargetInfo;
use ebb_protocol::lifecycle::singular_kind;
use serde::Deserialize;
use serde_json::Value;

use super::plugin::{self, VersionedName};
use crate::{ApiClient, CliError, Result, labels, output, timing};

/// A kind of document that a deployment stores by name.
#[derive(Debug, Deserialize)]
pub(super) struct DocumentKind {
    /// The kind in messages and on the command line.
    pub(super) name: &'static str,
    /// The path of the kind below `/v1/`, and the member of its list.
    pub(super) plural: &'static str,
    /// Further names on the command line.
    #[serde(borrow)]
    short: Vec<&'static str>,
    /// The effect of a deletion.
    pub(super) deleted: &'static str,
    /// The effect of a replacement. Versions of plugins are not replaced.
    pub(super) replaced: &'static str,
    #[serde(borrow)]
    pub(super) columns: [Vec<&'static str>; 3],
}

/// The headers of columns: those of all lists, those that `-o wide` adds, and those that a page of one adds.
pub(super) type Columns = [Vec<&'static str>; 3];

/// The kinds in the order of their references: a kind names only those before it. Targets name all but subscriptions.
pub(super) static KINDS: LazyLock<Vec<DocumentKind>> =
    LazyLock::new(|| serde_json::from_str(include_str!("kinds.json")).expect("the file has kinds"));

/// What `get` and `delete` take as their kind.
#[derive(Clone, Debug)]
pub(super) enum Kind {
    Document(&'static DocumentKind),
    /// A kind of targets, or `None` for all of them.
    Targets(Option<String>),
}

/// Parses a kind by its name, its plural or another name, or `KIND/NAME`. Any further word is a kind of targets.
#[derive(Clone)]
pub(super) struct KindParser;

impl TypedValueParser for KindParser {
    type Value = (Kind, Option<String>);

    fn parse_ref(&self, command: &Command, argument: Option<&Arg>, value: &OsStr) -> Result<Self::Value, clap::Error> {
        StringValueParser::new().try_map(|text| Kind::parse(&text)).parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(Kind::names().map(PossibleValue::new)))
    }
}

impl Kind {
    /// Returns the usual names of the kinds, first the plurals.
    pub(super) fn names() -> impl Iterator<Item = &'static str> {
        let plurals = KINDS.iter().map(|kind| kind.plural).chain(["sandboxes", "routegroups"]);
        plurals.chain(KINDS.iter().map(|kind| kind.name)).chain(["sandbox", "routegroup", "all"])
    }

    fn parse(text: &str) -> Result<(Self, Option<String>), String> {
        let (text, name) = text.split_once('/').map_or((text, None), |(kind, name)| (kind, Some(name.to_owned())));
        let is_named = |kind: &&DocumentKind| [kind.name, kind.plural].contains(&text) || kind.short.contains(&text);
        let kind = match text {
            _ if let Some(kind) = KINDS.iter().find(is_named) => Self::Document(kind),
            "all" => Self::Targets(None),
            "cluster" | "clusters" | "token" | "tokens" => {
                let noun = text.trim_end_matches('s');
                return Err(format!("{noun}s have commands of their own, such as `ebb {noun} list`"));
            }
            other => Self::Targets(Some(singular_kind(other).to_owned())),
        };
        Ok((kind, name))
    }
}

/// Returns the text of a column: that of the member of the data with its name, unless it is computed.
pub(super) fn cell(header: &str, data: &Value) -> String {
    let (text, name) = (shown(&data[member(header)]), &data[member(header) + "Name"]);
    match header {
        "OWNER" | "CREATED BY" if name.is_string() => shown(name),
        // The scopes are those of a token.
        "EXPIRES" if data["scopes"].is_array() && text < shown(&timing::now().to_string().into()) => text + " (ended)",
        "SECRET" if data["hasSecret"] == false => text + " (missing)",
        "SECRET" if data["problem"].is_string() => text + " (unusable)",
        "WAITING" if data["waitingIncomplete"] == true => text + " or more",
        "PHASE" => serde_json::from_value::<TargetInfo>(data.clone()).map_or(text, |info| labels::target_state(&info)),
        "PLUGINS" => text.split(", ").map(output::plugin_name).collect::<Vec<_>>().join(", "),
        // A list of sources has a summary of the events, and the page of one has the events.
        "REJECTED" => match &data["rejected"] {
            Value::Array(events) => events.len().to_string(),
            summary => summary["count"].as_u64().unwrap_or_default().to_string(),
        },
        "LAST REJECTION" => shown(&data["rejected"]["last"]["time"]),
        "LAST REASON" => shown(&data["rejected"]["last"]["detail"]),
        _ => text,
    }
}

/// Returns the member that a column shows: that of `FIRST CAUSE` is `firstCause`.
fn member(header: &str) -> String {
    let mut words = header.split(' ').map(str::to_lowercase);
    let first = words.next().unwrap_or_default();
    words.fold(first, |member, word| member + &word[..1].to_uppercase() + &word[1..])
}

/// Returns data as people read it.
fn shown(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => timing::clock(text),
        Value::Array(items) => items.iter().map(shown).collect::<Vec<_>>().join(", "),
        Value::Object(members) => {
            members.iter().map(|(name, value)| format!("{name}={}", shown(value))).collect::<Vec<_>>().join(", ")
        }
        other => other.to_string(),
    }
}

impl DocumentKind {
    /// Returns the kind of a document, or `None` for a target.
    pub(super) fn of(document: &Document) -> Option<&'static Self> {
        KINDS.iter().find(|kind| document.noun().strip_prefix("a ") == Some(kind.name))
    }

    pub(super) fn is_plugin(&self) -> bool {
        self.name == "plugin"
    }

    /// Returns a stored document by its name, also after `KIND/`. That of a plugin has the name `NAME[@VERSION]`.
    pub(super) async fn stored(&self, client: &ApiClient, name: &str) -> Result<Value> {
        let name = name.strip_prefix(self.name).and_then(|name| name.strip_prefix('/')).unwrap_or(name);
        if self.is_plugin() {
            return name.parse::<VersionedName>().map_err(CliError::broken)?.find(client).await;
        }
        let unknown = || {
            CliError::failed(format!("no {} {name} exists", self.name)).with_hint(format!("ebb get {}", self.plural))
        };
        client.find(&[self.plural, name]).await?.ok_or_else(unknown)
    }

    /// Deletes a stored document with an option of the API, or withdraws a version of a plugin.
    pub(super) async fn delete(&self, client: &ApiClient, data: &Value, option: Option<&str>) -> Result<()> {
        let mut path = vec![self.plural, data["name"].as_str().unwrap_or_default()];
        path.extend(data["version"].as_str().into_iter().flat_map(|version| ["versions", version]));
        // Another client may have deleted it meanwhile.
        client.delete(&path, option.as_slice()).await.map(drop)
    }

    /// Returns the name of a stored document: `NAME`, or `NAME@VERSION` of a plugin.
    pub(super) fn full_name(data: &Value) -> String {
        let version = data["version"].as_str().map(|version| format!("@{version}")).unwrap_or_default();
        shown(&data["name"]) + &version
    }

    /// Returns a stored document as a page: a line for each column with a value, and tables.
    pub(super) fn page(&self, data: &Value) -> String {
        let is_readable = data["unreadable"].is_null();
        let headers = if is_readable { self.columns.concat() } else { vec!["NAME", "CHANGED", "UNREADABLE"] };
        let lines = headers.into_iter().map(|header| (header, cell(header, data))).filter(|(_, text)| !text.is_empty());
        let lines: Vec<(&str, String)> = lines.collect();
        let width = lines.iter().map(|(header, _)| header.len() + 3).max().unwrap_or_default();
        let line = |(header, text): &(&str, String)| {
            let label = format!("{}{}:", &header[..1], header[1..].to_lowercase());
            format!("{label:<width$}{}\n", output::printable(text))
        };
        let tables = match self.name {
            _ if !is_readable => String::new(),
            "plugin" => plugin::interface(data),
            "source" => events(data, "rejected", &["TIME", "TARGET", "DELIVERY", "DETAIL"]),
            "subscription" => events(data, "failures", &["AT", "TARGET", "PHASE", "REASON"]),
            _ => String::new(),
        };
        lines.iter().map(line).collect::<String>() + &tables
    }
}

/// Returns a member of a stored document as a table below its page, if there is an entry.
fn events(stored: &Value, member: &str, headers: &[&str]) -> String {
    let events = stored[member].as_array().filter(|events| !events.is_empty());
    events.map(|events| format!("\n{}", table(headers, events))).unwrap_or_default()
}

/// Returns documents or targets as a table. One that the server cannot read has its reason.
pub(super) fn table(headers: &[&str], all: &[Value]) -> String {
    let row = |data: &Value| match data["unreadable"].as_str() {
        Some(reason) => vec![shown(&data["name"]), format!("unreadable: {reason}")],
        None => headers.iter().map(|header| cell(header, data)).collect(),
    };
    output::table(headers, all.iter().map(row))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::fixtures::rows;

    #[test]
    fn columns_are_members_of_the_data() {
        let api = serde_json::to_value(ebb_api::openapi()).unwrap();
        let lists =
            KINDS.iter().map(|kind| (kind.name, &kind.columns)).chain([("target", &*crate::commands::get::TARGETS)]);
        for (name, columns) in lists {
            let info = format!("{}{}Info", name[..1].to_uppercase(), &name[1..]);
            let members = &api["components"]["schemas"][&info]["properties"];
            let headers = columns[..2].concat().into_iter().filter(|header| !header.starts_with("LAST "));
            let missing: Vec<&str> = headers.filter(|header| !members[member(header)].is_object()).collect();
            assert!(missing.is_empty(), "{info} has no {missing:?}");
        }
    }

    #[test]
    fn kinds_have_several_names() {
        for (names, expected) in rows::<(Vec<String>, String)>("kinds_have_several_names") {
            for name in names {
                let parsed = match Kind::parse(&name).unwrap().0 {
                    Kind::Document(kind) => {
                        crate::target::target_kind(&name).unwrap_err();
                        kind.name.to_owned()
                    }
                    Kind::Targets(kind) => kind.unwrap(),
                };
                assert_eq!(parsed, expected, "{name}");
            }
        }
        assert!(matches!(Kind::parse("all"), Ok((Kind::Targets(None), None))));
        assert!(matches!(Kind::parse("sb/a"), Ok((Kind::Targets(Some(_)), Some(name))) if name == "a"));
        assert!(Kind::parse("clusters").unwrap_err().contains("ebb cluster list"));
    }
}
