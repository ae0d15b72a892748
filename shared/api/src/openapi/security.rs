//! Security schemes: tokens, and the proofs of the senders of webhooks.

use std::sync::LazyLock;

use serde_json::{Map, Value};
use utoipa::openapi::path::{Operation, ParameterBuilder, ParameterIn};
use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa::openapi::security::{SecurityRequirement, SecurityScheme};
use utoipa::openapi::{Components, RefOr, Required};

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

/// Headers that the signature of Standard Webhooks covers.
const SIGNED: [(&str, &str, &str); 2] = [
    ("webhook-id", r"^[!-\x2d/-~]{1,128}$", "The name of the message. The same in every repetition."),
    (
        "webhook-timestamp",
        "^[0-9]{1,19}$",
        "The time of sending in seconds since 1970, at most 5 minutes from the time of the server.",
    ),
];

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
        operation.parameters.get_or_insert_default().extend(SIGNED.map(|(name, pattern, description)| {
            let schema = ObjectBuilder::new().schema_type(Type::String).pattern(Some(pattern));
            let parameter = ParameterBuilder::new().name(name).parameter_in(ParameterIn::Header);
            RefOr::T(parameter.required(Required::True).schema(Some(schema)).description(Some(description)).build())
        }));
    }
    matches!(schemes[..], [API | CALLBACK])
}
