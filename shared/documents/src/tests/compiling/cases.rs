//! Documents with their plans and rendered units, as tables list them.
#![allow(clippy::disallowed_methods, reason = "tests read files")]

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};

use super::fixtures::{ALONE, OneFile, planned};
use super::plans::outline;
use super::rendering::{facts, known, previewed, rendered, response_outputs, shown};
use crate::render::{ProducerState, RenderResult, RenderValue, RenderedRequest, RenderedUnit};
use crate::{Diagnostic, Diagnostics, Document, DocumentVars, NoFiles, Plan, RouteGroupDoc, load, render};

/// Documents and what is made of them. The tables describe the keys.
#[serde_with::apply(BTreeMap => #[serde(default)])]
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DocumentCase {
    case: String,
    documents: Vec<String>,
    #[serde(default)]
    changes: Vec<(String, String)>,
    error: Option<String>,
    outline: Option<String>,
    teardown: Option<Vec<String>>,
    warnings: Option<Vec<String>>,
    codes: BTreeMap<String, bool>,
    parts: BTreeMap<String, Value>,
    #[serde(default)]
    embedded: String,
    made: BTreeMap<String, Value>,
    units: BTreeMap<String, Value>,
    previews: BTreeMap<String, Value>,
    #[serde(default)]
    answers: Vec<(String, Value, Value)>,
    outputs: Option<Value>,
    env: Option<Value>,
    snapshot: Option<String>,
}

/// Returns the state of a unit: its outputs, `skipped`, or `absent`.
fn state(made: &Value) -> ProducerState {
    let value = |made: &Value| match (made.get("secretRef"), made.get("bytes")) {
        (Some(secret), _) => RenderValue::Secret(serde_json::from_value(secret.clone()).unwrap()),
        (None, Some(bytes)) => RenderValue::Bytes(serde_json::from_value(bytes.clone()).unwrap()),
        (None, None) => RenderValue::Json(made.clone()),
    };
    match made {
        Value::Object(outputs) => {
            ProducerState::Outputs(outputs.iter().map(|(name, made)| (name.clone(), value(made))).collect())
        }
        Value::String(word) if word == "skipped" => ProducerState::Skipped,
        Value::String(word) if word == "absent" => ProducerState::Absent,
        other => panic!("{other}"),
    }
}

fn values_as_json(values: &BTreeMap<String, RenderValue>) -> Value {
    let value = |value: &RenderValue| match value {
        RenderValue::Json(json) => json.clone(),
        other => panic!("{other:?}"),
    };
    values.iter().map(|(name, made)| (name.clone(), value(made))).collect()
}

fn unit_as_json(unit: RenderResult<RenderedUnit>) -> Value {
    match unit {
        Ok(RenderedUnit::Skipped(why)) => json!({"skipped": why}),
        Ok(RenderedUnit::Pod { inputs }) => {
            let inputs: BTreeMap<_, _> = inputs.iter().map(|input| (&input.name, input.value.shown())).collect();
            json!({"inputs": inputs})
        }
        Ok(RenderedUnit::Webhook(RenderedRequest { url, headers, body, .. })) => {
            json!({"url": url, "headers": headers, "body": body.map(|body| body.shown())})
        }
        Ok(RenderedUnit::Object { manifests, fill }) => json!({"manifests": manifests, "fill": fill}),
        Ok(other) => panic!("{other:?}"),
        Err(error) => json!({"error": error.to_string()}),
    }
}

impl DocumentCase {
    fn text(&self, written: &str) -> String {
        let text = match written.ends_with(".yaml") {
            true => std::fs::read_to_string(format!("{}/tests/plans/{written}", env!("CARGO_MANIFEST_DIR"))).unwrap(),
            false => written.to_owned(),
        };
        self.changes.iter().fold(text, |text, (from, to)| text.replace(from, to))
    }

