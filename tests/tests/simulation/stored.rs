//! A snapshot of each kind of item and object that the store writes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;

use aws_sdk_dynamodb::types::AttributeValue;
use ebb_engine::{Attempt, Epoch, Hook, LateMark, Patch, PatchChange, RunPhase, TargetPhase, Timestamp, Unit};
use ebb_local::embedded::{EmbeddedTable, FolderBucket, StateDurability};
use ebb_protocol::limits::DISTINCT_RESULTS;
use ebb_protocol::record::{AttemptOutcome, AttemptResult, InstanceIds, OutputStorage, StateWait, StoredText};
use ebb_protocol::{ReportedPolicy, RunId, TokenInfo, digest};
use ebb_store::suite::samples::{self, AT, full_result, full_target};
use ebb_store::{self as store, *};
use serde::de::DeserializeOwned;

/// The source code of the keys of items.
const KEYS: &str = include_str!("../../../shared/store/src/dynamo/key.rs");

/// Returns an item with every attribute that is in `stored.json`.
fn sample<T: DeserializeOwned>(name: &str) -> T {
    let mut samples: serde_json::Value = serde_json::from_str(include_str!("stored.json")).unwrap();
    serde_json::from_value(samples[name].take()).unwrap()
}

async fn store_instances(store: &Store) {
    let run = &RunId::new("instance", 1, Hook::PreStart);
    let TargetHead { kind, name, uid, generation, plan, routing_key, updates, events, .. } = full_target();
    let event = events.recent.into_iter().next();
    let (due, failures) = (AT, 1);
    let expiry = InstanceExpiry { kind, name, uid, generation, updates, plan, event, due, failures };
    store.put_expiry(&expiry).await.unwrap();
    let InstanceExpiry { kind, name, uid, generation, plan, .. } = expiry;
    let by = Some("source previews".to_owned());
    let facts = RunFacts { kind, name, uid, generation, plan, routing_key, started: AT, by };
    let new_run = NewRun { id: run.clone(), facts, due: AT };
    let tombstone = Tombstone { instance: "former".into(), ended: AT, needed: Some(AT) };
    let gone = TargetHead { name: "gone".into(), phase: TargetPhase::Gone, due: None, ..full_target() };
    for (target, run, tombstone) in [(full_target(), Some(new_run), Some(tombstone)), (gone, None, None)] {
        let transition = TargetTransition { run, tombstone, ..TargetTransition::new(target, None) };
        assert!(store.move_target(&transition).await.unwrap());
    }
    let (run_of_decision, document) = (Some(run.clone()), Some("x".repeat(100)));
    let decision = HistoryItem { run: run_of_decision, document, expires: Some(AT), ..sample("decision") };
    store.note_history(full_target().target_key(), &decision).await.unwrap();
    let changes = vec![
        PatchChange::AddDone(Unit(0)),
        PatchChange::AddFailed(Unit(1)),
        PatchChange::AddSealed(Unit(999)),
        PatchChange::AddLate(LateMark { unit: Unit(3), attempt: Attempt::FIRST, mark: 7_000 }),
        PatchChange::SetAttempt(Unit(1), Attempt(2)),
        PatchChange::SetEpoch(Epoch(2)),
        PatchChange::BumpVersion,
        PatchChange::SetPhase(RunPhase::Cancelling),
        PatchChange::SetStopped(AT),
        PatchChange::SetDue(AT),
        PatchChange::AnnounceRemoval(AT),
        PatchChange::SetNotified(Some(AT)),
    ];
    store.patch_run(run, &Patch { conditions: vec![], changes }).await.unwrap();
    let (unit, attempt) = (Unit(0), Attempt::FIRST);
    let response = StoredText::Inline("sealed".into());
    let wait = StateWait { since: AT, outputs: OutputStorage::Bucket("key".into()), response };
    let ids = || BTreeSet::from(["i-1".to_owned()]);
    let instances = InstanceIds { made: ids(), listed: ids(), destroyed: ids() };
    for update in [
        AttemptUpdate::Postponed(AT, Some("why".into())),
        AttemptUpdate::Started(AT),
        AttemptUpdate::Accepted(AT),
        AttemptUpdate::DispatchAgain(AT),
        AttemptUpdate::Leased(AT),
        AttemptUpdate::Heartbeat(AT, Some("half".into())),
        AttemptUpdate::Refused("why".into()),
        AttemptUpdate::Waiting { wait: Box::new(wait), begun: AT, next: AT, seen_by: Some("c".into()) },
        AttemptUpdate::Seen("c".into()),
        AttemptUpdate::Posted(AT, Some("c".into())),
        AttemptUpdate::Instances(instances),
    ] {
        store.update_attempt(run, unit, attempt, &update).await.unwrap();
    }
    store.put_result(run, unit, attempt, &full_result()).await.unwrap();
    for number in 0..=DISTINCT_RESULTS {
        let (outcome, outputs) = (AttemptOutcome::Succeeded, OutputStorage::Bucket("key".into()));
        let result = AttemptResult { outcome, outputs, digest: number.to_string(), ..full_result() };
        for unit in [unit, Unit(1)] {
            store.put_result(run, unit, attempt, &result).await.unwrap();
        }
    }
    store.record_accepted(run, &[(unit, attempt)], AT).await.unwrap();
    store.mark_outputs(run).await.unwrap();
    for folder in [OUTPUTS, LOGS] {
        store.bucket.put_object(&format!("{folder}/{run}/0/1"), vec![]).await.unwrap();
    }
}

