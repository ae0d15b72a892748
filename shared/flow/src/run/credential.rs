//! The credential of the requests of a webhook unit, or of a source: the signing secret of a plugin, or a connection.
//!
//! A connection is read for each request, so a changed secret or a withdrawn permission has an effect at once. The
//! credential is in the request only. A response that repeats it is masked before anything reads the response.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ebb_documents::load::{self, DocumentVars, NoFiles};
use ebb_documents::model::{AuthDoc, ConnectionDoc};
use ebb_documents::plan::{BoundConnection, UnitPlan};
use ebb_egress::{BytePermit, CallResult, HttpRequest, HttpResponse};
use ebb_protocol::named_secrets::SecretText;
use ebb_protocol::sign::{self, MessageId, WebhookKeys, WebhookSecret};
use ebb_protocol::{id, seal};
use ebb_store::NamedKind;

use crate::run::masking::{MASK, forms, masked};
use crate::{Env, FlowResult, Run, offload};

/// Minimum bytes of a credential. Masking shorter texts would damage responses.
const MIN_SECRET: usize = 8;

/// The digest of the credential of signed requests.
const SIGNED: &str = "signed";
/// The characters of a digest.
const DIGEST: usize = 16;

/// Identifies the credential of a connection in records. It is keyed, so that it says nothing about the credential. All
/// signed requests have one digest: receivers do not hide resources by the key of a signature. During a rotation, each key
/// gives another digest, and that of the first key is recorded.
#[derive(Clone, Debug)]
pub(crate) struct CredentialDigest(Vec<String>);

impl CredentialDigest {
    /// Returns the digest for a record.
    pub(crate) fn text(&self) -> &str {
        self.0.first().map_or("", String::as_str)
    }

    /// Returns true if a record has this digest.
    pub(crate) fn is(&self, known: &str) -> bool {
        self.0.iter().any(|own| own == known)
    }

    pub(crate) fn is_signed(&self) -> bool {
        self.is(SIGNED)
    }

    #[cfg(test)]
    pub(crate) fn of(name: Option<&str>) -> Self {
        Self(vec![name.unwrap_or(SIGNED).to_owned()])
    }
}

pub(crate) struct RequestCredential {
    /// The keys that sign the requests.
    pub(crate) keys: Option<WebhookKeys>,
    /// The header with the credential, by its name in lower case.
    pub(crate) header: Option<(String, SecretText)>,
    /// The texts that are masked in responses.
    masked: Vec<SecretText>,
}

impl RequestCredential {
    /// Returns the credential of requests that have none.
    pub(crate) fn none() -> Self {
        Self { keys: None, header: None, masked: Vec::new() }
    }

    pub(crate) fn digest(&self, env: &Env) -> CredentialDigest {
        let Some((name, value)) = &self.header else {
            return CredentialDigest(vec![SIGNED.to_owned()]);
        };
        let digest = |key: &WebhookSecret| {
            let sealed = seal::seal_value(&key.clone().into(), name, value.as_bytes());
            id::short_digest(&[&sealed], DIGEST)
        };
        CredentialDigest(env.settings.unit_keys.iter().map(digest).collect())
    }

    /// Returns the header of the credential, or the signature of a message with this id and body.
    pub(crate) fn headers(&self, env: &Env, id: &MessageId, body: &[u8]) -> Vec<(String, String)> {
        let signature = self.keys.iter().flat_map(|keys| sign::sign_with(keys, id, env.now(), body));
        let signature = signature.map(|(name, value)| (name.to_owned(), value));
        signature.chain(self.header.iter().map(|(name, value)| (name.clone(), value.to_string()))).collect()
    }

    /// Sends a request, and masks the credential in its response. The permit belongs to the bytes of the response.
    pub(crate) async fn call(&self, env: &Env, request: HttpRequest) -> CallResult<(HttpResponse, BytePermit)> {
        let (response, permit) = env.egress.call_within(request, &env.cache.budgets.bytes).await?;
        let HttpResponse { status, mut headers, body } = response;
        for (_, value) in &mut headers {
            *value = masked(value, &self.masked);
        }
        Ok((HttpResponse { status, headers, body: self.mask(body) }, permit))
    }

