//! Access to the API server: the client, kinds, and caches of reads.
pub(crate) mod client;
pub(crate) mod discovery;
pub(crate) mod namespace_cache;
