//! The example `postgres`: databases with tables and rows, which change with the document of a living sandbox.

use std::collections::BTreeMap;
use std::fs;

use crate::outputs::output;
use crate::postgres_server::{PostgresServer, SANDBOX, USER};
use crate::prelude::*;

/// A reader of a database. It fails if it runs twice, or if the database does not exist.
const REPORT: &str = include_str!("documents/report.yaml");
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

/// Creates a sandbox, changes seed rows, adds a database, removes the first one, upgrades the plugin, replaces the plugin
/// and deletes the sandbox.
#[tokio::test]
async fn databases_change_with_the_document_of_a_living_sandbox() {
    let (server, workdir) = (&PostgresServer::start().await, &Workdir::new());
    let dev = workdir.dev().await;
    let mut life = DatabaseLife { workdir, server, resources: BTreeMap::new(), expected: 0 };
    for file in ["plugin.yaml", "app-db.yaml"] {
        workdir.ebb(&["apply", "-f", &example(&format!("postgres/{file}"))]).await.done();
    }
    workdir.publish("report@1.0.0", REPORT).await;
    let insert = |database: &str| {
        server.query(database, &format!("INSERT INTO customers VALUES ({})", OWN_ROW.replace('|', ", '") + "'"));
    };
    let own_rows = |database: &str| server.query(database, "SELECT * FROM customers WHERE id > 1000");
    let report = |database: &str| on(database, &["CREATE TABLE report"]);
    let dropped = |database: &str| {
        [on(database, &["DROP TABLE report"]), on("postgres", &[&format!("DROP DATABASE {database}")])]
    };

    let db = life.apply(&[("db", "app-db", "customers: 3")], 3).await;
    life.executed(&[created("db"), report("db")]);
    insert(&db);

    assert_eq!(life.apply(&[("db", "app-db", "customers: 5")], 5).await, db);
    life.executed(&[on("db", &FILL)]);
    assert_eq!(own_rows(&db), [OWN_ROW]);

    let both = [("db", "app-db", "customers: 5"), ("archive", "app-db", "customers: 1")];
    assert_eq!(life.apply(&both, 5).await, db);
    life.executed(&[created("archive")]);

    let archive = life.apply(&both[1..], 1).await;
    life.executed(&[dropped("db").concat(), report("archive")]);
    insert(&archive);

    life.publish_upgrade().await;
    assert_eq!(life.apply(&[("archive", "app-db@1.1.0", "customers: 1")], 1).await, archive);
    let (tables, rows) = FILL.split_at(2);
    life.executed(&[on("archive", &[tables, &["ALTER TABLE customers"], rows].concat())]);
    assert_eq!(own_rows(&archive), [OWN_ROW.to_owned() + "|"], "the row has a new column");

    let replaced = life.apply(&[("archive", "postgres-db", "")], 3).await;
    assert_ne!(replaced, archive);
    server.assert_seeded(&replaced);
    let filled = ["CREATE TABLE customers", "CREATE TABLE invoices", "INSERT INTO customers", "INSERT INTO invoices"];
    let made = [on("postgres", &["CREATE DATABASE archive"]), on("archive", &filled)].concat();
    life.executed(&[[dropped("archive").concat(), made].concat(), report("archive")]);

    workdir.ebb(&["delete", "sandbox", SANDBOX]).await.done();
    life.executed(&[dropped("archive").concat()]);
    assert_eq!(server.databases(), [""; 0]);
    workdir.no_script_runs().await;
    dev.stop().await;
}

/// Returns the statements that create a database of `app-db`.
fn created(resource: &str) -> Vec<String> {
    [on("postgres", &[&format!("CREATE DATABASE {resource}")]), on(resource, &FILL)].concat()
}

/// Returns statements in a database.
fn on(database: &str, statements: &[&str]) -> Vec<String> {
    statements.iter().map(|statement| format!("{database}: {statement}")).collect()
}

impl DatabaseLife<'_> {
    /// Applies a document with databases, each with its plugin and its params. `report` reads the first one. Checks that
    /// exactly these databases exist, and that outputs and environment name them. Returns the first one, which has this
    /// number of seed rows.
    async fn apply(&mut self, databases: &[(&'static str, &str, &str)], rows: usize) -> String {
        let mut document = "cluster: local\nresources:\n".to_owned();
        for (name, plugin, params) in databases {
            let place = format!("host: 127.0.0.1, port: \"{}\", user: {USER}", self.server.port);
            document += &format!("  {name}: {{plugin: {plugin}, params: {{{place}, {params}}}}}\n");
        }
        let (name, plugin, _) = databases[0];
        let field = if plugin == "postgres-db" { "provision.url" } else { "url" };
        let url = format!("\"${{resources.{name}.outputs['{field}']}}\"");
        document += &format!("  report: {{plugin: report, params: {{url: {url}}}}}\nenv: {{DATABASE_URL: {url}}}\n");
        let file = self.workdir.write_sandbox(SANDBOX, &document);
        self.workdir.ebb(&["apply", "-f", &file]).await.done();

        let target = self.workdir.get(SANDBOX).await;
        assert_eq!(target.info.phase, TargetPhase::Ready);
        let urls = databases.iter().map(|(resource, ..)| {
            let outputs = &target.resources[*resource].outputs;
            (*resource, output(&target, resource, outputs.keys().find(|name| name.ends_with("url")).unwrap()))
        });
        let urls: Vec<_> = urls.collect();
        let database = |url: &str| url.rsplit_once('/').unwrap().1.to_owned();
        self.resources.extend(urls.iter().map(|(resource, url)| (database(url), *resource)));
        let mut present: Vec<_> = urls.iter().map(|(_, url)| database(url)).collect();
        present.sort();
        assert_eq!(self.server.databases(), present);
        let environment = self.workdir.ebb(&["env", SANDBOX, "-o", "json"]).await.done();
        assert_eq!(environment.json::<Value>(), json!({"DATABASE_URL": urls[0].1}));
        let used = database(urls[0].1);
        assert_eq!(self.server.query(&used, "SELECT id FROM customers WHERE id <= 1000").len(), rows);
        used
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
        self.workdir.ebb(&["apply", "-f", file.to_str().unwrap()]).await.done();
    }
}