    fn mask(&self, body: Vec<u8>) -> Vec<u8> {
        if self.masked.is_empty() {
            return body;
        }
        match String::from_utf8(body) {
            Ok(text) => masked(&text, &self.masked).into_bytes(),
            Err(error) => self.masked.iter().fold(error.into_bytes(), |body, secret| replace(&body, secret.as_bytes())),
        }
    }
}

/// Replaces each occurrence of `secret`. Each byte is a character meanwhile.
fn replace(body: &[u8], secret: &[u8]) -> Vec<u8> {
    let text = |bytes: &[u8]| bytes.iter().copied().map(char::from).collect::<String>();
    let secret = SecretText::new(text(secret));
    text(body).replace(secret.as_str(), MASK).chars().map(|byte| byte as u8).collect()
}

/// Returns the credential of a unit, or the reason why its connection cannot be used. The reason contains no secret.
pub(crate) async fn credential(env: &Env, run: &Run, unit: &UnitPlan) -> FlowResult<Result<RequestCredential, String>> {
    let plugin = run.plugin(unit).unwrap_or(sign::OWN_HOOKS);
    let Some(BoundConnection { name, origin }) = unit.action.connection() else {
        let keys = Some(env.settings.unit_keys.for_plugin(plugin));
        return Ok(Ok(RequestCredential { keys, header: None, masked: Vec::new() }));
    };
    Ok(open(env, name).await?.and_then(|document| {
        let now = &document.origin.value;
        if now != origin {
            return Err(format!("the connection {name} leads to {now} now; the plan of the target has {origin}"));
        }
        if !document.permits(plugin) {
            return Err(format!(
                "the connection {name} does not permit {plugin}: add it to `plugins` of the connection"
            ));
        }
        authorized(env, &document)
    }))
}

