//! The pull transport: a relay that cannot be reached from outside polls for its batches. Requests and responses are those
//! of [`crate::relay`].
//!
//! The relay sends a [`PollRequest`] by `POST /v1/clusters/NAME/poll`, signed as Standard Webhooks are with the cluster's secret, and
//! gets a [`PollResponse`]. The batches in it are sealed ([`crate::seal`]) with the same secret.

use serde::{Deserialize, Serialize};

use crate::relay::BatchResponse;

/// Version of every message in this module.
pub const VERSION: u32 = 1;
/// Milliseconds that a poll may wait for batches.
pub const LONGEST_WAIT_MS: u64 = 20_000;
/// Batches that a relay processes at most at one time.
pub const MAX_CONCURRENT_BATCHES: usize = 64;
/// Bytes of a queued batch.
pub const MAX_BATCH_BYTES: usize = 4 << 20;
/// Bytes of a poll, replies included. As a function gets it, it has [`LAMBDA_EVENT`](crate::limits::LAMBDA_EVENT) at most.
pub const POLL_BODY: usize = 11 << 19;

/// A relay asks for batches, and delivers replies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PollRequest {
    /// Version of this message; 1.
    pub v: u32,
    /// The uid of the namespace `kube-system` of the relay's cluster.
    pub cluster: String,
    /// Milliseconds that the response may wait for batches, at most [`LONGEST_WAIT_MS`]; `None`: the relay wants none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u64>,
    /// Ids of the batches that the relay processes now, at most [`MAX_CONCURRENT_BATCHES`]: they are not sent again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub in_progress: Vec<String>,
    /// At most [`MAX_CONCURRENT_BATCHES`]; those of expired batches are dropped.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replies: Vec<QueuedReply>,
}

/// The reply of a relay to one batch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QueuedReply {
    pub id: String,
    pub outcome: ReplyOutcome,
}

/// The response that a relay would give to a batch over HTTP.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ReplyOutcome {
    Response(BatchResponse),
    /// Another status; nothing was done.
    #[serde(rename_all = "camelCase")]
    Status {
        status: u16,
        message: String,
    },
}

/// The response to a poll.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PollResponse {
    /// Version of this message; 1.
    pub v: u32,
    /// Milliseconds that the poll waited for batches. The rest of its duration is the time in transit.
    pub waited_ms: u64,
    #[serde(default)]
    pub batches: Vec<SealedBatch>,
}

/// A batch for a relay.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SealedBatch {
    pub id: String,
    /// Milliseconds that it was queued: its durations are shorter by that, and by the time in transit.
    pub age_ms: u64,
    /// Milliseconds for which its sender still waits: after that a relay must not act on it.
    pub expires_in_ms: u64,
    /// A [`crate::relay::Batch`] as JSON, sealed with the [associated data](Self::associated_data) of its cluster and id;
    /// standard base64.
    pub ciphertext: String,
}

impl SealedBatch {
    /// Returns the associated data of the cipher: the cluster's name and the id.
    pub fn associated_data(cluster: &str, id: &str) -> String {
        format!("{cluster}/{id}")
    }

    /// Returns whether a text can be the id of a batch: never one that could be a path.
    pub fn is_id(text: &str) -> bool {
        let plain = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte) || byte == b'-';
        (1..=64).contains(&text.len()) && text.bytes().all(plain)
    }
}
