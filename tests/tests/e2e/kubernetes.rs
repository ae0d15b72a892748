//! The example of a page in a real cluster: pods, objects, a password that never leaves it, a control plane that is killed
//! with its relay, and a relay that is killed alone.

use std::path::Path;

use nix::sys::signal::{Signal, kill};
use nix::unistd::getpgid;

use crate::prelude::*;
use crate::workdir::is_relay;

const SANDBOX: &str = "page-pr-3";
const UNITS: &str = "ebb-units";
/// Where a relay keeps what it knows.
const RECORDS: &str = "ebb-relay";

/// The files below `folder` that hold `bytes`.
fn holding(folder: &Path, bytes: &[u8], found: &mut Vec<String>) {
    for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if path.is_dir() {
            holding(&path, bytes, found);
            continue;
        }
        // A file may be removed meanwhile.
        let text = std::fs::read(&path).unwrap_or_default();
        if text.windows(bytes.len()).any(|part| part == bytes) {
            found.push(path.display().to_string());
        }
    }
}

#[tokio::test]
async fn a_page_is_served_and_nothing_of_it_is_left() {
    let cluster = cluster().await;
    let place = elsewhere::in_cluster(cluster, UNITS).await;
    let busybox = format!("busybox={BUSYBOX}");
    let mut dev = place.dev().await;
    let before = of_units(cluster, UNITS).unwrap();
    place.ebb(&["plugin", "apply", "-f", &example("kubernetes/plugin.yaml"), "--set", &busybox]).await.done();
    let ran = place.ebb(&["sandbox", "apply", "-f", &example("kubernetes/sandbox.yaml")]).await.done();
    assert_eq!(value(&ran.stdout, "page.page"), r#""a page, 32 characters\n""#, "{ran:#?}");
    assert!(value(&ran.stdout, "page.url").starts_with("http://"), "{ran:#?}");
    let uid = place.get(SANDBOX).await.info.uid;

    let secrets = list(cluster, UNITS, "secrets").unwrap();
    let of_life = secrets.iter().filter(|secret| !before.contains(&name(secret)));
    let password = of_life.flat_map(|secret| secret["data"].as_object()).flat_map(|data| data.values()).next();
    let password = password.and_then(Value::as_str).expect("the password is there");
    let password = STANDARD.decode(password).unwrap();
    assert_eq!(password.len(), 32);
    let found = |bytes: &[u8]| {
        let mut found = Vec::new();
        holding(place.path(), bytes, &mut found);
        found
    };
    // What the page says is not sensitive, and would be found.
    assert_ne!(found(b"32 characters"), [""; 0]);
    assert_eq!(found(&password), [""; 0]);
    let log = place.ebb(&["logs", SANDBOX, "--unit", "visit"]).await.done();
    assert!(log.stdout.contains("a page, 32 characters"), "{log:#?}");
    let followed = place.ebb(&["logs", SANDBOX, "--unit", "visit", "--follow"]).await.done();
    assert_eq!(followed.stdout, log.stdout);

    let relay = dev.relay().expect("it runs");
    assert_eq!(getpgid(Some(relay)), Ok(relay), "Ctrl-C is not for it");
    place.ebb(&["sandbox", "delete", SANDBOX, "--wait=false"]).await.done();
    dev.kill().await;
    until("the end of its relay", async || (!is_relay(relay)).then_some(())).await;
    let there = of_units(cluster, UNITS).unwrap();
    assert!(there.iter().any(|name| name.starts_with("Deployment/")), "{there:?}");
    dev = place.dev_again().await;
    kill(dev.relay().expect("it runs"), Signal::SIGKILL).unwrap();
    until("the end of the sandbox", async || {
        let gone = place.outcomes(&uid).last().is_some_and(|kind| kind == "dev.ebb.target.gone.v1");
        (gone && of_units(cluster, UNITS)? == before).then_some(())
    })
    .await;
    let kept = list(cluster, RECORDS, "secrets").unwrap();
    let kept = kept.iter().filter_map(|record| record["data"].as_object());
    let result = kept
        .flat_map(|data| data.values())
        .filter_map(Value::as_str)
        .find(|text| STANDARD.decode(text).is_ok_and(|text| text.windows(password.len()).any(|part| part == password)));
    assert_eq!(result, None);
    let relay = dev.relay().expect("it runs again");
    dev.stop().await;
    assert!(!is_relay(relay));
}

/// The relay's message is shown, and no server is left.
#[tokio::test]
async fn a_cluster_that_cannot_be_asked() {
    let place = Workdir::new();
    let dev = "dev --port 0 --s3-port 0 --kubeconfig missing --advertise-address 127.0.0.1 --advertise-port 7882";
    let more = ["--entrypoint-image", ENTRYPOINT, "--relay", program::relay().to_str().unwrap()];
    let ran = place.ebb(&dev.split(' ').chain(more).collect::<Vec<_>>()).await;
    let why = "  caused by: the relay of the cluster does not start: failed to read kubeconfig from '\"missing\"': No such file";
    assert!(ran.stderr.contains(why), "{ran:#?}");
    assert_eq!(ran.code, Some(2));
}
