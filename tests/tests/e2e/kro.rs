//! The example `kro`: objects of a kind that the controller kro defines.

use crate::prelude::*;

#[tokio::test]
async fn objects_of_a_controller_are_created_and_deleted() {
    let (_lock, cluster) = (shared_lock().await, cluster().await);
    let definition = example("kro/definition.yaml");
    cluster.run("kubectl", &["apply", "--filename", &definition], "").unwrap();
    let kinds = ["ConfigMap", "Deployment.apps", "Greeting.kro.run"];
    let relay = InstalledRelay::new(cluster, "kro", json!({"policy": {"kinds": kinds}})).await;
    until("the kind of kro", async || list(cluster, &relay.units, "greetings.kro.run")).await;
    let workdir = workdir_setup::with_relay(&relay);
    let dev = workdir.dev().await;
    let busybox = format!("busybox={BUSYBOX}");
    let files = [example("kro/plugin.yaml"), example("kro/sandbox.yaml")];
    let result = workdir.ebb(&["apply", "-f", &files[0], &files[1], "--set", &busybox]).await.done();
    let instance = list(cluster, &relay.units, "greetings.kro.run").unwrap().remove(0);
    assert_eq!(value(&result.stdout, "greeting.address"), instance["status"]["address"].as_str().unwrap());
    assert_eq!(value(&result.stdout, "greeting.replicas"), "1");
    assert_eq!(instance["status"]["state"], "ACTIVE");
    assert_ne!(instance["metadata"]["finalizers"], json!(null), "kro has no finalizer: {instance}");

    workdir.ebb(&["delete", "sandbox", "greeting-pr-8"]).await.done();
    // kro has deleted its objects before the deletion of the instance ended.
    assert_eq!(list(cluster, &relay.units, "greetings.kro.run,deployments,services,configmaps").unwrap().len(), 1);
    relay.wait_until_empty().await;
    dev.stop().await;
    relay.remove();
    cluster.run("kubectl", &["delete", "--filename", &definition], "").unwrap();
}
