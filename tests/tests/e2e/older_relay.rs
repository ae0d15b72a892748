//! A collection of InfraKit in a cluster, through a relay that is older than this kind of unit.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::cluster::{relay_image, root};
use crate::prelude::*;
use crate::stored_bytes::entries;

const RELAY: &str = "ebb.test/ebb-relay:older";
/// An image with the C library that the plugin needs.
const DEBIAN: &str = "ebb.test/debian:1";

/// Builds the relay of the commit in `infra/relay/compatible-since`, once per machine. Returns its program.
fn older_relay() -> PathBuf {
    let note = std::fs::read_to_string(root().join("infra/relay/compatible-since")).unwrap();
    let commit = note.split_whitespace().next().unwrap();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("relay-{commit}"));
    let (sources, target) = (folder.join("sources"), folder.join("target"));
    let program = target.join("debug/ebb-relay");
    if !program.exists() {
        std::fs::create_dir_all(&sources).unwrap();
        let mut archive = Command::new("git");
        archive.args(["archive", commit]).current_dir(root()).stdout(Stdio::piped());
        let mut archive = archive.spawn().unwrap();
        let unpack =
            Command::new("tar").args(["-x", "-C"]).arg(&sources).stdin(archive.stdout.take().unwrap()).status();
        assert!(archive.wait().unwrap().success() && unpack.unwrap().success(), "{commit} is not in this clone");
        let mut build = Command::new(std::env::var_os("CARGO").unwrap());
        build.args(["build", "--quiet", "-p", "ebb-relay"]).current_dir(&sources).env("CARGO_TARGET_DIR", &target);
        assert!(build.env("CARGO_PROFILE_DEV_DEBUG", "false").status().unwrap().success());
    }
    program
}

/// Starts the plugin as a Service. It keeps its state in `made`.
fn start_plugin(cluster: &TestCluster, namespace: &str, made: &Path) {
    let (plugin, made) = (env!("CARGO_BIN_EXE_infrakit-plugin"), made.to_str().unwrap());
    let objects =
        include_str!("documents/infrakit-service.yaml").replace("NAMESPACE", namespace).replace("IMAGE", DEBIAN);
    let objects = objects.replace("PLUGIN", plugin).replace("MADE", made);
    cluster.run("kubectl", &["apply", "--filename=-"], &objects).unwrap();
    let wait = ["wait", "--for=condition=Ready", "pod/files", "--timeout=60s", "--namespace", namespace];
    cluster.run("kubectl", &wait, "").unwrap();
}

#[tokio::test]
async fn a_collection_through_an_older_relay() {
    let (_lock, cluster) = (shared_lock().await, cluster().await);
    tokio::task::spawn_blocking(|| relay_image(&older_relay(), RELAY)).await.unwrap();
    let namespace = format!("plugins-{:08x}", rand::random::<u32>());
    let services = json!({"files": {"namespace": namespace, "name": "files", "port": 8080}});
    let workdir = Workdir::new();
    let made = workdir.path().join("made");
    start_plugin(cluster, &namespace, &made);
    let values = json!({"image": RELAY, "replicas": 1, "policy": {"services": services}});
    let relay = InstalledRelay::new(cluster, "infrakit", values).await;
    let workdir = workdir_setup::with_relay(&relay);
    let dev = workdir.dev().await;

    workdir.ebb(&["apply", "-f", &example("infrakit/infrakit.yaml")]).await.done();
    let [network, volume, instance] = ["network", "volume", "instance"].map(|name| entries(&made.join(name)));
    assert_eq!([network.len(), volume.len(), instance.len()], [1, 1, 1]);
    let mut used = entries(&made.join("instance").join(&instance[0]).join("uses"));
    used.sort();
    assert_eq!(used, [network[0].clone(), volume[0].clone()]);

    workdir.ebb(&["delete", "sandbox", "shop"]).await.done();
    assert!(["network", "volume", "instance"].iter().all(|name| entries(&made.join(name)).is_empty()));
    relay.wait_until_empty().await;
    dev.stop().await;
    relay.remove();
    cluster.run("kubectl", &["delete", "namespace", "--wait=false", &namespace], "").unwrap();
}
