//! What the lists of a source have shown, and which of its deliveries are handled.

use std::collections::{BTreeMap, BTreeSet};

use ebb_protocol::Timestamp;
use serde::{Deserialize, Serialize};

/// The observations of what exists at the sender of a source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SourceWatch {
    pub source: String,
    /// Identifies what is asked for. The observations of another question do not count.
    pub question: String,
    /// True if an observation of the question had a living target of the source. Otherwise the credential may see nothing.
    pub has_shown: bool,
    /// The observation that is being read.
    pub pass: Option<ListPass>,
    /// The begin of the last complete observation, and the number of its elements.
    pub complete: Option<(Timestamp, u64)>,
    /// The time since which observations are incomplete or refused, and the reason.
    pub problem: Option<(Timestamp, String)>,
    /// The targets that the last complete observation lacked.
    pub missing: u64,
    /// Only of a source with `replay`.
    pub replay: Option<ReplayState>,
    #[serde(skip)]
    pub due: Timestamp,
    #[serde(skip)]
    pub version: u64,
}

/// What is known about the deliveries of a webhook.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReplayState {
    /// Identifies the webhook.
    pub question: String,
    /// The time up to which the attempts of deliveries are handled.
    pub until: Timestamp,
    /// The list that is being read. `part` is 1 when it is read, and its failed deliveries are fetched.
    pub pass: Option<ListPass>,
    /// The time since which deliveries cannot be fetched, and the reason.
    pub problem: Option<(Timestamp, String)>,
}

/// The place at which an observation, or a list of deliveries, continues.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ListPass {
    pub begun: Timestamp,
    /// Identifies the document of the source.
    pub document: String,
    /// The position of the list.
    pub part: usize,
    /// The URL of the next page, and `None` for the first one of a list. After the last list, the missing target up to which
    /// targets were asked for.
    pub url: Option<String>,
    /// The elements of the pages that were read: of this list, and of all.
    pub seen: u64,
    pub total: u64,
    pub pages: u32,
}

/// What observations have found, which can be large.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ListFindings {
    /// The things of the observation that is being read: `KIND/NAME`, with ` UID` if the sender names instances.
    pub things: BTreeSet<String>,
    /// The targets that complete observations lack.
    pub missing: Vec<MissingTarget>,
    /// The targets of an observation that lacked too many. They count as missing once a person has asked for their deletion.
    pub refused: Vec<MissingTarget>,
    /// The missing targets whose deletion a person has asked for: their UIDs.
    pub accepted: BTreeSet<String>,
    /// The deliveries of the list that is being read, by their GUIDs: time and ID of the last attempt that failed, or nothing if
    /// an attempt has succeeded.
    pub attempts: BTreeMap<String, Option<(Timestamp, u64)>>,
}

/// A target whose thing is missing at its sender.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissingTarget {
    pub kind: String,
    pub name: String,
    pub uid: String,
    /// The version of its desired state at the first observation that lacked it, or 0. Another event ends the suspicion.
    pub version: u64,
    /// The begin of the first observation that lacked it.
    pub first: Timestamp,
}
