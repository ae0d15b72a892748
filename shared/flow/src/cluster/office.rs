//! The post office: where relays that nobody reaches ask for their mail and bring the answers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::HeaderMap;
use ebb_store::{Mailbox, StoreError};
use ebb_wire::limits::message;
use ebb_wire::mail::{self, AT_ONCE, LONGEST_WAIT_MS, MAIL, Outcome, Poll, Post, Reply};
use ebb_wire::sign;
use futures::StreamExt as _;

use super::clusters::{Cluster, Clusters, Way};
use crate::ports::Clock;

/// Between two looks for mail, each one `Query`.
const LOOK: Duration = Duration::from_millis(500);
/// Answers that are kept at once.
const TOGETHER: usize = 8;

/// Serves the relays of clusters that poll.
pub struct PostOffice {
    clusters: Arc<Clusters>,
    mail: Arc<dyn Mailbox>,
    clock: Arc<dyn Clock>,
}

/// Why a relay is not served.
#[derive(Debug)]
pub enum NotServed {
    /// It has not proven to be the relay of this cluster.
    Unproven(String),
    /// It is, and what it sends is no poll.
    Malformed(String),
    /// It is the relay of another cluster than the one that is pinned, or one that is asked itself.
    Conflict(&'static str, String),
    /// The mailbox does not answer.
    Store(StoreError),
}

impl From<StoreError> for NotServed {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl PostOffice {
    /// Serves `clusters` from `mail`.
    pub fn new(clusters: Arc<Clusters>, mail: Arc<dyn Mailbox>, clock: Arc<dyn Clock>) -> Self {
        Self { clusters, mail, clock }
    }

    /// Takes the answers of the relay of `cluster` from a body that [`Self::prove`] has checked. Then waits for mail, if the
    /// relay asks for any and for as long as it asks.
    ///
    /// # Errors
    /// [`NotServed`]; answers may have been taken.
    pub async fn poll(&self, cluster: &Cluster, body: &[u8]) -> Result<Post, NotServed> {
        let name = cluster.name.as_str();
        let poll: Poll =
            serde_json::from_slice(body).map_err(|error| NotServed::Malformed(error.to_string()))?;
        let too_many = poll.held.len() > AT_ONCE || poll.answers.len() > AT_ONCE;
        if poll.v != mail::VERSION || too_many {
            let why = format!("version {} is not known here, or more than {AT_ONCE} at once", poll.v);
            return Err(NotServed::Malformed(why));
        }
        if cluster.uid != poll.cluster {
            let theirs = message(&poll.cluster);
            let why =
                format!("cluster {name} is pinned to another uid than {theirs}: was it restored or copied?");
            return Err(NotServed::Conflict("other-cluster", why));
        }
        let Poll { answers, held, wait_ms, .. } = poll;
        let taken = answers.into_iter().map(|reply| self.take(name, reply));
        let mut taken = futures::stream::iter(taken).buffer_unordered(TOGETHER);
        while let Some(taken) = taken.next().await {
            taken?;
        }
        drop(taken);
        match wait_ms {
            None => Ok(Post { v: mail::VERSION, waited_ms: 0, mail: Vec::new() }),
            Some(wait) => self.wait(name, &held, Duration::from_millis(wait.min(LONGEST_WAIT_MS))).await,
        }
    }

    /// Returns the cluster of this name, whose relay polls and has signed the body.
    ///
    /// # Errors
    /// [`NotServed::Unproven`]; [`NotServed::Conflict`] for a cluster whose relay is asked at its URL.
    pub fn prove(&self, name: &str, headers: &HeaderMap, body: &[u8]) -> Result<&Cluster, NotServed> {
        let cluster = self.clusters.all().find(|cluster| cluster.name == name);
        let Some(cluster) = cluster else {
            return Err(NotServed::Unproven("no cluster with this name and secret is connected".to_owned()));
        };
        sign::verify(&cluster.keys, headers, body, self.clock.now())
            .map_err(|error| NotServed::Unproven(error.to_string()))?;
        match cluster.way {
            Way::Poll => Ok(cluster),
            Way::Push(_) => Err(NotServed::Conflict(
                "asked",
                format!("the relay of cluster {name} is asked at its URL: take the URL away, or the poll"),
            )),
        }
    }

    async fn take(&self, name: &str, reply: Reply) -> Result<(), StoreError> {
        let Reply { id, outcome } = reply;
        let outcome = match outcome {
            Outcome::Status { status, said } => Outcome::Status { status, said: message(&said) },
            answers => answers,
        };
        // What was read from JSON can be written.
        let answer = serde_json::to_vec(&outcome).unwrap_or_default();
        if !ebb_wire::mail::Mail::is_id(&id) || !self.mail.answer_letter(name, &id, &answer).await? {
            tracing::info!(cluster = name, id = message(&id), "nobody waits for this answer");
        }
        Ok(())
    }

    async fn wait(&self, name: &str, held: &[String], wait: Duration) -> Result<Post, NotServed> {
        let begun = Instant::now();
        let room = AT_ONCE.saturating_sub(held.len());
        loop {
            let letters = self.mail.waiting_letters(name, self.clock.now(), held, room, MAIL).await?;
            let waited = begun.elapsed();
            if !letters.is_empty() || waited >= wait {
                let now = self.clock.now();
                let mail = letters.into_iter().map(|letter| super::mail::mail(letter, now)).collect();
                let waited_ms = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
                return Ok(Post { v: mail::VERSION, waited_ms, mail });
            }
            tokio::time::sleep(LOOK.min(wait - waited)).await;
        }
    }
}
