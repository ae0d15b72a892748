//! The identity of a relay: the secret that signs its polls. The relay makes and registers it with a bootstrap token.
//!
//! The Secret [`NAME`] in the relay's namespace has the registered secret and the digest of its token. A new secret is
//! stored there before it is sent, so a relay that was killed repeats the same registration. A token with another
//! digest registers another secret, also if the Secret is damaged.

use std::path::PathBuf;

use backon::BackoffBuilder as _;
use ebb_protocol::registration::{RegisterRelay, RelayRegistration, VERSION, is_token};
use ebb_protocol::{WebhookKeys, WebhookSecret, token_digest};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use kube::api::{Api, PostParams};

use crate::error::Result;
use crate::http_client::{TRANSPORT, exchange, http_client, pauses};
use crate::task::store::part_secret;

const NAME: &str = "ebb-relay-identity";
/// Its label [`PART`](crate::names::PART).
const IDENTITY: &str = "identity";
/// The keys of the Secret: the registered secret with the digest of its token, and the one that is being registered.
const REGISTERED: [&str; 2] = ["secret", "token"];
const NEXT: [&str; 2] = ["nextSecret", "nextToken"];

/// The control plane at which a relay registers.
#[derive(Clone, Debug)]
pub struct RelayBootstrap {
    /// The URL of the API, without `/v1`.
    pub url: String,
    /// The name of the cluster in the control plane.
    pub cluster: String,
    pub namespace: String,
    /// The file with the bootstrap token. A registered relay does not need it.
    pub token_file: PathBuf,
}

/// Returns the registered secret of the relay of the cluster `uid`. Registers one if there is none, or if the bootstrap
/// token is another one. A failed registration is repeated with growing pauses.
///
/// # Errors
/// Returns an error if no HTTP client can be created.
pub async fn registered_keys(client: &Client, uid: &str, bootstrap: &RelayBootstrap) -> Result<WebhookKeys> {
    let secrets = Api::namespaced(client.clone(), &bootstrap.namespace);
    let registrar = Registrar { secrets, http: http_client()?, uid, bootstrap };
    let mut pauses = pauses().build();
    loop {
        match registrar.keys().await {
            Ok(secret) => return Ok(secret.into()),
            Err(reason) => {
                tracing::warn!(reason, cluster = bootstrap.cluster, "the relay is not registered; trying again");
                tokio::time::sleep(pauses.next().unwrap_or(TRANSPORT)).await;
            }
        }
    }
}

struct Registrar<'a> {
    secrets: Api<Secret>,
    http: reqwest::Client,
    uid: &'a str,
    bootstrap: &'a RelayBootstrap,
}

