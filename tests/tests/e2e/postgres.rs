//! The example `postgres`: a database with tables and rows, which is dropped with the sandbox.

use crate::postgres_life;
use crate::postgres_server::PostgresServer;
use crate::workdir::Workdir;

#[tokio::test]
async fn databases_change_with_the_document_of_a_living_sandbox() {
    let (server, workdir) = (PostgresServer::start().await, Workdir::new());
    let dev = workdir.dev().await;
    postgres_life::live(&workdir, &server).await;
    workdir.no_script_runs().await;
    dev.stop().await;
}
