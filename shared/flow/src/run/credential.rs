//! The credential of the requests of a webhook unit, or of a source: the signing secret of a plugin, or a connection.
//!
//! A connection is read for each request, so a changed secret or a withdrawn permission has an effect at once. The
//! credential is in the request only. A response that repeats it is masked before anything reads the response.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ebb_documents::load::{self, DocumentVars, NoFiles};
use ebb_documents::model::{At, AuthDoc, ClusterSecretDoc, ConnectionDoc};
use ebb_documents::plan::{BoundConnection, UnitPlan};
use ebb_egress::digest::DigestChallenge;
use ebb_egress::sigv4::AwsKey;
use ebb_egress::{BytePermit, CallError, CallResult, HttpRequest, HttpResponse, TlsParts, is_client_certificate};
use ebb_protocol::relay::ServiceCredential;
use ebb_protocol::{MessageId, SecretReader, SecretRef, SecretText, WebhookKeys, WebhookSecret, id, seal, sign};
use ebb_store::{NamedKind, Store};
use url::{Position, Url};

use crate::run::access_token::{CredentialProblem, TokenClient, send};
use crate::run::cluster_call::ClusterRoute;
use crate::run::masking::{MASK, forms, masked};
use crate::{Env, FlowResult, Run, offload};

/// Minimum bytes of a credential. Masking shorter texts would damage responses.
const MIN_SECRET: usize = 8;

/// The digest of the credential of signed requests.
const SIGNED: &str = "signed";
/// The characters of a digest.
const DIGEST: usize = 16;
const AUTHORIZATION: &str = "authorization";
/// Approximate bytes of a challenge.
const CHALLENGE_BYTES: usize = 1 << 10;

/// Identifies the credential of a connection in records. It is keyed, so that it says nothing about the credential. A renewed
/// access token keeps the digest, which is that of its client. All signed requests have one digest: receivers do not hide
/// resources by the key of a signature. During a rotation, each key gives another digest, and that of the first key is
/// recorded.
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
    keys: Option<WebhookKeys>,
    /// The header with the credential, by its name in lower case.
    pub(crate) header: Option<(String, SecretText)>,
    /// What authorizes a request when it is sent.
    proof: RequestProof,
    /// The scheme and the secret that identify the sender, unless the header does.
    identity: Option<(String, SecretText)>,
    tls: TlsParts,
    /// The texts that are masked in responses.
    masked: Vec<SecretText>,
    /// The time that it took to get an access token, which is a part of the timeout of the request.
    spent: Duration,
    /// The cluster whose relay sends the requests. Without one, Ebb sends them.
    route: Option<ClusterRoute>,
}

enum RequestProof {
    /// The headers are enough.
    Headers,
    Token(TokenClient, SecretText),
    Digest(DigestUser),
    Sigv4(AwsKey),
}

struct DigestUser {
    connection: String,
    username: String,
    password: SecretText,
}

impl RequestCredential {
    pub(crate) fn none() -> Self {
        Self::new(None, Vec::new())
    }

    fn new(keys: Option<WebhookKeys>, masked: Vec<SecretText>) -> Self {
        let (proof, spent) = (RequestProof::Headers, Duration::ZERO);
        Self { keys, header: None, proof, identity: None, tls: TlsParts::default(), masked, spent, route: None }
    }

