//! The clusters that are connected.

use std::collections::BTreeMap;

use ebb_protocol::sign::{SecretError, WebhookKeys};
use serde::Deserialize;

use super::job::PodUser;

/// The cluster of documents that name none.
const DEFAULT: &str = "default";

/// The clusters that are connected, by the names that documents have for them.
#[derive(Debug, Default)]
pub struct ClusterRegistry {
    named: BTreeMap<String, ClusterConfig>,
    only: Option<ClusterConfig>,
}

/// A cluster that is connected.
#[derive(Debug)]
pub struct ClusterConfig {
    /// The name that documents have for it.
    pub name: String,
    pub transport: RelayTransport,
    /// The first one signs and seals what is sent to it; any of them proves a poll, so that a relay can change its secret.
    pub keys: WebhookKeys,
    /// The uid of its namespace `kube-system`: the relay of another cluster is not believed.
    pub uid: String,
    /// The image with the entrypoint, as `/ebb-entrypoint`.
    pub entrypoint_image: String,
    pub user: PodUser,
}

/// How the relay of a cluster is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RelayTransport {
    /// At this URL, without `/v1/batch`.
    Push(String),
    /// It asks for what waits for it, because nobody reaches it.
    Pull,
}

/// Why a list of clusters cannot be used. No text has a secret in it.
#[derive(Debug, thiserror::Error)]
pub enum ClusterConfigError {
    /// It is not the JSON that is wanted; where.
    #[error("line {0}, column {1}: it is a JSON object of NAME: {{url, secret, uid, entrypointImage, runAsNonRoot}}")]
    Form(usize, usize),
    #[error("the secret of cluster {0:?}: {1}")]
    Secret(String, #[source] SecretError),
    /// A cluster is not pinned.
    #[error(
        "cluster {0:?} has no `uid`: without it the relay of a restored or copied cluster would act for the original. \
         Set it to what `kubectl get namespace kube-system --output=jsonpath={{.metadata.uid}}` prints in the cluster"
    )]
    Unpinned(String),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ClusterEntry {
    url: Option<String>,
    secret: String,
    uid: Option<String>,
    entrypoint_image: String,
    #[serde(default)]
    run_as_non_root: bool,
}

impl ClusterRegistry {
    /// Reads `{"NAME": {"url": …, "secret": "whsec_…", "uid": …, "entrypointImage": …, "runAsNonRoot": true}}`.
    /// `runAsNonRoot` is optional, and so is `url`: a relay without one polls. `secret` may list several secrets,
    /// separated by white space or commas: the first one signs. Documents that name no cluster use the cluster
    /// `default`.
    ///
    /// # Errors
    /// [`ClusterConfigError`].
    pub fn parse(text: &str) -> Result<Self, ClusterConfigError> {
        let written: BTreeMap<String, ClusterEntry> =
            serde_json::from_str(text).map_err(|error| ClusterConfigError::Form(error.line(), error.column()))?;
        let clusters = written.into_iter().map(|(name, written)| {
            let keys =
                WebhookKeys::parse(&written.secret).map_err(|error| ClusterConfigError::Secret(name.clone(), error))?;
            let uid = written.uid.filter(|uid| !uid.is_empty());
            let uid = uid.ok_or_else(|| ClusterConfigError::Unpinned(name.clone()))?;
            let cluster = ClusterConfig {
                name: name.clone(),
                transport: written
                    .url
                    .map_or(RelayTransport::Pull, |url| RelayTransport::Push(url.trim_end_matches('/').to_owned())),
                keys,
                uid,
                entrypoint_image: written.entrypoint_image,
                user: if written.run_as_non_root { PodUser::NonRoot } else { PodUser::Image },
            };
            Ok((name, cluster))
        });
        Ok(Self { named: clusters.collect::<Result<_, _>>()?, only: None })
    }

    /// The only cluster that there is, whatever documents call it.
    pub fn only(cluster: ClusterConfig) -> Self {
        Self { named: BTreeMap::new(), only: Some(cluster) }
    }

    /// The cluster of this name; `None`: the one of documents that name none.
    pub fn named(&self, name: Option<&str>) -> Option<&ClusterConfig> {
        self.only.as_ref().or_else(|| self.named.get(name.unwrap_or(DEFAULT)))
    }

    /// All of them, by name.
    pub fn all(&self) -> impl Iterator<Item = &ClusterConfig> {
        self.only.iter().chain(self.named.values())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_and_what_is_refused() {
        let read = |text: &str| ClusterRegistry::parse(text).map_err(|error| error.to_string());
        let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
        let second = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
        let push = |url: &str| RelayTransport::Push(url.to_owned());
        let one = format!(r#"{{"url": "https://r/", "secret": "{secret}", "uid": "u", "entrypointImage": "i"}}"#);
        let clusters = read(&format!(
            r#"{{"default": {one}, "eu": {{"url": "http://10.0.0.1:8080", "secret": "{secret}", "uid": "u", "entrypointImage": "i", "runAsNonRoot": true}}, "inside": {{"secret": "{second}, {secret}", "uid": "v", "entrypointImage": "i"}}}}"#
        ))
        .unwrap();
        for (name, expected) in [
            (None, Some((push("https://r"), "u", PodUser::Image, secret))),
            (Some("default"), Some((push("https://r"), "u", PodUser::Image, secret))),
            (Some("eu"), Some((push("http://10.0.0.1:8080"), "u", PodUser::NonRoot, secret))),
            (Some("inside"), Some((RelayTransport::Pull, "v", PodUser::Image, second))),
            (Some("us"), None),
        ] {
            let found = clusters.named(name);
            let expected = expected.map(|(way, uid, user, first)| (way, uid, user, first.to_owned()));
            let found = found.map(|c| (c.transport.clone(), &*c.uid, c.user, c.keys.first().reveal().to_string()));
            assert_eq!(found, expected, "{name:?}");
        }
        let names: Vec<&str> = clusters.all().map(|cluster| cluster.name.as_str()).collect();
        assert_eq!(names, ["default", "eu", "inside"]);
        assert!(read("{}").unwrap().named(None).is_none());
        for (text, expected) in [
            ("", "line 1, column 0: "),
            (r#"{"a": {"url": "u"}}"#, "line 1, column 18: "),
            (&one.replace("{", "{\"a\": {").replace('}', ", \"more\": 1}}"), "column"),
            (&format!(r#"{{"a": {}}}"#, one.replace(secret, "canary")), "the secret of cluster \"a\": "),
            (&format!(r#"{{"a": {}}}"#, one.replace("\"uid\": \"u\", ", "")), "cluster \"a\" has no `uid`"),
            (&format!(r#"{{"a": {}}}"#, one.replace("\"u\"", "\"\"")), "kubectl get namespace kube-system"),
        ] {
            let refused = read(text).unwrap_err();
            assert!(refused.contains(expected) && !refused.contains("canary"), "{text}: {refused}");
        }
    }
}
