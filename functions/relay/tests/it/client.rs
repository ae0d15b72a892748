//! Clients of the API server.

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use crate::cluster::{TestCluster, cluster};

/// Returns a client with the rights of the administrator. Each test has its own runtime and therefore its own client.
pub(crate) async fn client() -> Client {
    client_of(Kubeconfig::read_from(&cluster().await.kubeconfig).unwrap()).await
}

/// Returns a kubeconfig that acts as a service account.
pub(crate) fn kubeconfig_of(cluster: &TestCluster, namespace: &str, account: &str) -> Kubeconfig {
    let mut kubeconfig = Kubeconfig::read_from(&cluster.kubeconfig).unwrap();
    let administrator = kubeconfig.auth_infos[0].auth_info.as_mut().unwrap();
    administrator.impersonate = Some(format!("system:serviceaccount:{namespace}:{account}"));
    kubeconfig
}

/// Returns a client with the identity of a kubeconfig.
pub(crate) async fn client_of(kubeconfig: Kubeconfig) -> Client {
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    Client::try_from(config).unwrap()
}
