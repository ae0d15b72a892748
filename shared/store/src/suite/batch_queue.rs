use ebb_protocol::listing::ReportedPolicy;

use super::fixture::*;

fn batch(id: &str, ends: u64, size: usize) -> QueuedBatch {
    QueuedBatch { id: id.into(), posted: AT, expires: Timestamp(AT.0 + ends), body: vec![7; size], once: false }
}

async fn pending(store: &Store, cluster: &str, at: u64, open: &[String], limit: usize, bytes: usize) -> Vec<String> {
    let now = Timestamp(AT.0 + at);
    let found = store.pending_batches(cluster, now, open, limit, bytes).await.unwrap();
    found.into_iter().map(|batch| batch.id).collect()
}

pub(super) async fn batches_are_pending_until_they_have_a_response_or_expire(fixture: StoreFixture) {
    type ReplyStep = (String, String, String, String, serde_json::Value);
    let store = &fixture.store;
    for queued in [batch("b", 20, 10), batch("a", 10, 10), batch("c", 30, 10)] {
        store.enqueue_batch("eu", &queued).await.unwrap();
    }
    store.enqueue_batch("eu#1", &batch("a", 30, 10)).await.unwrap();
    let all = usize::MAX;
    let rows: Vec<(u64, Vec<String>, _, Option<_>, Vec<String>)> = sample("pendingBatches");
    for (at, in_progress, limit, bytes, expected) in rows {
        let found = pending(store, "eu", at, &in_progress, limit, bytes.unwrap_or(all)).await;
        assert_eq!(found, expected, "{at} {in_progress:?} {limit} {bytes:?}");
    }
    // An unknown batch, one of another cluster and a deleted one accept no response.
    for (step, cluster, id, reply, expected) in sample::<Vec<ReplyStep>>("batchReplies") {
        let text = |found: Option<Vec<u8>>| json!(found.map(|bytes| String::from_utf8(bytes).unwrap()));
        let found = match step.as_str() {
            "reply" => json!(store.put_reply(&cluster, &id, reply.as_bytes()).await.unwrap()),
            "read" => text(store.read_reply(&cluster, &id).await.unwrap()),
            "take" => text(store.take_batch(&cluster, &id).await.unwrap()),
            _ => json!(pending(store, &cluster, 0, &[], 9, all).await),
        };
        assert_eq!(found, expected, "{step} {cluster} {id}");
    }
    assert!(fixture.item("batch#eu", "b").await.is_none());
    assert!(fixture.item("batch#eu", "c").await.unwrap()["ttl"].is_n());
}

/// Batches whose sender has gone do not slow polls down for the retention of the table.
pub(super) async fn polls_delete_abandoned_batches(StoreFixture { store, meter, .. }: StoreFixture) {
    for number in 0..30 {
        store.enqueue_batch("eu", &batch(&format!("{number:02}"), 10, 10)).await.unwrap();
    }
    store.enqueue_batch("eu", &batch("large", 10, BATCH_INLINE + 1)).await.unwrap();
    store.enqueue_batch("eu", &batch("valid", 90_000, 10)).await.unwrap();
    meter.take();
    for (at, deleted) in [(60_010, 0), (60_011, 25), (60_011, 6), (60_011, 0)] {
        assert_eq!(pending(&store, "eu", at, &[], 9, usize::MAX).await, ["valid"]);
        assert_eq!(meter.take().requests.get("DeleteItem").copied().unwrap_or(0), deleted);
    }
    assert_eq!(store.bucket.get_object("batches/eu/large").await.unwrap(), None);
}

pub(super) async fn large_batches_and_responses_are_stored_in_the_bucket(StoreFixture { store, .. }: StoreFixture) {
    for (size, in_bucket) in [(BATCH_INLINE, false), (BATCH_INLINE + 1, true), (3 << 20, true)] {
        let id = size.to_string();
        let (body, response) = (format!("batches/eu/{id}"), format!("batches/eu/{id}.response"));
        store.enqueue_batch("eu", &batch(&id, 10, size)).await.unwrap();
        let found = store.pending_batches("eu", AT, &[], 9, usize::MAX).await.unwrap();
        assert_eq!(found, [batch(&id, 10, size)]);
        assert!(store.put_reply("eu", &id, &vec![8; size]).await.unwrap());
        assert_eq!(store.bucket.get_object(&body).await.unwrap().is_some(), in_bucket, "{size}");
        assert_eq!(store.bucket.get_object(&response).await.unwrap().is_some(), in_bucket, "{size}");
        assert_eq!(store.take_batch("eu", &id).await.unwrap(), Some(vec![8; size]));
        for key in [&body, &response] {
            assert_eq!(store.bucket.get_object(key).await.unwrap(), None, "{key}");
        }
    }
    // A response to an unknown batch is not stored.
    assert!(!store.put_reply("eu", "x", &vec![8; 2 * BATCH_INLINE]).await.unwrap());
    assert_eq!(store.bucket.get_object("batches/eu/x.response").await.unwrap(), None);
}

