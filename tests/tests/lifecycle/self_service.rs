//! Targets that a person or program creates, updates and deletes with an API token.

use ebb_protocol::api::TargetReceipt;

use crate::harness::*;

pub(crate) async fn concurrent_requests_begin_one_instance() {
    let harness = Harness::simple().await;
    let requests = (0..4).map(|_| harness.post("/v1/targets", simple_request("a", "")));
    let replies = futures::future::join_all(requests).await;
    let uids = BTreeSet::from_iter(replies.iter().map(|reply| reply.is(202).json::<TargetReceipt>().uid));
    let ready = harness.phase("a", TargetPhase::Ready).await;
    assert_eq!(uids, BTreeSet::from([Some(ready.info.uid)]));
    assert_eq!((ready.waiting_uid, harness.receiver.count("POST /make")), (None, 1));
}
