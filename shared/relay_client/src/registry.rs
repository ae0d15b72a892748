//! The connected clusters: those of the configuration, and those that were registered by a request.

mod cluster_config;
mod registered;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ebb_protocol::{SignadotOutputs, WebhookKeys, has_digest};
use ebb_store::{Store, StoreError, StoreResult};
use serde::Deserialize;

pub use cluster_config::{ClusterConfig, RelayTransport};
use ebb_flow::ports::no_relay;
use registered::RegisteredCluster;
pub(crate) use registered::RegisteredClusters;

/// The cluster of documents that do not name one.
const DEFAULT: &str = "default";

/// The time after which the registered clusters are read again.
const MAX_AGE: Duration = Duration::from_secs(10);
/// The time between two reads for requests with an unknown name or a wrong signature, which anyone can send.
const MIN_AGE: Duration = Duration::from_secs(1);

/// The connected clusters, by their names in documents. A registered cluster precedes one of the configuration with the
/// same name as soon as a relay has registered. The entry is then that of the same UID, or it is not used.
#[derive(Default)]
pub struct ClusterRegistry {
    named: BTreeMap<String, Arc<ClusterConfig>>,
    only: Option<Arc<ClusterConfig>>,
    registered: Option<RegisteredClusters>,
}

#[derive(Debug, thiserror::Error)]
pub enum ClusterLookupError {
    #[error("{}", no_relay(.0))]
    Unknown(String),
    #[error(
        "cluster {0:?} waits for its relay: install the relay with the bootstrap token of the cluster, or request another \
         token with `ebb cluster rotate {0} --apply`"
    )]
    Waiting(String),
    #[error("the registered clusters cannot be read: {0}")]
    Store(#[from] StoreError),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ClusterEntry {
    url: Option<String>,
    secret: String,
    uid: Option<String>,
    entrypoint_image: String,
    signadot_outputs: Option<SignadotOutputs>,
}

impl ClusterRegistry {
    /// Parses `{"NAME": {"url": …, "secret": "whsec_…", "uid": …, "entrypointImage": …}}`. `url` and
    /// `"signadotOutputs": "open"` are optional; a cluster without `url` has the pull transport.
    /// `secret` lists secrets, separated by white space or commas. The first one signs.
    ///
    /// # Errors
    /// Returns the reason why the list is invalid. It contains no secret.
    pub fn parse(text: &str) -> Result<Self, String> {
        let entries: BTreeMap<String, ClusterEntry> = serde_json::from_str(text).map_err(|error| {
            format!(
                "line {}, column {}: expected a JSON object NAME: {{url, secret, uid, entrypointImage, \
                 signadotOutputs}}, in which `signadotOutputs` is \"open\" or absent. The `level` of a namespace in the \
                 policy of the relay has replaced `runAsNonRoot`",
                error.line(),
                error.column()
            )
        })?;
        let clusters = entries.into_iter().map(|(name, entry)| {
            let keys = WebhookKeys::parse(&entry.secret);
            let keys = keys.map_err(|error| format!("the secret of cluster {name:?}: {error}"))?;
            let uid = entry.uid.filter(|uid| !uid.is_empty()).ok_or_else(|| {
                format!(
                    "cluster {name:?} has no `uid`: without it, the relay of a restored or copied cluster would act for \
                     the original. Set it to the output of `kubectl get namespace kube-system \
                     --output=jsonpath={{.metadata.uid}}` in the cluster"
                )
            })?;
            let cluster = ClusterConfig {
                name: name.clone(),
                transport: entry
                    .url
                    .map_or(RelayTransport::Pull, |url| RelayTransport::Push(url.trim_end_matches('/').to_owned())),
                keys,
                uid,
                entrypoint_image: entry.entrypoint_image,
                signadot_outputs: entry.signadot_outputs,
                is_registered: false,
            };
            Ok::<_, String>((name, Arc::new(cluster)))
        });
        Ok(Self { named: clusters.collect::<Result<_, _>>()?, ..Self::default() })
    }

    /// Returns a registry with one cluster, which every name refers to.
    pub fn only(cluster: ClusterConfig) -> Self {
        Self { only: Some(Arc::new(cluster)), ..Self::default() }
    }

    /// Adds the clusters of the table. `keys` are the root secrets, which encrypt the secrets of relays.
    #[must_use]
    pub fn with_registered(self, store: Arc<Store>, keys: WebhookKeys) -> Self {
        Self { registered: Some(RegisteredClusters::new(store, keys)), ..self }
    }

    pub(crate) fn registered(&self) -> Option<&RegisteredClusters> {
        self.registered.as_ref()
    }

    /// Returns the name of the cluster that a document names.
    pub fn resolve<'a>(&'a self, name: Option<&'a str>) -> &'a str {
        self.only.as_ref().map_or(name.unwrap_or(DEFAULT), |only| only.name.as_str())
    }

    /// Returns the cluster of the configuration with a name, or that of documents that do not name one.
    pub fn named(&self, name: Option<&str>) -> Option<&Arc<ClusterConfig>> {
        self.only.as_ref().or_else(|| self.named.get(self.resolve(name)))
    }

