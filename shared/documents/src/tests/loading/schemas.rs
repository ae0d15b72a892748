//! Tests that the schemas for editors accept valid documents and reject invalid ones.

use serde::Deserialize;
use serde_json::{Value, json};

use super::text;
use crate::schema;

fn documents(name: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(&text(name)).unwrap()
}

#[test]
fn schemas_accept_the_fixtures() {
    for (schema, names) in [
        (schema::plugin(), &["tenant-db.yaml", "everything.yaml"][..]),
        (schema::sandbox(), &["pr-1234.yaml", "wired.yaml"]),
        (schema::collection(), &["collection.yaml"]),
        (schema::event_source(), &["source.yaml"]),
        (schema::connection(), &["connection.yaml"]),
        (schema::signadot_plugin(), &["bucket.yaml", "small.json"]),
        (schema::signadot_sandbox(), &["bucket-sandbox.yaml"]),
    ] {
        let validator = jsonschema::validator_for(&schema).unwrap();
        for name in names {
            for document in documents(name) {
                let wrong: Vec<_> =
                    validator.iter_errors(&document).map(|e| format!("{} {e}", e.instance_path())).collect();
                assert!(wrong.is_empty(), "{name}: {wrong:#?}");
            }
        }
    }
}

/// The file describes its keys.
#[derive(Deserialize)]
struct SchemaMistakes {
    plugin: Vec<(String, String, Value, String)>,
    valid: Vec<Value>,
    invalid: Vec<(Value, String)>,
}

#[test]
fn schemas_reject_invalid_documents() {
    let plugin = jsonschema::validator_for(&schema::plugin()).unwrap();
    let good = documents("tenant-db.yaml").remove(0);
    let spoil = |pointer: &str, key: &str, value: Value| {
        let mut document = good.clone();
        document.pointer_mut(pointer).unwrap()[key] = value;
        document
    };
    assert!(plugin.is_valid(&good));
    let verified =
        |question: Value| spoil("/postStop/unregister", "verify", json!({"webhook": question, "timeout": "1m"}));
    assert!(plugin.is_valid(&verified(json!({"url": "https://x", "absent": "${true}"}))));
    assert!(plugin.is_valid(&spoil("", "evidence", "confirmed".into())));
    let mistakes: SchemaMistakes = serde_saphyr::from_str(include_str!("../../../tests/schema_mistakes.yaml")).unwrap();
    for (pointer, key, value, what) in mistakes.plugin {
        assert!(!plugin.is_valid(&spoil(&pointer, &key, value)), "{what}");
    }
    let sandbox = jsonschema::validator_for(&schema::sandbox()).unwrap();
    let with = |resource: &Value| json!({"apiVersion": "ebb.dev/v1", "kind": "Sandbox", "name": "a", "resources": {"r": resource}});
    for good in &mistakes.valid {
        assert!(sandbox.is_valid(&with(good)), "{good}");
    }
    for (bad, what) in &mistakes.invalid {
        assert!(!sandbox.is_valid(&with(bad)), "{what}");
    }
    let signadot = jsonschema::validator_for(&schema::signadot_sandbox()).unwrap();
    let bad =
        json!({"name": "a", "spec": {"cluster": "c", "resources": [{"name": "r", "plugin": "p", "params": {"n": 5}}]}});
    assert!(!signadot.is_valid(&bad), "a number in params");
    let step = |name: &str| json!({"name": "p", "spec": {"runner": {"image": "a"}, "create": [{"name": name, "script": "#!/bin/sh"}]}});
    let signadot = jsonschema::validator_for(&schema::signadot_plugin()).unwrap();
    assert!(
        signadot.is_valid(&step("a")) && !signadot.is_valid(&step("a_b")) && !signadot.is_valid(&step(&"a".repeat(31)))
    );
}

/// Collects the descriptions of a schema, one line for each path.
fn descriptions(schema: &Value, path: &str, lines: &mut Vec<String>) {
    let Value::Object(schema) = schema else { return };
    let text = schema.get("description").and_then(Value::as_str).unwrap_or("-");
    let kind = schema.get("type").or(schema.get("$ref")).map_or(String::new(), Value::to_string);
    lines.push(format!("{path} {kind}: {}", text.replace('\n', " ")));
    for variant in schema.get("oneOf").and_then(Value::as_array).into_iter().flatten() {
        descriptions(variant, &format!("{path}|"), lines);
    }
    for (keyword, between) in [("properties", "."), ("$defs", "#")] {
        for (key, below) in schema.get(keyword).and_then(Value::as_object).into_iter().flatten() {
            descriptions(below, &format!("{path}{between}{key}"), lines);
        }
    }
}

#[test]
fn schemas_have_descriptions() {
    let mut lines = Vec::new();
    descriptions(&schema::plugin(), "plugin", &mut lines);
    descriptions(&schema::sandbox(), "sandbox", &mut lines);
    descriptions(&schema::collection(), "collection", &mut lines);
    let mut of_source = Vec::new();
    descriptions(&schema::event_source(), "source", &mut of_source);
    // The parts of a target document are listed above.
    of_source.retain(|line| !lines.contains(&line.replacen("source", "sandbox", 1)));
    lines.extend(of_source);
    descriptions(&schema::connection(), "connection", &mut lines);
    descriptions(&schema::signadot_plugin(), "signadot", &mut lines);
    descriptions(&schema::signadot_sandbox(), "signadot-sandbox", &mut lines);
    lines.dedup();
    insta::assert_snapshot!("descriptions", lines.join("\n"));
}
