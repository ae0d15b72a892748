//! Sessions of the console: `w#DIGEST` / `h`. The item has digests only.

use super::attribute::{Item, ItemReader, item, number, optional, text};
use super::key;
use super::store::Store;
use crate::items::{SessionBasis, SessionItem};
use crate::ops::StoreResult;
use crate::table::TableSpec;

fn read_session(operation: &'static str, item: &Item) -> StoreResult<SessionItem> {
    let reader = ItemReader::new(operation, item);
    let basis = match (reader.text_if_any("k")?, reader.text_if_any("i")?) {
        (Some(token), _) => SessionBasis::Named(token.to_owned()),
        (None, Some(claims)) => SessionBasis::Identity(claims.to_owned()),
        (None, None) => SessionBasis::Configured,
    };
    Ok(SessionItem {
        digest: reader.text("dg")?.to_owned(),
        basis,
        proof: reader.text("pf")?.to_owned(),
        created: reader.time("cr")?,
        expires: reader.time("ex")?,
    })
}

/// Reads and writes sessions of the console (`GetItem`, `PutItem`, `DeleteItem`).
impl Store {
    /// Returns a session by the digest of its id, also one that has expired.
    pub async fn read_session(&self, digest: &str) -> StoreResult<Option<SessionItem>> {
        self.table.read(&key::session(digest), key::HEAD, read_session).await
    }

    /// Writes a session. The table removes it some time after its end.
    pub async fn put_session(&self, session: &SessionItem) -> StoreResult<()> {
        let mut attributes = item([
            ("pk", text(key::session(&session.digest))),
            ("sk", text(key::HEAD)),
            ("dg", text(&session.digest)),
            ("pf", text(&session.proof)),
            ("cr", number(session.created.0)),
            ("ex", number(session.expires.0)),
            (TableSpec::TTL, number(session.expires.0.div_ceil(1000))),
        ]);
        let (token, claims) = match &session.basis {
            SessionBasis::Configured => (None, None),
            SessionBasis::Named(token) => (Some(token), None),
            SessionBasis::Identity(claims) => (None, Some(claims)),
        };
        attributes.extend(optional([("k", token.map(text)), ("i", claims.map(text))]));
        self.table.put(attributes).await
    }

    /// Deletes a session if it exists.
    pub async fn delete_session(&self, digest: &str) -> StoreResult<()> {
        self.table.delete(&key::session(digest), key::HEAD).await
    }
}