    fn compiled(&self) -> Result<(Plan, Vec<Diagnostic>), Diagnostics> {
        let texts: Vec<String> = self.documents.iter().map(|written| self.text(written)).collect();
        let documents: Vec<&str> = texts.iter().flat_map(|text| text.split("\n---\n")).collect();
        let (sandbox, plugins) = match documents.split_last() {
            Some((sandbox, plugins)) if !plugins.is_empty() => (*sandbox, plugins),
            _ => (ALONE, documents.as_slice()),
        };
        let (files, none) = (OneFile(self.embedded.as_bytes()), DocumentVars::none());
        let sandbox = match load::document("sandbox.yaml", sandbox, &NoFiles, &none)? {
            Document::Sandbox(target) | Document::RouteGroup(RouteGroupDoc { target, .. }) => target,
            other => panic!("{}: {other:?}", self.case),
        };
        let mut loaded = Vec::new();
        for text in plugins {
            loaded.extend(load::plugins("plugin.yaml", text, &files, &none)?);
        }
        planned(&sandbox, &loaded)
    }

    /// Compares the values that a row has.
    fn check(&self, found: &Value, expected: &Value, place: &str) {
        for (key, expected) in expected.as_object().unwrap() {
            assert_eq!(found[key], *expected, "{}: {place}: {found}", self.case);
        }
    }

    fn check_plan(&self, plan: &Plan, warned: &[Diagnostic]) {
        let case = &self.case;
        let outline = outline(plan);
        if let Some(expected) = &self.outline {
            assert_eq!(outline, *expected, "{case}");
        }
        if let Some(expected) = &self.teardown {
            let found: Vec<&str> = outline.lines().filter(|line| line.starts_with("postStop: ")).collect();
            assert_eq!(found, *expected, "{case}");
        }
        let found: Vec<String> = warned.iter().map(Diagnostic::plain).collect();
        if let Some(expected) = &self.warnings {
            assert_eq!(found, *expected, "{case}");
        }
        for (code, is_warned) in &self.codes {
            assert_eq!(warned.iter().any(|warning| warning.code == *code), *is_warned, "{case}: {code}: {found:?}");
        }
        let json = json!(plan);
        for (pointer, expected) in &self.parts {
            assert_eq!(json.pointer(pointer).unwrap_or(&Value::Null), expected, "{case}: {pointer}");
        }
    }

    fn check_units(&self, plan: &Plan) {
        let states: Vec<(&str, ProducerState)> =
            self.made.iter().map(|(key, made)| (key.as_str(), state(made))).collect();
        for (key, expected) in &self.units {
            self.check(&unit_as_json(rendered(plan, key, &states)), expected, key);
        }
        for (key, expected) in &self.previews {
            self.check(&unit_as_json(previewed(plan, key)), expected, key);
        }
        for (key, body, expected) in &self.answers {
            let made = response_outputs(plan, key, body.clone());
            let found = made.map_or_else(|error| json!({"error": error.to_string()}), |made| values_as_json(&made));
            assert_eq!(found, *expected, "{}: {key}: {body}", self.case);
        }
        let known = known(plan, &states);
        if let Some(expected) = &self.outputs {
            let made = render::resource_outputs(plan, &facts(), &known, None).unwrap();
            let found: Value = made.iter().map(|(resource, made)| (resource.clone(), values_as_json(made))).collect();
            self.check(&found, expected, "outputs");
        }
        if let Some(expected) = &self.env {
            let (variables, errors) = render::env(plan, &facts(), &known);
            let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
            self.check(&json!({"variables": values_as_json(&variables), "errors": errors}), expected, "env");
        }
        if let Some(name) = &self.snapshot {
            insta::assert_snapshot!(name.as_str(), shown(plan, &states));
        }
    }
}

#[test]
fn documents_have_these_plans_and_units() {
    for table in [include_str!("../../../tests/planned.yaml"), include_str!("../../../tests/rendered.yaml")] {
        let cases: Vec<DocumentCase> = serde_saphyr::from_str(table).unwrap();
        for of in &cases {
            match (of.compiled(), &of.error) {
                (Ok((plan, warned)), None) => {
                    of.check_plan(&plan, &warned);
                    of.check_units(&plan);
                }
                (Err(errors), Some(expected)) => assert_eq!(errors.to_string(), *expected, "{}", of.case),
                (made, _) => panic!("{}: {made:?}", of.case),
            }
        }
    }
}
