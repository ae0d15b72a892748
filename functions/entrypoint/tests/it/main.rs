//! The entrypoint that is shipped, with real scripts, processes, mounts and sockets. Some tests need root, as the entrypoint of a
//! pod has it: they make PID namespaces and roots of their own.

#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod ends;
mod fixture;
mod images;
mod outputs;
mod relay;
mod server;
mod signals;
mod values;
