//! Registers clusters and their relays.
//!
//! 1. [`ClusterRegistry::put`] stores the settings of a cluster and issues a bootstrap token for one relay.
//! 2. [`ClusterRegistry::register`] pins the cluster of that relay and stores the secret that the relay has made.
//! 3. [`ClusterRegistry::rotate`] issues another token. The relay that uses it replaces the secret. The former secret
//!    is valid until then.
//!
//! The table has the digest of a token and the encrypted secret. Each write has the version that was read as its
//! condition, so a token is used once.

use ebb_flow::error::RequestError;
use ebb_protocol::api_token::token_digest;
use ebb_protocol::limits::message;
use ebb_protocol::registration::{RegisterRelay, RelayRegistration, VERSION, is_uid, issue_token};
use ebb_protocol::{ErrorCode, Millis, PutCluster, Timestamp, WebhookSecret, has_digest, is_dns_label, rfc3339};
use ebb_store::{BootstrapToken, ClusterItem, RegisteredRelay, StoreError};
use serde_json::Value;
use url::Url;

use super::registry::{ClusterRegistry, RegisteredClusters};

/// The time in which a relay has to use a bootstrap token.
const TOKEN_TTL: Millis = Millis(60 * 60 * 1000);
/// Maximum registered clusters. Each function reads all of them.
const MAX_CLUSTERS: usize = 100;
/// Maximum bytes of the options of a cluster, as JSON.
const MAX_OPTIONS: usize = 64 << 10;
/// Maximum bytes of the name of an image, and of a URL.
const MAX_TEXT: usize = 1 << 10;
/// Attempts of a write that other writers overtake.
const ATTEMPTS: usize = 5;

/// A registered cluster, and the bootstrap token that the request has issued.
pub struct StoredRegistration {
    pub cluster: ClusterItem,
    pub token: Option<String>,
    pub is_new: bool,
}

impl ClusterRegistry {
    /// Registers a cluster, or replaces its settings. A new cluster gets a bootstrap token, and another one if the
    /// request asks for it. `random` has the bits of the token.
    ///
    /// # Errors
    /// Returns a refusal for invalid settings and if there are too many clusters, or an error if the table cannot be written.
    pub async fn put(
        &self,
        name: &str,
        request: &PutCluster,
        caller: &str,
        now: Timestamp,
        random: [u64; 4],
    ) -> Result<StoredRegistration, RequestError> {
        let (url, token) = (check(name, request)?, issue_token(random));
        let changed = self.change(name, |known, count| {
            let version = known.map(|known| known.version);
            if let Some(expected) = request.expected.filter(|expected| Some(*expected) != version) {
                let found =
                    version.map_or("it is not registered".to_owned(), |version| format!("it has version {version}"));
                let why = format!(
                    "another request has changed the cluster {name}: expected version {expected}, and {found}. Read \
                     the cluster again, and repeat the change with its new version"
                );
                return Err(RequestError::refused(ErrorCode::ClusterChanged, why));
            }
            if known.is_none() && count >= MAX_CLUSTERS {
                let why = format!("{MAX_CLUSTERS} clusters are registered, the maximum: delete one that is not used");
                return Err(RequestError::refused(ErrorCode::TooManyClusters, why));
            }
            let has_token = known.is_none() || request.rebootstrap;
            Ok(ClusterItem {
                name: name.to_owned(),
                url: url.clone(),
                entrypoint_image: request.entrypoint_image.clone(),
                signadot_outputs: request.signadot_outputs,
                options: Value::Object(request.options.clone()),
                relay: known.and_then(|known| known.relay.clone()),
                bootstrap: has_token.then(|| issued(&token, now)).or_else(|| known?.bootstrap.clone()),
                created: known.map_or(now, |known| known.created),
                created_by: known.map_or(caller, |known| known.created_by.as_str()).to_owned(),
                // The versions of a deleted cluster are not used again.
                version: known.map_or(now.0, |known| known.version + 1),
            })
        });
        let (cluster, is_new) = changed.await?;
        Ok(StoredRegistration { cluster, token: (is_new || request.rebootstrap).then(|| token.to_string()), is_new })
    }

