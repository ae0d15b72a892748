//! Tests the uses of sensitive values that the control plane stores encrypted.

use ebb_engine::Hook;
use serde_json::{Value, json};

use super::fixtures::{ALONE, alone, compiled, pair};
use crate::render::{InputValue, ProducerState, RenderError, RenderValue, RenderedRequest, RequestBody, SealedValue};
use crate::tests::rows;
use crate::{Diagnostics, KnownOutputs, Plan, RenderedUnit, TargetFacts, Template, UnitContext, UnitRef, render};

/// A plugin whose unit `use` reads a sensitive output of a webhook.
fn plugin(unit: &str) -> String {
    let unit = unit.replace("DSN", "${units.make.outputs.dsn}");
    include_str!("../../../tests/plans/sealed.yaml").replace("UNIT", &unit)
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
    for (unit, expected) in rows::<(String, Value)>("an_encrypted_output_is_decrypted_for_its_recipient_only") {
        let plan = alone(&plugin(&unit));
        let (at, facts) = (UnitRef { hook, unit: 1 }, TargetFacts::default());
        let context = UnitContext { plan: &plan, at, facts: &facts, known: &known };
        let made = match render::unit(context, Some(&open)).unwrap() {
            RenderedUnit::Webhook(RenderedRequest { headers, body: Some(RequestBody::Json(body)), .. }) => {
                json!([headers, body])
            }
            RenderedUnit::Pod { inputs } if inputs[0].value == InputValue::Opened(b"opened".to_vec()) => {
                json!("opened")
            }
            RenderedUnit::Infrakit(instance) => instance.properties,
            other => panic!("{other:?}"),
        };
        assert_eq!(made, expected, "{unit}");
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
    let unit = unit.replace("TOKEN", "params.token");
    pair(&include_str!("../../../tests/plans/token.yaml").replace("VALUE", token).replace("UNIT", &unit))
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
