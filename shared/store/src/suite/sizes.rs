use ebb_protocol::engine::MAX_UNITS;
use ebb_protocol::lifecycle::{self, LifecycleData};
use ebb_protocol::limits::{DISTINCT_RESULTS, OUTPUTS_INLINE};

use super::fixture::*;

/// Maximum size of an item, in bytes.
const LIMIT: usize = 400 << 10;

fn assert_too_large<T: std::fmt::Debug>(response: StoreResult<T>) {
    let error = response.unwrap_err();
    let StoreError::Broken { reason, .. } = &error else { panic!("{error:?}") };
    assert!(reason.to_lowercase().contains("item size"), "{error}");
}

pub(super) async fn a_result_that_is_too_large_is_rejected(fixture: StoreFixture) {
    let run = fixture.run("a").await;
    assert_too_large(fixture.store.put_result(&run, Unit(0), A1, &outputs(LIMIT, "a")).await);
    assert_eq!(fixture.store.read_all_records(&run).await.unwrap(), []);
    let fits = outputs(LIMIT - 1024, "b");
    assert_eq!(fixture.store.put_result(&run, Unit(0), A1, &fits).await.unwrap(), PutOutcome::Created);
    assert_too_large(fixture.store.put_result(&run, Unit(0), A1, &outputs(LIMIT, "c")).await);
    let records = fixture.store.read_all_records(&run).await.unwrap();
    assert_eq!((records[0].2.result.as_ref(), records[0].2.further_results.len()), (Some(&fits), 0));
}

pub(super) async fn a_target_that_is_too_large_is_rejected(fixture: StoreFixture) {
    let large = TargetHead { plugins: vec!["x".repeat(LIMIT)], ..target("sandbox", "a") };
    let alone = TargetTransition::new(large, None);
    assert_too_large(fixture.store.move_target(&alone).await);
    let together = TargetTransition { run: Some(new_run("a")), ..alone };
    assert_too_large(fixture.store.move_target(&together).await);
    assert_eq!(fixture.store.read_target(TargetKey::new("sandbox", "a")).await.unwrap(), None);
    assert_eq!(fixture.store.read_run(&new_run("a").id).await.unwrap(), None);
}

pub(super) async fn the_largest_items_fit(fixture: StoreFixture) {
    let run = fixture.run("a").await;
    // The largest head: all units have the longest attempt, all late results and seals.
    let units: Vec<Unit> = (0..).map(Unit).take(MAX_UNITS).collect();
    // An expression of DynamoDB has at most 300 operators.
    for units in units.chunks(100) {
        let changes = units.iter().flat_map(|&unit| {
            let longest = Attempt(u32::MAX);
            let marks = (0_u32..).take(DISTINCT_RESULTS).map(|mark| u32::MAX - mark);
            let late = marks.map(move |mark| PatchChange::AddLate(LateMark { unit, attempt: longest, mark }));
            late.chain([
                PatchChange::AddDone(unit),
                PatchChange::AddSealed(unit),
                PatchChange::SetAttempt(unit, longest),
            ])
        });
        let patch = Patch { conditions: vec![], changes: changes.collect() };
        written(fixture.store.patch_run(&run, &patch).await.unwrap());
    }
    let head = fixture.store.read_run(&run).await.unwrap().unwrap().head;
    let counts = [head.done.len(), head.sealed.len(), head.attempts.len(), head.late.len()];
    assert_eq!(counts, [MAX_UNITS, MAX_UNITS, MAX_UNITS, MAX_UNITS * DISTINCT_RESULTS]);
    let bytes = fixture.meter.take().largest_head;
    assert!(bytes < LIMIT - (64 << 10), "{bytes} bytes");

    let inline = outputs(OUTPUTS_INLINE - 8, "a");
    assert_eq!(fixture.store.put_result(&run, Unit(0), A1, &inline).await.unwrap(), PutOutcome::Created);
    // Only the attempt record and the head item are written: four write units.
    fixture.meter.take();
    assert_eq!(fixture.store.put_result(&run, Unit(1), A1, &inline).await.unwrap(), PutOutcome::Created);
    assert_eq!(fixture.meter.take().write_units, 4.0);
}

pub(super) async fn keys_that_are_too_long_are_not_found(fixture: StoreFixture) {
    for name in ["x".repeat(2048), "\u{1f40b}".repeat(253)] {
        assert_eq!(fixture.store.read_target(TargetKey::new("sandbox", &name)).await.unwrap(), None);
        assert_eq!(fixture.store.list_versions(&name).await.unwrap(), []);
        assert_eq!(fixture.store.get_plugin(&name, "1.0.0").await.unwrap(), None);
    }
    assert_eq!(fixture.store.get_plugin("a", &"1".repeat(1025)).await.unwrap(), None);
}

/// The table stores a character that is not ASCII in more bytes than UTF-8.
pub(super) async fn the_longest_names_of_targets_fit_into_keys(fixture: StoreFixture) {
    let kind = "k".repeat(LifecycleData::MAX_KIND);
    let longest = |character: char| {
        let fit = LifecycleData::MAX_NAME_BYTES / character.len_utf8();
        character.to_string().repeat(fit.min(LifecycleData::MAX_NAME))
    };
    for character in ['a', '!', '\u{e4}', '\u{20ac}', '\u{1f40b}'] {
        let name = longest(character);
        lifecycle::kind(&kind).and_then(|()| lifecycle::name(&name)).unwrap();
        fixture.put(target(&kind, &name)).await;
        lifecycle::name(&format!("{name}{character}")).unwrap_err();
    }
    assert_eq!(fixture.store.list_page(TargetList::Active, Some(&kind), None, 100).await.unwrap().targets.len(), 5);
}
