//! End-to-end tests of the examples with a Kubernetes cluster, PostgreSQL, Podman, DynamoDB Local and OpenTofu.
//! `cargo xtask verify cluster kills scripts opentofu docs` installs these and runs the tests. `cargo test` does not.

#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod book;
#[path = "../../../functions/relay/tests/it/cluster.rs"]
mod cluster;
mod connected_relay;
mod containers;
mod example_service;
mod installed_relay;
mod kill;
mod kill_cluster;
mod kill_databases;
mod kro;
mod kubectl;
mod kubernetes;
mod measurements;
mod mixed;
mod older_relay;
mod opentofu;
mod outputs;
mod persistent_platform;
mod postgres;
mod postgres_server;
mod relays;
mod signadot;
mod stand_ins;
mod workdir_setup;

use ebb_tests::{api_client, platform, program, receiver, stored_bytes, workdir};

/// Imports of most tests with a cluster.
mod prelude {
    pub(crate) use std::time::{Duration, Instant};

    pub(crate) use base64::Engine;
    pub(crate) use base64::engine::general_purpose::STANDARD;
    pub(crate) use ebb_protocol::api::{TargetDetail, TargetPhase, UnitState};
    pub(crate) use ebb_protocol::sign::WebhookSecret;
    pub(crate) use ebb_tests::stored_bytes::{contains, files};
    pub(crate) use ebb_tests::workdir::{
        CommandResult, DevProcess, WAIT_TIMEOUT, Workdir, example, shared_folder, until,
    };
    pub(crate) use serde_json::{Value, json};

    pub(crate) use crate::cluster::{BUSYBOX, ENTRYPOINT, TestCluster, cluster, xtask};
    pub(crate) use crate::installed_relay::InstalledRelay;
    pub(crate) use crate::kubectl::{exclusive_lock, list, name, open_records, shared_lock, unit_objects};
    pub(crate) use crate::outputs::{output, value};
    pub(crate) use crate::{program, workdir_setup};
}
