//! Collects simultaneous requests to a cluster in batches.
//!
//! The first request opens a batch. The batch closes when no further request joins it. All callers share and poll one
//! future: a caller that is dropped does not stop the others, and a batch without callers is not sent.

use std::collections::HashMap;
use std::mem::{Discriminant, discriminant};
use std::sync::{Arc, Mutex};

use ebb_protocol::relay::{BATCH, RelayRequest};
use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared, WeakShared};

use super::batch_sender::{BatchSender, RelayReply, encode_error};
use super::registry::ClusterConfig;
use ebb_flow::{RelayError, lock};

/// Maximum bytes of the requests in a batch. A larger request has a batch of its own.
const MAX_BYTES: usize = 1 << 20;
/// Maximum requests in a batch whose responses contain the tail of a log.
const MAX_LOGS: usize = 16;

/// The replies of a batch, in the order of its requests. Each caller takes its own.
type BatchReplies = Arc<Mutex<Vec<Option<RelayReply>>>>;
type BatchFuture = Shared<BoxFuture<'static, BatchReplies>>;

/// The verb of requests that may share a batch, and true for starts of later attempts, which wait for the end of earlier
/// ones.
type BatchClass = (Discriminant<RelayRequest>, bool);

/// Returns the class of a request, or `None` if the request needs its own batch.
fn class_of(request: &RelayRequest) -> Option<BatchClass> {
    let is_restart = matches!(request, RelayRequest::Ensure(ensure) if ensure.task.attempt != 1);
    request.properties().shares_batch.then(|| (discriminant(request), is_restart))
}

/// The open batches by cluster, its UID and class.
#[derive(Default)]
pub(super) struct OpenBatches(Mutex<HashMap<(String, String, BatchClass), OpenBatch>>);

struct OpenBatch {
    /// Weak, so that a batch without callers is dropped and not sent.
    future: WeakShared<BoxFuture<'static, BatchReplies>>,
    requests: Arc<Mutex<BatchRequests>>,
}

struct BatchRequests {
    /// Empty once the batch is closed.
    list: Vec<RelayRequest>,
    bytes: usize,
}

impl OpenBatches {
    /// Sends a request to a cluster, in a batch with simultaneous requests of its class.
    pub(super) async fn request(
        &self,
        sender: &Arc<BatchSender>,
        cluster: &Arc<ClusterConfig>,
        request: RelayRequest,
    ) -> RelayReply {
        let Some(class) = class_of(&request) else {
            let timeout = request.properties().timeout;
            let mut replies = sender.send(cluster, vec![request], timeout).await;
            return replies.pop().unwrap_or_else(lost_reply);
        };
        let bytes = serde_json::to_vec(&request).map_err(encode_error)?.len();
        let (batch, index) = self.join(sender, cluster, class, request, bytes);
        let replies = batch.await;
        let reply = lock(&replies).get_mut(index).and_then(Option::take);
        reply.unwrap_or_else(lost_reply)
    }

    /// Adds a request to an open batch, or to a new one. Returns the future of the batch and the index of the request.
    fn join(
        &self,
        sender: &Arc<BatchSender>,
        cluster: &Arc<ClusterConfig>,
        class: BatchClass,
        request: RelayRequest,
        bytes: usize,
    ) -> (BatchFuture, usize) {
        let mut open = lock(&self.0);
        let key = (cluster.name.clone(), cluster.uid.clone(), class);
        if let Some(batch) = open.get(&key)
            && let Some(future) = batch.future.upgrade()
        {
            let mut requests = lock(&batch.requests);
            let capacity = if matches!(request, RelayRequest::Get(_)) { MAX_LOGS } else { BATCH };
            if (1..capacity).contains(&requests.list.len()) && requests.bytes + bytes <= MAX_BYTES {
                requests.bytes += bytes;
                requests.list.push(request);
                return (future, requests.list.len() - 1);
            }
        }
        let timeout = request.properties().timeout;
        let requests = Arc::new(Mutex::new(BatchRequests { list: vec![request], bytes }));
        let (sender, cluster, own) = (Arc::clone(sender), Arc::clone(cluster), Arc::clone(&requests));
        let future = async move {
            let requests = close_batch(&own).await;
            Arc::new(Mutex::new(sender.send(&cluster, requests, timeout).await.into_iter().map(Some).collect()))
        };
        let future = future.boxed().shared();
        if let Some(weak) = future.downgrade() {
            open.insert(key, OpenBatch { future: weak, requests });
        }
        (future, 0)
    }
}

/// Waits for a round of the executor in which no request joins the batch, and returns the requests.
async fn close_batch(requests: &Mutex<BatchRequests>) -> Vec<RelayRequest> {
    let mut count = 0;
    loop {
        {
            let mut requests = lock(requests);
            if requests.list.len() == count {
                return std::mem::take(&mut requests.list);
            }
            count = requests.list.len();
        }
        tokio::task::yield_now().await;
    }
}

fn lost_reply() -> RelayReply {
    Err(RelayError::Unreachable("its response was lost".to_owned()))
}

#[cfg(test)]
mod tests;
