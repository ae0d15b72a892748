//! Compiles the outputs of a unit.

use std::collections::BTreeMap;

use super::collector::DiagnosticCollector;
use super::input_destinations;
use super::webhook_action::answers;
use crate::cel::Scope;
use crate::model::{ActionDoc, Dialect, OutputDoc, OutputFromDoc, PluginDoc, UnitDoc};
use crate::plan::{OutputFrom, OutputPlan};

pub(super) fn compile(
    report: &mut DiagnosticCollector,
    plugin: &PluginDoc,
    doc: &UnitDoc,
) -> BTreeMap<String, OutputPlan> {
    let outputs = doc.outputs.iter().filter_map(|output| {
        let from = source(report, &doc.action, output)?;
        if output.optional && !matches!(output.from, OutputFromDoc::Value(_)) {
            let message = format!("output `{}` cannot be `optional`", output.name.value);
            let help = "only a `value` can be missing; a script can write an empty file";
            report.push(report.error("output", output.name.at, message).help(help));
        }
        let (optional, description) = (output.optional, output.description.clone());
        let sensitive = output.is_sensitive();
        let sensitive_by_default = sensitive && plugin.dialect == Dialect::Signadot;
        let plan = OutputPlan { from, sensitive, sensitive_by_default, optional, description };
        Some((output.name.value.clone(), plan))
    });
    outputs.collect()
}

fn source(report: &mut DiagnosticCollector, action: &ActionDoc, output: &OutputDoc) -> Option<OutputFrom> {
    let name = &output.name.value;
    let what = format!("output `{name}`");
    let (at, message, help) = match (&output.from, action) {
        (OutputFromDoc::File(path), ActionDoc::Pod(_)) => {
            input_destinations::check_path(report, path);
            return Some(OutputFrom::File(path.value.clone()));
        }
        (OutputFromDoc::Secret(secret), ActionDoc::Object(_)) => {
            let what = format!("the Secret's name of {what}");
            let expression = if secret.name.value.contains("${") {
                report.expression(&what, &secret.name, Scope::Objects)?
            } else {
                // A literal name becomes a CEL string.
                serde_json::Value::from(secret.name.value.as_str()).to_string()
            };
            return Some(OutputFrom::Secret { name: expression, key: secret.key.value.clone() });
        }
        (OutputFromDoc::Value(text), ActionDoc::Webhook(_)) => {
            return report.expression(&what, text, answers(report)).map(OutputFrom::Expression);
        }
        (OutputFromDoc::Value(text), ActionDoc::Infrakit(_)) => {
            return report.expression(&what, text, Scope::Instance).map(OutputFrom::Expression);
        }
        (OutputFromDoc::Value(text), ActionDoc::Object(_)) => {
            return report.expression(&what, text, Scope::Objects).map(OutputFrom::Expression);
        }
        (OutputFromDoc::File(path), _) => (
            path.at,
            "only a pod has files",
            "take it from the answer: `{value: \"${response.body.id}\"}`, from the object: `${object.status…}`, or from \
             the instance: `${instance.ID}`"
                .to_owned(),
        ),
        (OutputFromDoc::Value(text), ActionDoc::Pod(_)) => (
            text.at,
            "an output of a pod is a file",
            format!("let the script write a file and name it: `{name}: {{file: /out/{name}}}`"),
        ),
        (OutputFromDoc::Secret(secret), _) => (
            secret.key.at,
            "only objects bring Secrets",
            "name a pod's file with `file: /PATH`, or take a value of the answer with `value: ${…}`".to_owned(),
        ),
    };
    report.push(report.error("output", at, message).help(help));
    None
}
