//! A database with tables and rows, dropped with the sandbox.

use crate::s3::value;
use crate::server::{PostgresServer, SANDBOX, USER};
use crate::workdir::{Workdir, example};

#[tokio::test]
async fn run_and_delete() {
    let (server, place) = (PostgresServer::start().await, Workdir::new());
    let (sandbox, plugin) = (example("postgres/sandbox.yaml"), example("postgres/plugin.yaml"));
    let (port, user) = (format!("port={}", server.port), format!("user={USER}"));
    let sets = ["--set", "host=127.0.0.1", "--set", &port, "--set", &user];
    let ran = place.ebb(&[&["run", &sandbox, "--plugin", &plugin, "--rm"][..], &sets].concat()).await.done();
    let name = value(&ran.stdout, "db.provision.dbname");
    let url = format!("postgresql://{USER}@127.0.0.1:{}/{name}", server.port);
    assert_eq!(value(&ran.stdout, "db.provision.url"), url);
    assert_eq!(value(&ran.stdout, "db.seed.rows"), "3");
    assert_eq!(server.databases(), [""; 0]);
    place.no_script_runs().await;
}

#[tokio::test]
async fn dev_apply_and_delete() {
    let (server, place) = (PostgresServer::start().await, Workdir::new());
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
