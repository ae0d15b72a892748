//! The examples in front of what this machine has to install first: a Kubernetes cluster, PostgreSQL, Podman, DynamoDB Local.
//! `cargo xtask verify cluster kills` does that; `cargo test` leaves these tests out.

#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod book;
#[path = "../../../functions/relay/tests/it/cluster.rs"]
mod cluster;
mod containers;
mod elsewhere;
mod example_service;
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
mod persistent_platform;
mod postgres;
mod postgres_in_a_cluster;
mod relays;
mod s3;
mod scene;
mod server;
mod victims;
mod wired;

use ebb_tests::{platform, program, receiver, workdir};

/// What most tests of a cluster use.
mod prelude {
    pub(crate) use std::time::{Duration, Instant};

    pub(crate) use base64::Engine;
    pub(crate) use base64::engine::general_purpose::STANDARD;
    pub(crate) use ebb_protocol::api::{TargetDetail, TargetState, UnitState};
    pub(crate) use ebb_protocol::sign::WebhookSecret;
    pub(crate) use ebb_tests::workdir::{CommandResult, DevProcess, WAIT_TIMEOUT, Workdir, example, until};
    pub(crate) use serde_json::{Value, json};

    pub(crate) use crate::cluster::{BUSYBOX, ENTRYPOINT, TestCluster, cluster, xtask};
    pub(crate) use crate::installed::InstalledRelay;
    pub(crate) use crate::kubectl::{alone, list, name, of_units, open_records, served};
    pub(crate) use crate::s3::value;
    pub(crate) use crate::{elsewhere, program};
}
