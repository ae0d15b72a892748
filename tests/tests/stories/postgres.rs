//! A database with tables and rows, dropped with the sandbox.

use crate::cluster::{cluster, xtask};
use crate::kubectl::{of_units, open_records};
use crate::place::{Place, example, until};
use crate::s3::value;
use crate::server::{Server, USER};

pub(crate) const SANDBOX: &str = "billing-pr-7";

#[tokio::test]
async fn run_and_delete() {
    let (server, place) = (Server::start().await, Place::new());
    let (sandbox, plugin) = (example("postgres/sandbox.yaml"), example("postgres/plugin.yaml"));
    let (port, user) = (format!("port={}", server.port), format!("user={USER}"));
    let sets = ["--set", "host=127.0.0.1", "--set", &port, "--set", &user];
    let ran = place
        .ebb(&[&["run", &sandbox, "--plugin", &plugin, "--then-delete"][..], &sets].concat())
        .await
        .done();
    let name = value(&ran.stdout, "db.provision.dbname");
    let url = format!("postgresql://{USER}@127.0.0.1:{}/{name}", server.port);
    assert_eq!(value(&ran.stdout, "db.provision.url"), url);
    assert_eq!(value(&ran.stdout, "db.seed.rows"), "3");
    assert_eq!(server.databases(), [""; 0]);
    place.no_script_runs().await;
}

#[tokio::test]
async fn dev_apply_and_delete() {
    let (server, place) = (Server::start().await, Place::new());
    let dev = place.dev().await;
    place.ebb(&["plugin", "apply", "-f", &example("postgres/plugin.yaml")]).await.done();
    let (port, user) = (format!("port={}", server.port), format!("user={USER}"));
    let sets = ["--set", "host=127.0.0.1", "--set", &port, "--set", &user];
    let sandbox = example("postgres/sandbox.yaml");
    let ran = place.ebb(&[&["sandbox", "apply", "-f", &sandbox][..], &sets].concat()).await.done();
    let database = value(&ran.stdout, "db.provision.dbname");
    server.holds_the_seed(database);

    let got = place.ebb(&["sandbox", "get", SANDBOX]).await.done();
    assert_eq!(value(&got.stdout, "db.provision.dbname"), database);
    assert_eq!(value(&got.stdout, "db.schema.version"), "1");

    place.ebb(&["sandbox", "delete", SANDBOX]).await.done();
    assert_eq!(server.databases(), [""; 0]);
    place.no_script_runs().await;
    dev.stop().await;
}

/// The same documents in a real cluster: each step is a Job, in the namespace and of the image that the plugin names.
#[tokio::test]
async fn in_a_cluster() {
    let cluster = cluster().await;
    // Debian with psql, by the name that the documents have for such an image.
    xtask(&["cluster", "tag", "ebb.test/debian:1", "docker.io/library/postgres:17-alpine"]);
    let place = Place::in_cluster(cluster, "signadot").await;
    let (server, dev) = (Server::start_at(&cluster.host).await, place.dev().await);
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
    let told = std::fs::read_to_string(place.state().join("outcomes.jsonl")).unwrap();
    assert!(told.contains(&url), "the platform gets what the fork needs: {told}");
    let log = place.ebb(&["logs", SANDBOX, "--step", "provision"]).await.done();
    assert!(log.stdout.contains(&format!("created {database}")), "{log:#?}");

    place.ebb(&["sandbox", "delete", SANDBOX]).await.done();
    assert_eq!(server.databases(), [""; 0]);
    until("nothing to be left", async || {
        (of_units(cluster, "signadot")? == before && open_records(cluster, "ebb-relay")?.is_empty())
            .then_some(())
    })
    .await;
    dev.stop().await;
}
