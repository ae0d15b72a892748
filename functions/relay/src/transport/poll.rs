//! The pull transport. The relay polls the control plane for batches and returns the replies.
//!
//! One poll at a time waits for batches. Each reply is sent immediately in a request of its own. The list of batches in
//! progress is only in memory. The control plane delivers batches again to a restarted relay until they expire.
//!
//! A control plane may pay for each second of a poll. If it says so, a relay without work polls after pauses instead.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use backon::{BackoffBuilder as _, Retryable as _};
use ebb_protocol::engine::Timestamp;
use ebb_protocol::limits::{LAMBDA_EVENT, lambda_event_size};
use ebb_protocol::pull::{
    LONGEST_WAIT_MS, MAX_CONCURRENT_BATCHES, PollRequest, PollResponse, QueuedReply, ReplyOutcome, SealedBatch, VERSION,
};
use ebb_protocol::relay::RESPONSE_TIMEOUT;
use ebb_protocol::sign::{MessageId, WebhookKeys, sign};
use tokio::sync::Semaphore;

use crate::http_client::{TRANSPORT, exchange, http_client, pauses};
use crate::metrics::METRICS;
use crate::{Relay, Result, http, lock, now_ms};

/// Replies that are sent at the same time. One may be almost as large as an event of Lambda.
const SENDERS: usize = 4;
/// The time without work after which a relay is idle. A person often needs more than one request.
const IDLE_AFTER: Duration = Duration::from_secs(60);
/// Bytes around the reply of a poll.
const ENVELOPE: usize = 32 << 10;