pub(super) async fn a_batch_that_is_delivered_once_is_pending_once(StoreFixture { store, .. }: StoreFixture) {
    store.enqueue_batch("eu", &QueuedBatch { once: true, ..batch("a", 10, 10) }).await.unwrap();
    store.enqueue_batch("eu", &batch("b", 10, 10)).await.unwrap();
    let polls = (0..4).map(|_| pending(&store, "eu", 1, &[], 9, usize::MAX));
    let found: Vec<String> = futures::future::join_all(polls).await.concat();
    assert_eq!(found.iter().filter(|id| *id == "a").count(), 1);
    assert_eq!(pending(&store, "eu", 1, &[], 9, usize::MAX).await, ["b"]);
    assert!(store.put_reply("eu", "a", b"done").await.unwrap());
    assert_eq!(store.take_batch("eu", "a").await.unwrap().as_deref(), Some(&b"done"[..]));
}

/// The numbers in the documentation of costs.
pub(super) async fn a_queued_batch_costs_three_writes(StoreFixture { store, meter, .. }: StoreFixture) {
    meter.take();
    store.pending_batches("eu", AT, &[], 9, usize::MAX).await.unwrap();
    let idle = meter.take();
    // DynamoDB Local reports no capacity for an empty result.
    assert!(idle.read_units <= 1.0, "{idle:?}");
    assert_eq!((idle.requests, idle.write_units), ([("Query", 1)].into(), 0.0));
    store.enqueue_batch("eu", &batch("a", 10, 300)).await.unwrap();
    store.pending_batches("eu", AT, &[], 9, usize::MAX).await.unwrap();
    store.put_reply("eu", "a", &[8; 300]).await.unwrap();
    store.read_reply("eu", "a").await.unwrap();
    store.take_batch("eu", "a").await.unwrap();
    let usage = meter.take();
    let requests = [("DeleteItem", 1), ("GetItem", 1), ("PutItem", 1), ("Query", 1), ("UpdateItem", 1)];
    assert_eq!((usage.requests, usage.read_units, usage.write_units), (requests.into(), 2.0, 3.0));
}

/// A poll reads twice a second, however many batches are queued.
pub(super) async fn a_poll_reads_a_limited_number_of_batches(StoreFixture { store, meter, .. }: StoreFixture) {
    for number in 0..230 {
        store.enqueue_batch("eu", &batch(&format!("{number:03}"), 10, 900)).await.unwrap();
    }
    let of = |numbers: std::ops::Range<usize>| numbers.map(|number| format!("{number:03}")).collect::<Vec<_>>();
    meter.take();
    assert_eq!(pending(&store, "eu", 0, &[], 64, usize::MAX).await, of(0..64));
    let usage = meter.take();
    assert_eq!(usage.requests, [("Query", 1)].into());
    assert!(usage.read_units <= 32.0, "{usage:?}");
    assert_eq!(pending(&store, "eu", 0, &[], 0, usize::MAX).await, [""; 0]);
    assert_eq!(meter.take().requests, [].into());
    // A poll finds batches behind those with a response and those in progress.
    for id in of(0..120) {
        store.put_reply("eu", &id, b"done").await.unwrap();
    }
    let in_progress = of(120..180);
    meter.take();
    assert_eq!(pending(&store, "eu", 0, &in_progress, 4, usize::MAX).await, of(180..184));
    assert_eq!(meter.take().requests, [("Query", 2)].into());
    assert_eq!(pending(&store, "eu", 0, &in_progress, 64, usize::MAX).await, of(180..230));
}

pub(super) async fn a_scan_is_claimed_once(StoreFixture { store, .. }: StoreFixture) {
    assert_eq!(store.read_scans().await.unwrap(), [].into());
    let at = |ms: u64| Timestamp(AT.0 + ms);
    for (cluster, seen, next, expected) in sample::<Vec<(String, Option<u64>, u64, bool)>>("claimedScans") {
        let claimed = store.claim_scan(&cluster, seen.map(at), at(next)).await.unwrap();
        assert_eq!(claimed, expected, "{cluster} {seen:?} {next}");
    }
    let due = [("eu".to_owned(), Some(at(20))), ("a.b#c".to_owned(), Some(at(5)))];
    assert_eq!(store.read_scans().await.unwrap(), due.into());
}