    /// Issues another bootstrap token for a cluster. The former one is not valid any more.
    ///
    /// # Errors
    /// Returns a refusal if the cluster is not registered, or an error if the table cannot be written.
    pub async fn rotate(
        &self,
        name: &str,
        now: Timestamp,
        random: [u64; 4],
    ) -> Result<StoredRegistration, RequestError> {
        let token = issue_token(random);
        let changed = self.change(name, |known, _| {
            Ok(ClusterItem { bootstrap: Some(issued(&token, now)), ..known.cloned().ok_or_else(|| missing(name))? })
        });
        let (cluster, _) = changed.await?;
        Ok(StoredRegistration { cluster, token: Some(token.to_string()), is_new: false })
    }

    /// Registers the relay of a cluster with a bootstrap token. The same relay can repeat it with the same secret.
    ///
    /// # Errors
    /// Returns a refusal of another token and of a relay in another cluster than the pinned one, or a table error.
    pub async fn register(
        &self,
        name: &str,
        token: &str,
        request: &RegisterRelay,
        now: Timestamp,
    ) -> Result<RelayRegistration, RequestError> {
        if request.v != VERSION {
            let why = format!("expected version {VERSION} of the registration, got {}", request.v);
            return Err(RequestError::refused(ErrorCode::InvalidField, why));
        }
        if !is_uid(&request.uid) {
            let why = "`uid` is invalid; expected the uid of the namespace kube-system";
            return Err(RequestError::refused(ErrorCode::InvalidField, why));
        }
        let secret = WebhookSecret::parse(&request.secret)
            .map_err(|error| RequestError::refused(ErrorCode::InvalidField, error.to_string()))?;
        let table = self.table()?;
        let sealed = table.seal(name, &secret);
        if !self.has_token(name, token).await? {
            return Err(unknown_token());
        }
        let changed = self.change(name, |known, _| {
            let mut cluster = known.cloned().ok_or_else(unknown_token)?;
            let bootstrap = cluster.bootstrap.as_mut().filter(|known| has_digest(token, &known.digest));
            let Some(bootstrap) = bootstrap else { return Err(unknown_token()) };
            if let Some(entry) = self.named(Some(name)).filter(|entry| entry.uid != request.uid) {
                let why = format!(
                    "EBB_CLUSTERS has an entry {name} with the uid {}, and this relay runs in the cluster {}: register \
                     it under another name, or remove the entry first",
                    entry.uid, request.uid
                );
                return Err(RequestError::refused(ErrorCode::WrongCluster, why));
            }
            if let Some(relay) = cluster.relay.as_ref().filter(|relay| relay.uid != request.uid) {
                let why = format!(
                    "cluster {name} is pinned to the uid {}, and this relay runs in the cluster {}: register each cluster \
                     under a name of its own, or delete {name} first",
                    relay.uid, request.uid
                );
                return Err(RequestError::refused(ErrorCode::WrongCluster, why));
            }
            if bootstrap.used {
                // The response to this relay was lost. The repetition grants nothing, so it may come late, also after a
                // rotation of the root secrets. Both texts are compared as the first root secret encrypts them.
                let known = cluster.relay.as_ref().and_then(|relay| table.open(name, &relay.secret));
                if known.is_some_and(|known| table.seal(name, &known) == sealed) {
                    return Ok(cluster);
                }
                let why = format!("another relay has used the bootstrap token: {}", another_token(name));
                return Err(RequestError::refused(ErrorCode::InvalidToken, why));
            }
            if bootstrap.expires <= now {
                let expired = rfc3339(bootstrap.expires);
                let why = format!("the bootstrap token has expired at {expired}: {}", another_token(name));
                return Err(RequestError::refused(ErrorCode::InvalidToken, why));
            }
            bootstrap.used = true;
            cluster.relay = Some(RegisteredRelay { uid: request.uid.clone(), secret: sealed.clone(), since: now });
            Ok(cluster)
        });
        changed.await?;
        table.end_denial(name).await;
        tracing::info!(
            cluster = name,
            uid = request.uid,
            version = message(&request.version),
            "the relay of a cluster has registered"
        );
        Ok(RelayRegistration { v: VERSION, cluster: name.to_owned() })
    }

