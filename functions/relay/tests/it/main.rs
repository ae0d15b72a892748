//! The relay as it is shipped, in front of a real Kubernetes (`cargo xtask cluster`), with the real entrypoint in its pods.

#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod attached;
mod bodies;
mod callback_receiver;
mod cancels;
mod client;
mod cluster;
mod doors;
mod escalations;
mod fair_queue;
mod fixture;
mod hangs;
mod heavy;
mod installed;
mod jobs;
mod killed;
mod listed;
mod memory;
mod merges;
mod objects;
mod reasons;
#[path = "../../../../tests/src/receiver.rs"]
#[allow(dead_code, unreachable_pub, reason = "the library of the tests exports it")]
mod receiver;
mod released;
mod requests;
mod rights;
mod twins;
mod versions;
#[path = "../../../../tests/src/wait.rs"]
#[allow(dead_code, unreachable_pub, reason = "the library of the tests exports it")]
mod wait;
