//! A relay that is installed in the cluster by its chart.

use tokio::sync::OnceCell;

use crate::cluster::{RELAY, relay_image};
use crate::prelude::*;

/// A release of the chart in its own namespaces.
pub(crate) struct InstalledRelay {
    pub(crate) cluster: &'static TestCluster,
    pub(crate) units: String,
    /// The namespace of the relay and its records.
    pub(crate) own: String,
    secret: WebhookSecret,
}

impl InstalledRelay {
    /// Installs a relay with further values for its chart. Waits until it is ready.
    pub(crate) async fn new(cluster: &'static TestCluster, title: &str, more: Value) -> Self {
        static IMAGE: OnceCell<()> = OnceCell::const_new();
        let build = || tokio::task::spawn_blocking(|| relay_image(program::relay(), RELAY));
        IMAGE.get_or_init(async || build().await.unwrap()).await;
        let units = format!("{title}-{:08x}", rand::random::<u32>());
        let own = format!("{units}-relay");
        for name in [&units, &own] {
            let labels = json!({"pod-security.kubernetes.io/enforce": "restricted"});
            let metadata = json!({"name": name, "labels": labels});
            let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata});
            cluster.run("kubectl", &["create", "--filename=-"], &namespace.to_string()).unwrap();
        }
        let installed =
            Self { cluster, units, own, secret: WebhookSecret::from_bytes(&rand::random::<[u8; 32]>()).unwrap() };
        let mut values = json!({
            "image": RELAY, "unitNamespace": installed.units, "callbackHosts": [cluster.host], "heartbeatSeconds": 1,
            "signing": {"secret": **installed.secret.reveal()},
        });
        values.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let (own, timeout) = (installed.own.clone(), "--timeout=110s");
        tokio::task::spawn_blocking(move || {
            let install = ["install", "ebb", "infra/relay/chart", "--values=-", "--wait", timeout, "--namespace", &own];
            cluster.run("helm", &install, &values.to_string()).unwrap();
        })
        .await
        .unwrap();
        installed
    }

    fn kubectl(&self, arguments: &[&str]) -> String {
        self.cluster.run("kubectl", arguments, "").unwrap()
    }

    /// Returns the configuration of clusters for the control plane, and the network of the relay.
    pub(crate) fn clusters(&self) -> (Value, String) {
        let address = self.kubectl(&["get", "service", "ebb-relay", "-n", &self.own, "-o=jsonpath={.spec.clusterIP}"]);
        let uid = self.kubectl(&["get", "namespace", "kube-system", "-o=jsonpath={.metadata.uid}"]);
        let clusters = json!({"default": {
            "url": format!("http://{address}:8080"), "secret": **self.secret.reveal(), "uid": uid,
            "entrypointImage": ENTRYPOINT,
        }});
        (clusters, format!("{address}/32"))
    }

    /// Waits until the cluster has no objects of units, and the relay has only tombstones.
    pub(crate) async fn wait_until_empty(&self) {
        until("the deletion of all objects", async || {
            let remaining = [unit_objects(self.cluster, &self.units)?, open_records(self.cluster, &self.own)?].concat();
            remaining.is_empty().then_some(())
        })
        .await;
    }

    /// Uninstalls the relay and deletes its namespaces.
    pub(crate) fn remove(self) {
        self.cluster.run("helm", &["uninstall", "ebb", "--namespace", &self.own], "").unwrap();
        self.kubectl(&["delete", "namespace", "--wait=false", &self.units, &self.own]);
    }
}

/// Prints the relay's log when a test fails.
impl Drop for InstalledRelay {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let logs = ["logs", "deployment/ebb-relay", "--tail=200", "-n", &self.own];
            println!("{}", self.cluster.run("kubectl", &logs, "").unwrap_or_else(|error| error));
        }
    }
}
