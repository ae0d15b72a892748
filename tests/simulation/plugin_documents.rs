//! The text of plugin documents.

use super::*;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum UnitAction {
    Pod,
    /// A webhook that responds with its result.
    Once,
    /// A webhook that responds with 202 and calls back.
    Later,
    /// A webhook that responds with 202 and expects another request.
    Again,
    /// An instance of a plugin of InfraKit. The compiler adds its undo.
    Plugin,
    /// A request to the provider, see [`super::ProviderUnit`].
    Provider,
}

impl UnitAction {
    /// Returns the action of a webhook unit, by the URL of its server, or by the path at its connection. Some of the URLs
    /// are those of the examples.
    pub fn of_url(url: &str) -> Self {
        match url {
            _ if url.contains("/things") => Self::Provider,
            _ if url.contains("/later/") || url.contains("/indexes") => Self::Later,
            _ if url.contains("/again/") || url.contains("/certificates") => Self::Again,
            _ => Self::Once,
        }
    }
}

/// The attempts of a unit without a `retry` of its own.
pub const ATTEMPTS: u32 = 3;
pub(super) const DEFAULTS: &str = "{timeout: 5m, retry: {attempts: 3, backoff: 1s, maxBackoff: 4s}}";

/// Returns the lines before the hooks. A plugin that is wired has the parameter `wire`.
pub(crate) fn head(name: &str, is_wired: bool, defaults: &str) -> String {
    let wire = if is_wired { "\n  wire: {type: string}" } else { "" };
    format!(
        "apiVersion: ebb.dev/v1\nkind: Plugin\nname: {name}@1.0.0\nparams:\n  off: {{type: boolean, default: false}}\n  size: {{type: integer, default: 0}}{wire}\n\
         runners:\n  shell: {{image: \"busybox:1.37\", namespace: scripts}}\ndefaults: {defaults}\n"
    )
}

/// The line of a unit for each entry of the param `items`.
pub(super) const EACH: &str = "    forEach: ${params.items}\n";

/// Adds the param `items` with this default to the lines before the hooks.
pub(super) fn with_items(head: &str, default: &str) -> String {
    head.replacen("\nrunners:", &format!("\n  items: {{type: array, default: {default}}}\nrunners:"), 1)
}

/// Returns a hook with its units, or nothing if it has none.
pub(crate) fn hook(hook: Hook, units: impl Iterator<Item = String>) -> String {
    let units: String = units.collect();
    if units.is_empty() { units } else { format!("{}:\n{units}", hook.name()) }
}

pub(super) fn list(key: &str, names: &[String]) -> String {
    if names.is_empty() { String::new() } else { format!("    {key}: [{}]\n", names.join(", ")) }
}

/// Returns the entries of inputs: an output of a unit as `UNIT.OUTPUT`, or `UNIT` for its `id`; the parameter `wire`, or
/// `old` for its value before an update; the entry `item` of a list.
pub(super) fn values(reads: &[String]) -> Vec<String> {
    let value = |read: &String| match (read.as_str(), read.split_once('.')) {
        ("wire", _) => "wire: \"${params.wire}\"".to_owned(),
        ("item", _) => "item: \"${item}\"".to_owned(),
        ("old", _) => "old: \"${old.params.wire}\"".to_owned(),
        (_, Some((unit, output))) => format!("{unit}: \"${{units.{unit}.outputs.{output}}}\""),
        (unit, None) => format!("{unit}: \"${{units.{unit}.outputs.id}}\""),
    };
    reads.iter().map(value).collect()
}

/// Returns the lines of the action of a unit and its inputs, see [`values`].
pub(crate) fn body(name: &str, action: UnitAction, reads: &[String]) -> String {
    let values = values(reads).join(", ");
    match action {
        UnitAction::Pod if values.is_empty() => POD.to_owned(),
        UnitAction::Pod => format!("{POD}    inputs: {{{values}}}\n"),
        UnitAction::Plugin => {
            format!("    infrakit: {{plugin: files, maxProcessingTime: TIME, properties: {{{values}}}}}\n")
        }
        _ => {
            let folder = format!("{action:?}").to_lowercase();
            format!("    webhook: {{url: \"https://outside.test/{folder}/{name}\", body: {{{values}}}}}\n")
        }
    }
}

pub(super) const POD: &str = "    pod: {runner: shell, script: \"#!/bin/sh\\ntrue\\n\"}\n";

/// Returns a unit with the output `id`. `rest` has further lines.
pub(crate) fn setup(name: &str, action: UnitAction, reads: &[String], rest: &str) -> String {
    let output = match action {
        UnitAction::Pod => "file: /out/id",
        UnitAction::Plugin => "value: \"${instance.ID}\"",
        _ => "value: \"${response.body.id}\"",
    };
    // A plugin that works longer than a response is awaited, and less than the timeout.
    let time = if rest.contains("timeout: 30s") { "25s" } else { "110s" };
    let body = body(name, action, reads).replace("TIME", time);
    format!("  {name}:\n{rest}{body}    outputs: {{id: {{{output}}}}}\n")
}

/// Returns a unit that undoes `undone`, whose outputs it reads.
pub(super) fn undo(name: &str, action: UnitAction, undone: &[String], after: &[String]) -> String {
    format!("  {name}:\n{}{}{}", list("undoes", undone), list("after", after), body(name, action, undone))
}
