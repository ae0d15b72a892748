//! The parts of a unit with a plugin of InfraKit.

use std::collections::BTreeMap;

use ebb_engine::{Hook, Millis};
use serde_json::json;

use super::{DiagnosticCollector, ExpressionRead, TextRole, defaults};
use crate::plan::{InfrakitAction, PluginInterface, Template};
use crate::{At, Diagnostic, InfrakitDoc, Named, ReferenceSource, TemplateTree, UnitDoc};

/// The default of `maxProcessingTime` in milliseconds, unless half of the timeout is less.
const PROCESSING_MS: u64 = 60_000;
/// The maximum number of characters of a plugin's name, and of a type.
const MAX_NAME: usize = 253;

pub(super) fn action(
    report: &mut DiagnosticCollector,
    doc: &UnitDoc,
    hook: Hook,
    instance: &InfrakitDoc,
) -> InfrakitAction {
    if hook > Hook::PostStart {
        let message = format!("`{}` in {} cannot be an `infrakit` unit", doc.name.value, hook.name());
        let help = "put it into preStart or postStart; Ebb destroys its resource in postStop";
        report.push(report.error("hook-order", instance.plugin.at, message).help(help));
    }
    if let Some(first) = doc.inputs.first() {
        let help = "put the value into `properties`: `${…}`";
        report.push(report.error("input", first.name.at, "an `infrakit` unit has no inputs").help(help));
    }
    let (plugin, instance_type) = plugin_name(report, &instance.plugin);
    if instance.interface == PluginInterface::Controller {
        check_spec(report, instance);
    }
    let scope = report.units;
    report.role = TextRole::Infrakit;
    let first = report.reads.len();
    let properties = instance.properties.as_ref().map_or_else(|| json!({}), |tree| report.strings(tree, scope));
    if instance.interface != PluginInterface::Instance {
        check_search(report, first);
    }
    report.role = TextRole::InfrakitText;
    let mut text = |text: &At<String>| -> Template { report.text(&text.value, text.at, scope) };
    let init = instance.init.as_ref().map(&mut text);
    let logical_id = instance.logical_id.as_ref().map(&mut text);
    let tags: BTreeMap<String, Template> =
        instance.tags.iter().map(|Named { name, inner }| (name.value.clone(), text(inner))).collect();
    let attachments = instance.attachments.as_ref().map(|tree| report.strings(tree, scope));
    if let Some(tree) = instance.attachments.as_ref().filter(|tree| !matches!(tree.value, TemplateTree::List(_))) {
        let help = "write `[{ID: …, Type: …}]`";
        report.push(report.error("wrong-type", tree.at, "`attachments` is not a list").help(help));
    }
    let max_processing_time_ms = processing_time(report, doc, instance);
    InfrakitAction {
        plugin,
        instance_type,
        interface: instance.interface,
        properties,
        init,
        tags,
        logical_id,
        attachments,
        max_processing_time_ms,
    }
}

/// Returns the name and the type of a plugin. Reports invalid ones.
fn plugin_name(report: &mut DiagnosticCollector, plugin: &At<String>) -> (String, String) {
    let text = plugin.value.as_str();
    let (name, instance_type) = text.split_once('/').unwrap_or((text, ""));
    let valid = |part: &str, more: &[char]| {
        part.starts_with(|c: char| c.is_ascii_alphanumeric())
            && part.chars().all(|c| c.is_ascii_alphanumeric() || more.contains(&c))
            && !part.contains("..")
            && part.len() <= MAX_NAME
    };
    let typed = !text.contains('/') || valid(instance_type, &['-', '_', '.', '/']);
    if !valid(name, &['-', '_', '.']) || !typed {
        let message = format!("`{text}` is not a plugin of InfraKit");
        let help = if text.contains("${") {
            "the name is literal, so that no value can choose another plugin".to_owned()
        } else {
            format!(
                "write NAME or NAME/TYPE, each of letters, digits, `-`, `_` and `.`, a letter or digit first, no `..`, \
                 at most {MAX_NAME} characters"
            )
        };
        report.push(report.error("plugin-name", plugin.at, message).help(help));
    }
    (name.to_owned(), instance_type.to_owned())
}

fn check_spec<'a>(report: &mut DiagnosticCollector, instance: &'a InfrakitDoc) {
    let help = "a controller gets a whole `Spec`: `kind`, `metadata` with `name`, `properties` and `options`";
    let spec = instance.properties.as_ref();
    let at = spec.map_or(instance.plugin.at, |spec| spec.at);
    let of = |tree: Option<&'a At<TemplateTree>>, key| tree.and_then(|tree| tree.value.get(key));
    for (path, found) in [("kind", of(spec, "kind")), ("metadata.name", of(of(spec, "metadata"), "name"))] {
        if found.is_none() {
            let message = format!("the properties of this controller have no `{path}`");
            report.push(report.error("missing-key", at, message).help(help));
        }
    }
}

/// Rejects what each update changes in the properties by which a plugin finds its resource. Their reads begin at the
/// position `first`.
fn check_search(report: &mut DiagnosticCollector, first: usize) {
    let changes =
        |read: &&ExpressionRead| matches!(&read.source, ReferenceSource::Target(field) if field == "generation");
    let wrong = report.reads[first..].iter().filter(changes).map(|read| {
        let message = "the properties of this resource read `target.generation`, which rises with each update";
        let help = "the plugin finds the resource by these properties when Ebb destroys it; read `target.uid`";
        report.error_in("reference", &read.spot, message).help(help)
    });
    let wrong: Vec<Diagnostic> = wrong.collect();
    report.found.extend(wrong);
}

/// Returns the longest time for which the plugin processes a request, and checks that it is below the timeout.
fn processing_time(report: &mut DiagnosticCollector, doc: &UnitDoc, instance: &InfrakitDoc) -> u64 {
    let timeout = defaults::timeout(doc);
    let Some(time) = instance.max_processing_time else { return PROCESSING_MS.min(timeout / 2) };
    if time.0 >= timeout {
        let name = &doc.name.value;
        let (time, timeout) = (Millis(time.0), Millis(timeout));
        let message = format!("the `maxProcessingTime` of `{name}` is {time}; it must be below its timeout, {timeout}");
        let help = "set `maxProcessingTime` to the longest time for which the plugin processes a request";
        report.push(report.error("limit", instance.plugin.at, message).help(help));
    }
    time.0
}
