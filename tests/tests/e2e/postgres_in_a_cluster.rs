//! The example `postgres` in a cluster. Each unit is a Job in the namespace and with the image of the plugin.

use crate::postgres_life;
use crate::postgres_server::PostgresServer;
use crate::prelude::*;

#[tokio::test]
async fn databases_change_with_the_document_of_a_living_sandbox() {
    let cluster = cluster().await;
    // The documents use an image with `psql`.
    xtask(&["cluster", "tag", "ebb.test/debian:1", "docker.io/library/postgres:17-alpine"]);
    let workdir = workdir_setup::in_cluster(cluster, "signadot").await;
    let server = PostgresServer::start_at(&cluster.host).await;
    let dev = workdir.dev().await;
    let before = unit_objects(cluster, "signadot").unwrap();
    postgres_life::live(&workdir, &server).await;
    until("the deletion of all objects", async || {
        (unit_objects(cluster, "signadot")? == before && open_records(cluster, "ebb-relay")?.is_empty()).then_some(())
    })
    .await;
    dev.stop().await;
}
