//! Sessions of the console: `w#DIGEST` / `h`. The item has digests only.

use async_trait::async_trait;

use super::attribute::{Item, ItemReader, item, number, optional, text};
use super::key;
use crate::items::SessionItem;
use crate::ops::{SessionStore, StoreResult};
use crate::store::Store;
use crate::table::TableSpec;

fn read_session(operation: &'static str, item: &Item) -> StoreResult<SessionItem> {
    let reader = ItemReader::new(operation, item);
    Ok(SessionItem {
        digest: reader.text("dg")?.to_owned(),
        token: reader.text_if_any("k")?.map(str::to_owned),
        proof: reader.text("pf")?.to_owned(),
        created: reader.time("cr")?,
        expires: reader.time("ex")?,
    })
}

#[async_trait]
impl SessionStore for Store {
    async fn read_session(&self, digest: &str) -> StoreResult<Option<SessionItem>> {
        self.table.read(&key::session(digest), key::HEAD, read_session).await
    }

    async fn put_session(&self, session: &SessionItem) -> StoreResult<()> {
        let mut attributes = item([
            ("pk", text(key::session(&session.digest))),
            ("sk", text(key::HEAD)),
            ("dg", text(&session.digest)),
            ("pf", text(&session.proof)),
            ("cr", number(session.created.0)),
            ("ex", number(session.expires.0)),
            (TableSpec::TTL, number(session.expires.0.div_ceil(1000))),
        ]);
        attributes.extend(optional([("k", session.token.as_ref().map(text))]));
        self.table.put(attributes).await
    }

    async fn delete_session(&self, digest: &str) -> StoreResult<()> {
        self.table.delete(&key::session(digest), key::HEAD).await
    }
}
