//! The relay of a control plane to which no cluster is connected.

use std::time::Duration;

use async_trait::async_trait;
use ebb_wire::relay::{Ensure, WorkName, WorkState};

use crate::ports::{Relay, RelayError};

/// Refuses everything: plans of webhook units alone need no cluster.
pub(crate) struct Unconnected;

fn refused(cluster: Option<&str>) -> RelayError {
    let cluster = cluster.unwrap_or("default");
    RelayError::Refused(format!("no relay is connected for cluster {cluster:?}"))
}

#[async_trait]
impl Relay for Unconnected {
    async fn ensure(&self, cluster: Option<&str>, _: Ensure) -> Result<WorkState, RelayError> {
        Err(refused(cluster))
    }

    async fn cancel(
        &self,
        cluster: Option<&str>,
        _: &WorkName,
        _: Duration,
    ) -> Result<WorkState, RelayError> {
        Err(refused(cluster))
    }

    async fn get(&self, cluster: Option<&str>, _: &WorkName) -> Result<WorkState, RelayError> {
        Err(refused(cluster))
    }

    async fn acknowledge(&self, cluster: Option<&str>, _: &WorkName) -> Result<(), RelayError> {
        Err(refused(cluster))
    }
}
