//! The entrypoint that is shipped, with real scripts, processes, mounts and sockets. Some tests need root: they create PID
//! namespaces and roots.

#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod ends;
mod fixture;
mod images;
mod outputs;
mod relay;
mod server;
mod signals;
mod values;
