//! The functions as those outside see them: an invocation answers, or dies and gives no answer.

use std::sync::{Arc, Mutex};

use ebb_flow::complete::Taken;
use ebb_flow::ports::Message;
use ebb_flow::{Env, FlowError, receive};
use ebb_wire::cloudevents::Asked;
use ebb_wire::lifecycle::Lifecycle;

use super::{Runtime, Table};

/// An invocation gave no answer, or the answer that it should be asked again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Died;

/// The functions over one table.
pub struct Functions {
    runtime: Runtime,
    table: Arc<Table>,
    env: Mutex<Option<Arc<Env>>>,
    broken: Mutex<Vec<String>>,
}

impl Functions {
    /// Without surroundings yet.
    pub fn new(runtime: Runtime, table: Arc<Table>) -> Self {
        Self { runtime, table, env: Mutex::default(), broken: Mutex::default() }
    }

    /// Gives the surroundings, or takes them away, which ends the circle in which they know each other.
    pub fn surround(&self, env: Option<Env>) {
        *self.env.lock().expect("no panic while it is held") = env.map(Arc::new);
    }

    /// Errors that no repetition mends.
    pub fn broken(&self) -> Vec<String> {
        self.broken.lock().expect("no panic while it is held").clone()
    }

    fn env(&self) -> Result<Arc<Env>, Died> {
        self.env.lock().expect("no panic while it is held").clone().ok_or(Died)
    }

    async fn invoke<T, F, Fut>(&self, name: &'static str, body: F) -> Result<T, Died>
    where
        T: Send + 'static,
        F: FnOnce(Arc<Env>, Arc<Table>) -> Fut,
        Fut: Future<Output = Result<T, FlowError>> + Send + 'static,
    {
        let task = self.runtime.spawn(body(self.env()?, Arc::clone(&self.table)));
        match task.await {
            Some(Ok(value)) => Ok(value),
            Some(Err(error)) => {
                if !error.is_retryable() {
                    let mut broken = self.broken.lock().expect("no panic while it is held");
                    broken.push(format!("{name}: {error}"));
                }
                Err(Died)
            }
            None => Err(Died),
        }
    }

    /// A lifecycle webhook.
    ///
    /// # Errors
    /// [`Died`]: come again.
    pub async fn lifecycle(&self, asked: Asked, event: Lifecycle) -> Result<receive::Answer, Died> {
        self.invoke("receive", |env, table| async move {
            receive::receive(&env, table.as_ref(), asked, &event).await
        })
        .await
    }

    /// A callback.
    ///
    /// # Errors
    /// [`Died`]: come again.
    pub async fn callback(&self, token: String, body: Vec<u8>) -> Result<Taken, Died> {
        self.invoke(
            "complete",
            |env, _| async move { ebb_flow::complete::complete(&env, &token, &body).await },
        )
        .await
    }

    /// An operator's `retry` of the target.
    ///
    /// # Errors
    /// [`Died`]: come again.
    pub async fn retry(&self, kind: &'static str, name: &'static str) -> Result<(), Died> {
        self.invoke("retry", move |env, _| async move {
            ebb_flow::api::retry::retry(&env, kind, name).await.map(drop)
        })
        .await
    }

    /// The schedule.
    ///
    /// # Errors
    /// [`Died`]: the next one comes anyway.
    pub async fn sweep(&self) -> Result<(), Died> {
        self.invoke("sweep", |env, table| async move {
            ebb_flow::sweep::sweep(&env, table.as_ref()).await.map(drop)
        })
        .await
    }

    /// A message of the queue.
    ///
    /// # Errors
    /// [`Died`]: the message is delivered again.
    pub async fn message(&self, message: Message) -> Result<(), Died> {
        self.invoke("message", |env, _| async move { ebb_flow::sweep::receive_message(&env, &message).await })
            .await
    }
}
