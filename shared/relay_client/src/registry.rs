//! The connected clusters and their configuration.

use std::collections::BTreeMap;

use ebb_protocol::sign::{SecretError, WebhookKeys};
use serde::Deserialize;

use super::script_job::PodUser;

/// The cluster of documents that do not name one.
const DEFAULT: &str = "default";

/// The connected clusters, by their names in documents.
#[derive(Debug, Default)]
pub struct ClusterRegistry {
    named: BTreeMap<String, ClusterConfig>,
    only: Option<ClusterConfig>,
}

#[derive(Debug)]
pub struct ClusterConfig {
    /// The name in documents.
    pub name: String,
    pub transport: RelayTransport,
    /// The first key signs and encrypts batches. Polls are accepted with any key, so that a secret can be rotated.
    pub keys: WebhookKeys,
    /// The UID of the namespace `kube-system`. Responses from a relay in another cluster are rejected.
    pub uid: String,
    /// The image with the entrypoint, as `/ebb-entrypoint`.
    pub entrypoint_image: String,
    pub user: PodUser,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RelayTransport {
    /// The control plane sends batches to this URL, which is without `/v1/batch`.
    Push(String),
    Pull,
}

/// The reason why a list of clusters is invalid. Its text contains no secret.
#[derive(Debug, thiserror::Error)]
pub enum ClusterConfigError {
    /// The text is not the expected JSON. The fields are line and column.
    #[error("line {0}, column {1}: expected a JSON object NAME: {{url, secret, uid, entrypointImage, runAsNonRoot}}")]
    Form(usize, usize),
    #[error("the secret of cluster {0:?}: {1}")]
    Secret(String, #[source] SecretError),
    #[error(
        "cluster {0:?} has no `uid`: without it, the relay of a restored or copied cluster would act for the original. \
         Set it to the output of `kubectl get namespace kube-system --output=jsonpath={{.metadata.uid}}` in the cluster"
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
    /// Parses `{"NAME": {"url": …, "secret": "whsec_…", "uid": …, "entrypointImage": …, "runAsNonRoot": true}}`.
    /// `url` and `runAsNonRoot` are optional; a cluster without `url` has the pull transport. `secret` lists secrets,
    /// separated by white space or commas. The first one signs.
    pub fn parse(text: &str) -> Result<Self, ClusterConfigError> {
        let entries: BTreeMap<String, ClusterEntry> =
            serde_json::from_str(text).map_err(|error| ClusterConfigError::Form(error.line(), error.column()))?;
        let clusters = entries.into_iter().map(|(name, entry)| {
            let keys =
                WebhookKeys::parse(&entry.secret).map_err(|error| ClusterConfigError::Secret(name.clone(), error))?;
            let uid = entry.uid.filter(|uid| !uid.is_empty());
            let uid = uid.ok_or_else(|| ClusterConfigError::Unpinned(name.clone()))?;
            let cluster = ClusterConfig {
                name: name.clone(),
                transport: entry
                    .url
                    .map_or(RelayTransport::Pull, |url| RelayTransport::Push(url.trim_end_matches('/').to_owned())),
                keys,
                uid,
                entrypoint_image: entry.entrypoint_image,
                user: if entry.run_as_non_root { PodUser::NonRoot } else { PodUser::Image },
            };
            Ok((name, cluster))
        });
        Ok(Self { named: clusters.collect::<Result<_, _>>()?, only: None })
    }

    /// Returns a registry with one cluster, which every name refers to.
    pub fn only(cluster: ClusterConfig) -> Self {
        Self { named: BTreeMap::new(), only: Some(cluster) }
    }

    /// Returns the cluster of a name, or of documents that do not name one.
    pub fn named(&self, name: Option<&str>) -> Option<&ClusterConfig> {
        self.only.as_ref().or_else(|| self.named.get(name.unwrap_or(DEFAULT)))
    }

    pub fn all(&self) -> impl Iterator<Item = &ClusterConfig> {
        self.only.iter().chain(self.named.values())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_lists_are_parsed_and_others_rejected() {
        let parse = |text: &str| ClusterRegistry::parse(text).map_err(|error| error.to_string());
        let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
        let second = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
        let push = |url: &str| RelayTransport::Push(url.to_owned());
        let entry = format!(r#"{{"url": "https://r/", "secret": "{secret}", "uid": "u", "entrypointImage": "i"}}"#);
        let clusters = parse(&format!(
            r#"{{"default": {entry}, "eu": {{"url": "http://10.0.0.1:8080", "secret": "{secret}", "uid": "u", "entrypointImage": "i", "runAsNonRoot": true}}, "pull": {{"secret": "{second}, {secret}", "uid": "v", "entrypointImage": "i"}}}}"#
        ))
        .unwrap();
        for (name, expected) in [
            (None, Some((push("https://r"), "u", PodUser::Image, secret))),
            (Some("default"), Some((push("https://r"), "u", PodUser::Image, secret))),
            (Some("eu"), Some((push("http://10.0.0.1:8080"), "u", PodUser::NonRoot, secret))),
            (Some("pull"), Some((RelayTransport::Pull, "v", PodUser::Image, second))),
            (Some("us"), None),
        ] {
            let found = clusters.named(name);
            let expected = expected.map(|(transport, uid, user, first)| (transport, uid, user, first.to_owned()));
            let found = found.map(|c| (c.transport.clone(), &*c.uid, c.user, c.keys.first().reveal().to_string()));
            assert_eq!(found, expected, "{name:?}");
        }
        let names: Vec<&str> = clusters.all().map(|cluster| cluster.name.as_str()).collect();
        assert_eq!(names, ["default", "eu", "pull"]);
        assert!(parse("{}").unwrap().named(None).is_none());
        for (text, expected) in [
            ("", "line 1, column 0: "),
            (r#"{"a": {"url": "u"}}"#, "line 1, column 18: "),
            (&entry.replace("{", "{\"a\": {").replace('}', ", \"more\": 1}}"), "column"),
            (&format!(r#"{{"a": {}}}"#, entry.replace(secret, "canary")), "the secret of cluster \"a\": "),
            (&format!(r#"{{"a": {}}}"#, entry.replace("\"uid\": \"u\", ", "")), "cluster \"a\" has no `uid`"),
            (&format!(r#"{{"a": {}}}"#, entry.replace("\"u\"", "\"\"")), "kubectl get namespace kube-system"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(expected) && !error.contains("canary"), "{text}: {error}");
        }
    }
}
