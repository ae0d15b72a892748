//! The example `postgres`: a database with tables and rows, which is dropped with the sandbox.

use ebb_tests::preset_lives::{FIRST, LifeServer, samples, secrets};

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

/// The events of senders that have a preset create, update and delete a target with a database.
#[tokio::test]
async fn presets_have_targets_with_databases() {
    let (server, workdir) = (PostgresServer::start().await, Workdir::new());
    let dev = workdir.dev().await;
    workdir.write_secrets(&secrets());
    workdir.ebb(&["plugin", "apply", "-f", &example("postgres/app-db.yaml")]).await.done();
    let place = format!("host: 127.0.0.1, port: \"{}\", user: {USER}", server.port);
    let http = reqwest::Client::new();
    let lives = LifeServer { http, url: dev.url.clone(), token: dev.token.clone() };
    let mut count = 0;
    for life in samples() {
        let customers = format!("\"${{{} == '{FIRST}' ? 3 : 5}}\"", life.note);
        let resource = format!("{{plugin: app-db, params: {{{place}, customers: {customers}}}}}");
        life.live(&lives, &life.source(&format!("{{db: {resource}}}"))).await;
        let statements = server.statements().split_off(count);
        count += statements.len();
        let of = |text: &str| statements.iter().filter(|(_, statement)| statement.starts_with(text)).count();
        let updates = usize::from(life.is_changed());
        let seen = [of("CREATE DATABASE"), of("INSERT INTO customers"), of("DROP DATABASE"), statements.len()];
        // A creation has 5 statements, an update 4, and a deletion one.
        assert_eq!(seen, [1, 1 + updates, 1, 6 + 4 * updates], "{}: {statements:?}", life.preset);
        assert_eq!(server.databases(), [""; 0], "{}", life.preset);
    }
    workdir.no_script_runs().await;
    dev.stop().await;
}
