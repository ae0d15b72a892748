//! Repeated notifications, and the end of a notification without a platform.

use ebb_flow::QueueMessage;
use ebb_protocol::history::HistoryPage;

use crate::harness::*;
use crate::lifecycle::retention::other_instance;

/// A retry of a failed setup ends with another notification, whose first requests the platform refuses. Its repetitions have
/// the same id and body.
pub(crate) async fn the_history_has_the_acceptance_of_a_notification() {
    let harness = Harness::with_platform().await;
    let accepted = async || {
        let page: HistoryPage = harness.get("/v1/targets/sandbox/a/history").await.is(200).json();
        page.entries.into_iter().filter_map(|entry| entry.run?.notified).collect::<Vec<_>>()
    };
    harness.receiver.replies("POST /platform", &[204, 503, 500, 425, 204]);
    harness.receiver.always("POST /make", 400);
    harness.run("a", "simple", SIMPLE, TargetPhase::Failed).await;
    harness.notification_accepted("a").await;
    let failed = harness.target("a").await.unwrap();
    let times = accepted().await;
    let [first] = &times[..] else { panic!("{times:?}") };
    assert!(*first >= failed.info.since, "{first}: {failed:?}");

    harness.receiver.always("POST /make", 200);
    harness.post("/v1/targets/sandbox/a/retry", json!({})).await.is(202);
    harness.phase("a", TargetPhase::Ready).await;
    harness.receiver.call("POST /platform", 5).await;
    harness.notification_accepted("a").await;
    let notified = &harness.receiver.calls("POST /platform")[1..];
    let ids: BTreeSet<&str> = notified.iter().map(|call| call.header("webhook-id")).collect();
    assert_eq!((notified.len(), ids.len()), (4, 1));
    assert!(notified.iter().all(|call| call.body == notified[0].body));
    assert_eq!(word(notified[0].body["type"].as_str().unwrap()), "ready");
    // The run was closed after the refusal, and does not keep the time of the former notification.
    assert_eq!(accepted().await, Vec::<String>::new());

    harness.tear_down("a").await;
    harness.notification_accepted("a").await;
    assert_eq!(accepted().await.len(), 1);
    let last = harness.receiver.calls("POST /platform").pop().unwrap();
    assert_eq!(word(last.body["type"].as_str().unwrap()), "gone");
    assert!(!ids.contains(last.header("webhook-id")));
}

/// The operator removes the URL of the platform while it refuses the `gone` for which the next instance waits.
pub(crate) async fn a_notification_ends_without_a_platform() {
    let harness = Harness::with_platform().await;
    harness.run("a", "simple", SIMPLE, TargetPhase::Ready).await;
    harness.notification_accepted("a").await;
    harness.receiver.always("POST /platform", 503);
    harness.tear_down("a").await;
    let next = sandbox("a", "another-uid", "simple");
    let waiting = harness.lifecycle(LifecycleType::Created, &next).await;
    assert_eq!(waiting.is(202).json::<Value>()["result"], "waiting");
    let without = other_instance(&harness);
    assert_eq!(without.settings.platform_url, None);
    let message = QueueMessage::Target("sandbox".to_owned(), "a".to_owned());
    ebb_flow::sweep::receive_message(&without, &message).await.unwrap();
    harness.instance_is_ready("a", "another-uid").await;
    assert_eq!(harness.receiver.order().iter().filter(|call| **call != "POST /platform").count(), 3);
}
