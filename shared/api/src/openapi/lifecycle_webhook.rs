//! The body of a lifecycle webhook: a CloudEvent in structured mode. Each type requires other data, so each has a schema.

use ebb_protocol::lifecycle::{CREATED, DELETED, EVENT, LifecycleData, UPDATED};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use utoipa::PartialSchema as _;
use utoipa::openapi::request_body::RequestBody;
use utoipa::openapi::{Components, Object, Schema};

const WEBHOOK: &str = "LifecycleWebhook";
/// The name of a schema, its types, and the field of `data` that is required. The last field is allowed nowhere else.
const VARIANTS: [(&str, &[&str], Option<&str>); 3] = [
    ("DocumentWebhook", &[CREATED, UPDATED], Some("document")),
    ("DeletionWebhook", &[DELETED], None),
    ("EventWebhook", &[EVENT], Some("event")),
];
/// The value of an attribute: no control characters, at most 1,024 bytes.
const ATTRIBUTE: &str = r"^([ -~]{1,1024}|[^\x00-\x1f\x7f-\x9f]{1,256})$";

pub(super) fn add_schemas(components: &mut Components) {
    for (name, types, required) in VARIANTS {
        components.schemas.insert(name.to_owned(), Schema::Object(event(types, required)).into());
    }
    let variants: Vec<Value> =
        VARIANTS.iter().map(|(name, ..)| json!({"$ref": format!("#/components/schemas/{name}")})).collect();
    let description = "A lifecycle webhook: a CloudEvent 1.0 in structured mode. `type` decides the fields of `data`.";
    let one_of = Schema::OneOf(parsed(json!({"description": description, "oneOf": variants})));
    components.schemas.insert(WEBHOOK.to_owned(), one_of.into());
}

/// Returns the body of the operation, with an example of each type.
pub(super) fn body() -> RequestBody {
    let body = include_str!("../../openapi/lifecycle_webhooks.json");
    serde_json::from_str(body).expect("a test reads the constant body")
}

fn parsed<T: DeserializeOwned>(schema: Value) -> T {
    serde_json::from_value(schema).expect("the schema is a constant, and a test reads it")
}

fn event(types: &[&str], required: Option<&str>) -> Object {
    let event = include_str!("../../openapi/lifecycle_event.json");
    let mut event: Value = serde_json::from_str(event).expect("a test reads the constant schema");
    for attribute in ["id", "source", "subject", "dataschema"] {
        event["properties"][attribute]["pattern"] = ATTRIBUTE.into();
    }
    event["additionalProperties"]["pattern"] = ATTRIBUTE.into();
    event["properties"]["type"]["enum"] = json!(types);
    event["properties"]["data"] = data(required);
    parsed(event)
}

/// Returns the schema of the data: that of [`LifecycleData`] with `required`.
fn data(required: Option<&str>) -> Value {
    let mut data = serde_json::to_value(LifecycleData::schema()).unwrap_or_default();
    if required != Some("event")
        && let Some(properties) = data["properties"].as_object_mut()
    {
        properties.remove("event");
    }
    if let Some(field) = required {
        data["properties"][field]["type"] = json!("string");
        if let Some(fields) = data["required"].as_array_mut() {
            fields.push(json!(field));
        }
    }
    data
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderMap, header};
    use ebb_protocol::cloudevents::{self, CONTENT_TYPE};

    use super::*;

    #[test]
    fn each_type_has_the_data_that_it_requires_and_an_example() {
        let document = serde_json::to_value(crate::openapi()).unwrap();
        for (name, types, required) in VARIANTS {
            let schema = &document["components"]["schemas"][name];
            assert_eq!(schema["properties"]["type"]["enum"], json!(types));
            assert_eq!(schema["propertyNames"]["pattern"], "^[a-z0-9]+$");
            let data = &schema["properties"]["data"];
            assert_eq!(data["additionalProperties"], false);
            let fields = data["required"].as_array().unwrap();
            assert_eq!(fields.iter().filter_map(Value::as_str).nth(3), required, "{fields:?}");
            assert_eq!(data["properties"].get("event").is_some(), required == Some("event"));
            assert!(data["properties"]["document"].is_object());
        }
        let content =
            &document["paths"]["/v1/events"]["post"]["requestBody"]["content"]["application/cloudevents+json"];
        let headers = HeaderMap::from_iter([(header::CONTENT_TYPE, CONTENT_TYPE.parse().unwrap())]);
        let examples = content["examples"].as_object().unwrap();
        assert_eq!(examples.len(), 4);
        for (name, example) in examples {
            let event = cloudevents::parse(&headers, example["value"].to_string().as_bytes());
            assert!(event.is_ok(), "{name}: {event:?}");
        }
    }
}
