//! The example `postgres` in a cluster.

use crate::postgres_life;
use crate::postgres_server::{PostgresServer, SANDBOX, USER};
use crate::prelude::*;

/// Returns a server and a working directory whose units are Jobs. The documents use an image with `psql`.
async fn set_up(cluster: &TestCluster) -> (PostgresServer, Workdir) {
    xtask(&["cluster", "tag", "ebb.test/debian:1", "docker.io/library/postgres:17-alpine"]);
    let workdir = workdir_setup::in_cluster(cluster, "signadot").await;
    (PostgresServer::start_at(&cluster.host).await, workdir)
}

/// Waits until the namespace has the same objects as before and no task is open.
async fn nothing_remains(cluster: &TestCluster, before: Vec<String>) {
    until("the deletion of all objects", async || {
        (unit_objects(cluster, "signadot")? == before && open_records(cluster, "ebb-relay")?.is_empty()).then_some(())
    })
    .await;
}

/// Each unit is a Job in the namespace and with the image of the plugin.
#[tokio::test]
async fn units_run_as_jobs() {
    let cluster = cluster().await;
    let (server, workdir) = set_up(cluster).await;
    let dev = workdir.dev().await;
    let before = unit_objects(cluster, "signadot").unwrap();
    workdir.ebb(&["plugin", "apply", "-f", &example("postgres/plugin.yaml")]).await.done();
    let sets = [("host", &*server.host), ("port", &server.port.to_string()), ("user", USER)];
    let sets = sets.map(|(name, value)| format!("--set={name}={value}"));
    let sandbox = example("postgres/sandbox.yaml");
    let apply = ["sandbox", "apply", "-f", &sandbox].into_iter().chain(sets.iter().map(String::as_str));
    let result = workdir.ebb(&apply.collect::<Vec<_>>()).await.done();
    let database = value(&result.stdout, "db.provision.dbname");
    server.assert_seeded(database);
    let url = format!("postgresql://{USER}@{}:{}/{database}", server.host, server.port);
    let got = workdir.ebb(&["sandbox", "get", SANDBOX]).await.done();
    assert_eq!(value(&got.stdout, "db.provision.url"), url);
    assert_eq!(value(&got.stdout, "db.seed.rows"), "3");
    let notifications = std::fs::read_to_string(workdir.state().join("notifications.jsonl")).unwrap();
    assert!(notifications.contains(&url), "no notification has the URL: {notifications}");
    let log = workdir.ebb(&["logs", SANDBOX, "--unit", "provision"]).await.done();
    assert!(log.stdout.contains(&format!("created {database}")), "{log:#?}");

    workdir.ebb(&["sandbox", "delete", SANDBOX]).await.done();
    assert_eq!(server.databases(), [""; 0]);
    nothing_remains(cluster, before).await;
    dev.stop().await;
}

#[tokio::test]
async fn databases_change_with_the_document_of_a_living_sandbox() {
    let cluster = cluster().await;
    let (server, workdir) = set_up(cluster).await;
    let dev = workdir.dev().await;
    let before = unit_objects(cluster, "signadot").unwrap();
    postgres_life::live(&workdir, &server).await;
    nothing_remains(cluster, before).await;
    dev.stop().await;
}
