//! Expressions over the response of a webhook.

use std::collections::BTreeMap;

use ebb_documents::cel::{self, Scope};
use ebb_documents::load::{self, DocumentVars, NoFiles};
use ebb_documents::plan::{Plan, UnitRef};
use ebb_documents::render::{self, Answers, KnownOutputs, MAX_VALUE_BYTES, RenderError, TargetFacts, UnitContext};
use ebb_documents::{compile, model::PluginDoc};
use ebb_engine::Hook;
use serde_json::Value;

use crate::{InputParts, placed};

/// The end of each text in the response. Errors must not repeat it.
const CANARY: &str = "Q7canaryZ";

/// Runs an expression, the first part, over a response body in JSON, the second part.
pub(crate) fn expressions(parts: &InputParts<'_>) {
    let text = parts.get(0);
    for scope in [Scope::Plugin, Scope::Sandbox, Scope::Response, Scope::Objects, Scope::Plan] {
        match cel::parse(text, scope) {
            Ok(expression) => {
                for reference in &expression.references {
                    assert!(text.is_char_boundary(reference.offset), "{reference:?}");
                }
            }
            Err(mistakes) => {
                assert!(!mistakes.is_empty());
                for mistake in &mistakes {
                    assert!(text.is_char_boundary(mistake.offset), "{mistake:?}");
                    assert!(!mistake.message.is_empty(), "{mistake:?}");
                }
            }
        }
    }
    let body = serde_json::from_str(parts.get(1)).unwrap_or_else(|_| Value::from(parts.get(1)));
    let Some(plan) = plan(text) else { return };
    let (at, facts, known) = (UnitRef { hook: Hook::PreStart, unit: 0 }, TargetFacts::default(), KnownOutputs::new());
    let context = UnitContext { plan: &plan, at, facts: &facts, known: &known };
    let headers = BTreeMap::from([("x-one".to_owned(), format!("one{CANARY}"))]);
    let response = render::response_value(200, headers, marked(body));
    let answers = Answers { response: &response, poll: None };
    let made = context.outputs(answers);
    assert_eq!(made, context.outputs(answers), "evaluated twice");
    match made {
        Ok(outputs) => {
            for output in outputs.values() {
                let size = match output {
                    render::RenderValue::Json(json) => json.to_string().len(),
                    render::RenderValue::Bytes(bytes) => bytes.len(),
                    render::RenderValue::Secret(_) | render::RenderValue::Sealed(_) => {
                        panic!("a response has no secrets");
                    }
                };
                assert!(size <= MAX_VALUE_BYTES);
            }
        }
        Err(error @ RenderError::Plan { .. }) => panic!("{error}"),
        Err(error) => {
            let message = error.to_string();
            assert!(!message.contains(CANARY) || text.contains(CANARY), "a value is in the error: {message}");
        }
    }
}

/// Returns the value with the canary in each text. Field names stay, because expressions use them.
fn marked(value: Value) -> Value {
    match value {
        Value::String(text) => format!("{text}{CANARY}").into(),
        Value::Array(items) => items.into_iter().map(marked).collect(),
        Value::Object(map) => map.into_iter().map(|(key, value)| (key, marked(value))).collect(),
        other => other,
    }
}

/// Returns a plan of one webhook with this expression as output; `None` if it is rejected.
fn plan(expression: &str) -> Option<Plan> {
    let document = serde_json::json!({
        "apiVersion": "ebb.dev/v1", "kind": "Plugin", "name": "p",
        "preStart": {"u": {
            "webhook": {"url": "https://example.org/"},
            "outputs": {"o": {"value": format!("${{{expression}}}")}},
        }},
    });
    let plugins = load::plugins("p.yaml", &document.to_string(), &NoFiles, &DocumentVars::none());
    bound(placed::accepted(plugins)?.first()?)
}

/// Returns the plan of a sandbox with one resource of this plugin; `None` if it is rejected.
pub(crate) fn bound(plugin: &PluginDoc) -> Option<Plan> {
    let sandbox = "apiVersion: ebb.dev/v1\nkind: Sandbox\nname: s\nresources: {r: {plugin: p}}\n";
    let sandbox = load::sandbox("s.yaml", sandbox, &NoFiles, &DocumentVars::none()).expect("it is well written");
    let version = semver::Version::new(0, 0, 0);
    let bound = compile::BoundPlugin { plugin, version: &version, digest: "sha256:00" };
    let compiled = compile::plan(&sandbox, &[("r".to_owned(), bound)].into());
    placed::accepted(compiled).map(|(plan, ..)| plan)
}
