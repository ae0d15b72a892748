//! The clusters that are connected.

use std::collections::BTreeMap;

use ebb_wire::sign::{Secret, SecretError};
use serde::Deserialize;

use super::job::User;

/// The cluster of documents that name none.
const DEFAULT: &str = "default";

/// The clusters that are connected, by the names that documents have for them.
#[derive(Debug, Default)]
pub struct Clusters(BTreeMap<String, Cluster>);

/// A cluster that is connected.
#[derive(Debug)]
pub struct Cluster {
    /// The URL of its relay, without `/v1/batch`.
    pub url: String,
    /// Signs what is sent to it.
    pub secret: Secret,
    /// The uid of its namespace `kube-system`; `None`: whoever answers is believed.
    pub uid: Option<String>,
    /// An image whose `/ebb-runner` is the runner.
    pub runner_image: String,
    /// Who scripts run as.
    pub user: User,
}

/// Why a list of clusters cannot be used. No text has a secret in it.
#[derive(Debug, thiserror::Error)]
pub enum ClustersError {
    /// It is not the JSON that is wanted; where.
    #[error("line {0}, column {1}: it is a JSON object of NAME: {{url, secret, uid, runnerImage, nonRoot}}")]
    Form(usize, usize),
    /// A secret is none.
    #[error("the secret of cluster {0:?}: {1}")]
    Secret(String, #[source] SecretError),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Written {
    url: String,
    secret: String,
    uid: Option<String>,
    runner_image: String,
    #[serde(default)]
    non_root: bool,
}

impl Clusters {
    /// Reads `{"NAME": {"url": …, "secret": "whsec_…", "uid": …, "runnerImage": …, "nonRoot": true}}`. `uid` and `nonRoot`
    /// may be left out; the cluster `default` is that of documents that name none.
    ///
    /// # Errors
    /// [`ClustersError`].
    pub fn parse(text: &str) -> Result<Self, ClustersError> {
        let written: BTreeMap<String, Written> =
            serde_json::from_str(text).map_err(|error| ClustersError::Form(error.line(), error.column()))?;
        let clusters = written.into_iter().map(|(name, written)| {
            let secret =
                Secret::parse(&written.secret).map_err(|error| ClustersError::Secret(name.clone(), error))?;
            let cluster = Cluster {
                url: written.url.trim_end_matches('/').to_owned(),
                secret,
                uid: written.uid,
                runner_image: written.runner_image,
                user: if written.non_root { User::NotRoot } else { User::OfImage },
            };
            Ok((name, cluster))
        });
        clusters.collect::<Result<_, _>>().map(Self)
    }

    /// The cluster of this name; `None`: the one of documents that name none.
    pub fn named(&self, name: Option<&str>) -> Option<&Cluster> {
        self.0.get(name.unwrap_or(DEFAULT))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_and_what_is_refused() {
        let read = |text: &str| Clusters::parse(text).map_err(|error| error.to_string());
        let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
        let one = format!(r#"{{"url": "https://r/", "secret": "{secret}", "runnerImage": "i"}}"#);
        let clusters = read(&format!(
            r#"{{"default": {one}, "eu": {{"url": "http://10.0.0.1:8080", "secret": "{secret}", "uid": "u", "runnerImage": "i", "nonRoot": true}}}}"#
        ))
        .unwrap();
        for (name, expected) in [
            (None, Some(("https://r", None, User::OfImage))),
            (Some("default"), Some(("https://r", None, User::OfImage))),
            (Some("eu"), Some(("http://10.0.0.1:8080", Some("u"), User::NotRoot))),
            (Some("us"), None),
        ] {
            let found = clusters.named(name).map(|c| (c.url.as_str(), c.uid.as_deref(), c.user));
            assert_eq!(found, expected, "{name:?}");
        }
        assert!(read("{}").unwrap().named(None).is_none());
        for (text, expected) in [
            ("", "line 1, column 0: "),
            (r#"{"a": {"url": "u"}}"#, "line 1, column 18: "),
            (&one.replace("{", "{\"a\": {").replace('}', ", \"more\": 1}}"), "column"),
            (&format!(r#"{{"a": {}}}"#, one.replace(secret, "canary")), "the secret of cluster \"a\": "),
        ] {
            let refused = read(text).unwrap_err();
            assert!(refused.contains(expected) && !refused.contains("canary"), "{text}: {refused}");
        }
    }
}