async fn documents(store: &Store) {
    let incompressible: String = (0..200_u32).map(|number| digest(&number.to_be_bytes())).collect();
    for (name, plan) in [("small", "{}"), ("packed", &"x".repeat(2_000)), ("large", &incompressible)] {
        let target = TargetHead { name: name.into(), ..full_target() };
        let creation = TargetTransition::new(target, None);
        assert!(store.begin_instance(&creation, name, plan.as_bytes(), AT).await.unwrap());
    }
    for (version, size) in [("1.0.0", 1), ("2.0.0", store::dynamo::DOCUMENT_INLINE + 1)] {
        let (name, version, dialect, digest) = ("p".into(), version.into(), "ebb".into(), digest(b"x"));
        let plugin =
            PluginItem { name, version, dialect, digest, document: "x".repeat(size), created: AT, withdrawn: None };
        assert!(store.put_plugin(&plugin).await.unwrap());
    }
    assert!(store.withdraw_plugin("p", "1.0.0", AT).await.unwrap());
}

async fn clusters(store: &Store) {
    for (id, size) in [("1", 1), ("2", store::dynamo::BATCH_INLINE + 1)] {
        let batch = QueuedBatch { id: id.into(), posted: AT, expires: AT, body: vec![b'x'; size], once: false };
        store.enqueue_batch("far", &batch).await.unwrap();
        assert!(store.put_reply("far", id, &batch.body).await.unwrap());
    }
    assert!(store.claim_scan("far", None, AT).await.unwrap());
    assert!(store.begin_fault(ClusterFaultKind::Outage, "far", AT, "why").await.unwrap());
    assert!(store.begin_fault(ClusterFaultKind::Denial, "far", AT, "why").await.unwrap());
    let policy = ReportedPolicy { unit_namespace: Some("units".into()), ..ReportedPolicy::default() };
    store.note_policy("far", &PolicyRecord { at: AT, policy }).await.unwrap();
    assert!(store.put_cluster(&samples::full_cluster(), None).await.unwrap());
    let feed = store.watch_changes(AT, Some(AT)).await.unwrap();
    store.note_changes(&feed, &["sandbox/full"]).await.unwrap();
    for mark in [HealthMark::Table, HealthMark::Queue, HealthMark::Schedule] {
        store.put_mark(mark, AT).await.unwrap();
    }
}

async fn sources(store: &Store) {
    let document = NamedDocument { name: "s".into(), document: "x".into(), changed: AT };
    for kind in [NamedKind::Source, NamedKind::Connection, NamedKind::Subscription, NamedKind::Undelivered] {
        store.put_document(kind, &document).await.unwrap();
    }
    let desired = DesiredTarget { due: Some(AT), version: 1, ..sample("desired") };
    assert!(store.put_desired(&desired).await.unwrap());
    assert!(store.put_rejections(&samples::rejections("s", &["2"], 1)).await.unwrap());
    let (pass, version) = (Some(ListPass { begun: AT, ..ListPass::default() }), 1);
    for (source, count) in [("small", 1), ("large", 2_000)] {
        let things = (0..count).map(|number| digest(&[number as u8, (number >> 8) as u8])).collect();
        let findings = ListFindings { things, ..ListFindings::default() };
        let watch =
            SourceWatch { source: source.to_owned(), pass: pass.clone(), due: AT, version, ..Default::default() };
        assert!(store.put_watch(&watch, &findings).await.unwrap());
    }
    let done = DesiredTarget { key: DesiredKey { uid: None, ..desired.key.clone() }, due: None, ..desired };
    assert!(store.put_desired(&done).await.unwrap());
}

