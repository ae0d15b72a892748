//! `kind: Source`.

use std::sync::Arc;

use ebb_engine::{HmacAlgorithm, JwsAlgorithm, SignatureEncoding};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;
use serde_json::Value;

use super::{ApiVersion, At, DurationMs, Entries, ParamDoc, SandboxDoc, SourceKind, SourceText, TemplateTree};

/// A source: maps the webhooks of a third party to the lifecycle of targets.
#[serde_with::apply(Entries => #[serde(default)])]
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(rename = "Source", rename_all = "camelCase", deny_unknown_fields)]
pub struct SourceDoc {
    pub api_version: ApiVersion,
    pub kind: SourceKind,
    /// The name of the source, and the last part of its URL: `/v1/sources/NAME`.
    pub name: At<String>,
    /// Free text.
    pub description: Option<String>,
    /// A preset. It supplies `verify`, `id`, `target` and `events`; a key that is written here replaces the preset's.
    pub preset: Option<At<String>>,
    /// Declarations of the values of `with`, which presets have.
    #[schemars(skip)]
    pub params: Entries<ParamDoc>,
    /// Values of the params of the preset. The others have their defaults. Expressions read them as `with.NAME`.
    pub with: Entries<At<Value>>,
    /// The proof that a request is from the sender.
    pub verify: Option<VerifyDoc>,
    /// A request that completes an event. Expressions read its response as `fetched`.
    pub fetch: Option<FetchDoc>,
    /// How to list what exists at the sender. A target that the list lacks twice is deleted.
    pub exists: Option<Box<At<ExistsDoc>>>,
    /// The ID of a delivery: `${…}`. The default is the ID that the sender gives in a header, or a hash of the body.
    pub id: Option<At<String>>,
    /// The target of the entries that have none.
    pub target: Option<SourceTarget>,
    /// The target document of the `apply` entries that have none. Its kind and name come from `target`.
    #[serde(default)]
    #[schemars(schema_with = "target_document")]
    pub document: Option<At<TemplateTree>>,
    /// The reactions to events. The first entry whose `when` holds decides; without one, the event is ignored.
    pub events: Option<Vec<EventRule>>,
    /// The most targets of the source that live at once. By default, there is no limit.
    pub limit: Option<LimitDoc>,
    /// The webhook of GitHub whose failed deliveries are fetched. The default is none: GitHub sends a delivery once.
    pub replay: Option<Box<At<ReplayDoc>>>,
    #[serde(skip)]
    pub source: Arc<SourceText>,
    /// The document as YAML with all `@{…}` expanded.
    #[serde(skip)]
    pub expanded: String,
}

/// A `GET` request by which a source completes an event, before its entries are checked.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename = "Fetch", deny_unknown_fields)]
pub struct FetchDoc {
    /// A condition over `headers`, `body` and `source`: `${…}`. Without it, every event is completed.
    pub when: Option<At<String>>,
    /// The connection, which lists the source.
    pub connection: At<String>,
    /// The path and query at the connection. Parts may hold `${…}`.
    pub path: At<String>,
    /// Literal headers of the request, such as the version of an API.
    #[serde(default)]
    pub headers: Entries<At<String>>,
}

/// A list at the sender. A key that is written here replaces the preset's.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(rename = "Exists", rename_all = "camelCase", deny_unknown_fields)]
pub struct ExistsDoc {
    /// The connection, which lists the source in `sources`.
    pub connection: Option<At<String>>,
    /// Texts with a list each, such as repositories: `${with.NAME}`. Expressions read the text as `listing.part`.
    pub parts: Option<At<String>>,
    /// The path and query of the first page at the connection. Parts may hold `${…}`.
    pub path: Option<At<String>>,
    /// Literal headers of the requests, such as the version of an API.
    #[serde(default)]
    pub headers: Entries<At<String>>,
    /// The next page, over `response` and `listing`: a URL at the same origin, or a map of parameters of the query. `null` and
    /// an empty text are the end. By default it is that of the header `Link`.
    pub next: Option<At<String>>,
    /// The elements of a page, over `response`. The default is its body.
    pub each: Option<At<String>>,
    /// The body of the event that an element stands for, over `item` and `listing`. The default is the element. The entries of
    /// the source decide about it as about an event that arrives.
    pub event: Option<At<String>>,
    /// The names of the targets that the list is about, with at most one `*`, over `listing`. The default is all.
    pub names: Option<At<String>>,
    /// The path of the thing of a `target`, which is asked for before a target is deleted. The answer 404 and 410, and a body
    /// whose event has an entry with `delete`, confirm that the thing does not exist.
    pub confirm: Option<At<String>>,
    /// The time between the begins of two observations, from 5m to 1d. The default is 15m.
    pub every: Option<At<DurationMs>>,
    /// The least time between the two observations that lack a thing, from 5m to 7d. The default is 10m.
    pub grace: Option<At<DurationMs>>,
    /// The share of the targets, in percent, that may be missing at once, from 1 to 100. The default is 20. Ten are always
    /// allowed.
    pub shrink: Option<At<u64>>,
    /// True if a thing without a target gets one.
    #[serde(default)]
    pub create: bool,
}

