//! Security schemes: tokens, and the proofs of the senders of webhooks.

use utoipa::openapi::path::{Operation, ParameterBuilder, ParameterIn};
use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa::openapi::security::{
    ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme,
};
use utoipa::openapi::{Components, RefOr, Required};

/// The security scheme of API tokens.
const API: &str = "apiToken";
/// The security scheme of tokens of attempts.
const CALLBACK: &str = "callbackToken";
/// The security scheme of bootstrap tokens.
const BOOTSTRAP: &str = "bootstrapToken";
/// The security scheme of Standard Webhooks.
const WEBHOOK: &str = "webhookSignature";

const TOKENS: [(&str, HttpAuthScheme, &str); 5] = [
    (
        API,
        HttpAuthScheme::Bearer,
        "A token of `EBB_API_TOKENS`, a named token, or an identity token. Its scopes limit the operations.",
    ),
    (CALLBACK, HttpAuthScheme::Bearer, "The token of the attempt, from the request or the environment of the unit."),
    (
        BOOTSTRAP,
        HttpAuthScheme::Bearer,
        "The bootstrap token of the cluster, which registers one relay within an hour.",
    ),
    ("senderToken", HttpAuthScheme::Bearer, "`verify: {bearer: …}`: the secret of the source."),
    (
        "senderPassword",
        HttpAuthScheme::Basic,
        "`verify: {basic: …}`: the user of the source, with its secret as the password.",
    ),
];
/// Headers with a signature of the body, or with the secret.
const HEADERS: [(&str, &str, &str); 8] = [
    (
        WEBHOOK,
        "webhook-signature",
        "`v1,` and the HMAC-SHA256 of `ID.TIMESTAMP.BODY` in base64, as in Standard Webhooks. ID and TIMESTAMP are the headers `webhook-id` and `webhook-timestamp`.",
    ),
    ("svixSignature", "svix-signature", "As `webhookSignature`, with the headers `svix-id` and `svix-timestamp`."),
    (
        "hubSignature",
        "x-hub-signature-256",
        "`sha256=` and the HMAC-SHA256 of the body in hexadecimal, of GitHub. `verify: {hmac: …}` can name another header, prefix, hash function and encoding. `x-github-delivery` is the id of the event.",
    ),
    (
        "giteaSignature",
        "x-gitea-signature",
        "The HMAC-SHA256 of the body in hexadecimal. `x-gitea-delivery` is the id of the event.",
    ),
    ("vercelSignature", "x-vercel-signature", "The HMAC-SHA1 of the body in hexadecimal."),
    ("e2bSignature", "e2b-signature", "The SHA-256 of secret and body in URL-safe base64 without padding."),
    (
        "gitlabToken",
        "x-gitlab-token",
        "The secret of the source. GitLab can sign instead, as in `webhookSignature`. `idempotency-key` is the id of the event.",
    ),
    ("urlSecret", "secret", "`verify: {url: …}`: the secret of the source."),
];

/// Headers that the signature of Standard Webhooks covers.
const SIGNED: [(&str, &str, &str); 2] = [
    ("webhook-id", r"^[!-\x2d/-~]{1,128}$", "The name of the message. The same in every repetition."),
    (
        "webhook-timestamp",
        "^[0-9]{1,19}$",
        "The time of sending in seconds since 1970, at most 5 minutes from the time of the server.",
    ),
];

/// Adds all schemes.
pub(super) fn add_schemes(components: &mut Components) {
    for (name, scheme, description) in TOKENS {
        let scheme = HttpBuilder::new().scheme(scheme).description(Some(description)).build();
        components.add_security_scheme(name, SecurityScheme::Http(scheme));
    }
    for (name, key, description) in HEADERS {
        let key = ApiKeyValue::with_description(key, description);
        let key = if name == "urlSecret" { ApiKey::Query(key) } else { ApiKey::Header(key) };
        components.add_security_scheme(name, SecurityScheme::ApiKey(key));
    }
}

/// Adds the schemes of an operation, of which a request needs one. Returns true if it needs an API token or the token of
/// an attempt.
pub(super) fn secure(operation: &mut Operation) -> bool {
    let schemes: Vec<&str> = match operation.operation_id.as_deref() {
        Some("getOpenApi" | "getHealth") => Vec::new(),
        Some("receiveEvent" | "pollCluster") => vec![WEBHOOK],
        Some("receiveSourceEvent") => {
            let tokens =
                TOKENS.iter().map(|(name, ..)| *name).filter(|name| ![API, CALLBACK, BOOTSTRAP].contains(name));
            HEADERS.iter().map(|(name, ..)| *name).chain(tokens).collect()
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