    /// Returns the cluster of a name, or of documents that do not name one. A registered cluster is as it was at most
    /// ten seconds ago, and one that this process has registered is the present one.
    ///
    /// # Errors
    /// Returns [`ClusterLookupError`] if no relay is connected under the name, or if the table cannot be read.
    pub async fn find(&self, name: Option<&str>) -> Result<Arc<ClusterConfig>, ClusterLookupError> {
        match self.find_within(name, MAX_AGE).await {
            // Another process may have registered it since.
            Err(ClusterLookupError::Unknown(_) | ClusterLookupError::Waiting(_)) => self.find_again(name).await,
            found => found,
        }
    }

    /// Returns the cluster of a name after a request with another secret, as of one second ago at most.
    ///
    /// # Errors
    /// As [`Self::find`].
    pub(crate) async fn find_again(&self, name: Option<&str>) -> Result<Arc<ClusterConfig>, ClusterLookupError> {
        self.find_within(name, MIN_AGE).await
    }

    async fn find_within(&self, name: Option<&str>, age: Duration) -> Result<Arc<ClusterConfig>, ClusterLookupError> {
        match self.entries(name, age).await? {
            (Some(RegisteredCluster { config: Some(registered), .. }), _) => Ok(registered),
            (_, Some(configured)) => Ok(Arc::clone(configured)),
            (Some(_), None) => Err(ClusterLookupError::Waiting(self.resolve(name).to_owned())),
            (None, None) => Err(ClusterLookupError::Unknown(self.resolve(name).to_owned())),
        }
    }

    /// Returns the registered cluster of a name, and its entry of the configuration, unless that is another cluster.
    async fn entries(
        &self,
        name: Option<&str>,
        age: Duration,
    ) -> StoreResult<(Option<RegisteredCluster>, Option<&Arc<ClusterConfig>>)> {
        let registered = match &self.registered {
            Some(registered) => registered.read(age).await?.get(self.resolve(name)).cloned(),
            None => None,
        };
        let configured = self.named(name).filter(|entry| registered.as_ref().is_none_or(|own| own.may_be(entry)));
        Ok((registered, configured))
    }

    /// Returns true if the outputs of Signadot plugins are open in a cluster, which may wait for its relay.
    ///
    /// # Errors
    /// Returns [`StoreError`] if the table cannot be read.
    pub(crate) async fn opens_signadot_outputs(&self, name: Option<&str>) -> StoreResult<bool> {
        let mut entries = self.entries(name, MAX_AGE).await?;
        if matches!(entries, (None, None)) {
            // Another process may have registered it since.
            entries = self.entries(name, MIN_AGE).await?;
        }
        let outputs = match entries {
            (Some(RegisteredCluster { config: None, .. }) | None, Some(configured)) => configured.signadot_outputs,
            (registered, _) => registered.and_then(|registered| registered.signadot_outputs),
        };
        Ok(outputs == Some(SignadotOutputs::Open))
    }

    /// Returns the clusters with a relay, by name.
    ///
    /// # Errors
    /// Returns [`StoreError`] if the table cannot be read.
    pub async fn connected(&self) -> StoreResult<Vec<Arc<ClusterConfig>>> {
        let mut all: BTreeMap<String, Arc<ClusterConfig>> =
            self.only.iter().chain(self.named.values()).map(|one| (one.name.clone(), Arc::clone(one))).collect();
        if let Some(registered) = &self.registered {
            let read = registered.read(MAX_AGE).await?;
            all.retain(|name, entry| read.get(name).is_none_or(|own| own.may_be(entry)));
            all.extend(read.iter().filter_map(|(name, cluster)| Some((name.clone(), cluster.config.clone()?))));
        }
        Ok(all.into_values().collect())
    }

    /// Returns true if a text was the bootstrap token of a registered cluster at most one second ago. Other texts
    /// share one read of the table, because anyone can send them.
    pub(crate) async fn has_token(&self, name: &str, token: &str) -> StoreResult<bool> {
        let Some(registered) = &self.registered else { return Ok(false) };
        let read = registered.read(MIN_AGE).await?;
        let digest = read.get(name).and_then(|cluster| cluster.token.as_ref());
        Ok(digest.is_some_and(|digest| has_digest(token, digest)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_lists_are_parsed_and_others_rejected() {
        let parse = ClusterRegistry::parse;
        // The URL, the UID, and the first secret.
        type Expected = Option<(Option<String>, String, String)>;
        type Clusters = (serde_json::Value, Vec<(Option<String>, Expected)>, Vec<(String, String)>);
        let (valid, named, wrong): Clusters = serde_json::from_str(include_str!("../tests/clusters.json")).unwrap();
        let clusters = parse(&valid.to_string()).unwrap();
        for (name, expected) in named {
            let found = clusters.named(name.as_deref()).map(|found| {
                let url = if let RelayTransport::Push(url) = &found.transport { Some(url.clone()) } else { None };
                (url, found.uid.clone(), found.keys.first().reveal().to_string())
            });
            assert_eq!(found, expected, "{name:?}");
        }
        let names: Vec<&String> = clusters.named.keys().collect();
        assert_eq!(names, ["default", "eu", "pull"]);
        assert!(parse("{}").unwrap().named(None).is_none());
        for (text, expected) in wrong {
            let error = parse(&text).err().unwrap();
            assert!(error.contains(&expected) && !error.contains("canary"), "{text}: {error}");
        }
    }
}
