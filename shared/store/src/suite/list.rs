use super::fixture::*;

impl StoreFixture {
    async fn names(&self, kind: Option<&str>, after: Option<TargetKey<'_>>, limit: usize) -> Vec<String> {
        let targets = self.store.list_page(TargetList::Active, kind, after, limit).await.unwrap().targets;
        targets.into_iter().map(|target| target.target_key().to_string()).collect()
    }

    /// Writes copies of a target with other names. A gone one is still in the list of living targets, as in a stale index.
    async fn write_copies(&self, name: &str, copies: impl Iterator<Item = (String, bool)>) {
        let item = self.item(&format!("t#sandbox#{name}"), "h").await.unwrap();
        let items = copies.map(|(copy, is_gone)| {
            let body = item["b"].as_s().unwrap().replace(&format!("\"{name}\""), &format!("\"{copy}\""));
            let body = if is_gone { body.replace("starting", "gone") } else { body };
            let mut item = item.clone();
            item.insert("pk".to_owned(), text(format!("t#sandbox#{copy}")));
            item.insert("b".to_owned(), text(body));
            item
        });
        self.write(items.collect()).await;
    }
}

pub(super) async fn due_items_are_found_until_they_change(fixture: StoreFixture) {
    let base = 1_800_000_000_000;
    for n in 0..40 {
        fixture.put(TargetHead { due: Some(Timestamp(base + n)), ..target("sandbox", &n.to_string()) }).await;
    }
    fixture.put(TargetHead { due: None, ..target("sandbox", "idle") }).await;
    let run = new_run("r");
    let mut transition = begin("r");
    transition.target.due = None;
    assert!(fixture.store.move_target(&transition).await.unwrap());

    let name = |n: u64| (Timestamp(base + n), DueItem::Target("sandbox".into(), n.to_string()));
    let due = fixture.store.query_due(Timestamp(base + 9), 100).await.unwrap();
    assert_eq!(due, (0..10).map(name).collect::<Vec<_>>());
    let due = fixture.store.query_due(Timestamp(base + 39), 3).await.unwrap();
    assert_eq!(due, (0..3).map(name).collect::<Vec<_>>());
    let due = fixture.store.query_due(run.due, 100).await.unwrap();
    assert_eq!((due.len(), due.last()), (41, Some(&(run.due, DueItem::Run(run.id.clone())))));

    let closed = RunEvent::Closed { version: 0, notified: None };
    fixture.store.patch_run(&run.id, &accept(closed)).await.unwrap();
    assert_eq!(fixture.store.query_due(run.due, 100).await.unwrap().len(), 40);
    fixture.transit(TargetHead { due: None, version: 2, ..target("sandbox", "0") }, Some(1)).await;
    assert_eq!(fixture.store.query_due(run.due, 100).await.unwrap().len(), 39);
}

pub(super) async fn targets_are_listed_by_kind_and_name(fixture: StoreFixture) {
    for (kind, name) in [("b", "x"), ("a", "y"), ("a", "x-y"), ("a", "x"), ("a-b", "x"), ("a", "xé"), ("a", "x#1")] {
        fixture.put(target(kind, name)).await;
    }
    fixture.run("r").await;
    let all = ["a/x", "a/x#1", "a/xé", "a/x-y", "a/y", "a-b/x", "b/x", "sandbox/r"];
    assert_eq!(fixture.names(None, None, 100).await, all);
    assert_eq!(fixture.names(Some("a"), None, 100).await, all[..5]);
    assert_eq!(fixture.names(Some("a"), None, 3).await, all[..3]);
    assert_eq!(fixture.names(Some("a"), Some(TargetKey::new("a", "x#1")), 3).await, all[2..5]);
    assert_eq!(fixture.names(None, Some(TargetKey::new("a", "y")), 2).await, all[5..7]);
    assert_eq!(fixture.names(Some("c"), None, 2).await, Vec::<String>::new());
    assert_eq!(fixture.names(Some("b"), Some(TargetKey::new("a", "y")), 2).await, ["b/x"]);
}

