//! Security schemes: tokens, and the proofs of the senders of webhooks.

use std::sync::LazyLock;

use serde_json::{Map, Value};
use utoipa::openapi::path::{Operation, Parameter};
use utoipa::openapi::security::{SecurityRequirement, SecurityScheme};
use utoipa::openapi::{Components, RefOr};

const API: &str = "apiToken";
/// The scheme of tokens of attempts.
const CALLBACK: &str = "callbackToken";
const BOOTSTRAP: &str = "bootstrapToken";
/// The scheme of Standard Webhooks.
const WEBHOOK: &str = "webhookSignature";

/// The schemes by name. Those of sources come first.
static SCHEMES: LazyLock<Map<String, Value>> = LazyLock::new(|| {
    let schemes = include_str!("../../openapi/security_schemes.json");
    serde_json::from_str(schemes).expect("the schemes are a constant, and a test reads them")
});

pub(super) fn add_schemes(components: &mut Components) {
    for (name, scheme) in &*SCHEMES {
        let scheme = serde_json::from_value::<SecurityScheme>(scheme.clone());
        components.add_security_scheme(name, scheme.expect("the schemes are a constant, and a test reads them"));
    }
}

/// Adds the schemes of an operation, of which a request needs one. Returns true if it needs an API token or the token of
/// an attempt.
pub(super) fn secure(operation: &mut Operation) -> bool {
    let schemes: Vec<&str> = match operation.operation_id.as_deref() {
        Some("getOpenApi" | "createLogin" | "getHealth") => Vec::new(),
        Some("receiveEvent" | "pollCluster") => vec![WEBHOOK],
        Some("receiveSourceEvent") => {
            SCHEMES.keys().map(String::as_str).filter(|name| ![API, CALLBACK, BOOTSTRAP].contains(name)).collect()
        }
        Some("receiveCallback") => vec![CALLBACK],
        Some("registerRelay") => vec![BOOTSTRAP],
        _ => vec![API],
    };
    if !schemes.is_empty() {
        let needed = schemes.iter().map(|name| SecurityRequirement::new(*name, Vec::<String>::new()));
        operation.security = Some(needed.collect());
    }
    if schemes == [WEBHOOK] {
        let signed = include_str!("../../openapi/signed_headers.json");
        let signed: Vec<RefOr<Parameter>> = serde_json::from_str(signed).expect("a test reads the constant headers");
        operation.parameters.get_or_insert_default().extend(signed);
    }
    matches!(schemes[..], [API | CALLBACK])
}
