//! Tests the uses of sensitive values that the control plane stores encrypted.

use ebb_engine::Hook;
use serde_json::json;

use super::fixtures::{ALONE, alone, compiled};
use crate::diagnostic::Diagnostics;
use crate::plan::{Plan, Template, UnitRef};
use crate::render::{
    self, InputValue, KnownOutputs, ProducerState, RenderError, RenderValue, RenderedUnit, RequestBody, SealedValue,
    TargetFacts, UnitContext,
};
use crate::tests::rows;

/// A plugin whose unit `use` reads a sensitive output of a webhook.
fn plugin(unit: &str) -> String {
    let unit = unit.replace("DSN", "${units.make.outputs.dsn}");
    format!(
        "apiVersion: ebb.dev/v1\nkind: Plugin\nname: p\nrunners: {{sh: {{image: alpine}}}}\npreStart:\n  make:\n    \
         webhook: {{url: \"https://e.example.org/\"}}\n    \
         outputs: {{dsn: {{value: \"${{response.body.dsn}}\", sensitive: true}}}}\n  use: {unit}\n"
    )
}

#[test]
fn an_encrypted_output_is_handed_on_whole() {
    for (unit, expected) in rows::<(String, Option<String>)>("an_encrypted_output_is_handed_on_whole") {
        let found = match compiled(ALONE, &[&plugin(&unit)]) {
            Ok(_) => Vec::new(),
            Err(errors) => errors.iter().map(|error| error.message.clone()).collect(),
        };
        let message = |place: String| format!("`units.make.outputs.dsn` is sensitive and cannot {place}");
        assert_eq!(found, expected.map(message).into_iter().collect::<Vec<_>>(), "{unit}");
    }
}

#[test]
fn an_encrypted_output_is_decrypted_for_its_recipient_only() {
    let sealed = RenderValue::Sealed(SealedValue { place: "here".to_owned(), text: "the text".to_owned() });
    let outputs = ProducerState::Outputs([("dsn".to_owned(), sealed)].into());
    let hook = Hook::PreStart;
    let known = KnownOutputs::from([(UnitRef { hook, unit: 0 }, outputs)]);
    let open = |sealed: &SealedValue| {
        assert_eq!((sealed.place.as_str(), sealed.text.as_str()), ("here", "the text"));
        Some(RenderValue::Json(json!("opened")))
    };
    for unit in [
        "{webhook: {url: \"https://e.example.org/\", headers: {X-Key: \"DSN\"}, body: {a: [\"DSN\", 1]}}}",
        "{webhook: {url: \"https://e.example.org/\"}, inputs: {k: \"DSN\"}}",
        "{pod: {script: '#!/bin/sh'}, inputs: {k: \"DSN\"}}",
        "{infrakit: {plugin: net, properties: {k: \"DSN\"}}}",
    ] {
        let plan = alone(&plugin(unit));
        let (at, facts) = (UnitRef { hook, unit: 1 }, TargetFacts::default());
        let context = UnitContext { plan: &plan, at, facts: &facts, known: &known };
        match render::unit(context, Some(&open)).unwrap() {
            RenderedUnit::Webhook(request) if request.headers.is_empty() => {
                assert_eq!(request.body, Some(RequestBody::Json(json!({"k": "opened"}))));
            }
            RenderedUnit::Webhook(request) => {
                assert_eq!(request.headers["X-Key"], "opened");
                assert_eq!(request.body, Some(RequestBody::Json(json!({"a": ["opened", 1]}))));
            }
            RenderedUnit::Pod { inputs } => assert_eq!(inputs[0].value, InputValue::Opened(b"opened".to_vec())),
            RenderedUnit::Infrakit(instance) => assert_eq!(instance.properties, json!({"k": "opened"})),
            other => panic!("{other:?}"),
        }
        let lost = render::unit(context, Some(&|_: &SealedValue| None));
        assert!(matches!(lost, Err(RenderError::Undecryptable { .. })), "{unit}: {lost:?}");
        let closed = render::unit(context, None);
        assert!(matches!(closed, Err(RenderError::Sensitive { .. })), "{unit}: {closed:?}");
        let preview = render::preview(context).unwrap();
        assert!(format!("{preview:?}").contains("<sensitive>"), "{preview:?}");
    }
}

/// Returns the plan of a sandbox that gives `token` to a plugin whose unit `use` reads it.
fn with_token(token: &str, unit: &str) -> Result<Plan, Diagnostics> {
    let sandbox = format!(
        "apiVersion: ebb.dev/v1\nkind: Sandbox\nname: s\nresources: {{r: {{plugin: p, params: {{token: {token}}}}}}}\n"
    );
    let unit = unit.replace("TOKEN", "params.token");
    let plugin = format!(
        "apiVersion: ebb.dev/v1\nkind: Plugin\nname: p\nrunners: {{sh: {{image: alpine}}}}\n\
         params: {{token: {{type: string, sensitive: true, pattern: \"[a-z ]+\"}}}}\npreStart:\n  use: {unit}\n"
    );
    Ok(compiled(&sandbox, &[&plugin])?.0)
}

#[test]
fn a_sensitive_param_is_used_as_its_value_may_be() {
    let test = "a_sensitive_param_is_used_as_its_value_may_be";
    for (token, unit, expected) in rows::<(String, String, Vec<String>)>(test) {
        let errors = with_token(&token, &unit).err().unwrap_or_default();
        let found: Vec<String> = errors.iter().map(|error| error.message.clone()).collect();
        assert_eq!(found, expected, "{token}: {unit}");
        assert!(!errors.to_string().to_lowercase().contains("some value"), "{errors}");
    }
}

#[test]
fn an_encrypted_literal_is_decrypted_for_its_recipient_only() {
    let webhook = "{webhook: {url: \"https://e.example.org/\", body: {k: \"${TOKEN}\"}}}";
    let mut plan = with_token("some value", webhook).unwrap();
    let (at, facts) = (UnitRef { hook: Hook::PreStart, unit: 0 }, TargetFacts::default());
    let open = |sealed: &SealedValue| {
        let place = SealedValue::param_place(&facts.key, "r", "token");
        assert_eq!((sealed.place.as_str(), sealed.text.as_str()), (place.as_str(), "the text"));
        Some(RenderValue::Json(json!("opened")))
    };
    let known = KnownOutputs::new();
    let rendered = |plan: &Plan| {
        let context = UnitContext { plan, at, facts: &facts, known: &known };
        render::unit(context, Some(&open))
    };
    let plain = rendered(&plan);
    assert!(matches!(plain, Err(RenderError::Sensitive { .. })), "{plain:?}");
    plan.resources.get_mut("r").unwrap().params.insert("token".to_owned(), Template::Sealed("the text".to_owned()));
    match rendered(&plan).unwrap() {
        RenderedUnit::Webhook(request) => assert_eq!(request.body, Some(RequestBody::Json(json!({"k": "opened"})))),
        other => panic!("{other:?}"),
    }
    let preview = render::preview(UnitContext { plan: &plan, at, facts: &facts, known: &known }).unwrap();
    assert!(format!("{preview:?}").contains("<sensitive>"), "{preview:?}");
}
