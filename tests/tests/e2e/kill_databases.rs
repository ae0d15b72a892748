//! Kills `ebb dev` with SIGKILL while the example `postgres` uses PostgreSQL and DynamoDB Local. An update replaces its
//! database.

use ebb_store::suite::DynamoDbLocal;

use crate::kill::{KillTarget, KillWorld, kill_each, number_from_env, seed};
use crate::postgres_server::{PostgresServer, SANDBOX, USER};
use crate::prelude::*;

struct DatabaseWorld {
    workdir: Workdir,
    server: PostgresServer,
    document: String,
}

impl KillWorld for DatabaseWorld {
    const MAX_PAUSE: Duration = Duration::from_millis(200);

    fn workdir(&self) -> &Workdir {
        &self.workdir
    }

    fn begin(&self) -> (String, String, Option<String>) {
        let changed = self.document.replace("127.0.0.1", "localhost");
        (SANDBOX.to_owned(), self.document.clone(), Some(changed))
    }

    fn assert_created(&self, target: &TargetDetail) {
        self.server.assert_seeded(output(target, "db", "provision.dbname"));
    }

    async fn assert_nothing_remains(&self, _: &TargetDetail, _: &[KillTarget]) {
        assert_eq!(self.server.databases(), [""; 0]);
        self.workdir.no_script_runs().await;
    }
}

#[tokio::test]
async fn databases_on_dynamodb_local_outlive_kills() {
    let dynamodb_local = DynamoDbLocal::start().unwrap();
    let (server, workdir) = (PostgresServer::start().await, Workdir::on(&dynamodb_local.endpoint()));
    let dev = workdir.dev().await;
    workdir.ebb(&["apply", "-f", &example("postgres/plugin.yaml")]).await.done();
    let port = server.port.to_string();
    let document = std::fs::read_to_string(example("postgres/sandbox.yaml")).unwrap();
    let document = document.replace("@{host}", "127.0.0.1").replace("@{port}", &port).replace("@{user}", USER);
    let world = DatabaseWorld { workdir, server, document };
    let parts = vec![KillTarget::EbbDev; number_from_env("EBB_KILLS", 20)];
    kill_each("postgres", &world, dev, parts, 1, seed()).await;
}
