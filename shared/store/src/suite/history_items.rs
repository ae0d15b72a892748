use super::fixture::*;

fn decision(at: u64) -> HistoryItem {
    HistoryItem { at: Timestamp(at), document: Some("resources: {}\n".repeat(1_000)), ..sample("decision") }
}

pub(super) async fn the_history_is_listed_from_the_newest_entry(fixture: StoreFixture) {
    let (store, key) = (&fixture.store, TargetKey::new("route group", "a#b%c"));
    let begun = HistoryItem { run: Some(new_run("a").id), ..sample("begun") };
    let entries = [decision(1_800_000_000_002), decision(1_800_000_000_001), begun, decision(999)];
    // A repeated write is the same entry.
    for entry in entries.iter().chain(&entries[1..3]) {
        assert!(store.note_history(key, entry).await.unwrap());
    }
    // Of two entries of a run at one time, the first one stays.
    let second = HistoryItem { document: Some("resources: {}\n".to_owned()), ..entries[2].clone() };
    assert_eq!((second.id(), store.note_history(key, &second).await.unwrap()), (entries[2].id(), false));
    store.note_history(TargetKey::new("route group", "a#b%c2"), &entries[0]).await.unwrap();

    let mut listed = Vec::new();
    let mut after = None;
    for length in [2, 2] {
        let page = store.list_history(key, after.as_deref(), 2).await.unwrap();
        assert_eq!(page.entries.len(), length);
        listed.extend(page.entries);
        after = page.next;
    }
    assert_eq!((listed.as_slice(), after), (entries.as_slice(), None));
    for entry in &entries {
        assert_eq!(store.read_history(key, &entry.id()).await.unwrap().as_ref(), Some(entry));
    }
    for id in ["", "z", "0"] {
        assert_eq!(store.read_history(key, id).await.unwrap(), None);
    }
    for after in ["z", "9"] {
        assert!(store.list_history(key, Some(after), 2).await.unwrap().entries.is_empty());
    }
}

pub(super) async fn a_change_without_a_run_is_written_with_its_entry(fixture: StoreFixture) {
    let (store, head) = (&fixture.store, target("sandbox", "a"));
    let entry = HistoryItem { expires: Some(Timestamp(1_800_000_000_001)), ..decision(1_800_000_000_000) };
    let first = TargetTransition { entry: Some(entry.clone()), ..TargetTransition::new(head.clone(), None) };
    assert!(store.move_target(&first).await.unwrap());
    // A refused change has no entry.
    let second = TargetTransition { entry: Some(decision(7)), ..TargetTransition::new(head.clone(), None) };
    assert!(!store.move_target(&second).await.unwrap());
    let listed = store.list_history(head.target_key(), None, 9).await.unwrap();
    assert_eq!(listed.entries, [HistoryItem { expires: None, ..entry.clone() }]);
    assert_eq!(fixture.item("y#sandbox#a", &entry.id()).await.unwrap()["ttl"].as_n().unwrap(), "1800000001");
}
