//! The example `postgres`: databases with tables and rows, which change with the document of a living sandbox.

use std::fs;

use crate::postgres_server::{PostgresServer, SANDBOX, USER};
use crate::prelude::*;

/// The row that belongs to the user of the database.
const OWN_ROW: &str = "5000|Barbara";

struct DatabaseLife<'a> {
    workdir: &'a Workdir,
    server: &'a PostgresServer,
}

/// Creates a sandbox, changes seed rows, adds a database, removes the first one, upgrades the plugin, replaces the plugin
/// and deletes the sandbox.
#[tokio::test]
async fn databases_change_with_the_document_of_a_living_sandbox() {
    let (server, workdir) = (&PostgresServer::start().await, &Workdir::new());
    let dev = workdir.dev().await;
    let life = DatabaseLife { workdir, server };
    for file in ["plugin.yaml", "app-db.yaml"] {
        workdir.ebb(&["apply", "-f", &example(&format!("postgres/{file}"))]).await.done();
    }
    // It reads a database, and fails if it runs twice, or if the database does not exist.
    workdir.publish("report@1.0.0", include_str!("documents/report.yaml")).await;
    let insert = |database: &str| {
        server.query(database, &format!("INSERT INTO customers VALUES ({})", OWN_ROW.replace('|', ", '") + "'"));
    };
    let own_rows = |database: &str| server.query(database, "SELECT * FROM customers WHERE id > 1000");

    let db = life.apply(&[("db", "app-db", "customers: 3")], 3).await;
    insert(&db);

    assert_eq!(life.apply(&[("db", "app-db", "customers: 5")], 5).await, db);
    assert_eq!(own_rows(&db), [OWN_ROW]);

    let both = [("db", "app-db", "customers: 5"), ("archive", "app-db", "customers: 1")];
    assert_eq!(life.apply(&both, 5).await, db);
    life.assert_inventory().await;

    let archive = life.apply(&both[1..], 1).await;
    insert(&archive);

    life.publish_upgrade().await;
    assert_eq!(life.apply(&[("archive", "app-db@1.1.0", "customers: 1")], 1).await, archive);
    assert_eq!(own_rows(&archive), [OWN_ROW.to_owned() + "|"], "the row has a new column");

    let replaced = life.apply(&[("archive", "postgres-db", "")], 3).await;
    assert_ne!(replaced, archive);
    server.assert_seeded(&replaced);

    workdir.ebb(&["delete", "sandbox", SANDBOX]).await.done();
    assert_eq!(server.databases(), [""; 0]);
    workdir.no_script_runs().await;
    dev.stop().await;
}

impl DatabaseLife<'_> {
    /// Applies a document with databases, each with its plugin and its params. `report` reads the first one. Checks that
    /// exactly these databases exist, and that outputs and environment name them. Returns the first one, which has this
    /// number of seed rows.
    async fn apply(&self, databases: &[(&str, &str, &str)], rows: usize) -> String {
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
            output(&target, resource, outputs.keys().find(|name| name.ends_with("url")).unwrap())
        });
        let urls: Vec<&str> = urls.collect();
        let database = |url: &str| url.rsplit_once('/').unwrap().1.to_owned();
        let mut present: Vec<_> = urls.iter().map(|url| database(url)).collect();
        present.sort();
        assert_eq!(self.server.databases(), present);
        let environment = self.workdir.ebb(&["env", SANDBOX, "-o", "json"]).await.done();
        assert_eq!(environment.json::<Value>(), json!({"DATABASE_URL": urls[0]}));
        let used = database(urls[0]);
        assert_eq!(self.server.query(&used, "SELECT id FROM customers WHERE id <= 1000").len(), rows);
        assert_eq!(self.server.query(&used, "SELECT count(*) FROM report"), ["0"]);
        used
    }

    /// Checks that the inventory of `app-db` has all databases, and that each belongs to the sandbox.
    async fn assert_inventory(&self) {
        let (port, user) = (format!("port={}", self.server.port), format!("user={USER}"));
        let params = ["--param", "host=127.0.0.1", "--param", &port, "--param", &user];
        let found = self.workdir.ebb(&[&["inventory", "app-db", "-o", "json"][..], &params].concat()).await.done();
        let found: Vec<Value> = found.json();
        let things: Vec<_> = found.iter().map(|entry| entry["thing"].as_str().unwrap()).collect();
        assert_eq!(things, self.server.databases());
        let target = format!("sandbox/{SANDBOX}");
        assert!(found.iter().all(|one| one["state"] == "alive" && one["target"] == target.as_str()), "{found:?}");
    }

    /// Publishes a version of `app-db` whose schema has a new column.
    async fn publish_upgrade(&self) {
        for file in ["app-db.yaml", "provision.sh", "schema.sh", "customers.sh", "drop.sh", "list.sh"] {
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
