//! Two relays with the same namespaces, by mistake. Each task runs once, and no object remains.

use std::collections::BTreeSet;

use futures::future::{join, join_all};

use crate::fixture::*;

/// Number of tasks that one relay starts and the other cancels.
const CANCELLED: u32 = 12;

#[tokio::test(flavor = "multi_thread")]
async fn two_relays_with_the_same_namespaces() {
    let fixture = RelayFixture::new("two", &[]).await;
    let second_relay = fixture.second_relay().await;
    the_same_task_at_both(&fixture, &second_relay).await;
    one_cancels_what_the_other_starts(&fixture, &second_relay).await;
    two_attempts_at_two_relays(&fixture, &second_relay).await;
    fixture.close().await;
}

async fn the_same_task_at_both(fixture: &RelayFixture, second_relay: &RelayFixture) {
    let units: Vec<TaskId> = (0..6).map(|number| name(&format!("unit-{number}"), 1)).collect();
    join_all(units.iter().map(async |unit| {
        let text = format!("echo {}; sleep 2", unit.unit);
        let ensure = async |of: &RelayFixture| of.apply(unit, script(unit, &text)).await;
        let (one, other) = join(ensure(fixture), ensure(second_relay)).await;
        for response in [one, other] {
            assert!(matches!(response, RelayResponse::State(_)), "{response:?}");
        }
    }))
    .await;
    let jobs = async || {
        let jobs = fixture.api::<Job>().list(&ListParams::default()).await.unwrap();
        jobs.iter().map(|job| job.uid().unwrap()).collect::<BTreeSet<_>>()
    };
    let mut created = jobs().await;
    for unit in &units {
        assert_eq!(fixture.success(unit).await.log, Some(format!("{}\n", unit.unit)));
        created.extend(jobs().await);
    }
    assert_eq!(created.len(), units.len());
    for unit in &units {
        until("a tombstone", async || (second_relay.get(unit).await == TaskState::Tombstoned).then_some(())).await;
        let all = fixture.callbacks.accepted(&token(unit));
        assert!(all.iter().all(|result| *result == all[0]), "{all:?}");
    }
}

async fn one_cancels_what_the_other_starts(fixture: &RelayFixture, second_relay: &RelayFixture) {
    let ensure = async |unit: &TaskId| {
        let started = Instant::now();
        fixture.apply(unit, script(unit, "sleep 1000")).await;
        started.elapsed()
    };
    let cancel_after = async |unit: &TaskId, after: Duration| {
        tokio::time::sleep(after).await;
        second_relay.cancel(unit).await;
    };
    let first = name("first", 1);
    ensure(&first).await;
    cancel_after(&first, Duration::ZERO).await;
    // The tasks start one after the other and take about the same time. The delay of the cancellation grows.
    let mut took = Duration::ZERO;
    for number in 0..CANCELLED {
        let unit = name(&format!("cancelled-{number}"), 1);
        (took, ()) = join(ensure(&unit), cancel_after(&unit, took * number / CANCELLED)).await;
        assert_eq!(fixture.get(&unit).await, TaskState::Tombstoned);
        assert!(fixture.callbacks.accepted(&token(&unit)).is_empty());
    }
}

/// One relay receives the request of the first attempt, the other that of the second.
async fn two_attempts_at_two_relays(fixture: &RelayFixture, second_relay: &RelayFixture) {
    let units: Vec<_> = (0..6).map(|number| format!("attempts-{number}")).collect();
    join_all(units.iter().map(async |unit| {
        let [first, second] = [1, 2].map(|attempt| name(unit, attempt));
        let ensure = async |of: &RelayFixture, name: &TaskId, text: &str| {
            let request = of.ensure_of(name, script(name, text));
            until("a state", async || match of.ensure(request.clone()).await {
                RelayResponse::State(state) => Some(state),
                RelayResponse::Unavailable(_) => None,
                other => panic!("{other:?}"),
            })
            .await
        };
        join(ensure(fixture, &first, "sleep 1000"), ensure(second_relay, &second, "echo second")).await;
        assert_eq!(fixture.result(&second).await.log.as_deref(), Some("second\n"));
        until("the tombstone", async || (fixture.get(&first).await == TaskState::Tombstoned).then_some(())).await;
        assert!(fixture.callbacks.accepted(&token(&first)).is_empty());
    }))
    .await;
}
