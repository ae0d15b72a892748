//! The shape of the table.

/// Names of keys and indexes. The deployment template must have the same.
pub struct TableSpec;

impl TableSpec {
    pub const PARTITION: &'static str = "pk";
    pub const SORT: &'static str = "sk";
    /// The index of due items, keys only.
    pub const DUE_INDEX: &'static str = "due-index";
    /// Its partition key, a number from 0 to 15.
    pub const DUE_SHARD: &'static str = "g";
    /// Its sort key, in milliseconds since 1970.
    pub const DUE: &'static str = "due";
    /// The index of targets, plugin versions, documents, tokens and rejected events by partition key, keys only.
    pub const LIST_INDEX: &'static str = "list-index";
    /// Its partition key: one of the lists below.
    pub const LIST: &'static str = "l";
    pub const LIST_TARGETS: &'static str = "t";
    pub const LIST_GONE: &'static str = "g";
    pub const LIST_PLUGINS: &'static str = "plugin";
    pub const LIST_SOURCES: &'static str = "source";
    pub const LIST_TOKENS: &'static str = "token";
    pub const LIST_CONNECTIONS: &'static str = "connection";
    pub const LIST_SUBSCRIPTIONS: &'static str = "subscription";
    /// Notifications that were given up.
    pub const LIST_UNDELIVERED: &'static str = "undelivered";
    /// Sources that list what exists at their senders.
    pub const LIST_WATCHED: &'static str = "watched";
    /// Rejected events of sources.
    pub const LIST_REJECTED: &'static str = "rejected";
    /// The expiry of an item, in seconds since 1970.
    pub const TTL: &'static str = "ttl";
}