/// Polls the API at `url` for batches and executes them until `ended`. A failed request is repeated with growing pauses. Batches
/// in progress are still completed then, and their replies sent, for as long as their senders wait. `cluster` is the name of
/// the cluster in the control plane.
///
/// # Errors
/// Returns an error if no HTTP client can be created.
pub async fn poll(relay: Relay, url: &str, cluster: String, keys: WebhookKeys, ended: impl Future) -> Result<()> {
    let client = Arc::new(PollClient::new(relay, url, cluster, keys)?);
    tokio::select! {
        () = client.fetch_batches() => {}
        _ = ended => {}
    }
    let completed = async {
        while !lock(&client.in_flight).is_empty() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let _ = tokio::time::timeout(RESPONSE_TIMEOUT, completed).await;
    Ok(())
}

struct PollClient {
    relay: Relay,
    cluster: String,
    /// The first key signs. Batches may be encrypted with any of them.
    keys: WebhookKeys,
    http: reqwest::Client,
    url: String,
    /// Batches whose replies are not delivered yet.
    in_flight: Mutex<BTreeSet<String>>,
    senders: Semaphore,
    idle_after: Duration,
}

impl PollClient {
    fn new(relay: Relay, url: &str, cluster: String, keys: WebhookKeys) -> Result<Self> {
        let url = format!("{}/v1/clusters/{cluster}/poll", url.trim_end_matches('/'));
        let (in_flight, senders) = (Mutex::default(), Semaphore::new(SENDERS));
        Ok(Self { relay, cluster, keys, http: http_client()?, url, in_flight, senders, idle_after: IDLE_AFTER })
    }

    async fn fetch_batches(self: &Arc<Self>) {
        let (mut rests, mut worked, mut idle_every) = (pauses().build(), Instant::now(), None);
        loop {
            let in_progress: Vec<String> = lock(&self.in_flight).iter().cloned().collect();
            if in_progress.len() >= MAX_CONCURRENT_BATCHES {
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
            if self.relay.inner.registry.count() > 0 {
                worked = Instant::now();
            }
            let rest = idle_every.filter(|_| worked.elapsed() >= self.idle_after).map(Duration::from_millis);
            if let Some(rest) = rest
                && tokio::time::timeout(rest, self.relay.inner.work.notified()).await.is_ok()
            {
                worked = Instant::now();
                continue;
            }
            let wait_ms = Some(if rest.is_some() { 0 } else { LONGEST_WAIT_MS });
            let poll = PollRequest { wait_ms, in_progress, ..self.empty_poll() };
            let sent = Instant::now();
            match self.send(&poll).await {
                Ok(response) => {
                    // The transit time excludes the wait at the control plane.
                    let transit = sent.elapsed().saturating_sub(Duration::from_millis(response.waited_ms));
                    idle_every = response.idle_every_ms;
                    response.batches.into_iter().for_each(|batch| self.handle_batch(batch, transit));
                    rests = pauses().build();
                }
                Err(reason) => {
                    tracing::warn!(reason, "cannot fetch batches from the control plane");
                    tokio::time::sleep(rests.next().unwrap_or(TRANSPORT)).await;
                }
            }
        }
    }

    /// Executes a batch and sends the reply, unless the batch is in progress already or has expired. A reply that cannot be
    /// sent is dropped, and its batch is delivered again until it expires.
    fn handle_batch(self: &Arc<Self>, sealed: SealedBatch, transit: Duration) {
        if transit >= Duration::from_millis(sealed.expires_in_ms) || !lock(&self.in_flight).insert(sealed.id.clone()) {
            return;
        }
        let client = Arc::clone(self);
        tokio::spawn(async move {
            let in_transit = transit + Duration::from_millis(sealed.age_ms);
            let outcome = match sealed.open(&client.keys, &client.cluster) {
                Some(batch) => http::execute_batch(&client.relay, batch, in_transit).await,
                None => {
                    METRICS.batches_rejected.inc();
                    let message = "the batch was not encrypted for this relay".to_owned();
                    ReplyOutcome::Status { status: 401, message }
                }
            };
            let id = sealed.id.clone();
            let replies = vec![fit_event(QueuedReply { id: sealed.id, outcome })];
            let poll = PollRequest { replies, ..client.empty_poll() };
            let send = || async {
                let _permit = client.senders.acquire().await;
                client.send(&poll).await
            };
            let sent = send.retry(pauses().with_max_times(4)).await;
            if let Err(reason) = sent {
                tracing::warn!(reason, "the control plane did not accept a reply");
            }
            lock(&client.in_flight).remove(&id);
        });
    }

    fn empty_poll(&self) -> PollRequest {
        let cluster = self.relay.cluster_uid().to_owned();
        PollRequest { v: VERSION, cluster, wait_ms: None, in_progress: Vec::new(), replies: Vec::new() }
    }

    async fn send(&self, poll: &PollRequest) -> Result<PollResponse, String> {
        let posted = self.try_send(poll).await;
        METRICS.polls.with_label_values(&[if posted.is_ok() { "accepted" } else { "failed" }]).inc();
        posted
    }

    async fn try_send(&self, poll: &PollRequest) -> Result<PollResponse, String> {
        let body = serde_json::to_vec(poll).map_err(|error| error.to_string())?;
        let id = MessageId::parse(&format!("poll-{:016x}", rand::random::<u64>()));
        let id = id.map_err(|error| error.to_string())?;
        let signed = sign(self.keys.first(), &id, Timestamp(now_ms()), &body);
        let request_timeout = TRANSPORT + Duration::from_millis(poll.wait_ms.unwrap_or(0));
        let mut request = self.http.post(&self.url).header("content-type", "application/json");
        for (name, value) in signed {
            request = request.header(name, value);
        }
        exchange(request.timeout(request_timeout).body(body)).await.map_err(|(_, reason)| reason)
    }
}

fn fit_event(reply: QueuedReply) -> QueuedReply {
    match serde_json::to_vec(&reply).map_or(0, |json| lambda_event_size(&json)) {
        bytes if bytes > LAMBDA_EVENT - ENVELOPE => {
            let text = format!("the response has {bytes} bytes, more than a Lambda event can hold");
            QueuedReply { outcome: ReplyOutcome::Status { status: 507, message: text }, ..reply }
        }
        _ => reply,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use axum::routing::{MethodRouter, post};
    use axum::{Json, Router};
    use ebb_protocol::sign::WebhookSecret;
    use tokio::net::TcpListener;
    use tokio::time::sleep;

    use super::*;
    use crate::test_api::{TestApi, until};

    /// Returns the client of a control plane that responds to polls with `poll`.
    async fn client_of(poll: MethodRouter) -> PollClient {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let routes = Router::new().route("/v1/clusters/eu/poll", poll);
        tokio::spawn(async move { axum::serve(listener, routes).await });
        let keys = WebhookSecret::from_bytes(&[7; 32]).unwrap().into();
        PollClient::new(TestApi::silent().relay().await, &url, "eu".to_owned(), keys).unwrap()
    }

    #[tokio::test]
    async fn an_idle_relay_polls_after_pauses_until_it_has_work() {
        let waits = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&waits);
        let respond = move |Json(poll): Json<PollRequest>| async move {
            lock(&seen).push(poll.wait_ms);
            Json(PollResponse { v: VERSION, waited_ms: 0, idle_every_ms: Some(50), batches: Vec::new() })
        };
        let client = PollClient { idle_after: Duration::from_millis(300), ..client_of(post(respond)).await };
        let relay = client.relay.clone();
        tokio::spawn(async move { Arc::new(client).fetch_batches().await });
        let is_wait = |wait: u64| (lock(&waits).last() == Some(&Some(wait))).then_some(());
        until("the wait of an idle relay", async || is_wait(0)).await;
        http::execute_batch(&relay, r#"{"v": 1, "cluster": "u", "requests": [{"explode": {}}]}"#, Duration::ZERO).await;
        until("the wait of a relay with work", async || is_wait(LONGEST_WAIT_MS)).await;
    }

    /// All batches end at the same time, and the control plane is slow. Later replies wait, and none is lost.
    #[tokio::test]
    async fn at_most_four_replies_are_sent_at_the_same_time() {
        let (received, responses) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
        let (count, permits) = (Arc::clone(&received), Arc::clone(&responses));
        let respond = move || async move {
            count.fetch_add(1, SeqCst);
            permits.acquire().await.unwrap().forget();
            Json(PollResponse { v: VERSION, waited_ms: 0, idle_every_ms: None, batches: Vec::new() })
        };
        let client = Arc::new(client_of(post(respond)).await);
        let batches = 3 * SENDERS;
        for number in 0..batches {
            // The reply to a batch that cannot be decrypted is a status.
            let (id, ciphertext) = (format!("0-{number}"), String::new());
            client.handle_batch(SealedBatch { id, age_ms: 0, expires_in_ms: 60_000, ciphertext }, Duration::ZERO);
        }
        until("replies are sent", async || (received.load(SeqCst) >= SENDERS).then_some(())).await;
        sleep(Duration::from_millis(200)).await;
        assert_eq!(received.load(SeqCst), SENDERS);
        responses.add_permits(batches);
        until("all replies are sent", async || lock(&client.in_flight).is_empty().then_some(())).await;
        assert_eq!(received.load(SeqCst), batches);
    }

    #[test]
    fn a_reply_that_is_too_large_becomes_507() {
        for (bytes, expected) in [(LAMBDA_EVENT - ENVELOPE - 1000, 200), (LAMBDA_EVENT - ENVELOPE, 507)] {
            let outcome = ReplyOutcome::Status { status: 200, message: "x".repeat(bytes) };
            let reply = fit_event(QueuedReply { id: bytes.to_string(), outcome });
            let QueuedReply { id, outcome: ReplyOutcome::Status { status, .. } } = reply else { panic!() };
            assert_eq!((id, status), (bytes.to_string(), expected));
        }
    }
}