    pub(crate) fn digest(&self, env: &Env) -> CredentialDigest {
        let Some((name, value)) = self.identity.as_ref().or(self.header.as_ref()) else {
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
        let id = self.is_signed_by_relay().then(|| (sign::WEBHOOK_ID.to_owned(), id.to_string()));
        let header = self.header.iter().map(|(name, value)| (name.clone(), value.to_string()));
        signature.chain(id).chain(header).collect()
    }

    /// Returns true if the receiver gets a signature, and so the headers of callbacks.
    pub(crate) fn is_signed(&self) -> bool {
        self.keys.is_some() || self.is_signed_by_relay()
    }

    fn is_signed_by_relay(&self) -> bool {
        let credential = self.route.as_ref().and_then(|route| route.credential.as_ref());
        credential.is_some_and(|credential| credential.header.is_none())
    }

    /// Gets the access token, if the scheme has one. The wait for it takes a part of `time`, the timeout of the request.
    pub(crate) async fn ready(mut self, env: &Env, time: Duration) -> FlowResult<Result<Self, CredentialProblem>> {
        if let RequestProof::Token(client, token) = &mut self.proof {
            let begun = env.now();
            match client.token(env, None, time).await? {
                Ok(found) => *token = found,
                Err(problem) => return Ok(Err(problem)),
            }
            self.spent = Duration::from_millis(env.now().since(begun).0);
            self.masked.extend(forms(token));
            self.header = Some((AUTHORIZATION.to_owned(), SecretText::new(format!("Bearer {}", token.as_str()))));
        }
        Ok(Ok(self))
    }

    /// Sends a request, and masks the credential in its response. The permit belongs to the bytes of the response. 401 means
    /// that nothing was processed, so the request is sent once more with a new token, or with the answer to a challenge.
    pub(crate) async fn call(&self, env: &Env, mut request: HttpRequest) -> CallResult<(HttpResponse, BytePermit)> {
        let (begun, mut secrets) = (env.now(), self.masked.clone());
        let timeout = request.timeout.saturating_sub(self.spent);
        request.timeout = timeout;
        let left = || timeout.saturating_sub(Duration::from_millis(env.now().since(begun).0));
        let again = matches!(self.proof, RequestProof::Token(..) | RequestProof::Digest(_)).then(|| request.clone());
        let mut used = None;
        match &self.proof {
            RequestProof::Sigv4(key) => {
                let signature = key.sign(&mut request, env.now());
                let signature = signature.ok_or_else(|| CallError::Refused("the URL cannot be signed".to_owned()))?;
                secrets.push(SecretText::new(signature));
            }
            RequestProof::Digest(user) => {
                used = env.cache.challenges.get(&user.connection);
                if let Some(challenge) = &used {
                    let value = user.answer(env, challenge, &request);
                    set_authorization(&mut request, value, &mut secrets);
                }
            }
            RequestProof::Headers | RequestProof::Token(..) => {}
        }
        let route = self.route.as_ref();
        let mut answer = send(env, request, &self.tls, route).await?;
        if answer.0.status == 401
            && let Some(mut again) = again
            && let Some(value) = self.renew(env, &answer.0, (&again, used), left()).await
        {
            set_authorization(&mut again, value, &mut secrets);
            again.timeout = left();
            if !again.timeout.is_zero() {
                let url = again.url.clone();
                // Its permit is returned before another one is acquired.
                drop(answer);
                answer = send(env, again, &self.tls, route).await?;
                if let (401, RequestProof::Token(client, _)) = (answer.0.status, &self.proof) {
                    client.keep(env, &url);
                }
            }
        }
        let (HttpResponse { status, mut headers, body }, permit) = answer;
        for (_, value) in &mut headers {
            *value = masked(value, &secrets);
        }
        Ok((HttpResponse { status, headers, body: mask(body, &secrets) }, permit))
    }

    /// Returns another header `Authorization` for a request that got 401, if there is one. `left` is what is left of its time.
    async fn renew(
        &self,
        env: &Env,
        response: &HttpResponse,
        (request, used): (&HttpRequest, Option<Arc<DigestChallenge>>),
        left: Duration,
    ) -> Option<String> {
        match &self.proof {
            // A late answer leaves no time for a token and another request.
            RequestProof::Token(client, rejected) if left >= request.timeout / 3 => {
                let token = client.token(env, Some((rejected, &request.url)), left).await.ok()?.ok()?;
                Some(format!("Bearer {}", token.as_str()))
            }
            RequestProof::Digest(user) => {
                let challenge = Arc::new(DigestChallenge::of(response)?);
                // The same challenge refuses the answer to it.
                if used.is_some_and(|used| used.is(&challenge)) {
                    return None;
                }
                env.cache.challenges.put(&user.connection, Arc::clone(&challenge), CHALLENGE_BYTES);
                Some(user.answer(env, &challenge, request))
            }
            RequestProof::Headers | RequestProof::Sigv4(_) | RequestProof::Token(..) => None,
        }
    }
}

impl DigestUser {
    fn answer(&self, env: &Env, challenge: &DigestChallenge, request: &HttpRequest) -> String {
        let url = Url::parse(&request.url);
        let uri = url.as_ref().map_or("/", |url| &url[Position::BeforePath..]);
        let cnonce = format!("{:016x}", env.random.next());
        challenge.authorize((&self.username, &self.password), (&request.method, uri), &cnonce)
    }
}

fn set_authorization(request: &mut HttpRequest, value: String, secrets: &mut Vec<SecretText>) {
    secrets.extend(forms(value.trim_start_matches("Bearer ")));
    request.headers.retain(|(name, _)| name != AUTHORIZATION);
    request.headers.push((AUTHORIZATION.to_owned(), value));
}

fn mask(body: Vec<u8>, secrets: &[SecretText]) -> Vec<u8> {
    if secrets.is_empty() {
        return body;
    }
    match String::from_utf8(body) {
        Ok(text) => masked(&text, secrets).into_bytes(),
        Err(error) => secrets.iter().fold(error.into_bytes(), |body, secret| replace(&body, secret.as_bytes())),
    }
}

/// Replaces each occurrence of `secret`. Each byte is a character meanwhile.
fn replace(body: &[u8], secret: &[u8]) -> Vec<u8> {
    let text = |bytes: &[u8]| bytes.iter().copied().map(char::from).collect::<String>();
    let secret = SecretText::new(text(secret));
    text(body).replace(secret.as_str(), MASK).chars().map(|byte| byte as u8).collect()
}

/// Returns the credential of a unit for a request with this time, or the reason why its connection cannot be used. The reason
/// contains no secret.
pub(crate) async fn credential(
    env: &Env,
    run: &Run,
    unit: &UnitPlan,
    time: Duration,
) -> FlowResult<Result<RequestCredential, CredentialProblem>> {
    let plugin = run.plugin(unit).unwrap_or(sign::OWN_HOOKS);
    let route = unit.cluster.as_deref().map(|cluster| {
        let uid = run.loaded.plan.cluster_uid(Some(cluster)).map(str::to_owned);
        ClusterRoute { cluster: cluster.to_owned(), uid, credential: None }
    });
    let Some(BoundConnection { name, origin, .. }) = unit.action.connection() else {
        let keys = env.settings.unit_keys.for_plugin(plugin);
        return Ok(Ok(RequestCredential { route, ..RequestCredential::new(Some(keys), Vec::new()) }));
    };
    let opened = open(&env.store, name).await?.and_then(|document| {
        let place = |origin: &str, cluster: Option<&str>| match cluster {
            Some(cluster) => format!("{origin} of cluster {cluster}"),
            None => origin.to_owned(),
        };
        let now = place(&document.origin.value, document.cluster_name());
        let planned = place(origin, unit.cluster.as_deref());
        if now != planned {
            return Err(format!("the connection {name} leads to {now} now; the plan of the target has {planned}"));
        }
        if !document.permits(plugin) {
            return Err(format!(
                "the connection {name} does not permit {plugin}: add it to `plugins` of the connection"
            ));
        }
        let mut credential = authorized(&env.settings.unit_keys, &document, |name| env.settings.secrets.secret(name))?;
        if let (Some(own), Some(route)) = (&mut credential.route, route) {
            own.uid = route.uid;
        }
        Ok(credential)
    });
    match opened {
        Ok(credential) => credential.ready(env, time).await,
        Err(why) => Ok(Err(why.into())),
    }
}

/// A source or a subscription that uses a connection, by its name.
#[derive(Clone, Copy)]
pub(crate) enum ConnectionUser<'a> {
    Source(&'a str),
    Subscription(&'a str),
}

/// Returns the origin and the credential of a connection for its user, or the reason why it cannot be used. An access token
/// is missing until the credential is [`ready`](RequestCredential::ready).
pub(crate) async fn of_user(
    env: &Env,
    name: &str,
    user: ConnectionUser<'_>,
) -> FlowResult<Result<(String, RequestCredential), String>> {
    Ok(open(&env.store, name).await?.and_then(|document| {
        let (permitted, kind, user) = match user {
            ConnectionUser::Source(user) => (&document.sources, "source", user),
            ConnectionUser::Subscription(user) => (&document.subscriptions, "subscription", user),
        };
        if !permitted.iter().any(|permitted| permitted.value == user) {
            let why = format!("the connection {name} does not permit the {kind} {user}");
            return Err(format!("{why}: add it to `{kind}s` of the connection"));
        }
        let read = |name: &str| env.settings.secrets.secret(name);
        Ok((document.origin.value.clone(), authorized(&env.settings.unit_keys, &document, read)?))
    }))
}

/// Returns the document of a connection, or the reason why it cannot be used.
pub(crate) async fn open(store: &Store, name: &str) -> FlowResult<Result<ConnectionDoc, String>> {
    let Some(item) = store.get_document(NamedKind::Connection, name).await? else {
        return Ok(Err(format!("the connection {name} does not exist")));
    };
    let load = move || load::connection("document", &item.document, &NoFiles, &DocumentVars::none());
    Ok(offload(load).await?.map_err(|_| format!("the connection {name} has errors; apply it again")))
}

/// Returns the reason why the secrets of a connection cannot authorize its requests. It contains no value.
pub fn secret_problem(secrets: &dyn SecretReader, keys: &WebhookKeys, document: &ConnectionDoc) -> Option<String> {
    authorized(keys, document, |name| secrets.checked(name)).err()
}

fn authorized(
    keys: &WebhookKeys,
    document: &ConnectionDoc,
    read: impl Fn(&str) -> Result<Option<SecretText>, String>,
) -> Result<RequestCredential, String> {
    if let Some(secret) = document.auth.cluster_secret() {
        return Ok(in_cluster(document, secret));
    }
    let user = format!("; the connection {} needs it", document.name.value);
    let value = |name: &At<String>| secret_value(read(&name.value), &name.value, &user);
    let secrets = document.auth.secrets().map(value).collect::<Result<Vec<_>, String>>()?;
    let names: Vec<&str> = document.auth.secrets().map(|name| name.value.as_str()).collect();
    authorize(keys, document, secrets).map_err(|problem| format!("the secret {} {problem}", names.join(" or ")))
}

/// Returns the credential in a Secret of a cluster, which only the relay reads. Another Secret or key is another sender.
fn in_cluster(document: &ConnectionDoc, secret: &ClusterSecretDoc) -> RequestCredential {
    let [namespace, name, key] = [&secret.namespace, &secret.name, &secret.key].map(|text| text.value.clone());
    let header = document.auth.header();
    let prefix = if let AuthDoc::Header(header) = &document.auth { header.prefix.value.clone() } else { String::new() };
    let sender = || (document.auth.name().to_owned(), SecretText::new(format!("{namespace}/{name}/{key}")));
    let identity = header.is_some().then(sender);
    let secret = SecretRef { cluster: None, namespace: Some(namespace), name, key };
    let credential = Some(ServiceCredential { secret, header, prefix });
    let cluster = document.cluster_name().unwrap_or_default().to_owned();
    let route = Some(ClusterRoute { cluster, uid: None, credential });
    RequestCredential { route, identity, ..RequestCredential::new(None, Vec::new()) }
}

/// Returns the value of a secret that was read, or the reason why it has none. `user` ends the reason if the deployment lacks the
/// secret.
pub(crate) fn secret_value(
    read: Result<Option<SecretText>, String>,
    name: &str,
    user: &str,
) -> Result<SecretText, String> {
    let secret = read.map_err(|error| format!("the secrets of the deployment cannot be read: {error}"))?;
    secret.ok_or_else(|| format!("the deployment has no secret {name}{user}"))
}

/// Returns the credential with the values of the secrets of a connection, without an access token.
fn authorize(
    keys: &WebhookKeys,
    document: &ConnectionDoc,
    secrets: Vec<SecretText>,
) -> Result<RequestCredential, String> {
    let scheme = &document.auth;
    let mut masked: Vec<SecretText> = secrets.iter().flat_map(|secret| forms(secret)).collect();
    let short = secrets.iter().map(|secret| secret.len()).find(|&bytes| bytes < MIN_SECRET);
    let mut secrets = secrets.into_iter();
    let (secret, second) = (secrets.next().unwrap_or_default(), secrets.next());
    let mut tls = TlsParts { certificate: None, authorities: document.ca.value.clone() };
    if let AuthDoc::Signed(_) = scheme {
        let keys = WebhookKeys::parse(&secret).map_err(|error| format!("cannot sign: {error}"))?;
        let masked = keys.reveal();
        return Ok(RequestCredential { tls, ..RequestCredential::new(Some(keys), masked) });
    }
    if let Some(bytes) = short {
        return Err(format!("has {bytes} bytes; expected at least {MIN_SECRET}"));
    }
    tls.certificate = match scheme {
        AuthDoc::Mtls(_) => Some(secret.clone()),
        AuthDoc::Oauth(_) => second.clone(),
        _ => None,
    };
    if tls.certificate.as_ref().is_some_and(|pem| !is_client_certificate(pem)) {
        return Err("is not PEM with a certificate and its private key".to_owned());
    }
    let (mut proof, mut header) = (RequestProof::Headers, None);
    let id = match scheme {
        AuthDoc::Oauth(oauth) => {
            let client = TokenClient::new(keys, document, oauth, (&secret, tls.clone()));
            masked.extend_from_slice(&client.masked);
            proof = RequestProof::Token(client, SecretText::default());
            Some(&oauth.client_id.value)
        }
        AuthDoc::GithubApp(app) => {
            let client = TokenClient::of_app(keys, document, app, (&secret, tls.clone()));
            let client = client.ok_or("is not the private key of a GitHub App: PEM with BEGIN RSA PRIVATE KEY")?;
            proof = RequestProof::Token(client, SecretText::default());
            Some(&app.app_id.value)
        }
        AuthDoc::Digest(user) => {
            let (connection, username) = (document.name.value.clone(), user.username.value.clone());
            proof = RequestProof::Digest(DigestUser { connection, username, password: secret.clone() });
            Some(&user.username.value)
        }
        AuthDoc::Sigv4(sigv4) => {
            let [access_key_id, region, service] =
                [&sigv4.access_key_id, &sigv4.region, &sigv4.service].map(|text| text.value.clone());
            let (secret, session_token) = (secret.clone(), second);
            proof = RequestProof::Sigv4(AwsKey { access_key_id, secret, session_token, region, service });
            Some(&sigv4.access_key_id.value)
        }
        AuthDoc::Mtls(_) => Some(&document.name.value),
        AuthDoc::Basic(_) | AuthDoc::Header(_) | AuthDoc::Bearer(_) | AuthDoc::Signed(_) => {
            header = Some(header_of(scheme, &secret, &mut masked)?);
            None
        }
    };
    let identity = id.map(|id| (scheme.name().to_owned(), SecretText::new(format!("{id}\n{}", secret.as_str()))));
    Ok(RequestCredential { header, proof, identity, tls, ..RequestCredential::new(None, masked) })
}

/// Returns the header of a scheme that has the secret in it.
fn header_of(
    scheme: &AuthDoc,
    secret: &SecretText,
    masked: &mut Vec<SecretText>,
) -> Result<(String, SecretText), String> {
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
        _ => SecretText::new(format!("Bearer {}", secret.as_str())),
    };
    Ok((scheme.header().unwrap_or_default(), value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::rows;

    fn credential(auth: &str, secret: &str) -> Result<RequestCredential, String> {
        let text = format!(
            "apiVersion: ebb.dev/v1\nkind: Connection\nname: c\norigin: https://a.example\nauth: {auth}\nplugins: [p]\n"
        );
        let document = load::connection("c.yaml", &text, &NoFiles, &DocumentVars::none()).unwrap();
        let keys = WebhookKeys::from(WebhookSecret::from_bytes(&[7; 32]).unwrap());
        let secrets = document.auth.secrets().map(|_| SecretText::new(secret.to_owned())).collect();
        authorize(&keys, &document, secrets)
    }

    #[test]
    fn every_form_of_a_credential_is_masked() {
        let secret = r#"a"b\c/d-canary"#;
        let basic = STANDARD.encode(format!("ebb:{secret}"));
        let credential = credential("{basic: {username: ebb, secret: S}}", secret).unwrap();
        let json = serde_json::json!([secret, basic]).to_string();
        let escaped = r#"{"k":"a\u0022b\\c\/d-c\u0061nary"}"#;
        for text in [secret, &basic, &json, r#"{"a\"b\\c\/d-canary":1}"#, escaped] {
            let masked = mask(text.into(), &credential.masked);
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
        for (auth, secret) in rows::<(String, String)>("secrets_that_are_no_credentials") {
            let error = credential(&auth, &secret).map(drop).unwrap_err();
            assert!(!error.contains("canary"), "{error}");
        }
        assert!(credential("{basic: {username: ebb, secret: S}}", "with white space and ä").is_ok());
    }
}
