//! A relay that nobody reaches: it asks the control plane for its batches, and brings the answers.
//!
//! One poll waits for mail at a time; answers go by requests of their own, at once. What is under way is remembered here
//! alone: mail that a relay was killed over is handed out again, for as long as somebody waits for its answer.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use backon::{BackoffBuilder as _, ExponentialBuilder, Retryable as _};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ebb_wire::engine::Timestamp;
use ebb_wire::limits::message;
use ebb_wire::limits::{EVENT, in_event};
use ebb_wire::mail::{AT_ONCE, LONGEST_WAIT_MS, Mail, Outcome, Poll, Post, Reply, VERSION};
use ebb_wire::seal;
use ebb_wire::sign::{Keys, MessageId, sign};
use tokio::sync::Notify;

use crate::store::now_ms;
use crate::{Error, Relay, http};

/// What a request may take beside the time that it waits for mail.
const TRANSPORT: Duration = Duration::from_secs(10);
/// Bytes of answers that go together; one alone may have more.
const TOGETHER: usize = 1 << 20;

/// Where a relay asks, and as whom.
#[derive(Clone, Debug)]
pub struct Office {
    /// The URL of the control plane's api, without `/v1`.
    pub url: String,
    /// The name that the control plane has for the cluster.
    pub cluster: String,
    /// The first one signs; batches may be sealed with any.
    pub keys: Keys,
}

/// Asks for batches and answers them, for as long as it is awaited. Nothing ends it: what fails is tried again, less and less
/// often.
///
/// # Errors
/// At once, when no client of HTTP can be made.
pub async fn poll(relay: Relay, office: Office) -> Result<(), Error> {
    let http = reqwest::Client::builder()
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(TRANSPORT)
        .build()
        .map_err(|error| Error::Own(format!("no client of HTTP can be made: {error:?}")))?;
    let url = format!("{}/v1/clusters/{}/poll", office.url.trim_end_matches('/'), office.cluster);
    let line = Arc::new(Line { relay, office, http, url, under: Mutex::default(), moved: Notify::new() });
    tokio::join!(line.fetch(), line.tell());
    Ok(())
}

struct Line {
    relay: Relay,
    office: Office,
    http: reqwest::Client,
    url: String,
    under: Mutex<Under>,
    moved: Notify,
}

#[derive(Default)]
struct Under {
    /// Mail that is under way here, until its answer was taken.
    held: BTreeSet<String>,
    done: Vec<Reply>,
}

