//! Working directories whose servers run units in a cluster or in containers.

use crate::containers::PodmanEngine;
use crate::kubectl;
use crate::prelude::*;

/// Returns a working directory whose server starts a relay. Units run in a namespace of a cluster.
pub(crate) async fn in_cluster(cluster: &TestCluster, units: &str) -> Workdir {
    let kubeconfig = cluster.kubeconfig.to_str().unwrap();
    let arguments =
        ["--kubeconfig", kubeconfig, "--advertise-address", &cluster.host, "--entrypoint-image", ENTRYPOINT];
    // Builds the relay next to `ebb`, which starts it.
    program::relay();
    // All tests take the locks in this order.
    let locks = (kubectl::shared_lock().await, kubectl::RELAY.lock().await);
    Workdir::with(&arguments).and(&["--unit-namespace", units]).holding(locks)
}

/// Returns a working directory whose units run by an installed relay. The caller holds the lock of the cluster.
pub(crate) fn with_relay(relay: &InstalledRelay) -> Workdir {
    let workdir = Workdir::new();
    let (clusters, network) = relay.clusters();
    let clusters = workdir.write("clusters.json", &clusters.to_string());
    let arguments = ["--clusters", &clusters, "--relay-networks", &network, "--listen", &relay.cluster.host];
    workdir.and(&arguments)
}

/// Returns a working directory whose scripts run in containers of an engine.
pub(crate) fn with_containers(engine: &PodmanEngine) -> Workdir {
    let entrypoint = program::entrypoint().to_str().unwrap();
    Workdir::with(&["--pods", "podman", "--entrypoint", entrypoint]).with_env(&engine.variables())
}
