//! Finds the reason why a pod or another object does not start, is not ready or is not created, by the causes of the contracts.

use std::cmp::Reverse;

use ebb_kube::contract::{self, CauseEnd};
use ebb_protocol::limits::message;
use ebb_protocol::{ReasonCode, WaitResolution};
use k8s_openapi::api::core::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// The reason why a container does not start, or why a pod is not created or not ready.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(test, derive(serde::Deserialize), serde(rename_all = "camelCase"))]
pub(crate) struct StartBlocker {
    pub(crate) code: ReasonCode,
    pub(crate) message: String,
    pub(crate) kind: BlockerKind,
    /// The first report of the reason in milliseconds since 1970 by the cluster's clock, or 0 if unknown.
    pub(crate) since_ms: u64,
    pub(crate) resolves: WaitResolution,
    /// The container that has failed, and true if its log is that of its former run.
    #[cfg_attr(test, serde(default))]
    pub(crate) log: Option<(String, bool)>,
}

/// The time at which a blocker ends a task that waits for a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(serde::Deserialize), serde(rename_all = "camelCase"))]
pub(crate) enum BlockerKind {
    Permanent,
    /// It may pass. It exists since this time, in milliseconds since 1970 by the cluster's clock.
    Transient(u64),
    /// A node may become available. [`StartBlocker::since_ms`] counts.
    Unschedulable,
    /// It is reported, and only the deadline ends the task.
    Reported,
}

/// The prefix of the message of an event that stands for several (`client-go/tools/record`).
const COMBINED: &str = "(combined from similar events): ";

/// A warning about an object. Times are milliseconds since 1970 by the cluster's clock, or 0 if unknown.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Warning {
    pub(crate) uid: String,
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) first_ms: u64,
    pub(crate) last_ms: u64,
}

impl From<Event> for Warning {
    fn from(event: Event) -> Self {
        let observed = event.event_time.map(|time| Time(time.0));
        let in_series = event.series.and_then(|series| series.last_observed_time).map(|time| Time(time.0));
        let first = event.first_timestamp.or_else(|| observed.clone()).or(event.metadata.creation_timestamp);
        let last = in_series.or(event.last_timestamp).or(observed).or_else(|| first.clone());
        let said = event.message.unwrap_or_default();
        Self {
            uid: event.involved_object.uid.unwrap_or_default(),
            reason: event.reason.unwrap_or_default(),
            message: message(said.strip_prefix(COMBINED).unwrap_or(&said)),
            first_ms: millis(first.as_ref()),
            last_ms: millis(last.as_ref()),
        }
    }
}

/// Finds a cause with this name. `uids` are those of the objects whose warnings count. `facts` are what the causes read.
pub(crate) fn find(
    name: &str,
    object: &Value,
    uids: &[&str],
    warnings: &[Warning],
    facts: Value,
) -> Option<StartBlocker> {
    let is_own = |it: &&Warning| !it.uid.is_empty() && uids.contains(&it.uid.as_str());
    let mut events: Vec<_> = warnings.iter().rev().filter(is_own).collect();
    events.sort_by_key(|it| Reverse(it.last_ms));
    let cause = contract::built_in().cause(name, object, json!(events), facts)?;
    let kind = match cause.ends {
        CauseEnd::Deadline => BlockerKind::Reported,
        CauseEnd::AtOnce => BlockerKind::Permanent,
        CauseEnd::PodStart => BlockerKind::Transient(cause.from_ms),
        CauseEnd::Scheduling => BlockerKind::Unschedulable,
    };
    let (code, resolves) = (word(cause.code), word(cause.resolves));
    Some(StartBlocker { code, message: cause.message, kind, since_ms: cause.since_ms, resolves, log: cause.log })
}

fn millis(time: Option<&Time>) -> u64 {
    time.map_or(0, |time| u64::try_from(time.0.as_millisecond()).unwrap_or(0))
}

/// Returns a time in an object as milliseconds since 1970, or 0 if there is none.
pub(crate) fn millis_at(time: &Value) -> u64 {
    millis(serde_json::from_value(time.clone()).ok().as_ref())
}

/// Returns the value that a word of a contract names. Another word is that of a later contract.
fn word<T: DeserializeOwned + Default>(word: String) -> T {
    serde_json::from_value(word.into()).unwrap_or_default()
}

#[cfg(test)]
mod tests;
