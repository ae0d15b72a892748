//! The example `kubernetes` in a cluster: pods, objects, a password that stays in the cluster, and kills of the control
//! plane and of its relay.

use nix::sys::signal::{Signal, kill};
use nix::unistd::getpgid;

use crate::prelude::*;
use crate::workdir::is_relay;

const SANDBOX: &str = "page-pr-3";
const UNITS: &str = "ebb-units";
/// The namespace of the relay's records.
const RECORDS: &str = "ebb-relay";

#[tokio::test]
async fn the_example_outlives_its_servers_and_leaves_no_object() {
    let cluster = cluster().await;
    let workdir = workdir_setup::in_cluster(cluster, UNITS).await;
    let busybox = format!("busybox={BUSYBOX}");
    let mut dev = workdir.dev().await;
    let before = unit_objects(cluster, UNITS).unwrap();
    let files = [example("kubernetes/plugin.yaml"), example("kubernetes/sandbox.yaml")];
    let result = workdir.ebb(&["apply", "-f", &files[0], &files[1], "--set", &busybox]).await.done();
    assert_eq!(value(&result.stdout, "page.page"), r#""a page, 32 characters\n""#, "{result:#?}");
    assert!(value(&result.stdout, "page.url").starts_with("http://"), "{result:#?}");
    let uid = workdir.get(SANDBOX).await.info.uid;

    let secrets = list(cluster, UNITS, "secrets").unwrap();
    let of_instance = secrets.iter().filter(|secret| !before.contains(&name(secret)));
    let password = of_instance.flat_map(|secret| secret["data"].as_object()).flat_map(|data| data.values()).next();
    let password = password.and_then(Value::as_str).expect("a Secret with the password");
    let password = STANDARD.decode(password).unwrap();
    assert_eq!(password.len(), 32);
    let log = workdir.ebb(&["logs", SANDBOX, "--unit", "visit"]).await.done();
    assert!(log.stdout.contains("a page, 32 characters"), "{log:#?}");

    let relay = dev.relay().expect("the relay runs");
    assert_eq!(getpgid(Some(relay)), Ok(relay), "an interrupt must not reach the relay");
    workdir.ebb(&["delete", "sandbox", SANDBOX, "--wait=false"]).await.done();
    dev.kill().await;
    until("the end of the relay", async || (!is_relay(relay)).then_some(())).await;
    let remaining = unit_objects(cluster, UNITS).unwrap();
    assert!(remaining.iter().any(|name| name.starts_with("Deployment/")), "{remaining:?}");
    dev = workdir.dev_again().await;
    kill(dev.relay().expect("the relay runs"), Signal::SIGKILL).unwrap();
    until("the end of the sandbox", async || {
        let gone = workdir.outcomes(&uid).last().is_some_and(|kind| kind == "dev.ebb.target.gone.v1");
        (gone && unit_objects(cluster, UNITS)? == before).then_some(())
    })
    .await;
    let records = list(cluster, RECORDS, "secrets").unwrap();
    let data = records.iter().filter_map(|record| record["data"].as_object());
    let leaked = data
        .flat_map(|data| data.values())
        .filter_map(Value::as_str)
        .find(|text| STANDARD.decode(text).is_ok_and(|text| contains(&text, &password)));
    assert_eq!(leaked, None);
    let relay = dev.relay().expect("the relay runs again");
    dev.stop().await;
    assert!(!is_relay(relay));
}

/// `ebb dev` prints the relay's error and ends.
#[tokio::test]
async fn a_missing_kubeconfig_is_reported() {
    let workdir = Workdir::new();
    let dev = "dev --port 0 --s3-port 0 --kubeconfig missing --advertise-address 127.0.0.1 --advertise-port 7882";
    let more = ["--entrypoint-image", ENTRYPOINT, "--relay", program::relay().to_str().unwrap()];
    let result = workdir.ebb(&dev.split(' ').chain(more).collect::<Vec<_>>()).await;
    let message = "  caused by: the relay of the cluster does not start: failed to read kubeconfig from '\"missing\"': No such file";
    assert!(result.stderr.contains(message), "{result:#?}");
    assert_eq!(result.code, Some(2));
}

/// `ebb unit run` in a cluster prints the same as on this machine, and leaves nothing.
#[tokio::test]
async fn a_single_unit() {
    let cluster = cluster().await;
    let workdir = workdir_setup::in_cluster(cluster, UNITS).await;
    let left = || [unit_objects(cluster, UNITS).unwrap(), open_records(cluster, RECORDS).unwrap()].concat();
    let before = left();
    let plugin = include_str!("documents/hello.yaml").replace("IMAGE", BUSYBOX);
    let plugin = workdir.write("hello.yaml", &crate::platform::named("Plugin", "hello@1.0.0", &plugin));
    let greet = ["unit", "run", &plugin, "greet", "--input", "name=you"];
    let result = workdir.ebb_there(&greet).await.done();
    assert_eq!((&*result.stdout, &*result.stderr), ("greeting = hello you\n", "greets\n"));
    let failed = workdir.ebb_there(&[&greet[..], &["--input", "code=3"]].concat()).await;
    assert_eq!(failed.code, Some(1), "{failed:#?}");
    // The log of a pod contains both streams, in any order.
    assert!(failed.stderr.lines().any(|line| line == "greets") && failed.stderr.contains("(exit)"), "{failed:#?}");
    assert_eq!(left(), before);
}