/// The most living targets of a source.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename = "Limit", deny_unknown_fields)]
pub struct LimitDoc {
    /// The number of targets that live at once.
    #[schemars(range(min = 1, max = 200))]
    pub living: At<u32>,
    #[serde(default)]
    pub then: LimitAction,
}

/// What an event does that would begin one target more: it waits, replaces the oldest target, or is rejected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum LimitAction {
    #[default]
    Wait,
    ReplaceOldest,
    Reject,
}

/// A webhook of GitHub.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename = "Replay", deny_unknown_fields)]
pub struct ReplayDoc {
    /// The connection, which lists the source in `sources`.
    pub connection: At<String>,
    /// The literal path of the webhook at the connection, such as `/repos/acme/shop/hooks/4711`.
    pub path: At<String>,
}

/// A target by kind and name.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SourceTarget {
    /// `sandbox`, or another kind such as `namespace`. It is literal.
    pub kind: At<String>,
    /// The name, with `${…}`. A text that is not a name of a target is made one, with a hash at its end.
    pub name: At<String>,
}

/// A reaction to events. It has exactly one of `apply`, `delete` and `ignore`.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename = "Event", deny_unknown_fields)]
pub struct EventRule {
    /// A condition over `headers`, `body` and `source`: `${…}`. A condition that reads a missing key or a part of `null`
    /// does not hold.
    pub when: At<String>,
    /// The time of the event: RFC 3339, a time such as `2026-01-31 10:00:00 +0200`, or seconds or milliseconds since 1970.
    /// Older events of a target are ignored.
    pub time: Option<At<String>>,
    /// The place of the event among those of its target with the same time, from 0 to 255: `${…}`. The default is 0. Of two
    /// equal places, an `apply` is newer than a `delete`.
    pub order: Option<At<String>>,
    /// The identity of the target's instance.
    pub uid: Option<At<String>>,
    #[serde(rename = "apply", alias = "delete", alias = "ignore")]
    #[schemars(flatten)]
    pub action: EventAction,
}

/// The action of an entry.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(remote = "Self", rename_all = "camelCase")]
pub enum EventAction {
    /// Creates or updates the target.
    Apply(ApplyDoc),
    /// Deletes the target.
    Delete(DeleteDoc),
    /// Does nothing. The text explains to the sender why.
    Ignore(At<String>),
}

/// The target and its document. Each key replaces the default of the source.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(rename = "Apply", deny_unknown_fields)]
pub struct ApplyDoc {
    pub target: Option<SourceTarget>,
    /// The target document.
    #[serde(default)]
    #[schemars(schema_with = "target_document")]
    pub document: Option<At<TemplateTree>>,
    /// Labels beside those of the document.
    #[serde(default)]
    pub labels: Entries<At<String>>,
}

/// The target to delete.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(rename = "Delete", deny_unknown_fields)]
pub struct DeleteDoc {
    pub target: Option<SourceTarget>,
    /// Tells the sender why a target ends, or why it does not exist.
    pub reason: Option<String>,
}

