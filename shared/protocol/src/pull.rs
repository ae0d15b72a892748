//! How a relay that is not reached from outside gets its batches: it asks for them. A transport and nothing else: what is in
//! the mail, and what is answered, is [`crate::relay`]'s.
//!
//! The relay sends a [`PollRequest`] by `POST /v1/clusters/NAME/poll`, signed as Standard Webhooks are with the cluster's secret, and
//! gets a [`PollResponse`]. The batches in it are sealed ([`crate::seal`]) with the same secret.

use serde::{Deserialize, Serialize};

use crate::relay::BatchResponse;

/// Version of every message in this module.
pub const VERSION: u32 = 1;
/// Milliseconds that a poll may be kept waiting.
pub const LONGEST_WAIT_MS: u64 = 20_000;
/// Mail that a relay has under way at most.
pub const MAX_CONCURRENT_BATCHES: usize = 64;
/// Bytes of a batch that goes by mail.
pub const MAX_BATCH_BYTES: usize = 4 << 20;
/// Bytes of a poll, answers included. As a function gets it, it has [`LAMBDA_EVENT`](crate::limits::EVENT) at most.
pub const POLL_BODY: usize = 11 << 19;

/// A relay asks for mail, and brings answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PollRequest {
    /// Version of this message; 1.
    pub v: u32,
    /// The uid of the namespace `kube-system` of the relay's cluster.
    pub cluster: String,
    /// Milliseconds that the answer may wait for mail, at most [`LONGEST_WAIT_MS`]; `None`: none is asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u64>,
    /// Ids of the mail that is under way here, at most [`MAX_CONCURRENT_BATCHES`]: it is not handed out again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held: Vec<String>,
    /// At most [`MAX_CONCURRENT_BATCHES`]; those that nobody waits for any more are dropped.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replies: Vec<QueuedReply>,
}

/// What a relay answers to one mail.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QueuedReply {
    pub id: String,
    /// What it would answer to a batch over HTTP.
    pub outcome: ReplyOutcome,
}

/// What a relay would answer to a batch over HTTP.
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

/// What a poll is answered with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PollResponse {
    /// Version of this message; 1.
    pub v: u32,
    /// Milliseconds that the poll was kept waiting. What it took longer, the mail was under way.
    pub waited_ms: u64,
    #[serde(default)]
    pub batches: Vec<SealedBatch>,
}

/// A batch for a relay.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SealedBatch {
    pub id: String,
    /// Milliseconds that it has lain: its durations are shorter by that, and by the time that it was under way.
    pub age_ms: u64,
    /// Milliseconds for which somebody still waits: after that it must not be acted on.
    pub left_ms: u64,
    /// A [`crate::relay::Batch`] as JSON, sealed [about](Mail::about) its cluster and id; standard base64.
    pub sealed: String,
}

impl SealedBatch {
    /// What mail is sealed about: the cluster's name and the id.
    pub fn associated_data(cluster: &str, id: &str) -> String {
        format!("{cluster}/{id}")
    }

    /// Whether a text can be the id of mail: our own, and nothing that would be a path.
    pub fn is_id(text: &str) -> bool {
        let plain = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte) || byte == b'-';
        (1..=64).contains(&text.len()) && text.bytes().all(plain)
    }
}
