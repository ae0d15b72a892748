//! Clusters as people see them: each relay is asked what it is, all at once.

use std::collections::BTreeMap;

use ebb_protocol::api::{ClusterInfo, ClusterList, RelayOutage, TransportKind};
use ebb_protocol::time::rfc3339;
use ebb_store::RelayOutages;

use crate::env::Env;
use crate::error::FlowError;
use crate::ports::{ConnectedCluster, RelayError};

/// The clusters that are connected. One whose relay does not answer within its few seconds says why.
///
/// # Errors
/// The store's.
pub async fn list(env: &Env, store: &dyn RelayOutages) -> Result<ClusterList, FlowError> {
    let asked = env.relay.clusters().into_iter().map(|cluster| about(env, cluster));
    let mut clusters = futures::future::join_all(asked).await;
    clusters.sort_by(|one, other| one.name.cmp(&other.name));
    let mut silences = match clusters.is_empty() {
        true => BTreeMap::new(),
        false => store.read_outages().await?,
    };
    for cluster in &mut clusters {
        cluster.outage = silences.remove(&cluster.name).map(|noted| RelayOutage {
            cluster: cluster.name.clone(),
            since: rfc3339(noted.since),
            reason: noted.reason,
            units: Vec::new(),
        });
    }
    Ok(ClusterList { clusters })
}

pub(super) async fn about(env: &Env, cluster: ConnectedCluster) -> ClusterInfo {
    let ConnectedCluster { name, polls, uid } = cluster;
    let way = if polls { TransportKind::Pull } else { TransportKind::Push };
    match env.relay.about(&name).await {
        Ok((about, said)) => ClusterInfo {
            name,
            transport: way,
            uid: Some(ebb_protocol::limits::message(&said)),
            version: Some(ebb_protocol::limits::message(&about.version)),
            up_seconds: Some(about.up_ms / 1000),
            tasks: Some(about.tasks),
            error: None,
            outage: None,
        },
        Err(error) => ClusterInfo {
            name,
            transport: way,
            uid,
            version: None,
            up_seconds: None,
            tasks: None,
            error: Some(match error {
                RelayError::Refused(why) => why,
                error @ (RelayError::Unreachable(_) | RelayError::Busy(_)) => error.to_string(),
            }),
            outage: None,
        },
    }
}