/// A gone target that waits is in the active list.
pub(super) async fn gone_targets_have_a_separate_list(fixture: StoreFixture) {
    type MovedTarget = (String, Option<u64>, serde_json::Map<String, serde_json::Value>, [Vec<String>; 2]);
    for (name, seen, changes, expected) in sample::<Vec<MovedTarget>>("movedTargets") {
        let mut head = json!(target("sandbox", &name));
        head.as_object_mut().unwrap().extend(changes);
        let head: TargetHead = serde_json::from_value(head).unwrap();
        fixture.meter.take();
        fixture.transit(TargetHead { version: seen.unwrap_or(0) + 1, ..head }, seen).await;
        for (list, expected) in [TargetList::Active, TargetList::Gone].into_iter().zip(&expected) {
            let targets = fixture.store.list_page(list, None, None, 10).await.unwrap().targets;
            let names: Vec<String> = targets.into_iter().map(|target| target.name).collect();
            assert_eq!(&names, expected, "{list:?} after {name} {seen:?}");
        }
        // Targets outside of the list are not read.
        let read = expected.iter().filter(|names| !names.is_empty()).count() as u64;
        assert_eq!(fixture.meter.take().requests, [("PutItem", 1), ("Query", 2), ("BatchGetItem", read)].into());
    }
}

pub(super) async fn stale_entries_are_skipped_by_page(fixture: StoreFixture) {
    const STALE: usize = 1_000;
    let name = |n: usize| match n {
        0..99 => format!("a-{n:04}"),
        _ if n == 99 + STALE => "z".to_owned(),
        _ => format!("b-{n:04}"),
    };
    fixture.put(target("sandbox", "a-0000")).await;
    let copies = (1..100 + STALE).map(|n| (name(n), name(n).starts_with('b')));
    fixture.write_copies("a-0000", copies).await;
    fixture.meter.take();
    let names = fixture.names(None, None, 100).await;
    assert_eq!((names.len(), names[0].as_str(), names[99].as_str()), (100, "sandbox/a-0000", "sandbox/z"));
    let requests = fixture.meter.take().requests;
    assert_eq!((requests["Query"], requests["BatchGetItem"]), (4, 11));
}

/// A page ends after many stale entries, and the next page continues behind them.
pub(super) async fn a_page_of_stale_entries_ends(fixture: StoreFixture) {
    const STALE: usize = 6_000;
    fixture.put(target("sandbox", "0000")).await;
    fixture.write_copies("0000", (1..=STALE).map(|n| (format!("{n:04}"), true))).await;
    fixture.put(target("sandbox", "z")).await;
    let page = fixture.store.list_page(TargetList::Active, None, None, 100).await.unwrap();
    assert_eq!(page.targets.len(), 1);
    let (kind, name) = page.next.expect("a page that is not the last one");
    assert!((5_000..6_000).contains(&name.parse::<usize>().unwrap()), "{name}");
    let after = Some(TargetKey::new(&kind, &name));
    let page = fixture.store.list_page(TargetList::Active, None, after, 100).await.unwrap();
    assert_eq!((page.targets.len(), page.targets[0].name.as_str(), page.next), (1, "z", None));
}

/// An unreadable target is reported and does not hide others.
pub(super) async fn a_damaged_target_is_reported_in_the_list(fixture: StoreFixture) {
    for name in ["a", "b", "c"] {
        fixture.put(target("sandbox", name)).await;
    }
    let mut item = fixture.item("t#sandbox#b", "h").await.unwrap();
    let later = item["b"].as_s().unwrap().replace("starting", "of-a-later-version");
    item.insert("b".into(), text(later));
    fixture.write(vec![item]).await;
    let page = fixture.store.list_page(TargetList::Active, None, None, 100).await.unwrap();
    let names: Vec<&str> = page.targets.iter().map(|target| target.name.as_str()).collect();
    assert_eq!((names, page.next), (vec!["a", "c"], None));
    assert!(page.damaged.len() == 1 && page.damaged[0].starts_with("t#sandbox#b: "), "{:?}", page.damaged);
}

/// A response of the table holds at most 16 MB.
pub(super) async fn targets_beyond_one_response_are_listed(fixture: StoreFixture) {
    for n in 0..48 {
        let large = vec!["x".repeat(380 << 10)];
        fixture.put(TargetHead { plugins: large, ..target("sandbox", &format!("{n:03}")) }).await;
    }
    fixture.meter.take();
    let names = fixture.names(None, None, 100).await;
    assert_eq!((names.len(), names.is_sorted()), (48, true));
    assert!(fixture.meter.take().requests["BatchGetItem"] > 1);
}