pub(super) async fn faults_of_clusters_are_recorded_until_they_end(StoreFixture { store, .. }: StoreFixture) {
    use ClusterFaultKind::{Denial, Outage};
    assert_eq!(store.read_faults(Outage).await.unwrap(), [].into());
    assert!(!store.end_fault(Outage, "eu").await.unwrap());
    // An outage is recorded once, and a denial once a minute.
    for (kind, cluster, ms, reason, expected) in sample::<Vec<(String, String, u64, String, bool)>>("begunFaults") {
        let kind = if kind == "denial" { Denial } else { Outage };
        let begun = store.begin_fault(kind, &cluster, Timestamp(AT.0 + ms), &reason).await.unwrap();
        assert_eq!(begun, expected, "{kind:?} {cluster} {ms}");
    }
    // An orphan scan does not end a fault.
    assert!(store.claim_scan("eu", None, AT).await.unwrap());
    let scans = [("eu".to_owned(), Some(AT)), ("a.b#c".to_owned(), None)];
    assert_eq!(store.read_scans().await.unwrap(), scans.into());
    let fault = |ms: u64, reason: &str| ClusterFault { at: Timestamp(AT.0 + ms), reason: reason.to_owned() };
    let other = ("a.b#c".to_owned(), fault(5, ""));
    for (kind, present) in [(Outage, fault(10, "a")), (Denial, fault(60_000, "c"))] {
        let both = [("eu".to_owned(), present), other.clone()];
        assert_eq!(store.read_faults(kind).await.unwrap(), both.into());
        for expected in [true, false] {
            assert_eq!(store.end_fault(kind, "eu").await.unwrap(), expected);
            assert_eq!(store.read_faults(kind).await.unwrap(), [other.clone()].into());
        }
    }
    assert!(store.begin_fault(Outage, "eu", Timestamp(AT.0 + 12), "b").await.unwrap());
    assert_eq!(store.read_faults(Outage).await.unwrap()["eu"], fault(12, "b"));
}

pub(super) async fn the_last_policy_of_a_cluster_is_kept(StoreFixture { store, .. }: StoreFixture) {
    assert_eq!(store.read_policy("eu").await.unwrap(), None);
    for (ms, name) in [(0, "a"), (1, "b")] {
        let policy = ReportedPolicy { unit_namespace: Some(name.to_owned()), ..ReportedPolicy::default() };
        let record = PolicyRecord { at: Timestamp(AT.0 + ms), policy };
        store.note_policy("eu", &record).await.unwrap();
        assert_eq!(store.read_policy("eu").await.unwrap(), Some(record));
    }
    assert_eq!(store.read_policy("us").await.unwrap(), None);
    assert_eq!(store.read_faults(ClusterFaultKind::Outage).await.unwrap(), [].into());
}

pub(super) async fn nothing_is_left_of_a_forgotten_cluster(StoreFixture { store, .. }: StoreFixture) {
    const KINDS: [ClusterFaultKind; 2] = [ClusterFaultKind::Outage, ClusterFaultKind::Denial];
    // Nothing is known of it yet.
    store.forget_cluster("eu").await.unwrap();
    let record = PolicyRecord { at: AT, policy: ReportedPolicy::default() };
    // One cluster has the name of a part of the other one.
    for cluster in ["eu", "a#eu"] {
        assert!(store.claim_scan(cluster, None, AT).await.unwrap());
        for kind in KINDS {
            assert!(store.begin_fault(kind, cluster, AT, "a").await.unwrap());
        }
        store.note_policy(cluster, &record).await.unwrap();
    }
    for _ in 0..2 {
        store.forget_cluster("eu").await.unwrap();
        assert_eq!(store.read_scans().await.unwrap(), [("a#eu".to_owned(), Some(AT))].into());
        for kind in KINDS {
            assert_eq!(store.read_faults(kind).await.unwrap().into_keys().collect::<Vec<_>>(), ["a#eu"]);
        }
        assert_eq!(store.read_policy("eu").await.unwrap(), None);
        assert_eq!(store.read_policy("a#eu").await.unwrap(), Some(record.clone()));
    }
    // Each late write alone shows that the cluster has state.
    let is_known = async || store.read_scans().await.unwrap().contains_key("eu");
    for kind in KINDS {
        assert!(store.begin_fault(kind, "eu", AT, "a").await.unwrap() && is_known().await);
        store.forget_cluster("eu").await.unwrap();
    }
    store.note_policy("eu", &record).await.unwrap();
    assert!(is_known().await);
    store.forget_cluster("eu").await.unwrap();
    assert!(!is_known().await);
}
