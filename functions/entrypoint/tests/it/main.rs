//! Tests of the released entrypoint with scripts, processes, mounts and sockets. Some tests need root, because they create
//! PID namespaces and mounts.

#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod fixture;
mod images;
mod inputs;
mod outputs;
#[path = "../../../../tests/src/program.rs"]
#[allow(dead_code, unreachable_pub, reason = "the library of the tests exports it and uses the rest")]
mod program;
mod report_sink;
mod reports;
mod signals;
mod start_and_exit;
