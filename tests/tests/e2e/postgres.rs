//! The example `postgres`: a database with tables and rows, which is dropped with the sandbox.

use crate::postgres_life;
use crate::postgres_server::{PostgresServer, USER};
use crate::prelude::*;

#[tokio::test]
async fn run_and_delete() {
    let (server, workdir) = (PostgresServer::start().await, Workdir::new());
    let (sandbox, plugin) = (example("postgres/sandbox.yaml"), example("postgres/plugin.yaml"));
    let (port, user) = (format!("port={}", server.port), format!("user={USER}"));
    let sets = ["--set", "host=127.0.0.1", "--set", &port, "--set", &user];
    let result = workdir.ebb(&[&["run", &sandbox, "--plugin", &plugin, "--rm"][..], &sets].concat()).await.done();
    let name = value(&result.stdout, "db.provision.dbname");
    let url = format!("postgresql://{USER}@127.0.0.1:{}/{name}", server.port);
    assert_eq!(value(&result.stdout, "db.provision.url"), url);
    assert_eq!(value(&result.stdout, "db.seed.rows"), "3");
    assert_eq!(server.databases(), [""; 0]);
    workdir.no_script_runs().await;
}

#[tokio::test]
async fn databases_change_with_the_document_of_a_living_sandbox() {
    let (server, workdir) = (PostgresServer::start().await, Workdir::new());
    let dev = workdir.dev().await;
    postgres_life::live(&workdir, &server).await;
    workdir.no_script_runs().await;
    dev.stop().await;
}
