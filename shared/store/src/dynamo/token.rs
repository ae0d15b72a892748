//! Named API tokens: `k#ID` / `h`. The token is JSON in `b`. The item has the digest of the token, and no secret.
//! Sessions of the console: `w#DIGEST` / `h`. The session is JSON in `b`. The item has digests only.
//! Access tokens of connections: `o#CONNECTION` / `CLIENT`, the digest of the client. The token is encrypted in the JSON in
//! `b`, and `le` ends the lease of its renewal.

use ebb_protocol::api_token::token_id;
use ebb_protocol::engine::Timestamp;

use super::{Item, ItemReader, Store, digest, item_at, json, key, number, text, ttl_attribute};
use crate::item_table::AttributeChange::{Remove, SetIfAbsent};
use crate::{AccessTokenItem, SessionItem, StoreResult, TableSpec, TokenItem, WriteCondition, WriteExpression};

const REVOKED: &str = "rv";
const EXPIRES: &str = "ex";
const LEASED: &str = "le";

fn read_token(reader: ItemReader<'_>) -> StoreResult<TokenItem> {
    let (info, digest) = (reader.json("b")?, reader.digest("dg")?);
    Ok(TokenItem { info, digest, revoked: reader.time_if_any(REVOKED)? })
}

fn read_access_token(reader: ItemReader<'_>) -> StoreResult<AccessTokenItem> {
    Ok(AccessTokenItem { leased_until: reader.time(LEASED)?, ..reader.json("b")? })
}

fn session_item(session: &SessionItem) -> StoreResult<Item> {
    let attributes = [("b", json(session)?), (TableSpec::TTL, number(session.expires.0.div_ceil(1000)))];
    Ok(item_at((key::session(&session.digest), key::HEAD), attributes))
}

/// Reads and writes named API tokens (`GetItem`, `PutItem`, `UpdateItem`; `Query` on the list index, `BatchGetItem`),
/// sessions of the console (`GetItem`, `PutItem`, `DeleteItem`), and access tokens (`GetItem`, `PutItem`).
impl Store {
    /// Returns a token by its id, also one that has expired or was revoked.
    pub async fn read_token(&self, id: &str) -> StoreResult<Option<TokenItem>> {
        self.table.read(&key::token(id), key::HEAD, read_token).await
    }

    /// Returns all tokens that are not revoked, by name.
    pub async fn list_tokens(&self) -> StoreResult<Vec<TokenItem>> {
        let mut tokens = self.table.list(TableSpec::LIST_TOKENS, None, read_token).await?;
        // The index may be stale.
        tokens.retain(|token| token.revoked.is_none());
        tokens.sort_by(|a, b| a.info.name.cmp(&b.info.name));
        Ok(tokens)
    }

    /// Creates a token. Returns false, and writes nothing, if its name has a token that is valid at its creation.
    pub async fn create_token(&self, token: &TokenItem) -> StoreResult<bool> {
        let info = &token.info;
        let attributes = [
            (TableSpec::LIST, text(TableSpec::LIST_TOKENS)),
            ("b", json(info)?),
            ("dg", digest(&token.digest)),
            (EXPIRES, number(info.expires.0)),
            (TableSpec::TTL, ttl_attribute(info.expires)),
        ];
        let expression = WriteExpression::when(WriteCondition::Any(vec![
            WriteCondition::absent("pk"),
            WriteCondition::present(REVOKED),
            WriteCondition::AtMost(EXPIRES.to_owned(), info.created.0),
        ]));
        self.table.put_once(item_at((key::token(&token_id(&info.name)), key::HEAD), attributes), expression).await
    }

    /// Revokes the token of a name. A repetition keeps the first time. Returns false if the name has no token.
    pub async fn revoke_token(&self, name: &str, at: Timestamp) -> StoreResult<bool> {
        let changes = [(REVOKED, SetIfAbsent(number(at.0))), (TableSpec::LIST, Remove)];
        let expression = WriteExpression::when(WriteCondition::present("pk")).with(changes);
        self.table.update_if((&key::token(&token_id(name)), key::HEAD), expression).await
    }

    /// Returns a session by the digest of its id, also one that has expired.
    pub async fn read_session(&self, digest: &str) -> StoreResult<Option<SessionItem>> {
        self.table.read(&key::session(digest), key::HEAD, |reader| reader.json("b")).await
    }

    /// Writes a session. The table removes it some time after its end.
    pub async fn put_session(&self, session: &SessionItem) -> StoreResult<()> {
        self.table.put(session_item(session)?).await
    }

    /// Replaces a session. Returns false, and writes nothing, if it was deleted.
    pub async fn renew_session(&self, session: &SessionItem) -> StoreResult<bool> {
        self.table.put_once(session_item(session)?, WriteExpression::when(WriteCondition::present("pk"))).await
    }

    /// Deletes a session if it exists.
    pub async fn delete_session(&self, digest: &str) -> StoreResult<()> {
        self.table.delete(&key::session(digest), key::HEAD).await
    }

    /// Returns the access token of a client of a connection, also one that has expired.
    pub async fn read_access_token(&self, (connection, client): (&str, &str)) -> StoreResult<Option<AccessTokenItem>> {
        self.table.read(&key::access_token(connection), client, read_access_token).await
    }

    /// Writes the access token of a client of a connection. With a time, it is a lease: it returns false, and writes nothing,
    /// if another lease ends after that time. The table removes the item some time after its end.
    pub async fn put_access_token(
        &self,
        (connection, client): (&str, &str),
        token: &AccessTokenItem,
        free_at: Option<Timestamp>,
    ) -> StoreResult<bool> {
        let end = token.expires.max(token.leased_until);
        let attributes = [
            ("b", json(token)?),
            (LEASED, number(token.leased_until.0)),
            (TableSpec::TTL, number(end.0.div_ceil(1000))),
        ];
        let free = free_at.map(|now| {
            WriteCondition::Any(vec![WriteCondition::absent("pk"), WriteCondition::AtMost(LEASED.to_owned(), now.0)])
        });
        let expression = free.map(WriteExpression::when).unwrap_or_default();
        self.table.put_once(item_at((key::access_token(connection), client), attributes), expression).await
    }
}
