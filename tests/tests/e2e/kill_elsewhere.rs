//! `kill -9` of `ebb dev` whose table is Amazon's DynamoDB Local, or whose example needs PostgreSQL.

use ebb_store::suite::DynamoDbLocal;

use crate::kill::{KILLS, KillPoint, KillScenario, given, hit_enough, seed};
use crate::prelude::*;
use crate::scene::ExampleKind;

#[tokio::test]
async fn postgres_at_twenty_moments() {
    let story = KillScenario { example: ExampleKind::postgres().await, dynamodb: None };
    hit_enough(1, &story.kill_often(KILLS, seed()).await.iter().collect::<Vec<_>>());
}

/// All examples at once, each with its share of the kills.
#[tokio::test]
async fn all_examples_with_amazons_table() {
    let (kills, seed, begun) = (given("EBB_KILLS", KILLS), seed(), Instant::now());
    let amazon = DynamoDbLocal::start().unwrap();
    let examples = [ExampleKind::S3, ExampleKind::postgres().await, ExampleKind::Webhooks, ExampleKind::Wired];
    let shares = examples.len() as u32;
    let examples = examples.into_iter().zip(0..).map(|(example, n)| {
        let story = KillScenario { example, dynamodb: Some(amazon.endpoint()) };
        let share = kills / shares + u32::from(n < kills % shares);
        story.kill_often(share, seed.wrapping_add(u64::from(n)))
    });
    let hit = futures::future::join_all(examples).await;
    let stages: Vec<&KillPoint> = hit.iter().flatten().collect();
    let sum = stages.len();
    assert_eq!(sum, kills as usize);
    hit_enough(hit.len(), &stages);
    println!(
        "{sum} kills with seed {seed} in {:.0} s: nothing lost, nothing left, nothing made twice",
        begun.elapsed().as_secs_f64()
    );
}
