//! The example with a database, whose steps are Jobs.

use crate::prelude::*;
use crate::server::{PostgresServer, SANDBOX, USER};

/// The same documents in a real cluster: each step is a Job, in the namespace and of the image that the plugin names.
#[tokio::test]
async fn in_a_cluster() {
    let cluster = cluster().await;
    // Debian with psql, by the name that the documents have for such an image.
    xtask(&["cluster", "tag", "ebb.test/debian:1", "docker.io/library/postgres:17-alpine"]);
    let place = elsewhere::in_cluster(cluster, "signadot").await;
    let (server, dev) = (PostgresServer::start_at(&cluster.host).await, place.dev().await);
    let before = of_units(cluster, "signadot").unwrap();
    place.ebb(&["plugin", "apply", "-f", &example("postgres/plugin.yaml")]).await.done();
    let sets = [("host", &*server.host), ("port", &server.port.to_string()), ("user", USER)];
    let sets = sets.map(|(name, value)| format!("--set={name}={value}"));
    let sandbox = example("postgres/sandbox.yaml");
    let apply = ["sandbox", "apply", "-f", &sandbox].into_iter().chain(sets.iter().map(String::as_str));
    let ran = place.ebb(&apply.collect::<Vec<_>>()).await.done();
    let database = value(&ran.stdout, "db.provision.dbname");
    server.holds_the_seed(database);
    let url = format!("postgresql://{USER}@{}:{}/{database}", server.host, server.port);
    let got = place.ebb(&["sandbox", "get", SANDBOX]).await.done();
    assert_eq!(value(&got.stdout, "db.provision.url"), url);
    assert_eq!(value(&got.stdout, "db.seed.rows"), "3");
    let notifications = std::fs::read_to_string(place.state().join("notifications.jsonl")).unwrap();
    assert!(notifications.contains(&url), "the platform gets what the fork needs: {notifications}");
    let log = place.ebb(&["logs", SANDBOX, "--unit", "provision"]).await.done();
    assert!(log.stdout.contains(&format!("created {database}")), "{log:#?}");

    place.ebb(&["sandbox", "delete", SANDBOX]).await.done();
    assert_eq!(server.databases(), [""; 0]);
    until("nothing to be left", async || {
        (of_units(cluster, "signadot")? == before && open_records(cluster, "ebb-relay")?.is_empty()).then_some(())
    })
    .await;
    dev.stop().await;
}
