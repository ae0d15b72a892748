//! Clients of the cluster.

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use crate::cluster::{TestCluster, cluster};

/// A client of it. Each test has a runtime of its own, so each has a client of its own.
pub(crate) async fn client() -> Client {
    client_of(Kubeconfig::read_from(&cluster().await.kubeconfig).unwrap()).await
}

/// How a service account reaches it.
pub(crate) fn kubeconfig_of(cluster: &TestCluster, namespace: &str, account: &str) -> Kubeconfig {
    let mut kubeconfig = Kubeconfig::read_from(&cluster.kubeconfig).unwrap();
    let administrator = kubeconfig.auth_infos[0].auth_info.as_mut().unwrap();
    administrator.impersonate = Some(format!("system:serviceaccount:{namespace}:{account}"));
    kubeconfig
}

/// Returns a client with another identity.
pub(crate) async fn client_of(kubeconfig: Kubeconfig) -> Client {
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    Client::try_from(config).unwrap()
}
