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

/// Parts of documents. The file describes its keys.
#[derive(Deserialize)]
struct SchemaCases {
    plugin: Vec<(String, String, Value, Option<String>)>,
    resource: Vec<(Value, Option<String>)>,
    step: Vec<(String, bool)>,
}

#[test]
fn schemas_reject_invalid_documents() {
    let cases: SchemaCases = serde_saphyr::from_str(include_str!("../../../tests/schema_cases.yaml")).unwrap();
    let validator = |schema: Value| jsonschema::validator_for(&schema).unwrap();
    let (schema, good) = (validator(schema::plugin()), documents("tenant-db.yaml").remove(0));
    for (pointer, key, value, mistake) in cases.plugin {
        let mut document = good.clone();
        document.pointer_mut(&pointer).unwrap()[&key] = value;
        assert_eq!(schema.is_valid(&document), mistake.is_none(), "{pointer} {key}: {mistake:?}");
    }
    let schema = validator(schema::sandbox());
    for (resource, mistake) in cases.resource {
        let document =
            json!({"apiVersion": "ebb.dev/v1", "kind": "Sandbox", "name": "a", "resources": {"r": resource}});
        assert_eq!(schema.is_valid(&document), mistake.is_none(), "{document}: {mistake:?}");
    }
    let resource = json!({"name": "r", "plugin": "p", "params": {"n": 5}});
    let bad = json!({"name": "a", "spec": {"cluster": "c", "resources": [resource]}});
    assert!(!validator(schema::signadot_sandbox()).is_valid(&bad), "a number in params");
    let schema = validator(schema::signadot_plugin());
    for (name, is_valid) in cases.step {
        let create = json!([{"name": name, "script": "#!/bin/sh"}]);
        let document = json!({"name": "p", "spec": {"runner": {"image": "a"}, "create": create}});
        assert_eq!(schema.is_valid(&document), is_valid, "{name}");
    }
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
    let mut of_signadot = Vec::new();
    descriptions(&schema::signadot_sandbox(), "signadot-sandbox", &mut of_signadot);
    of_signadot.retain(|line| !lines.contains(&line.replacen("signadot-sandbox", "sandbox", 1)));
    lines.extend(of_signadot);
    lines.dedup();
    insta::assert_snapshot!("descriptions", lines.join("\n"));
}
