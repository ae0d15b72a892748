//! Lists clusters, with information from all relays at the same time.

use std::collections::BTreeMap;

use ebb_protocol::api::{ClusterInfo, ClusterList, RelayOutage, TransportKind};
use ebb_protocol::limits;
use ebb_protocol::listing::ReportedPolicy;
use ebb_protocol::time::rfc3339;
use ebb_store::RelayOutages;

use ebb_flow::env::Env;
use ebb_flow::error::FlowError;
use ebb_flow::ports::{ConnectedCluster, RelayError};

/// Lists the connected clusters. A cluster whose relay does not respond in time has an error.
pub async fn list(env: &Env, store: &dyn RelayOutages) -> Result<ClusterList, FlowError> {
    let requests = env.relay.clusters().into_iter().map(|cluster| about(env, cluster));
    let mut clusters = futures::future::join_all(requests).await;
    clusters.sort_by(|one, other| one.name.cmp(&other.name));
    let mut outages = match clusters.is_empty() {
        true => BTreeMap::new(),
        false => outages(store).await?,
    };
    for cluster in &mut clusters {
        cluster.outage = outages.remove(&cluster.name);
    }
    Ok(ClusterList { clusters })
}

/// Returns the recorded outages by cluster, without the units that wait.
pub(crate) async fn outages(store: &dyn RelayOutages) -> Result<BTreeMap<String, RelayOutage>, FlowError> {
    let outages = store.read_outages().await?.into_iter().map(|(cluster, outage)| {
        let since = rfc3339(outage.since);
        (cluster.clone(), RelayOutage { cluster, since, reason: outage.reason, units: Vec::new() })
    });
    Ok(outages.collect())
}

pub(super) async fn about(env: &Env, cluster: ConnectedCluster) -> ClusterInfo {
    let ConnectedCluster { name, polls, uid } = cluster;
    let transport = if polls { TransportKind::Pull } else { TransportKind::Push };
    let info = ClusterInfo {
        name,
        transport,
        uid,
        version: None,
        up_seconds: None,
        tasks: None,
        policy: None,
        error: None,
        outage: None,
    };
    match env.relay.about(&info.name).await {
        Ok((about, reported)) => ClusterInfo {
            uid: Some(limits::message(&reported)),
            version: Some(limits::message(&about.version)),
            up_seconds: Some(about.up_ms / 1000),
            tasks: Some(about.tasks),
            policy: about.policy.map(ReportedPolicy::fit),
            ..info
        },
        Err(RelayError::Refused(reason)) => ClusterInfo { error: Some(reason), ..info },
        Err(error) => ClusterInfo { error: Some(error.to_string()), ..info },
    }
}
