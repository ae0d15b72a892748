//! Clusters as people see them: each relay is asked what it is, all at once.

use ebb_wire::api::{ClusterInfo, ClusterList, Way};

use crate::env::Env;
use crate::ports::{Connected, RelayError};

/// The clusters that are connected. One whose relay does not answer within its few seconds says why.
pub async fn list(env: &Env) -> ClusterList {
    let asked = env.relay.clusters().into_iter().map(|cluster| about(env, cluster));
    let mut clusters = futures::future::join_all(asked).await;
    clusters.sort_by(|one, other| one.name.cmp(&other.name));
    ClusterList { clusters }
}

async fn about(env: &Env, cluster: Connected) -> ClusterInfo {
    let Connected { name, polls, uid } = cluster;
    let way = if polls { Way::Pull } else { Way::Push };
    match env.relay.about(&name).await {
        Ok((about, said)) => ClusterInfo {
            name,
            way,
            uid: Some(ebb_wire::limits::message(&said)),
            version: Some(ebb_wire::limits::message(&about.version)),
            up_seconds: Some(about.up_ms / 1000),
            works: Some(about.works),
            trouble: None,
        },
        Err(error) => ClusterInfo {
            name,
            way,
            uid,
            version: None,
            up_seconds: None,
            works: None,
            trouble: Some(match error {
                RelayError::Refused(why) => why,
                error @ RelayError::Unreachable(_) => error.to_string(),
            }),
        },
    }
}
