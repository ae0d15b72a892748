//! Verbs that are asked for at the same time go to a cluster in one batch.
//!
//! The first caller opens a batch, and it stays open until no further verb joins it. Callers share one future: each of
//! them drives it, so a caller that gives up stops no other one, and nothing is sent that no caller waits for.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ebb_protocol::relay::{BATCH, RelayRequest as Verb, RelayResponse};
use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared, WeakShared};

use super::batch_sender::BatchSender;
use super::registry::ClusterConfig;
use ebb_flow::ports::RelayError;

/// Bytes of the verbs in one batch, but for a verb that has more by itself.
const MAX_BYTES: usize = 1 << 20;
/// Verbs of one batch whose answers hold the tail of a log.
const MAX_LOGS: usize = 16;

/// The answer to a verb, with the uid of the cluster whose relay gave it.
pub(super) type RelayReply = Result<(RelayResponse, String), RelayError>;
/// The answers of a batch, in the order of its verbs. Each caller takes its own.
type BatchReplies = Arc<Mutex<Vec<Option<RelayReply>>>>;
type BatchFuture = Shared<BoxFuture<'static, BatchReplies>>;

/// Verbs that may share a batch. A batch is answered when its slowest verb is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum BatchClass {
    Start,
    /// Starts of later tries, which wait for the end of the lower ones.
    Restart,
    Cancel,
    Dequeue,
    Get,
    /// The facts that only the relay needs.
    Notify,
}

impl BatchClass {
    /// `None`: the verb goes by itself.
    fn of(verb: &Verb) -> Option<Self> {
        match verb {
            Verb::Ensure(request) if request.task.attempt == 1 => Some(Self::Start),
            Verb::Ensure(_) => Some(Self::Restart),
            Verb::Cancel { .. } => Some(Self::Cancel),
            Verb::Dequeue(_) => Some(Self::Dequeue),
            Verb::Get(_) => Some(Self::Get),
            Verb::Acknowledge(_) | Verb::Release { .. } => Some(Self::Notify),
            Verb::About | Verb::List { .. } | Verb::Delete(_) => None,
        }
    }

    fn capacity(self) -> usize {
        if self == Self::Get { MAX_LOGS } else { BATCH }
    }
}

/// The batches that are open, by cluster and class.
#[derive(Default)]
pub(super) struct OpenBatches(Mutex<HashMap<(String, BatchClass), OpenBatch>>);

struct OpenBatch {
    /// The batch is not sent if its callers are gone.
    future: WeakShared<BoxFuture<'static, BatchReplies>>,
    requests: Arc<Mutex<BatchRequests>>,
}

#[derive(Default)]
struct BatchRequests {
    list: Vec<Verb>,
    bytes: usize,
    closed: bool,
}

impl OpenBatches {
    /// Asks a cluster for one thing, together with what others ask it for now.
    pub(super) async fn request(&self, sender: &Arc<BatchSender>, cluster: &ClusterConfig, verb: Verb) -> RelayReply {
        let Some(class) = BatchClass::of(&verb) else {
            let timeout = verb.timeout();
            let mut answers = sender.send(&cluster.name, vec![verb], timeout).await;
            return answers.pop().unwrap_or_else(lost_reply);
        };
        let bytes = serde_json::to_vec(&verb).map_err(super::batch_sender::encode_error)?.len();
        let (sending, place) = self.join(sender, cluster, class, verb, bytes);
        let answers = sending.await;
        let answer = lock(&answers).get_mut(place).and_then(Option::take);
        answer.unwrap_or_else(lost_reply)
    }

    fn join(
        &self,
        sender: &Arc<BatchSender>,
        cluster: &ClusterConfig,
        class: BatchClass,
        verb: Verb,
        bytes: usize,
    ) -> (BatchFuture, usize) {
        let mut open = lock(&self.0);
        let key = (cluster.name.clone(), class);
        if let Some(batch) = open.get(&key)
            && let Some(sending) = batch.future.upgrade()
        {
            let mut verbs = lock(&batch.requests);
            if !verbs.closed && verbs.list.len() < class.capacity() && verbs.bytes + bytes <= MAX_BYTES {
                verbs.bytes += bytes;
                verbs.list.push(verb);
                return (sending, verbs.list.len() - 1);
            }
        }
        let timeout = verb.timeout();
        let verbs = Arc::new(Mutex::new(BatchRequests { list: vec![verb], bytes, closed: false }));
        let (sender, name, own) = (Arc::clone(sender), cluster.name.clone(), Arc::clone(&verbs));
        let sending = async move {
            let verbs = close_batch(&own).await;
            let answers = sender.send(&name, verbs, timeout).await;
            Arc::new(Mutex::new(answers.into_iter().map(Some).collect()))
        };
        let sending = sending.boxed().shared();
        if let Some(weak) = sending.downgrade() {
            open.insert(key, OpenBatch { future: weak, requests: verbs });
        }
        (sending, 0)
    }
}

/// Closes a batch once everybody who can run now has had a turn, and none of them has joined it.
async fn close_batch(verbs: &Mutex<BatchRequests>) -> Vec<Verb> {
    let mut known = 0;
    loop {
        {
            let mut verbs = lock(verbs);
            if verbs.list.len() == known {
                verbs.closed = true;
                return std::mem::take(&mut verbs.list);
            }
            known = verbs.list.len();
        }
        tokio::task::yield_now().await;
    }
}

fn lost_reply() -> RelayReply {
    Err(RelayError::Unreachable("its answer was lost".to_owned()))
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    // Whole after every use of it.
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
