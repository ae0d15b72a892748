//! Two relays for one cluster and its namespaces, which is a mistake: each task runs once, and nothing stays.

use std::collections::BTreeSet;

use futures::future::{join, join_all};

use crate::fixture::*;

/// Tasks that one relay starts and the other cancels.
const TORN: u32 = 12;

/// Both are asked for the same tasks at the same moment.
#[tokio::test(flavor = "multi_thread")]
async fn asked_for_the_same() {
    let fixture = RelayFixture::new("twins", &[]).await;
    let twin = fixture.twin().await;
    let units: Vec<TaskId> = (0..6).map(|number| name(&format!("unit-{number}"), 1)).collect();
    join_all(units.iter().map(async |unit| {
        let text = format!("echo {}; sleep 2", unit.unit);
        let ensure = async |of: &RelayFixture| of.apply(unit, script(unit, &text)).await;
        let (one, other) = join(ensure(&fixture), ensure(&twin)).await;
        for answer in [one, other] {
            assert!(matches!(answer, RelayResponse::State(_)), "{answer:?}");
        }
    }))
    .await;
    let jobs = async || {
        let jobs = fixture.api::<Job>().list(&ListParams::default()).await.unwrap();
        jobs.iter().map(|job| job.uid().unwrap()).collect::<BTreeSet<_>>()
    };
    let mut made = jobs().await;
    for unit in &units {
        let result = fixture.succeeds(unit).await;
        assert_eq!(result.log, Some(format!("{}\n", unit.unit)));
        made.extend(jobs().await);
    }
    assert_eq!(made.len(), units.len());
    for unit in &units {
        until("a tombstone", async || (twin.get(unit).await == TaskState::Tombstoned).then_some(())).await;
        let all = fixture.plane.taken(&token(unit));
        assert!(all.iter().all(|result| *result == all[0]), "{all:?}");
    }
    fixture.close().await;
}

/// One relay receives the cancellation of a task that the other starts, sooner or later.
#[tokio::test(flavor = "multi_thread")]
async fn one_cancels_what_the_other_starts() {
    let fixture = RelayFixture::new("torn", &[]).await;
    let twin = fixture.twin().await;
    let ensure = async |unit: &TaskId| {
        let begun = Instant::now();
        fixture.apply(unit, script(unit, "sleep 1000")).await;
        begun.elapsed()
    };
    let cancel_after = async |unit: &TaskId, after: Duration| {
        tokio::time::sleep(after).await;
        twin.cancelled(unit).await;
    };
    let first = name("first", 1);
    ensure(&first).await;
    cancel_after(&first, Duration::ZERO).await;
    // One after the other, so that they take as long as the one before; the cancellation comes a little later each time.
    let mut took = Duration::ZERO;
    for number in 0..TORN {
        let unit = name(&format!("unit-{number}"), 1);
        (took, ()) = join(ensure(&unit), cancel_after(&unit, took * number / TORN)).await;
        assert_eq!(fixture.get(&unit).await, TaskState::Tombstoned);
        assert!(fixture.plane.taken(&token(&unit)).is_empty());
    }
    fixture.close().await;
}

/// One is asked for the first attempt, the other for the second.
#[tokio::test(flavor = "multi_thread")]
async fn asked_for_two_tries() {
    let fixture = RelayFixture::new("rivals", &[]).await;
    let twin = fixture.twin().await;
    let units: Vec<_> = (0..6).map(|number| format!("unit-{number}")).collect();
    join_all(units.iter().map(async |unit| {
        let [first, second] = [1, 2].map(|attempt| name(unit, attempt));
        let ensure = async |of: &RelayFixture, name: &TaskId, text: &str| {
            let request = of.ensure_of(name, script(name, text));
            until("an answer", async || match of.ensure(request.clone()).await {
                RelayResponse::State(state) => Some(state),
                RelayResponse::Unavailable(_) => None,
                other => panic!("{other:?}"),
            })
            .await
        };
        join(ensure(&fixture, &first, "sleep 1000"), ensure(&twin, &second, "echo second")).await;
        assert_eq!(fixture.result(&second).await.log.as_deref(), Some("second\n"));
        until("the tombstone", async || (fixture.get(&first).await == TaskState::Tombstoned).then_some(())).await;
        assert!(fixture.plane.taken(&token(&first)).is_empty());
    }))
    .await;
    fixture.close().await;
}