impl Registrar<'_> {
    async fn keys(&self) -> Result<WebhookSecret, String> {
        let token = self.token()?;
        let stored = self.secrets.get_opt(NAME).await.map_err(|error| self.secret_error("read", &error))?;
        let mut identity = stored.unwrap_or_else(|| part_secret(NAME, IDENTITY, &[]));
        let (present, used) = pair(&identity, REGISTERED);
        // The control plane accepts the token of a damaged pair for its lost secret only.
        let token = token.filter(|token| used.as_deref() != Some(token_digest(token).as_str()));
        let (present, token) = match (present, token) {
            (Ok(Some(present)), None) => return Ok(present),
            (Err(damage), None) => {
                let namespace = &self.bootstrap.namespace;
                return Err(
                    self.with_fix(&format!("the Secret {NAME} in the namespace {namespace} is damaged: {damage}"))
                );
            }
            (Ok(None), None) => {
                let file = self.bootstrap.token_file.display();
                return Err(self.with_fix(&format!("{file} has no bootstrap token")));
            }
            (present, Some(token)) => (present.unwrap_or_default(), token),
        };
        let digest = token_digest(&token);
        let next = match pair(&identity, NEXT) {
            (Ok(Some(next)), Some(of)) if of == digest => next,
            _ => {
                let next = WebhookSecret::from_bytes(&rand::random::<[u8; 32]>()).map_err(|error| error.to_string())?;
                set(&mut identity, NEXT, &next, &digest);
                identity = self.save(&identity).await?;
                next
            }
        };
        match (self.register(&token, &next).await, present) {
            (Ok(()), _) => {
                set(&mut identity, REGISTERED, &next, &digest);
                let data = identity.data.get_or_insert_default();
                for key in NEXT {
                    data.remove(key);
                }
                self.save(&identity).await?;
                tracing::info!(cluster = self.bootstrap.cluster, "the relay is registered");
                Ok(next)
            }
            // The control plane does not accept the token.
            (Err((Some(401 | 409 | 422), reason)), Some(present)) => {
                tracing::error!(reason, "the bootstrap token is not accepted; the relay keeps its registered secret");
                Ok(present)
            }
            (Err((_, reason)), _) => Err(reason),
        }
    }

    fn token(&self) -> Result<Option<String>, String> {
        let file = &self.bootstrap.token_file;
        let text = match std::fs::read_to_string(file) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(format!("cannot read {}: {error}", file.display())),
        };
        match text.trim() {
            "" => Ok(None),
            token if is_token(token) => Ok(Some(token.to_owned())),
            text => Err(self.with_fix(&format!(
                "{} has no bootstrap token: expected `ebbc_` and 43 characters, got {} characters",
                file.display(),
                text.chars().count()
            ))),
        }
    }

    async fn save(&self, identity: &Secret) -> Result<Secret, String> {
        let saved = match identity.metadata.resource_version {
            None => self.secrets.create(&PostParams::default(), identity).await,
            Some(_) => self.secrets.replace(NAME, &PostParams::default(), identity).await,
        };
        saved.map_err(|error| self.secret_error("write", &error))
    }

    /// Adds the command that gives the relay another token.
    fn with_fix(&self, problem: &str) -> String {
        format!("{problem}; run `ebb cluster rotate {} --apply`", self.bootstrap.cluster)
    }

    fn secret_error(&self, what: &str, error: &kube::Error) -> String {
        format!("cannot {what} the Secret {NAME} in the namespace {}: {error}", self.bootstrap.namespace)
    }

    /// Registers a secret. An error is that of [`exchange`].
    async fn register(&self, token: &str, secret: &WebhookSecret) -> Result<(), (Option<u16>, String)> {
        let RelayBootstrap { url, cluster, .. } = self.bootstrap;
        let url = format!("{}/v1/clusters/{cluster}/register", url.trim_end_matches('/'));
        let request = RegisterRelay {
            v: VERSION,
            uid: self.uid.to_owned(),
            secret: secret.reveal().to_string(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        let request = self.http.post(url).bearer_auth(token).timeout(TRANSPORT).json(&request);
        exchange::<RelayRegistration>(request).await.map(drop)
    }
}

/// Returns a secret, or why its key cannot be used, and the digest of its token.
fn pair(identity: &Secret, keys: [&str; 2]) -> (Result<Option<WebhookSecret>, String>, Option<String>) {
    let text = |key: &str| {
        let bytes = identity.data.as_ref().and_then(|data| data.get(key));
        bytes.map(|bytes| String::from_utf8_lossy(&bytes.0).into_owned())
    };
    let [key, of_token] = keys;
    let (secret, token) = (text(key), text(of_token));
    let damaged = |got: String| format!("expected `whsec_` and 24 to 64 bytes in base64 in its key `{key}`, got {got}");
    let secret = match secret {
        Some(text) => WebhookSecret::parse(&text)
            .map(Some)
            .map_err(|error| damaged(format!("{} characters: {error}", text.chars().count()))),
        None if token.is_some() => Err(damaged("no such key".to_owned())),
        None => Ok(None),
    };
    (secret, token)
}

fn set(identity: &mut Secret, [of_secret, of_token]: [&str; 2], secret: &WebhookSecret, digest: &str) {
    let data = identity.data.get_or_insert_default();
    data.insert(of_secret.to_owned(), ByteString(secret.reveal().as_bytes().to_vec()));
    data.insert(of_token.to_owned(), ByteString(digest.as_bytes().to_vec()));
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::{Arc, Mutex};

    use axum::http::{HeaderMap, StatusCode};
    use ebb_protocol::registration::issue_token;
    use serde_json::{Value, json};

    use super::*;
    use crate::test_api::{TestApi, rows};

    /// A control plane that accepts one token, and records each request with the Secret at that time.
    #[derive(Default)]
    struct ControlPlane {
        valid: Mutex<String>,
        seen: Mutex<Vec<(Value, Option<Value>)>>,
    }

    /// Serves a control plane. Returns the bootstrap at it, with a file that does not exist yet.
    async fn bootstrap(control_plane: &Arc<ControlPlane>, server: &Arc<TestApi>) -> RelayBootstrap {
        let (control_plane, server) = (Arc::clone(control_plane), Arc::clone(server));
        let register = move |headers: HeaderMap, body: axum::body::Bytes| async move {
            let request: Value = serde_json::from_slice(&body).unwrap();
            control_plane.seen.lock().unwrap().push((request, server.objects.lock().unwrap().get(NAME).cloned()));
            let expected = format!("Bearer {}", control_plane.valid.lock().unwrap());
            match headers["authorization"] == *expected {
                true => (StatusCode::OK, json!({"v": 1, "cluster": "eu"}).to_string()),
                false => (StatusCode::UNAUTHORIZED, "unknown".to_owned()),
            }
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let app = axum::Router::new().route("/v1/clusters/eu/register", axum::routing::post(register));
        tokio::spawn(async move { axum::serve(listener, app).await });
        let token_file = std::env::temp_dir().join(format!("ebb-identity-{:016x}", rand::random::<u64>()));
        RelayBootstrap { url, cluster: "eu".to_owned(), namespace: "relay".to_owned(), token_file }
    }

    fn registrar<'a>(bootstrap: &'a RelayBootstrap, server: &Arc<TestApi>) -> Registrar<'a> {
        let secrets = Api::namespaced(server.client(), "relay");
        Registrar { secrets, http: http_client().unwrap(), uid: "u", bootstrap }
    }

    /// Each error has the command that gives the relay another token, which repairs the Secret.
    #[tokio::test]
    async fn another_token_repairs_a_damaged_identity() {
        let (server, control_plane) = (Arc::<TestApi>::default(), Arc::new(ControlPlane::default()));
        let bootstrap = bootstrap(&control_plane, &server).await;
        let registrar = registrar(&bootstrap, &server);
        let keys = async || registrar.keys().await.map(|secret| secret.reveal().to_string());
        let count = || control_plane.seen.lock().unwrap().len();
        let [used, other] = [1, 2].map(|number| issue_token([number; 4]));
        control_plane.valid.lock().unwrap().clone_from(&other);
        let digest = token_digest(&used);
        for (number, (secret, got)) in rows::<(Option<String>, String)>("damaged_secrets").into_iter().enumerate() {
            let mut data = BTreeMap::from([("token", ByteString(digest.as_bytes().to_vec()))]);
            data.extend(secret.map(|secret| ("secret", ByteString(secret.into_bytes()))));
            let metadata = json!({"name": NAME, "resourceVersion": "1"});
            let damaged = json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data});
            server.objects.lock().unwrap().insert(NAME.to_owned(), damaged);
            std::fs::write(&bootstrap.token_file, &**used).unwrap();
            for _ in 0..2 {
                let error = keys().await.unwrap_err();
                let parts = rows::<String>("another_token_repairs_a_damaged_identity");
                let is_complete = parts.iter().chain([&got]).all(|part| error.contains(part));
                assert!(is_complete && !error.contains("hunter2"), "{error}");
                // The second time, the file is empty.
                std::fs::write(&bootstrap.token_file, "").unwrap();
            }
            assert_eq!(count(), number, "no request has the used token");
            std::fs::write(&bootstrap.token_file, &**other).unwrap();
            let registered = keys().await.unwrap();
            assert_eq!((keys().await, count()), (Ok(registered), number + 1));
        }
        std::fs::write(&bootstrap.token_file, "garbage").unwrap();
        let error = keys().await.unwrap_err();
        let parts = ["expected `ebbc_` and 43 characters, got 7 characters", "run `ebb cluster rotate eu --apply`"];
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
        std::fs::remove_file(&bootstrap.token_file).unwrap();
    }

    #[tokio::test]
    async fn a_relay_stores_its_secret_before_it_registers_it() {
        let (server, control_plane) = (Arc::<TestApi>::default(), Arc::new(ControlPlane::default()));
        let bootstrap = bootstrap(&control_plane, &server).await;
        let (registrar, token_file) = (registrar(&bootstrap, &server), &bootstrap.token_file);
        let keys = async || registrar.keys().await.map(|secret| secret.reveal().to_string());
        let count = || control_plane.seen.lock().unwrap().len();
        assert!(keys().await.unwrap_err().contains("has no bootstrap token"));
        assert_eq!(count(), 0);
        let [first, second, wrong] = [1, 2, 3].map(|number| issue_token([number; 4]));
        // A token that is not accepted registers nothing, and the repetition sends the same secret.
        std::fs::write(token_file, format!("{}\n", *first)).unwrap();
        assert!(keys().await.unwrap_err().contains("401"));
        control_plane.valid.lock().unwrap().clone_from(&first);
        let registered = keys().await.unwrap();
        for (request, seen) in control_plane.seen.lock().unwrap().iter() {
            assert_eq!((&request["secret"], &request["uid"]), (&json!(registered), &json!("u")));
            assert!(seen.as_ref().is_some_and(|secret| secret["data"]["nextSecret"].is_string()), "{seen:?}");
        }
        assert_eq!(count(), 2);
        // A registered relay sends no request, with its token and without.
        assert_eq!(keys().await.as_deref(), Ok(&*registered));
        std::fs::remove_file(token_file).unwrap();
        assert_eq!(keys().await.as_deref(), Ok(&*registered));
        assert_eq!(count(), 2);
        // Another token registers another secret. Until one is accepted, the relay keeps its secret.
        std::fs::write(token_file, &**wrong).unwrap();
        assert_eq!(keys().await.as_deref(), Ok(&*registered));
        std::fs::write(token_file, &**second).unwrap();
        control_plane.valid.lock().unwrap().clone_from(&second);
        let rotated = keys().await.unwrap();
        assert_ne!(rotated, registered);
        assert_eq!((keys().await.as_deref(), count()), (Ok(&*rotated), 4));
        let secret = server.objects.lock().unwrap()[NAME].clone();
        let kept: Vec<&String> = secret["data"].as_object().unwrap().keys().collect();
        assert_eq!(kept, ["secret", "token"]);
        assert!(!secret.to_string().contains(&**second), "the token is stored");
        std::fs::remove_file(token_file).unwrap();
    }
}
