//! Kills `ebb dev` with SIGKILL while the examples use DynamoDB Local and PostgreSQL.

use ebb_store::suite::DynamoDbLocal;
use futures::future::join_all;

use crate::example_run::{ExampleKind, kill_example};
use crate::kill::{number_from_env, seed};
use crate::prelude::*;

/// Number of kills. `EBB_KILLS` overrides it.
const KILLS: usize = 20;

/// All examples run concurrently, each with its share of the kills.
#[tokio::test]
async fn all_examples_on_dynamodb_local_are_killed() {
    let (kills, dynamodb_local) = (number_from_env("EBB_KILLS", KILLS), DynamoDbLocal::start().unwrap());
    let examples = [ExampleKind::S3, ExampleKind::Postgres, ExampleKind::Webhooks, ExampleKind::Wired];
    let examples = examples.into_iter().zip(0..).map(|(example, number)| {
        let share = kills / examples.len() + usize::from(number < kills % examples.len());
        kill_example(example, Workdir::on(&dynamodb_local.endpoint()), share, seed().wrapping_add(number as u64))
    });
    join_all(examples).await;
}