/// The key `verify`. It has exactly one scheme.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename = "Verify", rename_all = "camelCase")]
#[schemars(extend("type" = "object"))]
pub enum VerifyDoc {
    /// `X-Hub-Signature-256` of GitHub.
    Github(SecretDoc),
    /// `X-Gitlab-Token`, or Standard Webhooks of GitLab.
    Gitlab(SecretDoc),
    /// `X-Gitea-Signature` or `X-Forgejo-Signature`.
    Gitea(SecretDoc),
    /// `x-vercel-signature`.
    Vercel(SecretDoc),
    /// Standard Webhooks, also with the headers of Svix.
    Standard(SecretDoc),
    /// An HMAC of the body, or of a text with it, in a header.
    Hmac(HmacDoc),
    /// A JSON Web Signature in a header.
    Jws(JwsDoc),
    /// `e2b-signature`.
    E2b(SecretDoc),
    /// `Authorization: Bearer VALUE`.
    Bearer(SecretDoc),
    /// `Authorization: Basic …`.
    Basic(BasicDoc),
    /// The secret is the query parameter `secret` of the URL. For senders that sign nothing.
    Url(SecretDoc),
}

impl VerifyDoc {
    /// Returns the name of the secret.
    pub fn secret(&self) -> &At<String> {
        match self {
            Self::Hmac(hmac) => &hmac.secret,
            Self::Jws(jws) => &jws.secret,
            Self::Basic(basic) => &basic.secret,
            Self::Github(secret)
            | Self::Gitlab(secret)
            | Self::Gitea(secret)
            | Self::Vercel(secret)
            | Self::Standard(secret)
            | Self::E2b(secret)
            | Self::Bearer(secret)
            | Self::Url(secret) => &secret.secret,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename = "SecretName", deny_unknown_fields)]
pub struct SecretDoc {
    /// The name of the secret: letters, digits and `_`, no digit first, at most 63.
    pub secret: At<String>,
}

#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename = "Hmac", deny_unknown_fields)]
pub struct HmacDoc {
    /// The name of the secret: letters, digits and `_`, no digit first, at most 63.
    pub secret: At<String>,
    /// The header with the signature.
    pub header: At<String>,
    /// The text before the signature, such as `sha256=`.
    #[serde(default)]
    pub prefix: String,
    #[serde(default)]
    pub algorithm: HmacAlgorithm,
    #[serde(default)]
    pub encoding: SignatureEncoding,
    /// The signed text, with `${rawBody}`, `${timestamp}` and `${headers.NAME}`. The default is the body.
    pub signed: Option<At<String>>,
    /// The time of the signature, which is a part of `signed`.
    pub timestamp: Option<TimestampDoc>,
}

#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename = "SignatureTime", deny_unknown_fields)]
pub struct TimestampDoc {
    /// The header with the time: seconds or milliseconds since 1970, or RFC 3339.
    pub header: At<String>,
    /// The name of the time in a header that is a list with the signatures, such as `t` in `t=1700000000,v1=…`.
    pub field: Option<String>,
    /// The greatest difference from the clock of the server. The default is 5 minutes.
    pub tolerance: Option<DurationMs>,
}

#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename = "Jws", rename_all = "camelCase", deny_unknown_fields)]
pub struct JwsDoc {
    /// The name of the secret: letters, digits and `_`, no digit first, at most 63.
    pub secret: At<String>,
    /// The header with the token.
    pub header: At<String>,
    /// The text before the token, such as `Bearer `.
    #[serde(default)]
    pub prefix: String,
    /// The only algorithm that is accepted.
    #[serde(default)]
    pub algorithm: JwsAlgorithm,
    /// The claim with the SHA-256 of the body in hexadecimal. Without it, the body is the detached payload.
    pub body_hash: Option<String>,
    /// The required claim `iss`.
    pub issuer: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename = "Basic", deny_unknown_fields)]
pub struct BasicDoc {
    pub user: At<String>,
    /// The name of the secret: letters, digits and `_`, no digit first, at most 63.
    pub secret: At<String>,
}

/// The keys of a target document that a source supplies.
pub(crate) const SUPPLIED_KEYS: [&str; 4] = ["apiVersion", "kind", "targetKind", "name"];

/// Returns the schema of a target document without the keys that a source supplies.
fn target_document(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = SandboxDoc::json_schema(generator);
    schema.remove("required");
    schema.insert("description".to_owned(), "A target document without apiVersion, kind and name".into());
    if let Some(properties) = schema.get_mut("properties").and_then(|properties| properties.as_object_mut()) {
        SUPPLIED_KEYS.iter().for_each(|key| drop(properties.shift_remove(*key)));
        let description = "The time after which it is deleted.";
        let ttl = serde_json::json!({"type": ["string", "object"], "description": description});
        properties.insert("ttl".to_owned(), ttl);
    }
    schema
}
