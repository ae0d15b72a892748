//! What the functions are given here: this machine's clock, a queue in memory, and no cluster.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use ebb_engine::Timestamp;
use ebb_flow::Env;
use ebb_flow::ports::{Clock, Message, Queue, Random, Relay, RelayError};
use ebb_wire::relay::{Ensure, WorkName, WorkState};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// Messages that are dealt with at a time: as many invocations.
const AT_ONCE: usize = 16;

pub(crate) struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Timestamp(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }
}

pub(crate) struct SystemRandom;

impl Random for SystemRandom {
    fn next(&self) -> u64 {
        rand::random()
    }
}

/// Nothing that is measured runs in a cluster.
pub(crate) struct NoCluster;

fn refused() -> RelayError {
    RelayError::Refused("there is no cluster".to_owned())
}

#[async_trait]
impl Relay for NoCluster {
    async fn ensure(&self, _: Option<&str>, _: Ensure) -> Result<WorkState, RelayError> {
        Err(refused())
    }

    async fn cancel(&self, _: Option<&str>, _: &WorkName, _: Duration) -> Result<WorkState, RelayError> {
        Err(refused())
    }

    async fn get(&self, _: Option<&str>, _: &WorkName) -> Result<WorkState, RelayError> {
        Err(refused())
    }

    async fn acknowledge(&self, _: Option<&str>, _: &WorkName) -> Result<(), RelayError> {
        Err(refused())
    }

    async fn release(&self, _: Option<&str>, _: &str) -> Result<(), RelayError> {
        Err(refused())
    }
}

/// What the queue has seen.
#[derive(Default)]
pub(crate) struct Traffic {
    sent: AtomicUsize,
    pending: AtomicUsize,
    failed: Mutex<Vec<String>>,
}

impl Traffic {
    /// Messages that were sent, delayed ones included.
    pub(crate) fn sent(&self) -> usize {
        self.sent.load(Ordering::SeqCst)
    }

    /// Messages without a delay that have not been dealt with.
    pub(crate) fn pending(&self) -> usize {
        self.pending.load(Ordering::SeqCst)
    }

    /// What went wrong in dealing with them.
    pub(crate) fn failed(&self) -> Vec<String> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A queue whose delayed messages are counted and come with the rest when their time is up.
pub(crate) struct LocalQueue {
    sender: mpsc::UnboundedSender<Message>,
    traffic: Arc<Traffic>,
}

pub(crate) fn channel() -> (LocalQueue, Arc<Traffic>, mpsc::UnboundedReceiver<Message>) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let traffic = Arc::new(Traffic::default());
    (LocalQueue { sender, traffic: Arc::clone(&traffic) }, traffic, receiver)
}

#[async_trait]
impl Queue for LocalQueue {
    async fn send(&self, message: Message, delay: Duration) {
        self.traffic.sent.fetch_add(1, Ordering::SeqCst);
        let traffic = Arc::clone(&self.traffic);
        let deliver = move |sender: mpsc::UnboundedSender<Message>| {
            traffic.pending.fetch_add(1, Ordering::SeqCst);
            // Nobody listens any more: the case is over.
            if sender.send(message).is_err() {
                traffic.pending.fetch_sub(1, Ordering::SeqCst);
            }
        };
        if delay.is_zero() {
            deliver(self.sender.clone());
            return;
        }
        let sender = self.sender.downgrade();
        tokio::spawn(async move {
            tokio::time::sleep(delay).await;
            if let Some(sender) = sender.upgrade() {
                deliver(sender);
            }
        });
    }
}

/// Deals with messages as `sweep` does, until it is aborted.
pub(crate) async fn work(
    env: Arc<Env>,
    traffic: Arc<Traffic>,
    mut messages: mpsc::UnboundedReceiver<Message>,
) {
    let mut tasks = JoinSet::new();
    while let Some(message) = messages.recv().await {
        if tasks.len() >= AT_ONCE {
            tasks.join_next().await;
        }
        let (env, traffic) = (Arc::clone(&env), Arc::clone(&traffic));
        tasks.spawn(async move {
            if let Err(error) = Box::pin(ebb_flow::sweep::receive_message(&env, &message)).await {
                traffic.failed.lock().unwrap_or_else(PoisonError::into_inner).push(error.to_string());
            }
            traffic.pending.fetch_sub(1, Ordering::SeqCst);
        });
    }
}
