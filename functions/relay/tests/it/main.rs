//! Tests of the relay program with a Kubernetes cluster (`cargo xtask cluster`) and the entrypoint in its pods.

#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod bind;
mod callback_receiver;
mod cancel;
mod cluster;
mod escalations;
mod fair_queue;
mod fixture;
mod installed;
mod jobs;
mod kind_versions;
mod list_and_delete;
mod objects;
mod reasons;
#[path = "../../../../tests/src/receiver.rs"]
#[allow(dead_code, unreachable_pub, reason = "the library of the tests exports it")]
mod receiver;
mod relay_crash;
mod release;
mod request_bodies;
mod requests;
mod retries;
mod rights;
mod rolling_upgrade;
mod services;
mod two_relays;
mod unresponsive_servers;
mod visible_tasks;
#[path = "../../../../tests/src/wait.rs"]
#[allow(dead_code, unreachable_pub, reason = "the library of the tests exports it")]
mod wait;
