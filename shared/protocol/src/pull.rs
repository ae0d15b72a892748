//! The pull transport: a relay without inbound access polls for its batches. Requests and responses are those of
//! [`crate::relay`].
//!
//! The relay sends a [`PollRequest`] by `POST /v1/clusters/NAME/poll`, signed with the secret of the cluster as
//! Standard Webhooks are. The batches in the [`PollResponse`] are encrypted with the same secret ([`crate::seal`]).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use crate::{BatchResponse, WebhookKeys, seal};

/// The version of every message in this module.
pub const VERSION: u32 = 1;
/// The longest wait of a poll in milliseconds.
pub const LONGEST_WAIT_MS: u64 = 20_000;
/// The time between two polls of an idle relay in milliseconds, for a control plane that pays for each second of a poll. A
/// request with the shortest timeout can wait for the next one.
pub const IDLE_POLL_MS: u64 = 5_000;
/// The maximum number of batches that a relay processes at the same time.
pub const MAX_CONCURRENT_BATCHES: usize = 64;
/// The maximum size of a queued batch in bytes.
pub const MAX_BATCH_BYTES: usize = 4 << 20;
/// The maximum size of a poll with its replies in bytes. In a Lambda event, it is at most
/// [`LAMBDA_EVENT`](crate::limits::LAMBDA_EVENT).
pub const POLL_BODY: usize = 11 << 19;

/// Requests batches and delivers replies.
#[serde_with::apply(Vec => #[serde(default, skip_serializing_if = "Vec::is_empty")])]
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PollRequest {
    pub v: u32,
    /// The UID of the namespace `kube-system`.
    pub cluster: String,
    /// Milliseconds to wait for batches, at most [`LONGEST_WAIT_MS`]. `None` requests no batches.
    pub wait_ms: Option<u64>,
    /// Ids of batches in progress, which are not sent again. At most [`MAX_CONCURRENT_BATCHES`].
    pub in_progress: Vec<String>,
    /// At most [`MAX_CONCURRENT_BATCHES`]. Replies to expired batches are dropped.
    pub replies: Vec<QueuedReply>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueuedReply {
    pub id: String,
    pub outcome: ReplyOutcome,
}

/// The response to a batch, as over HTTP.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum ReplyOutcome {
    Response(BatchResponse),
    /// Another status. Nothing was executed.
    Status {
        status: u16,
        message: String,
    },
}

#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PollResponse {
    pub v: u32,
    /// Milliseconds that the poll waited. The rest of its duration is transit time.
    pub waited_ms: u64,
    /// If present, a relay without work polls once in this time, without a wait.
    pub idle_every_ms: Option<u64>,
    #[serde(default)]
    pub batches: Vec<SealedBatch>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SealedBatch {
    pub id: String,
    /// Milliseconds in the queue. The durations of the batch are shortened by this and by the transit time.
    pub age_ms: u64,
    /// Milliseconds until the sender stops waiting. A relay must not execute the batch later.
    pub expires_in_ms: u64,
    /// A [`crate::relay::Batch`] as JSON, encrypted with its [associated data](Self::associated_data), in standard
    /// base64.
    pub ciphertext: String,
}

impl SealedBatch {
    /// Returns the associated data of the cipher: cluster and id.
    pub fn associated_data(cluster: &str, id: &str) -> String {
        format!("{cluster}/{id}")
    }

    /// Decrypts a batch of a cluster with one of its `keys`. Returns `None` for another key or cluster, or a changed
    /// batch.
    pub fn open(&self, keys: &WebhookKeys, cluster: &str) -> Option<Vec<u8>> {
        seal::open(keys, &Self::associated_data(cluster, &self.id), &STANDARD.decode(&self.ciphertext).ok()?)
    }

    /// Returns true if a text is a valid batch id. An id cannot be a path.
    pub fn is_id(text: &str) -> bool {
        let plain = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte) || byte == b'-';
        (1..=64).contains(&text.len()) && text.bytes().all(plain)
    }
}
