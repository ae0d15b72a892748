//! The examples in front of what this machine has to install first: a Kubernetes cluster, PostgreSQL, Podman, DynamoDB Local.
//! `cargo xtask verify cluster kills` does that; `cargo test` leaves these tests out.

#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod book;
#[path = "../../../functions/relay/tests/it/cluster.rs"]
mod cluster;
mod containers;
mod elsewhere;
mod hard_ends;
mod installed;
mod k8s_apply;
mod kill;
mod kill_cluster;
mod kill_elsewhere;
mod kro;
mod kubectl;
mod kubernetes;
mod many_targets;
mod mixed;
mod platform;
mod postgres;
mod postgres_in_a_cluster;
mod receiver;
mod relays;
mod s3;
mod scene;
mod server;
mod victims;
mod webhooks;
mod wired;

use ebb_tests::{program, workdir};
