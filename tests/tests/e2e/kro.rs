//! Objects of a foreign controller: kro, with a kind of its own.

use crate::prelude::*;

const SANDBOX: &str = "greeting-pr-8";

#[tokio::test]
async fn a_controller_makes_and_takes_away() {
    let (_served, cluster) = (served().await, cluster().await);
    let definition = example("kro/definition.yaml");
    cluster.run("kubectl", &["apply", "--filename", &definition], "").unwrap();
    let kinds = ["ConfigMap", "Deployment.apps", "Greeting.kro.run"];
    let relay = InstalledRelay::new(cluster, "kro", json!({"policy": {"kinds": kinds}})).await;
    until("the kind of kro", async || list(cluster, &relay.units, "greetings.kro.run")).await;
    let place = elsewhere::by(&relay);
    let dev = place.dev().await;
    let busybox = format!("busybox={BUSYBOX}");
    place.ebb(&["plugin", "apply", "-f", &example("kro/plugin.yaml"), "--set", &busybox]).await.done();
    let ran = place.ebb(&["sandbox", "apply", "-f", &example("kro/sandbox.yaml")]).await.done();
    let instance = list(cluster, &relay.units, "greetings.kro.run").unwrap().remove(0);
    assert_eq!(value(&ran.stdout, "greeting.address"), instance["status"]["address"].as_str().unwrap());
    assert_eq!(value(&ran.stdout, "greeting.replicas"), "1");
    assert_eq!(instance["status"]["state"], "ACTIVE");
    assert_ne!(instance["metadata"]["finalizers"], json!(null), "kro has to let it go: {instance}");

    place.ebb(&["sandbox", "delete", SANDBOX]).await.done();
    // What kro made of it went before it was gone.
    assert_eq!(list(cluster, &relay.units, "greetings.kro.run,deployments,services,configmaps").unwrap().len(), 1);
    relay.nothing_left().await;
    dev.stop().await;
    relay.remove();
    cluster.run("kubectl", &["delete", "--filename", &definition], "").unwrap();
}
