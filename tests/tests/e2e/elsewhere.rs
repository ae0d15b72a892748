//! Places whose units run in a cluster or in containers.

use crate::containers::PodmanEngine;
use crate::kubectl;
use crate::prelude::*;

/// One whose units run in this namespace of a cluster, by a relay of its own.
pub(crate) async fn in_cluster(cluster: &TestCluster, units: &str) -> Workdir {
    let kubeconfig = cluster.kubeconfig.to_str().unwrap();
    let there = ["--kubeconfig", kubeconfig, "--advertise-address", &cluster.host, "--entrypoint-image", ENTRYPOINT];
    // `ebb` finds it beside itself.
    program::relay();
    // In this order everywhere.
    let turns = (kubectl::served().await, kubectl::only_relay().await);
    Workdir::with(&there).and(&["--unit-namespace", units]).holding(turns)
}

/// One whose units run by a relay that is installed in a cluster. Who has it sees to its turns.
pub(crate) fn by(relay: &InstalledRelay) -> Workdir {
    let place = Workdir::new();
    let (clusters, network) = relay.clusters();
    let clusters = place.write("clusters.json", &clusters.to_string());
    let there = ["--clusters", &clusters, "--relay-networks", &network, "--listen", &relay.cluster.host];
    place.and(&there)
}

/// One whose scripts are containers of an engine.
pub(crate) fn with_containers(engine: &PodmanEngine) -> Workdir {
    let entrypoint = program::entrypoint().to_str().unwrap();
    Workdir::with(&["--pods", "podman", "--entrypoint", entrypoint]).with_env(&engine.variables())
}
