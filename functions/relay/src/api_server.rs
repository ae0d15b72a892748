//! Access to the API server: the client, kinds, watches, events, and caches of reads.
pub(crate) mod client;
pub(crate) mod discovery;
pub(crate) mod event_recorder;
pub(crate) mod namespace_cache;
