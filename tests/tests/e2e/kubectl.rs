//! Queries of the cluster, and locks for tests that stop its servers.

use tokio::sync::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::prelude::*;

/// Tests that need the servers of the cluster hold a read lock. Tests that stop them hold the write lock.
static SERVERS: RwLock<()> = RwLock::const_new(());
/// Held while `ebb` runs its relay, because these relays have the same port and namespace of records.
pub(crate) static RELAY: Mutex<()> = Mutex::const_new(());

/// Returns a shared lock of the cluster. Its servers run while the lock is held.
pub(crate) async fn shared_lock() -> RwLockReadGuard<'static, ()> {
    SERVERS.read().await
}

/// Returns the exclusive lock of the cluster. No other test uses its servers while the lock is held.
pub(crate) async fn exclusive_lock() -> RwLockWriteGuard<'static, ()> {
    SERVERS.write().await
}

/// Returns the objects that `kubectl get` lists, or `None` if the API server does not respond.
pub(crate) fn list(cluster: &TestCluster, namespace: &str, kinds: &str) -> Option<Vec<Value>> {
    let output = cluster.run("kubectl", &["-n", namespace, "get", kinds, "-o", "json"], "").ok()?;
    let list: Value = serde_json::from_str(&output).unwrap();
    Some(list["items"].as_array().unwrap().clone())
}

pub(crate) fn unit_objects(cluster: &TestCluster, namespace: &str) -> Option<Vec<String>> {
    let kinds = "jobs,pods,secrets,configmaps,deployments,replicasets,services";
    // Kubernetes creates this ConfigMap in every namespace.
    let is_created = |name: &String| !name.contains("kube-root-ca.crt");
    Some(list(cluster, namespace, kinds)?.iter().map(name).filter(is_created).collect())
}

/// Returns the records of a relay, except for tombstones without finalizers.
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
