//! The life of a sandbox whose databases change by updates of its document.

use std::collections::BTreeMap;
use std::fs;

use crate::example_run::output;
use crate::postgres_server::{PostgresServer, SANDBOX, USER};
use crate::prelude::*;

/// A reader of a database. It fails if it runs twice, or if the database does not exist.
const REPORT: &str = r##"
params: {url: {type: string}}
runners: {psql: {image: "postgres:17-alpine", namespace: signadot}}
defaults: {retry: {attempts: 1}}
preStart:
  make:
    pod: {runner: psql, script: "#!/bin/sh\nexec psql -X -qc 'CREATE TABLE report ()' \"$URL\""}
    inputs: {url: "${params.url}"}
postStop:
  remove:
    undoes: make
    pod: {runner: psql, script: "#!/bin/sh\nexec psql -X -qc 'DROP TABLE report' \"$URL\""}
    inputs: {url: "${params.url}"}
"##;
/// The statements of `app-db` that fill the tables.
const FILL: [&str; 4] =
    ["CREATE TABLE customers", "CREATE TABLE invoices", "DELETE FROM customers", "INSERT INTO customers"];
/// The row that belongs to the user of the database.
const OWN_ROW: &str = "5000|Barbara";

/// A living sandbox and what it has executed so far.
struct DatabaseLife<'a> {
    workdir: &'a Workdir,
    server: &'a PostgresServer,
    /// The resources by the names of their databases.
    resources: BTreeMap<String, &'static str>,
    /// The number of statements that steps have expected.
    expected: usize,
}

/// Creates a sandbox, changes seed rows, adds a database, removes the first one, extends the TTL, upgrades the plugin,
/// replaces the plugin and deletes the sandbox.
pub(crate) async fn live(workdir: &Workdir, server: &PostgresServer) {
    let mut life = DatabaseLife { workdir, server, resources: BTreeMap::new(), expected: 0 };
    for file in ["plugin.yaml", "app-db.yaml"] {
        workdir.ebb(&["plugin", "apply", "-f", &example(&format!("postgres/{file}"))]).await.done();
    }
    workdir.publish("report@1.0.0", REPORT).await;

    life.apply("1h", &[("db", "app-db", "customers: 3")], &["Would create sandbox/billing-pr-7"]).await;
    let db = life.has(&["db"], "db", 3).await;
    life.executed(&[life.created("db"), on("db", &["CREATE TABLE report"])]);
    let insert = |database: &str| {
        server.query(database, &format!("INSERT INTO customers VALUES ({})", OWN_ROW.replace('|', ", '") + "'"));
    };
    insert(&db);

    let updated = "Would update sandbox/billing-pr-7 by a run";
    life.apply("1h", &[("db", "app-db", "customers: 5")], &[updated, "resource db: updated"]).await;
    assert_eq!(life.has(&["db"], "db", 5).await, db);
    life.executed(&[on("db", &FILL)]);
    assert_eq!(life.own_rows(&db), [OWN_ROW]);

    let both = [("db", "app-db", "customers: 5"), ("archive", "app-db", "customers: 1")];
    life.apply("1h", &both, &[updated, "resource archive: added"]).await;
    assert_eq!(life.has(&["db", "archive"], "db", 5).await, db);
    life.executed(&[life.created("archive")]);

    let effect = [updated, "resource db: removed", "resource report: replaced"];
    life.apply("1h", &both[1..], &effect).await;
    let archive = life.has(&["archive"], "archive", 1).await;
    let moved = on("archive", &["CREATE TABLE report"]);
    life.executed(&[[on("db", &["DROP TABLE report"]), on("postgres", &["DROP DATABASE db"])].concat(), moved]);
    insert(&archive);

    let expires = workdir.get(SANDBOX).await.info.expires;
    life.apply("8h", &both[1..], &["Would update sandbox/billing-pr-7 without a run"]).await;
    assert!(workdir.get(SANDBOX).await.info.expires > expires);
    assert_eq!(life.has(&["archive"], "archive", 1).await, archive);
    life.executed(&[]);

    life.publish_upgrade().await;
    life.apply("8h", &both[1..], &["Would not change sandbox/billing-pr-7"]).await;
    life.executed(&[]);
    let upgraded = [("archive", "app-db@1.1.0", "customers: 1")];
    life.apply("8h", &upgraded, &[updated, "resource archive: updated"]).await;
    assert_eq!(life.has(&["archive"], "archive", 1).await, archive);
    life.executed(&[
        [on("archive", &FILL[..2]), on("archive", &["ALTER TABLE customers"]), on("archive", &FILL[2..])].concat()
    ]);
    assert_eq!(life.own_rows(&archive), [OWN_ROW.to_owned() + "|"], "the row has a new column");

    let effect = [updated, "resource archive: replaced", "resource report: replaced"];
    life.apply("8h", &[("archive", "postgres-db", "")], &effect).await;
    let replaced = life.has(&["archive"], "archive", 3).await;
    assert_ne!(replaced, archive);
    server.assert_seeded(&replaced);
    let undone = [on("archive", &["DROP TABLE report"]), on("postgres", &["DROP DATABASE archive"])].concat();
    let filled = ["CREATE TABLE customers", "CREATE TABLE invoices", "INSERT INTO customers", "INSERT INTO invoices"];
    let made = [on("postgres", &["CREATE DATABASE archive"]), on("archive", &filled)];
    life.executed(&[[undone.clone(), made.concat()].concat(), on("archive", &["CREATE TABLE report"])]);

    let uid = workdir.get(SANDBOX).await.info.uid;
    workdir.ebb(&["sandbox", "delete", SANDBOX]).await.done();
    life.executed(&[undone]);
    assert_eq!(server.databases(), [""; 0]);
    let notifications = [vec!["dev.ebb.target.ready.v1"; 7], vec!["dev.ebb.target.gone.v1"]].concat();
    until("the last notification", async || (workdir.outcomes(&uid) == notifications).then_some(())).await;
}

