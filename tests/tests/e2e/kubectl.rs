//! What there is in the cluster, and who may break it when.

use tokio::sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::prelude::*;

/// Who needs the cluster's servers, and who ends them.
static SERVERS: RwLock<()> = RwLock::const_new(());
/// A relay that `ebb` starts has one port, and one namespace of records.
static RELAY: Mutex<()> = Mutex::const_new(());

/// While this is held, the cluster's servers run.
pub(crate) async fn served() -> RwLockReadGuard<'static, ()> {
    SERVERS.read().await
}

/// While this is held, no other test needs the servers of the cluster.
pub(crate) async fn alone() -> RwLockWriteGuard<'static, ()> {
    SERVERS.write().await
}

/// While this is held, no other `ebb` has a relay.
pub(crate) async fn only_relay() -> MutexGuard<'static, ()> {
    RELAY.lock().await
}

/// What `kubectl get` lists; `None`: the API server does not answer.
pub(crate) fn list(cluster: &TestCluster, namespace: &str, kinds: &str) -> Option<Vec<Value>> {
    let said = cluster.run("kubectl", &["-n", namespace, "get", kinds, "-o", "json"], "").ok()?;
    let list: Value = serde_json::from_str(&said).unwrap();
    Some(list["items"].as_array().unwrap().clone())
}

/// What there is of units, by kind and name.
pub(crate) fn of_units(cluster: &TestCluster, namespace: &str) -> Option<Vec<String>> {
    let kinds = "jobs,pods,secrets,configmaps,deployments,replicasets,services";
    // Every namespace has it.
    let ours = |name: &String| !name.contains("kube-root-ca.crt");
    Some(list(cluster, namespace, kinds)?.iter().map(name).filter(ours).collect())
}

/// The records of a relay but for tombstones: what it still has to do, and what it still holds.
pub(crate) fn open_records(cluster: &TestCluster, namespace: &str) -> Option<Vec<String>> {
    let records = list(cluster, namespace, "secrets")?;
    let records = records.iter().filter(|record| !record["metadata"]["labels"]["ebb.dev/unit"].is_null());
    let open = records.filter(|record| {
        let is_tombstone = record["metadata"]["labels"]["ebb.dev/phase"] == "tombstone";
        !is_tombstone || !record["metadata"]["finalizers"].is_null()
    });
    Some(open.map(name).collect())
}

pub(crate) fn name(item: &Value) -> String {
    format!("{}/{}", item["kind"], item["metadata"]["name"]).replace('"', "")
}
