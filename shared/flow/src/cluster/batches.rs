//! Verbs that are asked for at the same time go to a cluster in one batch.
//!
//! The first caller opens a batch, and it stays open until no further verb joins it. Callers share one future: each of
//! them drives it, so a caller that gives up stops no other one, and nothing is sent that no caller waits for.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ebb_wire::relay::{Answer, BATCH, Request as Verb};
use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared, WeakShared};

use super::clusters::Cluster;
use super::sender::Sender;
use crate::ports::RelayError;

/// Bytes of the verbs in one batch, but for a verb that has more by itself.
const BYTES: usize = 1 << 20;
/// Verbs of one batch whose answers hold the tail of a log.
const LOGS: usize = 16;

/// The answer to a verb, with the uid of the cluster whose relay gave it.
pub(super) type Answered = Result<(Answer, String), RelayError>;
/// The answers of a batch, in the order of its verbs. Each caller takes its own.
type Answers = Arc<Mutex<Vec<Option<Answered>>>>;
type Sending = Shared<BoxFuture<'static, Answers>>;

/// Verbs that may share a batch. A batch is answered when its slowest verb is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Class {
    Start,
    /// Starts of later tries, which wait for the end of the lower ones.
    Restart,
    Cancel,
    Dequeue,
    Get,
    /// The facts that only the relay needs.
    Tell,
}

impl Class {
    /// `None`: the verb goes by itself.
    fn of(verb: &Verb) -> Option<Self> {
        match verb {
            Verb::Ensure(request) if request.name.attempt == 1 => Some(Self::Start),
            Verb::Ensure(_) => Some(Self::Restart),
            Verb::Cancel { .. } => Some(Self::Cancel),
            Verb::Dequeue(_) => Some(Self::Dequeue),
            Verb::Get(_) => Some(Self::Get),
            Verb::Acknowledge(_) | Verb::Release { .. } => Some(Self::Tell),
            Verb::About | Verb::List { .. } | Verb::Discard(_) => None,
        }
    }

    fn room(self) -> usize {
        if self == Self::Get { LOGS } else { BATCH }
    }
}

/// The batches that are open, by cluster and class.
#[derive(Default)]
pub(super) struct Batches(Mutex<HashMap<(String, Class), OpenBatch>>);

struct OpenBatch {
    /// The batch is not sent if its callers are gone.
    sending: WeakShared<BoxFuture<'static, Answers>>,
    verbs: Arc<Mutex<Verbs>>,
}

#[derive(Default)]
struct Verbs {
    list: Vec<Verb>,
    bytes: usize,
    closed: bool,
}

impl Batches {
    /// Asks a cluster for one thing, together with what others ask it for now.
    pub(super) async fn ask(&self, sender: &Arc<Sender>, cluster: &Cluster, verb: Verb) -> Answered {
        let Some(class) = Class::of(&verb) else {
            let timeout = verb.timeout();
            let mut answers = sender.send(&cluster.name, vec![verb], timeout).await;
            return answers.pop().unwrap_or_else(no_answer);
        };
        let bytes = serde_json::to_vec(&verb).map_err(super::sender::unwritable)?.len();
        let (sending, place) = self.join(sender, cluster, class, verb, bytes);
        let answers = sending.await;
        let answer = lock(&answers).get_mut(place).and_then(Option::take);
        answer.unwrap_or_else(no_answer)
    }

    fn join(
        &self,
        sender: &Arc<Sender>,
        cluster: &Cluster,
        class: Class,
        verb: Verb,
        bytes: usize,
    ) -> (Sending, usize) {
        let mut open = lock(&self.0);
        let key = (cluster.name.clone(), class);
        if let Some(batch) = open.get(&key)
            && let Some(sending) = batch.sending.upgrade()
        {
            let mut verbs = lock(&batch.verbs);
            if !verbs.closed && verbs.list.len() < class.room() && verbs.bytes + bytes <= BYTES {
                verbs.bytes += bytes;
                verbs.list.push(verb);
                return (sending, verbs.list.len() - 1);
            }
        }
        let timeout = verb.timeout();
        let verbs = Arc::new(Mutex::new(Verbs { list: vec![verb], bytes, closed: false }));
        let (sender, name, own) = (Arc::clone(sender), cluster.name.clone(), Arc::clone(&verbs));
        let sending = async move {
            let verbs = all(&own).await;
            let answers = sender.send(&name, verbs, timeout).await;
            Arc::new(Mutex::new(answers.into_iter().map(Some).collect()))
        };
        let sending = sending.boxed().shared();
        if let Some(weak) = sending.downgrade() {
            open.insert(key, OpenBatch { sending: weak, verbs });
        }
        (sending, 0)
    }
}

/// Closes a batch once everybody who can run now has had a turn, and none of them has joined it.
async fn all(verbs: &Mutex<Verbs>) -> Vec<Verb> {
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

fn no_answer() -> Answered {
    Err(RelayError::Unreachable("its answer was lost".to_owned()))
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    // Whole after every use of it.
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
