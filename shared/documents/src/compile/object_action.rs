//! Compiles the action of a unit with Kubernetes objects.

use ebb_engine::Hook;

use super::{DiagnosticCollector, TextRole, object_names};
use crate::plan::{ManifestConditions, ObjectAction, PLUGIN_UPDATE};
use crate::{At, Diagnostic, ObjectDoc, ReferenceSource, Scope, TemplateTree, UnitDoc};

pub(super) fn compile(report: &mut DiagnosticCollector, doc: &UnitDoc, hook: Hook, object: &ObjectDoc) -> ObjectAction {
    let manifest = &object.manifest;
    if hook == PLUGIN_UPDATE {
        let message = format!("`{}` in update cannot be an `object` unit", doc.name.value);
        let help = "leave `update` out: the objects are then deleted, and applied again";
        report.push(report.error("hook-order", manifest.at, message).help(help));
    }
    report.role = TextRole::Manifest;
    let first = report.reads.len();
    let mut tree = report.strings(manifest, report.units);
    match (&object.data, &manifest.value) {
        (Some(data), _) => {
            check_bound_place(report, first);
            report.role = if tree["kind"] == "Secret" { TextRole::BoundSecret } else { TextRole::BoundConfigMap };
            tree["data"] = report.strings(data, report.units);
        }
        (None, TemplateTree::List(manifests)) => {
            if manifests.is_empty() {
                report.push(report.error("manifest", manifest.at, "the list of manifests is empty"));
            }
            manifests.iter().for_each(|manifest| check_manifest(report, manifest));
        }
        (None, _) => check_manifest(report, manifest),
    }
    for manifest in object_names::manifests(manifest) {
        let wrong = object_names::wrong(&report.source, manifest, &manifest.value.to_json());
        report.found.extend(wrong);
    }
    let ready = object.ready.as_ref().and_then(|ready| conditions(report, "`ready`", ready, manifest));
    let fail = object.fail.as_ref().and_then(|fail| conditions(report, "`fail`", fail, manifest));
    if let Some(first) = doc.inputs.first() {
        let help = "put the value into the manifest: `${…}`";
        report.push(report.error("input", first.name.at, "an object has no inputs").help(help));
    }
    let fail_fast = doc.fail_fast.as_ref().is_some_and(|fails| fails.value);
    ObjectAction { manifest: tree, ready, fail, bound: object.data.is_some(), fail_fast }
}

/// Compiles `ready` or `fail` of objects: one text, or a list with an entry for each manifest.
fn conditions(
    report: &mut DiagnosticCollector,
    what: &str,
    written: &At<TemplateTree>,
    manifest: &At<TemplateTree>,
) -> Option<ManifestConditions> {
    let TemplateTree::List(entries) = &written.value else {
        return condition(report, what, written).map(ManifestConditions::First);
    };
    let expected = match &manifest.value {
        TemplateTree::List(manifests) => manifests.len(),
        _ => 1,
    };
    if entries.len() != expected {
        let message = format!("{what} is a list of {}; expected {expected}, one for each manifest", entries.len());
        let help = "keep the order of the manifests, and write `null` for one that is judged by its kind";
        report.push(report.error("contradiction", written.at, message).help(help));
    }
    let entries = entries.iter().map(|entry| match &entry.value {
        TemplateTree::Scalar(serde_json::Value::Null) => None,
        _ => condition(report, what, entry),
    });
    Some(ManifestConditions::Each(entries.collect()))
}

fn condition(report: &mut DiagnosticCollector, what: &str, written: &At<TemplateTree>) -> Option<String> {
    let TemplateTree::Text(text) = &written.value else {
        let message = format!("{what} must be a text with an expression over `object`, or a list of such texts");
        report.push(report.error("wrong-type", written.at, message).help("such as `${object.status.ready}`"));
        return None;
    };
    let text = At { value: text.clone(), at: written.at };
    report.expression(what, &text, Scope::Object)
}

/// Checks that the name and the namespace of an object of `bind` follow from the target. Their reads begin at the position
/// `first`.
fn check_bound_place(report: &mut DiagnosticCollector, first: usize) {
    let foreign = report.reads[first..].iter().filter(|found| !matches!(found.source, ReferenceSource::Target(_)));
    let wrong = foreign.map(|found| {
        let message = format!("the place of a bound object cannot depend on `{}`", found.source);
        let help = "write name and namespace literally, or with `${target.…}`";
        report.error_in("bind", &found.spot, message).help(help)
    });
    let wrong: Vec<Diagnostic> = wrong.collect();
    report.found.extend(wrong);
}

/// Checks a manifest: `apiVersion` and `kind` are literal, and the namespace does not depend on inputs.
fn check_manifest(report: &mut DiagnosticCollector, manifest: &At<TemplateTree>) {
    let TemplateTree::Map(_) = &manifest.value else {
        let message = "a manifest is a mapping with `apiVersion`, `kind` and `metadata`";
        let help = "write it as YAML here, or embed it with `@{embed[yaml]: FILE}`";
        return report.push(report.error("manifest", manifest.at, message).help(help));
    };
    for key in ["apiVersion", "kind"] {
        match manifest.value.get(key).map(|value| (value.at, &value.value)) {
            Some((at, TemplateTree::Text(text))) if text.contains("${") => {
                let wrong = report.error("manifest", at, format!("`{key}` must be literal"));
                report.push(wrong.help("what is made must not depend on inputs"));
            }
            Some((_, TemplateTree::Text(text))) if !text.is_empty() => {}
            _ => {
                let wrong = report.error("manifest", manifest.at, format!("the manifest has no `{key}`"));
                report.push(wrong.help(format!("add `{key}:`, a text")));
            }
        }
    }
    let metadata = manifest.value.get("metadata").map(|metadata| &metadata.value);
    if metadata.is_none_or(|metadata| metadata.get("name").is_none()) {
        let wrong = report.error("manifest", manifest.at, "the manifest has no `metadata.name`");
        report.push(wrong.help("such as `name: \"cache-${target.key}\"`"));
    }
    if let Some(namespace) = metadata.and_then(|metadata| metadata.get("namespace")) {
        // A separate collector discards the errors, because they are reported with the rest of the manifest.
        let mut scratch = DiagnosticCollector::new(&report.source, &report.steps);
        scratch.strings(namespace, report.units);
        if scratch.reads.iter().any(|found| !matches!(found.source, ReferenceSource::Target(_))) {
            let help = "write it literally, or `${target.namespace}`";
            report.push(report.error("manifest", namespace.at, "an input cannot choose the namespace").help(help));
        }
    }
}
