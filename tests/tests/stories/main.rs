//! The examples as a user runs them: the real program, real scripts, a real PostgreSQL and a real receiver of webhooks;
//! what happens when somebody presses Ctrl-C, and when the server is killed at any moment.

#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

#[path = "../../../functions/relay/tests/it/cluster.rs"]
mod cluster;
mod containers;
mod crowd;
mod hard_ends;
mod installed;
mod interrupt;
mod k8s_apply;
mod kill;
mod kill_cluster;
mod kro;
mod kubectl;
mod kubernetes;
mod logs;
mod mixed;
mod place;
mod platform;
mod postgres;
mod program;
mod receiver;
mod relays;
mod s3;
mod scene;
mod server;
mod victims;
mod webhooks;
mod wired;
