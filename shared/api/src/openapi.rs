//! Completes the OpenAPI document of the handlers with security schemes and common errors.
//!
//! A handler declares the statuses of success, and an error only if it has a description or codes of its own.

mod lifecycle_webhook;
mod security;

use ebb_protocol::error_code::ErrorCode;
use utoipa::openapi::path::Operation;
use utoipa::openapi::{Components, Content, OpenApi, Ref, RefOr, Response};

/// The media type of errors.
const PROBLEM: &str = "application/problem+json";

/// Adds security schemes, common responses, missing descriptions, the body of lifecycle webhooks and the media type of
/// errors.
pub(super) fn complete(document: &mut OpenApi) {
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
    let mut statuses = Vec::new();
    if security::secure(operation) {
        statuses.extend([401, 403]);
    }
    if operation.operation_id.as_deref() == Some("receiveEvent") {
        operation.request_body = Some(RefOr::T(lifecycle_webhook::body()));
    }
    // A list without parameters refuses each one.
    let is_list = operation.operation_id.as_deref().is_some_and(|id| id.starts_with("list"));
    if is_list || operation.parameters.is_some() || operation.request_body.is_some() {
        statuses.push(400);
    }
    if path.contains('{') {
        statuses.push(404);
    }
    if operation.request_body.is_some() {
        statuses.push(413);
    }
    if !matches!(path, "/v1/openapi.json" | "/healthz") {
        statuses.extend([500, 503]);
    }
    for status in statuses {
        operation.responses.responses.entry(status.to_string()).or_insert(RefOr::T(problem(status)));
    }
    for (status, response) in &mut operation.responses.responses {
        let RefOr::T(response) = response else { continue };
        let status = status.parse().unwrap_or_default();
        if response.description.is_empty() {
            description(status).clone_into(&mut response.description);
        }
        if let Some(meanings) = meanings(&response.description) {
            response.description = meanings;
        }
        if status >= 400 && !response.content.contains_key(PROBLEM) {
            response.content = problem(status).content;
        }
    }
}

fn problem(status: u16) -> Response {
    let mut response = Response::new(description(status));
    let content = Content::new(Some(Ref::from_schema_name("ProblemDetails")));
    response.content.insert(PROBLEM.to_owned(), RefOr::T(content));
    response
}

/// Returns the meanings of codes that are separated by blanks, or `None` for another text.
fn meanings(codes: &str) -> Option<String> {
    let codes = codes.split(' ').map(ErrorCode::named).collect::<Option<Vec<_>>>()?;
    Some(codes.iter().map(|code| format!("`{}`: {}.", code.name(), code.meaning())).collect::<Vec<_>>().join(" "))
}

fn description(status: u16) -> &'static str {
    match status {
        200 => "The request succeeded.",
        201 => "Created.",
        202 => "Accepted.",
        204 => "The request succeeded. The response has no body.",
        400 => "The request is malformed.",
        401 => "The token is missing, unknown, expired or revoked.",
        403 => "The token's scopes do not allow this.",
        404 => "The object does not exist.",
        409 => "The state does not allow this.",
        413 => "The body is larger than 5 MiB.",
        415 => "The media type is not supported.",
        422 => "The content of the request is invalid.",
        503 => "The state cannot be read or written now. Send the same request again.",
        _ => "The request failed. The log of the server has the cause.",
    }
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