/// A source or a subscription that uses a connection, by its name.
#[derive(Clone, Copy)]
pub(crate) enum ConnectionUser<'a> {
    Source(&'a str),
    Subscription(&'a str),
}

/// Returns the origin and the credential of a connection for its user, or the reason why it cannot be used.
pub(crate) async fn of_user(
    env: &Env,
    name: &str,
    user: ConnectionUser<'_>,
) -> FlowResult<Result<(String, RequestCredential), String>> {
    Ok(open(env, name).await?.and_then(|document| {
        let (permitted, kind, user) = match user {
            ConnectionUser::Source(user) => (&document.sources, "source", user),
            ConnectionUser::Subscription(user) => (&document.subscriptions, "subscription", user),
        };
        if !permitted.iter().any(|permitted| permitted.value == user) {
            let why = format!("the connection {name} does not permit the {kind} {user}");
            return Err(format!("{why}: add it to `{kind}s` of the connection"));
        }
        Ok((document.origin.value.clone(), authorized(env, &document)?))
    }))
}

async fn open(env: &Env, name: &str) -> FlowResult<Result<ConnectionDoc, String>> {
    let Some(item) = env.store.get_document(NamedKind::Connection, name).await? else {
        return Ok(Err(format!("the connection {name} does not exist")));
    };
    let load = move || load::connection("document", &item.document, &NoFiles, &DocumentVars::none());
    Ok(offload(load).await?.map_err(|_| format!("the connection {name} has errors; apply it again")))
}

fn authorized(env: &Env, document: &ConnectionDoc) -> Result<RequestCredential, String> {
    let (name, connection) = (&document.auth.scheme.secret().value, &document.name.value);
    let secret = env.settings.secrets.secret(name);
    let secret = secret.map_err(|error| format!("the secrets of the deployment cannot be read: {error}"))?;
    let missing = || format!("the deployment has no secret {name}; the connection {connection} needs it");
    authorize(document, secret.ok_or_else(missing)?).map_err(|problem| format!("the secret {name} {problem}"))
}

/// Returns the credential with the value of the secret of a connection.
fn authorize(document: &ConnectionDoc, secret: SecretText) -> Result<RequestCredential, String> {
    let scheme = &document.auth.scheme;
    if let AuthDoc::Signed(_) = scheme {
        let keys = WebhookKeys::parse(&secret).map_err(|error| format!("cannot sign: {error}"))?;
        let masked = keys.reveal();
        return Ok(RequestCredential { keys: Some(keys), header: None, masked });
    }
    if secret.len() < MIN_SECRET {
        return Err(format!("has {} bytes; expected at least {MIN_SECRET}", secret.len()));
    }
    let mut masked: Vec<SecretText> = forms(&secret).collect();
    let value = match scheme {
        AuthDoc::Basic(basic) => {
            let pair = SecretText::new(format!("{}:{}", basic.username.value, secret.as_str()));
            let encoded = SecretText::new(STANDARD.encode(pair.as_bytes()));
            let value = SecretText::new(format!("Basic {}", encoded.as_str()));
            masked.push(encoded);
            value
        }
        // Every character of a header stands for itself.
        _ if !secret.bytes().all(|byte| byte.is_ascii_graphic()) => {
            return Err("contains characters other than visible ASCII, such as a line break".to_owned());
        }
        AuthDoc::Header(header) => SecretText::new(format!("{}{}", header.prefix.value, secret.as_str())),
        AuthDoc::Bearer(_) | AuthDoc::Signed(_) => SecretText::new(format!("Bearer {}", secret.as_str())),
    };
    let header = scheme.header().map(|name| (name, value));
    Ok(RequestCredential { keys: None, header, masked })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credential(auth: &str, secret: &str) -> Result<RequestCredential, String> {
        let text = format!(
            "apiVersion: ebb.dev/v1\nkind: Connection\nname: c\norigin: https://a.example\nauth: {auth}\nplugins: [p]\n"
        );
        let document = load::connection("c.yaml", &text, &NoFiles, &DocumentVars::none()).unwrap();
        authorize(&document, SecretText::new(secret.to_owned()))
    }

    #[test]
    fn every_form_of_a_credential_is_masked() {
        let secret = r#"a"b\c/d-canary"#;
        let basic = STANDARD.encode(format!("ebb:{secret}"));
        let credential = credential("{basic: {username: ebb, secret: S}}", secret).unwrap();
        let json = serde_json::json!([secret, basic]).to_string();
        let escaped = r#"{"k":"a\u0022b\\c\/d-c\u0061nary"}"#;
        for text in [secret, &basic, &json, r#"{"a\"b\\c\/d-canary":1}"#, escaped] {
            let masked = credential.mask(text.into());
            let masked = String::from_utf8(masked).unwrap();
            assert!(masked.contains(MASK) && !masked.contains("canary") && !masked.contains(&basic), "{masked}");
        }
    }

    #[test]
    fn all_occurrences_are_replaced() {
        for (body, expected) in [("", ""), ("abc", "***"), ("xabcabcy", "x******y"), ("ab", "ab"), ("ababc", "ab***")] {
            assert_eq!(replace(body.as_bytes(), b"abc"), expected.as_bytes(), "{body}");
        }
    }

    #[test]
    fn errors_do_not_contain_the_secret() {
        let basic = "{basic: {username: ebb, secret: S}}";
        for (auth, secret) in [
            (basic, "canary"),
            ("{bearer: {secret: S}}", "canary canary"),
            ("{bearer: {secret: S}}", "canary-canary\n"),
            ("{header: {name: X-Key, secret: S}}", "canary-ä-canary"),
            ("{signed: {secret: S}}", "canary-canary"),
            ("{signed: {secret: S}}", "whsec_canary"),
        ] {
            let error = credential(auth, secret).map(drop).unwrap_err();
            assert!(!error.contains("canary"), "{error}");
        }
        assert!(credential(basic, "with white space and ä").is_ok());
    }
}