impl Line {
    fn under(&self) -> MutexGuard<'_, Under> {
        // Whole after every use of it.
        self.under.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for mail again and again.
    async fn fetch(self: &Arc<Self>) {
        let mut pauses = pauses().build();
        loop {
            let held: Vec<String> = self.under().held.iter().cloned().collect();
            if held.len() >= AT_ONCE {
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
            let poll = Poll { wait_ms: Some(LONGEST_WAIT_MS), held, ..self.empty() };
            let sent = Instant::now();
            match self.send(&poll).await {
                Ok(post) => {
                    // Before the answer was on its way and after.
                    let transit = sent.elapsed().saturating_sub(Duration::from_millis(post.waited_ms));
                    post.mail.into_iter().for_each(|mail| self.take(mail, transit));
                    pauses = self::pauses().build();
                }
                Err(why) => {
                    tracing::warn!(why, "the control plane gives no mail");
                    tokio::time::sleep(pauses.next().unwrap_or(TRANSPORT)).await;
                }
            }
        }
    }

    /// Acts on mail, unless it is under way here already or nobody waits for it any more.
    fn take(self: &Arc<Self>, mail: Mail, transit: Duration) {
        if transit >= Duration::from_millis(mail.left_ms) || !self.under().held.insert(mail.id.clone()) {
            return;
        }
        let line = Arc::clone(self);
        tokio::spawn(async move {
            let late = transit + Duration::from_millis(mail.age_ms);
            let outcome = match line.opened(&mail) {
                Some(batch) => http::answer(&line.relay, batch, late).await,
                None => {
                    metrics::counter!("ebb_relay_refused_batches_total").increment(1);
                    Outcome::Status { status: 401, said: "it was not sealed for this relay".to_owned() }
                }
            };
            line.under().done.push(fitting(Reply { id: mail.id, outcome }));
            line.moved.notify_one();
        });
    }

    fn opened(&self, mail: &Mail) -> Option<Vec<u8>> {
        let sealed = STANDARD.decode(&mail.sealed).ok()?;
        seal::open(&self.office.keys, &Mail::about(&self.office.cluster, &mail.id), &sealed)
    }

    /// Brings answers as they come. What cannot be brought is forgotten: the mail comes again if somebody waits.
    async fn tell(&self) {
        loop {
            self.moved.notified().await;
            loop {
                let answers = some(&mut self.under().done);
                if answers.is_empty() {
                    break;
                }
                let ids: Vec<String> = answers.iter().map(|reply| reply.id.clone()).collect();
                let poll = Poll { answers, ..self.empty() };
                let told = (|| self.send(&poll)).retry(pauses().with_max_times(4)).await;
                if let Err(why) = told {
                    tracing::warn!(why, "answers were not taken");
                }
                let mut under = self.under();
                ids.iter().for_each(|id| {
                    under.held.remove(id);
                });
            }
        }
    }

    fn empty(&self) -> Poll {
        let cluster = self.relay.cluster().to_owned();
        Poll { v: VERSION, cluster, wait_ms: None, held: Vec::new(), answers: Vec::new() }
    }

    async fn send(&self, poll: &Poll) -> Result<Post, String> {
        let posted = self.post(poll).await;
        let answer = if posted.is_ok() { "taken" } else { "failed" };
        metrics::counter!("ebb_relay_polls_total", "answer" => answer).increment(1);
        posted
    }

    async fn post(&self, poll: &Poll) -> Result<Post, String> {
        let body = serde_json::to_vec(poll).map_err(|error| error.to_string())?;
        let id = MessageId::parse(&format!("poll-{:016x}", rand::random::<u64>()));
        let id = id.map_err(|error| error.to_string())?;
        let signed = sign(self.office.keys.first(), &id, Timestamp(now_ms()), &body);
        let patience = TRANSPORT + Duration::from_millis(poll.wait_ms.unwrap_or(0));
        let mut request = self.http.post(&self.url).header("content-type", "application/json");
        for (name, value) in signed {
            request = request.header(name, value);
        }
        let answer = request.timeout(patience).body(body).send().await;
        let answer = answer.map_err(|error| error.without_url().to_string())?;
        let status = answer.status();
        let bytes = answer.bytes().await.map_err(|error| error.without_url().to_string())?;
        if !status.is_success() {
            return Err(format!("it answered {status}: {}", message(&String::from_utf8_lossy(&bytes))));
        }
        serde_json::from_slice(&bytes).map_err(|error| format!("its answer cannot be read: {error}"))
    }
}

/// From half a second to half a minute, with jitter, without an end.
fn pauses() -> ExponentialBuilder {
    let (least, most) = (Duration::from_millis(500), Duration::from_secs(30));
    ExponentialBuilder::default().with_min_delay(least).with_max_delay(most).without_max_times().with_jitter()
}

/// Bytes of an answer, as the function gets it that it is for.
fn size(reply: &Reply) -> usize {
    // An answer that was made can be written.
    serde_json::to_vec(reply).map_or(0, |json| in_event(&json))
}

/// What is around the answers of a poll: of these there may be as many as are asked for at one time.
const ROUND: usize = 32 << 10;

/// The answer, if the control plane can take it.
fn fitting(reply: Reply) -> Reply {
    match size(&reply) {
        bytes if bytes > EVENT - ROUND => {
            let said = format!("the answer has {bytes} bytes, which is more than one message holds");
            Reply { outcome: Outcome::Status { status: 507, said }, ..reply }
        }
        _ => reply,
    }
}

/// Takes as many as go together, or one.
fn some(done: &mut Vec<Reply>) -> Vec<Reply> {
    let mut room = TOGETHER;
    let fits = |reply: &&Reply| {
        let bytes = size(reply);
        let fits = bytes <= room;
        room = room.saturating_sub(bytes);
        fits
    };
    let count = done.iter().take(AT_ONCE).take_while(fits).count().max(1).min(done.len());
    done.drain(..count).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(bytes: usize) -> Reply {
        let said = "x".repeat(bytes);
        Reply { id: bytes.to_string(), outcome: Outcome::Status { status: 200, said } }
    }

    #[test]
    fn answers_go_together_as_far_as_they_fit() {
        let large = TOGETHER - 1000;
        for (sizes, expected) in [
            (vec![], 0),
            (vec![1; AT_ONCE + 1], AT_ONCE),
            (vec![large, 10, 10], 3),
            (vec![large, large], 1),
            (vec![4 * TOGETHER, 1], 1),
        ] {
            let mut done: Vec<Reply> = sizes.iter().map(|&bytes| reply(bytes)).collect();
            let first = some(&mut done);
            assert_eq!((first.len(), done.len()), (expected, sizes.len() - expected));
        }
    }

    #[test]
    fn what_is_too_large_says_so() {
        for (bytes, expected) in [(EVENT - ROUND - 1000, 200), (EVENT - ROUND, 507)] {
            let Reply { id, outcome: Outcome::Status { status, .. } } = fitting(reply(bytes)) else {
                panic!()
            };
            assert_eq!((id, status), (bytes.to_string(), expected));
        }
    }
}
