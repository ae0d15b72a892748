//! A database with tables and rows, dropped with the sandbox.

use crate::prelude::*;
use crate::server::{PostgresServer, USER};

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