/// Returns statements in a database.
fn on(database: &str, statements: &[&str]) -> Vec<String> {
    statements.iter().map(|statement| format!("{database}: {statement}")).collect()
}

impl DatabaseLife<'_> {
    /// Applies a document with databases, each with its plugin and its params. `report` reads the first one. A dry run
    /// has to print the effect.
    async fn apply(&self, ttl: &str, databases: &[(&str, &str, &str)], effect: &[&str]) {
        let server = self.server;
        let mut document = format!("cluster: local\nttl: {ttl}\nresources:\n");
        for (name, plugin, params) in databases {
            let place = format!("host: {}, port: \"{}\", user: {USER}", server.host, server.port);
            document += &format!("  {name}: {{plugin: {plugin}, params: {{{place}, {params}}}}}\n");
        }
        let (name, plugin, _) = databases[0];
        let field = if plugin == "postgres-db" { "provision.url" } else { "url" };
        let url = format!("\"${{resources.{name}.outputs['{field}']}}\"");
        document += &format!("  report: {{plugin: report, params: {{url: {url}}}}}\nenv: {{DATABASE_URL: {url}}}\n");
        let file = self.workdir.write_sandbox(SANDBOX, &document);
        let dry = self.workdir.ebb(&["sandbox", "apply", "-f", &file, "--dry-run"]).await.done();
        let lines = dry.stderr.lines().chain(dry.stdout.lines());
        let lines: Vec<&str> =
            lines.filter(|line| line.starts_with("Would") || line.starts_with("resource ")).collect();
        assert_eq!(lines, effect, "{dry:#?}");
        self.workdir.ebb(&["sandbox", "apply", "-f", &file]).await.done();
    }

    /// Checks that exactly the databases of these resources exist, and that outputs and environment name them. Returns the
    /// database in the environment, which has this number of seed rows.
    async fn has(&mut self, resources: &[&'static str], used: &str, rows: usize) -> String {
        let target = self.workdir.get(SANDBOX).await;
        assert_eq!(target.info.phase, TargetState::Ready);
        let url = |resource: &str| {
            let outputs = &target.resources[resource].outputs;
            output(&target, resource, outputs.keys().find(|name| name.ends_with("url")).unwrap()).to_owned()
        };
        let database = |url: &str| url.rsplit_once('/').unwrap().1.to_owned();
        let mut present: Vec<String> = vec![];
        for resource in resources {
            present.push(database(&url(resource)));
            self.resources.insert(database(&url(resource)), resource);
        }
        present.sort();
        assert_eq!(self.server.databases(), present);
        let environment = self.workdir.ebb(&["sandbox", "env", SANDBOX, "-o", "json"]).await.done();
        let environment: Value = serde_json::from_str(&environment.stdout).unwrap();
        assert_eq!(environment, json!({"DATABASE_URL": url(used)}));
        let seeded = self.server.query(&database(&url(used)), "SELECT id FROM customers WHERE id <= 1000");
        assert_eq!(seeded.len(), rows);
        database(&url(used))
    }

    fn own_rows(&self, database: &str) -> Vec<String> {
        self.server.query(database, "SELECT * FROM customers WHERE id > 1000")
    }

    /// Returns the statements that create a database of `app-db`.
    fn created(&self, resource: &str) -> Vec<String> {
        [on("postgres", &[&format!("CREATE DATABASE {resource}")]), on(resource, &FILL)].concat()
    }

    /// Checks that exactly these statements have been executed since the last call, those of a chain in its order.
    fn executed(&mut self, chains: &[Vec<String>]) {
        let new = self.server.statements().split_off(self.expected);
        self.expected += new.len();
        let mut seen: Vec<String> = new.iter().map(|(database, text)| self.shortened(database, text)).collect();
        for chain in chains {
            let mut rest = seen.iter();
            assert!(chain.iter().all(|statement| rest.any(|other| other == statement)), "{chain:?} in {seen:?}");
        }
        let mut expected = chains.concat();
        seen.sort();
        expected.sort();
        assert_eq!(seen, expected);
    }

    /// Returns the database of a statement and its first three words, with the names of resources.
    fn shortened(&self, database: &str, statement: &str) -> String {
        let text = statement.replace("IF NOT EXISTS ", "").replace("IF EXISTS ", "").replace('"', "");
        let words: Vec<&str> = text.split_whitespace().take(3).map(|word| self.name(word)).collect();
        format!("{}: {}", self.name(database), words.join(" "))
    }

    fn name<'a>(&'a self, word: &'a str) -> &'a str {
        self.resources.get(word).copied().unwrap_or(word)
    }

    /// Publishes a version of `app-db` whose schema has a new column.
    async fn publish_upgrade(&self) {
        for file in ["app-db.yaml", "provision.sh", "schema.sh", "customers.sh", "drop.sh"] {
            let text = fs::read_to_string(example(&format!("postgres/{file}"))).unwrap();
            let text = text.replace("app-db@1.0.0", "app-db@1.1.0");
            let column = "    cents bigint NOT NULL CHECK (cents >= 0)\n);\n";
            let changed = format!("{column}ALTER TABLE customers ADD COLUMN IF NOT EXISTS email text;\n");
            self.workdir.write(file, &text.replace(column, &changed));
        }
        let file = self.workdir.path().join("app-db.yaml");
        self.workdir.ebb(&["plugin", "apply", "-f", file.to_str().unwrap()]).await.done();
    }
}
