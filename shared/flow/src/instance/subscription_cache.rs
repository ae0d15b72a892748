//! Keeps the subscriptions of a function instance between invocations.

use std::sync::Arc;

use ebb_documents::notification::NotificationRule;
use ebb_engine::Timestamp;
use tokio::sync::Mutex;

/// The subscriptions, with the time at which they were read.
#[derive(Default)]
pub(crate) struct SubscriptionCache(pub(crate) Mutex<Option<(Timestamp, Arc<Vec<NotificationRule>>)>>);
