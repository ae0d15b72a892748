//! Finds the reason why a pod or another object does not start, is not ready or is not created, by the causes of the contracts.

use std::cmp::Reverse;

use ebb_kube::contract::{CauseEnd, ContractTable, ObjectCause};
use ebb_protocol::limits::message;
use ebb_protocol::{ReasonCode, WaitResolution};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Deserialize as _;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// The reason why a container does not start, or why a pod is not created or not ready.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(test, derive(serde::Deserialize), serde(rename_all = "camelCase", default))]
pub(crate) struct StartBlocker {
    pub(crate) code: ReasonCode,
    pub(crate) message: String,
    /// The time at which it ends a task that waits for a container.
    pub(crate) ends: CauseEnd,
    /// The time from which [`CauseEnd::PodStart`] counts, as `since_ms`.
    pub(crate) from_ms: u64,
    /// The first report of the reason in milliseconds since 1970 by the cluster's clock, or 0 if unknown.
    pub(crate) since_ms: u64,
    pub(crate) resolves: WaitResolution,
    /// The container that has failed, and true if its log is that of its former run.
    pub(crate) log: Option<(String, bool)>,
}

/// The prefix of the message of an event that stands for several (`client-go/tools/record`).
const COMBINED: &str = "(combined from similar events): ";

/// Returns what causes read of a warning: `reason`, `message`, and the times of its first and last report in milliseconds since
/// 1970 by the cluster's clock, or 0 if unknown. `uid` is that of its object.
pub(crate) fn warning(event: &Value) -> Value {
    let first_known = |times: &[&Value]| times.iter().map(|time| millis_at(time)).find(|time| *time > 0).unwrap_or(0);
    let (observed, created) = (&event["eventTime"], &event["metadata"]["creationTimestamp"]);
    let first = [&event["firstTimestamp"], observed, created];
    let last = [&event["series"]["lastObservedTime"], &event["lastTimestamp"], observed, first[0], created];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let said = text(&event["message"]);
    json!({
        "uid": text(&event["involvedObject"]["uid"]),
        "reason": text(&event["reason"]),
        "message": message(said.strip_prefix(COMBINED).unwrap_or(&said)),
        "firstMs": first_known(&first),
        "lastMs": first_known(&last),
    })
}

/// Finds a cause with this name in contracts. The warnings about the object count, and those about the UIDs of its
/// `controllers`. `facts` are what the causes read.
pub(crate) fn find(
    contracts: &ContractTable,
    name: &str,
    object: &Value,
    controllers: &[String],
    warnings: &[Value],
    facts: Value,
) -> Option<StartBlocker> {
    let uid = object["metadata"]["uid"].as_str().into_iter().chain(controllers.iter().map(String::as_str));
    let is_own = |it: &&Value| uid.clone().any(|uid| it["uid"] == *uid);
    let mut events: Vec<_> = warnings.iter().rev().filter(is_own).collect();
    events.sort_by_key(|it| Reverse(it["lastMs"].as_u64()));
    let ObjectCause { code, resolves, ends, from_ms, since_ms, message, log } =
        contracts.cause(name, object, json!(events), facts)?;
    Some(StartBlocker { code: word(code), message, ends, from_ms, since_ms, resolves: word(resolves), log })
}

/// Returns a time in an object as milliseconds since 1970, or 0 if there is none.
pub(crate) fn millis_at(time: &Value) -> u64 {
    let time = Time::deserialize(time).ok();
    time.and_then(|time| u64::try_from(time.0.as_millisecond()).ok()).unwrap_or(0)
}

/// Returns the value that a word of a contract names. Another word is that of a later contract.
fn word<T: DeserializeOwned + Default>(word: String) -> T {
    serde_json::from_value(word.into()).unwrap_or_default()
}

#[cfg(test)]
mod tests;
