//! The end of a notification without a platform.

use ebb_flow::QueueMessage;

use crate::harness::*;
use crate::lifecycle::retention::other_instance;

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