    /// Deletes a registered cluster. Returns false if it is not registered.
    ///
    /// # Errors
    /// Returns an error if the table cannot be written.
    pub async fn delete(&self, name: &str) -> Result<bool, RequestError> {
        let table = self.table()?;
        let is_deleted = table.store.delete_cluster(name).await?;
        table.forget().await;
        Ok(is_deleted)
    }

    /// Writes the cluster that `change` returns for the registered one and the number of all. Returns it, and true if it is
    /// new. Without a change, it writes nothing.
    async fn change(
        &self,
        name: &str,
        change: impl Fn(Option<&ClusterItem>, usize) -> Result<ClusterItem, RequestError>,
    ) -> Result<(ClusterItem, bool), RequestError> {
        let table = self.table()?;
        for _ in 0..ATTEMPTS {
            let all = table.store.list_clusters().await?;
            let known = all.iter().find(|cluster| cluster.name == name);
            let mut cluster = change(known, all.len())?;
            if known == Some(&cluster) {
                return Ok((cluster, false));
            }
            let version = known.map(|known| known.version);
            cluster.version = version.map_or(cluster.version, |version| version + 1);
            if table.store.put_cluster(&cluster, version).await? {
                table.forget().await;
                return Ok((cluster, known.is_none()));
            }
        }
        let reason = "other requests change the same cluster".to_owned();
        Err(StoreError::Retryable { operation: "PutItem", reason }.into())
    }

    fn table(&self) -> Result<&RegisteredClusters, RequestError> {
        self.registered().ok_or_else(|| {
            let why = "the only cluster of this control plane is that of its own relay: start it without `--kubeconfig` to \
                       register clusters";
            RequestError::refused(ErrorCode::OwnRelay, why)
        })
    }
}

/// Checks the settings of a cluster, and returns its URL without a slash at the end.
fn check(name: &str, request: &PutCluster) -> Result<Option<String>, RequestError> {
    let invalid = |why: &str| Err(RequestError::refused(ErrorCode::InvalidField, why));
    if !is_dns_label(name) {
        return invalid("the name is invalid; expected a DNS label: 1 to 63 of a-z, 0-9 and -, no - at the ends");
    }
    let image = request.entrypoint_image.as_str();
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"./:@_-".contains(&byte);
    if !(1..=MAX_TEXT).contains(&image.len()) || !image.bytes().all(plain) {
        return invalid("`entrypointImage` is invalid; expected REPOSITORY:TAG or REPOSITORY@DIGEST");
    }
    let bytes = serde_json::to_vec(&request.options).map_or(usize::MAX, |json| json.len());
    if bytes > MAX_OPTIONS {
        return invalid(&format!("`options` has {bytes} bytes; expected at most {MAX_OPTIONS}"));
    }
    let Some(url) = request.url.as_deref() else { return Ok(None) };
    let parsed = Url::parse(url).ok().filter(|parsed| {
        let is_http = matches!(parsed.scheme(), "http" | "https") && parsed.host().is_some();
        let is_plain = parsed.username().is_empty() && parsed.password().is_none();
        is_http && is_plain && parsed.query().is_none() && parsed.fragment().is_none()
    });
    match parsed {
        Some(parsed) if url.len() <= MAX_TEXT => Ok(Some(parsed.as_str().trim_end_matches('/').to_owned())),
        _ => invalid("`url` is invalid; expected https://HOST or http://HOST, without user, query and fragment"),
    }
}

fn issued(token: &str, now: Timestamp) -> BootstrapToken {
    BootstrapToken { digest: token_digest(token), expires: now.plus(TOKEN_TTL), used: false }
}

fn another_token(name: &str) -> String {
    format!("request another one with `ebb cluster rotate {name} --apply`")
}

/// A wrong token gets the same response as an unknown cluster.
fn unknown_token() -> RequestError {
    let why = "no cluster with this name and bootstrap token is registered: install the relay with the token of the last \
               registration or rotation of its cluster";
    RequestError::refused(ErrorCode::InvalidToken, why)
}

fn missing(name: &str) -> RequestError {
    let why = format!("the cluster {name:?} is not registered; a cluster of the configuration is changed there");
    RequestError::refused(ErrorCode::NotFound, why)
}