async fn tokens(store: &Store) {
    let token = samples::token();
    assert!(store.create_token(&token).await.unwrap());
    let revoked = TokenItem { info: TokenInfo { name: "revoked".into(), ..token.info }, ..token };
    assert!(store.create_token(&revoked).await.unwrap());
    assert!(store.revoke_token("revoked", AT).await.unwrap());
    let session = samples::session();
    store.put_session(&session).await.unwrap();
    let basis = SessionBasis::Identity("encrypted".into());
    store.put_session(&SessionItem { digest: "identity".into(), basis, ..session }).await.unwrap();
    assert!(store.take_slot(("connection", "api"), "attempt", (1, AT, AT)).await.unwrap().0);
    let (token, failure) = (Some("encrypted".into()), Some("why".into()));
    let access = AccessTokenItem { token, obtained: AT, expires: AT, failure, leased_until: AT };
    let client = ("api", "client");
    assert!(store.put_access_token(client, &access, Some(AT)).await.unwrap());
    let other = AccessTokenItem { failure: None, ..access };
    assert!(!store.put_access_token(client, &other, Some(Timestamp(AT.0 - 1))).await.unwrap(), "it is leased");
}

/// Returns the type and value of an attribute. Binary and random values are left out.
fn shown(name: &str, value: &AttributeValue) -> String {
    match value {
        AttributeValue::B(_) => "B".to_owned(),
        AttributeValue::S(text) if name == "by" || text.starts_with("plans/") => "S".to_owned(),
        AttributeValue::Ss(texts) => format!("Ss({:?}, …)", texts.iter().min()),
        value => format!("{value:?}"),
    }
}

/// Returns the prefixes of keys in [`KEYS`]: each constant, and the first word of each format, also of a named one.
fn prefixes() -> BTreeSet<&'static str> {
    let code = KEYS.split("#[cfg(test)]").next().unwrap();
    let texts = ["&str = \"", "format!(\"", ": \""].into_iter().flat_map(|before| code.split(before).skip(1));
    let literals = texts.map(|rest| rest.split('"').next().unwrap().split('{'));
    let is_word = |part: &&str| part.contains(|letter: char| letter.is_ascii_alphabetic());
    literals.filter_map(|mut parts| parts.find_map(|part| part.rsplit('}').next().filter(is_word))).collect()
}

#[tokio::test]
async fn stored_items_and_objects_match_the_snapshot() {
    let folder = tempfile::tempdir().unwrap();
    let bucket = FolderBucket::open(folder.path(), StateDurability::Process).unwrap();
    let (table, bucket) = (Arc::new(EmbeddedTable::temporary().unwrap()), Arc::new(bucket));
    let store = Store::new(table.clone(), bucket.clone());
    store_instances(&store).await;
    documents(&store).await;
    clusters(&store).await;
    sources(&store).await;
    tokens(&store).await;

    // The items of a run differ by their sort keys.
    let mut kinds: BTreeMap<_, BTreeMap<_, _>> = BTreeMap::new();
    let mut keys = BTreeSet::new();
    let items = table.scan().unwrap();
    for item in &items {
        let [partition, sort] = ["pk", "sk"].map(|key| item[key].as_s().unwrap());
        keys.extend(item.keys().chain([partition, sort]));
        let parts: Vec<_> = sort.split('#').filter(|part| part.parse::<u64>().is_err()).collect();
        let of_run = partition.starts_with("r#").then(|| (parts[0], sort.len() > 1, parts.len()));
        let attributes = kinds.entry((partition.split('#').next(), of_run)).or_default();
        for (name, value) in item {
            attributes.entry(name).or_insert_with(|| shown(name, value));
        }
    }
    let prefixes = prefixes();
    for prefix in &prefixes {
        let has = |key: &String| match (prefix.starts_with('#'), prefix.ends_with('#')) {
            (true, _) => key.contains(prefix),
            (false, true) => key.starts_with(prefix),
            (false, false) => key == prefix,
        };
        assert!(keys.iter().any(|key| has(key)), "no item has the key `{prefix}` of key.rs");
    }
    let listed = bucket.list("").await.unwrap();
    let folders = listed.iter().filter_map(|key| key.split('/').next());
    let mut form = format!("keys: {prefixes:?}\nfolders: {:?}\n", folders.collect::<BTreeSet<_>>());
    for attributes in kinds.into_values() {
        let shown = attributes.into_iter().map(|(name, value)| format!("  {name}: {value}"));
        writeln!(form, "item\n{}", shown.collect::<Vec<_>>().join("\n")).unwrap();
    }
    insta::assert_snapshot!(form);
}
