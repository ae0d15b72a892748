//! Completes the OpenAPI document of the handlers with security schemes and common errors.
//!
//! A handler declares the responses with a body. `descriptions.json` has others, and errors with texts or codes of their
//! own.

mod lifecycle_webhook;
mod security;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use ebb_protocol::error_code::ErrorCode;
use utoipa::openapi::path::Operation;
use utoipa::openapi::{Components, Content, OpenApi, Ref, RefOr, Response};

/// The media type of errors.
const PROBLEM: &str = "application/problem+json";

/// The descriptions of responses by operation and status. Those of `*` are for each operation that has no other.
static DESCRIPTIONS: LazyLock<BTreeMap<&str, BTreeMap<&str, &str>>> = LazyLock::new(|| {
    let descriptions = include_str!("../openapi/descriptions.json");
    serde_json::from_str(descriptions).expect("the descriptions are a constant, and a test reads them")
});

/// Adds tags, security schemes, common responses, missing descriptions, the body of lifecycle webhooks and the media
/// type of errors.
pub(super) fn complete(document: &mut OpenApi) {
    let tags = serde_json::from_str(include_str!("../openapi/tags.json"));
    document.tags = Some(tags.expect("the tags are a constant, and a test reads them"));
    let components = document.components.get_or_insert_with(Components::new);
    security::add_schemes(components);
    lifecycle_webhook::add_schemas(components);
    for (path, item) in &mut document.paths.paths {
        for operation in [&mut item.get, &mut item.post, &mut item.put, &mut item.delete].into_iter().flatten() {
            complete_operation(path, operation);
        }
    }
}

fn complete_operation(path: &str, operation: &mut Operation) {
    let id = operation.operation_id.as_deref().unwrap_or_default();
    let own = DESCRIPTIONS.get(id);
    let is_list = id.starts_with("list");
    if id == "receiveEvent" {
        operation.request_body = Some(RefOr::T(lifecycle_webhook::body()));
    }
    let mut statuses: Vec<&str> = own.into_iter().flat_map(BTreeMap::keys).copied().collect();
    if security::secure(operation) {
        statuses.extend(["401", "403"]);
    }
    // A list without parameters refuses each one.
    if is_list || operation.parameters.is_some() || operation.request_body.is_some() {
        statuses.push("400");
    }
    if path.contains('{') {
        statuses.push("404");
    }
    if operation.request_body.is_some() {
        statuses.push("413");
    }
    if !matches!(path, "/v1/openapi.json" | "/healthz") {
        statuses.extend(["500", "503"]);
    }
    let responses = &mut operation.responses.responses;
    for status in statuses {
        responses.entry(status.to_owned()).or_insert_with(|| RefOr::T(Response::new("")));
    }
    for (status, response) in responses {
        let RefOr::T(response) = response else { continue };
        if response.description.is_empty()
            && let Some(text) = own.and_then(|own| own.get(&**status)).or_else(|| DESCRIPTIONS["*"].get(&**status))
        {
            response.description = meanings(text).unwrap_or_else(|| (*text).to_owned());
        }
        if status.as_str() >= "400" {
            let content = Content::new(Some(Ref::from_schema_name("ProblemDetails")));
            response.content.insert(PROBLEM.to_owned(), RefOr::T(content));
        }
    }
}

/// Returns the meanings of codes that are separated by blanks, or `None` for another text.
fn meanings(codes: &str) -> Option<String> {
    let codes = codes.split(' ').map(ErrorCode::named).collect::<Option<Vec<_>>>()?;
    Some(codes.iter().map(|code| format!("`{}`: {}.", code.name(), code.meaning())).collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    #[test]
    fn each_operation_is_complete() {
        let document = serde_json::to_value(crate::openapi()).unwrap();
        let mut ids = BTreeSet::new();
        let mut seen = 0;
        for (path, item) in document["paths"].as_object().unwrap() {
            for (method, operation) in item.as_object().unwrap() {
                let id = operation["operationId"].as_str().unwrap();
                assert!(ids.insert(id.to_owned()), "{method} {path}: the id {id} is used twice");
                for name in path.split('{').skip(1).filter_map(|rest| rest.split('}').next()) {
                    let parameters = operation["parameters"].as_array().into_iter().flatten();
                    let found = parameters.filter(|one| one["in"] == "path" && one["name"] == name).count();
                    assert_eq!(found, 1, "{method} {path}: the parameter {name}");
                }
                for (status, response) in operation["responses"].as_object().unwrap() {
                    seen += 1;
                    let at = format!("{method} {path}: {status}");
                    assert!(response["description"].as_str().is_some_and(|text| !text.is_empty()), "{at}");
                    if status.as_str() >= "400" {
                        let types: Vec<&String> = response["content"].as_object().unwrap().keys().collect();
                        assert_eq!(types, ["application/problem+json"], "{at}");
                    }
                }
            }
        }
        assert!(seen > 100, "{seen}");
        let unknown = super::DESCRIPTIONS.keys().find(|id| **id != "*" && !ids.contains(**id));
        assert_eq!(unknown, None);
    }

    #[test]
    fn descriptions_contain_no_rust_paths() {
        let text = crate::openapi().to_json().unwrap();
        let document: Value = serde_json::from_str(&text).unwrap();
        for word in ["crate::", "Self::", "[`", "super::"] {
            assert!(
                !text.contains(word),
                "{word}: {:?}",
                text.find(word).map(|at| &text[at.saturating_sub(80)..at + 40])
            );
        }
        assert!(document["components"]["schemas"]["ProblemDetails"].is_object());
    }
}
