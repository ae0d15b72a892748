//! The thread of all writes. Requests that wait are one group, with one commit. None is answered before the commit, and
//! none if it fails. At its end, the thread moves the log into the file.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use ebb_store::{StoreError, StoreResult};
use rusqlite::{Connection, Transaction, TransactionBehavior};
use tokio::sync::oneshot;

use super::last_change::{ChangeCount, ChangeRecord};
use super::sqlite_error::{failed, is_broken_item};
use super::stored_item;

/// The largest number of requests of a group. It bounds the time to the first answer.
const MAX_GROUP: usize = 512;
const EXPIRY_INTERVAL: Duration = Duration::from_secs(60);
/// The time until the next deletion if there may be more of them.
const MORE_EXPIRED_INTERVAL: Duration = Duration::from_secs(1);
/// The number of expired items that one deletion deletes.
const MAX_EXPIRED: usize = 1_000;

/// Makes the changes of a request, and returns its answer.
type Request = Box<dyn FnOnce(&Connection) -> rusqlite::Result<Answer> + Send>;
/// Sends the response of a request after the commit.
type Answer = Box<dyn FnOnce() + Send>;

/// The thread and the sender of requests to it. They end with [`WriteQueue::close`] or when the queue is dropped.
#[derive(Debug)]
pub(in crate::embedded) struct WriteQueue {
    open: Mutex<Option<(Sender<Request>, JoinHandle<()>)>>,
}

impl WriteQueue {
    /// Starts the thread. It writes the count of each commit into `record`. A panic of the thread ends the process,
    /// because no later write could be made.
    ///
    /// # Errors
    /// Returns an error if the machine has no further thread.
    pub(in crate::embedded) fn start(connection: Connection, record: Option<ChangeRecord>) -> io::Result<Self> {
        let (sender, receiver) = mpsc::channel();
        let thread = std::thread::Builder::new().name("table".to_owned()).spawn(move || {
            if catch_unwind(AssertUnwindSafe(|| run(&connection, record.as_ref(), &receiver))).is_err() {
                tracing::error!("the thread of the table panicked, so no write can be made; start ebb again");
                std::process::abort();
            }
        })?;
        Ok(Self { open: Mutex::new(Some((sender, thread))) })
    }

    /// Makes changes on the thread and returns their response after the commit.
    ///
    /// # Errors
    /// Returns [`StoreError::Retryable`] if the group was not committed, and [`StoreError::Broken`] if the request met
    /// a damaged row or page.
    pub(in crate::embedded) async fn send<T: Send + 'static>(
        &self,
        operation: &'static str,
        change: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> StoreResult<T> {
        let (sender, response) = oneshot::channel();
        let request: Request = Box::new(move |connection| {
            let value = match change(connection) {
                // Nothing was written yet. The others of the group do not depend on the item.
                Err(error) if is_broken_item(&error) => Err(failed(operation, &error)),
                // SQLite commits nothing after it has found a damaged page, so the group is undone. This caller gets
                // its own error: it does not repeat a request that fails each time.
                Err(error) => {
                    let _ = sender.send(Err(failed(operation, &error)));
                    return Err(error);
                }
                Ok(value) => Ok(value),
            };
            let answer: Answer = Box::new(move || {
                // The caller may have given up.
                let _ = sender.send(value);
            });
            Ok(answer)
        });
        let lost = || {
            let reason = "the group of the write was not committed, or the table is closed; see the log".to_owned();
            StoreError::Retryable { operation, reason }
        };
        let is_sent = self.open().as_ref().is_some_and(|(requests, _)| requests.send(request).is_ok());
        if !is_sent {
            return Err(lost());
        }
        response.await.map_err(|_| lost())?
    }

    /// Commits the requests that wait, and moves the log into the file. Later requests fail.
    pub(super) fn close(&self) {
        let open = self.open().take();
        if let Some((requests, thread)) = open {
            drop(requests);
            thread.join().ok();
        }
    }

    fn open(&self) -> std::sync::MutexGuard<'_, Option<(Sender<Request>, JoinHandle<()>)>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for WriteQueue {
    fn drop(&mut self) {
        self.close();
    }
}

/// Handles requests until the sender is dropped.
fn run(connection: &Connection, record: Option<&ChangeRecord>, requests: &Receiver<Request>) {
    let mut expiry = Instant::now() + EXPIRY_INTERVAL;
    loop {
        let first = match requests.recv_timeout(expiry.saturating_duration_since(Instant::now())) {
            Ok(first) => Some(first),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return empty_log(connection),
        };
        let waiting = first.into_iter().chain(requests.try_iter()).take(MAX_GROUP);
        match commit(connection, record, waiting) {
            Ok(answers) => answers.into_iter().for_each(|answer| answer()),
            Err(error) => {
                let error = failed("commit", &error);
                tracing::error!(%error, "a group of writes was not committed; their callers repeat them");
            }
        }
        if expiry <= Instant::now() {
            expiry = Instant::now() + delete_expired(connection);
        }
    }
}

/// Moves the log into the file, so that the file alone has everything, and no deleted text is left in the log.
fn empty_log(connection: &Connection) {
    match connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0)) {
        Ok(0) => {}
        Ok(_) => tracing::warn!("another process reads the table, so its log keeps the last writes"),
        Err(error) => tracing::warn!(%error, "the log of the table keeps the last writes"),
    }
}

/// Deletes expired items, and empties the log, which can have deleted text. Returns the time until the next deletion.
pub(in crate::embedded) fn delete_expired(connection: &Connection) -> Duration {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let deleted = stored_item::delete_expired(connection, stored_item::signed(since.as_secs()), MAX_EXPIRED);
    empty_log(connection);
    match deleted {
        Ok(MAX_EXPIRED) => MORE_EXPIRED_INTERVAL,
        Ok(_) => EXPIRY_INTERVAL,
        Err(error) => {
            tracing::warn!(%error, "cannot delete expired items; the next deletion repeats it");
            EXPIRY_INTERVAL
        }
    }
}

/// Makes the changes of a group in one transaction. A problem with the file undoes all of them.
fn commit(
    connection: &Connection,
    record: Option<&ChangeRecord>,
    group: impl Iterator<Item = Request>,
) -> rusqlite::Result<Vec<Answer>> {
    let transaction = match Transaction::new_unchecked(connection, TransactionBehavior::Immediate) {
        Ok(transaction) => transaction,
        Err(error) => {
            // Each would wait for the file again.
            group.for_each(drop);
            return Err(error);
        }
    };
    let answers = group.map(|request| request(&transaction)).collect::<rusqlite::Result<_>>()?;
    let count = record.map(|_| ChangeCount::read(&transaction)).transpose()?;
    transaction.commit()?;
    if let (Some(record), Some(count)) = (record, count) {
        record.write(&count);
    }
    Ok(answers)
}
