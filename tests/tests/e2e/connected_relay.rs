//! A relay that `ebb cluster connect` installs in the cluster with helm.

use std::path::PathBuf;

use crate::cluster::{RELAY, relay_image};
use crate::prelude::*;

/// A later command starts from what the operator has set with helm. The policy is in force when the command ends.
#[tokio::test]
async fn a_connected_cluster_keeps_what_helm_has_set() {
    let (_lock, cluster) = (shared_lock().await, cluster().await);
    tokio::task::spawn_blocking(|| relay_image(program::relay(), RELAY)).await.unwrap();
    let units = format!("connect-{:08x}", rand::random::<u32>());
    let own = format!("{units}-relay");
    let path = format!("{}:{}", cluster.programs.display(), std::env::var("PATH").unwrap());
    let variables = [("PATH", PathBuf::from(path)), ("KUBECONFIG", cluster.kubeconfig.clone())];
    let workdir = Workdir::with(&["--clusters", "--listen", &cluster.host]).with_env(&variables);
    let dev = workdir.dev().await;
    let connect = async |more: &[&str]| workdir.ebb(&[&["cluster", "connect", "default"], more].concat()).await.done();
    let policy = async || {
        let detail = workdir.ebb(&["cluster", "get", "default", "-o", "json"]).await.done().json::<Value>();
        detail["policy"].clone()
    };
    let images = ["--image", RELAY, "--entrypoint-image", ENTRYPOINT];
    let namespaces = ["--relay-namespace", &*own, "--unit-namespace", &*units];

    let printed = connect(&[&images[..], &namespaces].concat()).await.stdout;
    assert!(printed.contains("helm upgrade --install ebb-relay ebb-relay-default/chart-"), "{printed}");
    connect(&[&images[..], &namespaces, &["--apply"]].concat()).await;
    assert_eq!(policy().await["kinds"], json!(["Job.batch"]));

    let helm =
        |arguments: &[&str], input: &str| cluster.run("helm", &[arguments, &["--namespace", &own]].concat(), input);
    let values = helm(&["get", "values", "ebb-relay", "--output=json"], "").unwrap();
    let mut values: Value = serde_json::from_str(&values).unwrap();
    values["policy"] = json!({"clusterKinds": ["Namespace"], "priorityClasses": ["low"]});
    let upgrade = ["upgrade", "ebb-relay", "infra/relay/chart", "--values=-", "--wait", "--timeout=110s"];
    helm(&upgrade, &values.to_string()).unwrap();
    // The relay with the former policy may be about to end.
    let is_in_force = async || (policy().await["clusterKinds"] == json!(["Namespace"])).then_some(());
    until("the policy of the values", is_in_force).await;

    let changed = connect(&["--kind", "ConfigMap", "--apply"]).await.stderr;
    assert!(changed.contains("+ kinds: ConfigMap") && !changed.contains("\n- "), "{changed}");
    let in_force = policy().await;
    assert_eq!(in_force["kinds"], json!(["ConfigMap", "Job.batch"]));
    assert_eq!((&in_force["clusterKinds"], &in_force["priorityClasses"]), (&json!(["Namespace"]), &json!(["low"])));

    // Another token replaces the secret of the relay, and nothing else.
    workdir.ebb(&["cluster", "rotate", "default", "--apply"]).await.done();
    assert_eq!(policy().await, in_force);

    let removal = workdir.ebb(&["cluster", "disconnect", "default"]).await.done().stdout;
    assert!(removal.contains(&format!("helm uninstall ebb-relay --namespace {own}")), "{removal}");
    helm(&["uninstall", "ebb-relay", "--wait"], "").unwrap();
    dev.stop().await;
    cluster.run("kubectl", &["delete", "namespace", "--wait=false", &units, &own], "").unwrap();
}
