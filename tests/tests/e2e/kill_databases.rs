//! Kills `ebb dev` with SIGKILL while an example uses PostgreSQL or DynamoDB Local.

use ebb_store::suite::DynamoDbLocal;

use crate::example_run::ExampleKind;
use crate::kill::{KILLS, KillPoint, KillScenario, assert_distinct, number_from_env, seed};
use crate::prelude::*;

#[tokio::test]
async fn the_postgres_example_is_killed_at_random_times() {
    let scenario = KillScenario { example: ExampleKind::postgres().await, dynamodb: None };
    assert_distinct(1, &scenario.kill_repeatedly(KILLS, seed()).await.iter().collect::<Vec<_>>());
}

/// All examples run concurrently, each with its share of the kills.
#[tokio::test]
async fn all_examples_on_dynamodb_local_are_killed() {
    let (kills, seed, started) = (number_from_env("EBB_KILLS", KILLS), seed(), Instant::now());
    let dynamodb_local = DynamoDbLocal::start().unwrap();
    let examples = [ExampleKind::S3, ExampleKind::postgres().await, ExampleKind::Webhooks, ExampleKind::Wired];
    let shares = examples.len() as u32;
    let examples = examples.into_iter().zip(0..).map(|(example, n)| {
        let scenario = KillScenario { example, dynamodb: Some(dynamodb_local.endpoint()) };
        let share = kills / shares + u32::from(n < kills % shares);
        scenario.kill_repeatedly(share, seed.wrapping_add(u64::from(n)))
    });
    let points = futures::future::join_all(examples).await;
    let all: Vec<&KillPoint> = points.iter().flatten().collect();
    let sum = all.len();
    assert_eq!(sum, kills as usize);
    assert_distinct(points.len(), &all);
    println!(
        "{sum} kills with seed {seed} in {:.0} s: no resource was lost, left behind or created twice",
        started.elapsed().as_secs_f64()
    );
}
