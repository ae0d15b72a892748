//! Sessions of the console: `w#DIGEST` / `h`. The session is JSON in `b`. The item has digests only.

use super::attribute::{Item, ItemReader, item, json, number, text};
use super::key;
use super::store::Store;
use crate::items::SessionItem;
use crate::ops::StoreResult;
use crate::table::TableSpec;

/// Reads and writes sessions of the console (`GetItem`, `PutItem`, `DeleteItem`).
impl Store {
    /// Returns a session by the digest of its id, also one that has expired.
    pub async fn read_session(&self, digest: &str) -> StoreResult<Option<SessionItem>> {
        let read = |operation, item: &Item| ItemReader::new(operation, item).json("b");
        self.table.read(&key::session(digest), key::HEAD, read).await
    }

    /// Writes a session. The table removes it some time after its end.
    pub async fn put_session(&self, session: &SessionItem) -> StoreResult<()> {
        let attributes = item([
            ("pk", text(key::session(&session.digest))),
            ("sk", text(key::HEAD)),
            ("b", json(session)?),
            (TableSpec::TTL, number(session.expires.0.div_ceil(1000))),
        ]);
        self.table.put(attributes).await
    }

    /// Deletes a session if it exists.
    pub async fn delete_session(&self, digest: &str) -> StoreResult<()> {
        self.table.delete(&key::session(digest), key::HEAD).await
    }
}
