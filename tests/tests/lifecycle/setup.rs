//! Setups: the costs of accepted requests.

use crate::harness::*;

/// The acceptance of a request costs a write unless the callback arrives soon, or before the response to the request.
pub(crate) async fn fast_callbacks_cost_no_acceptance() {
    const UNITS: usize = 20;
    let mut harness = Harness::new().await;
    let numbers = Vec::from_iter((0..UNITS as u32).map(Unit));
    let accepted = async |harness: &Harness, name: &str| {
        harness.stack().store().read_accepted(&run_id(name, Hook::PreStart), &numbers).await.unwrap().len()
    };
    harness.receiver.on("POST /soon", |_, _| CannedReply::status(202).then(async { vec![done()] }));
    let unit = |number: usize| {
        let after = if number == 0 { String::new() } else { format!("after: [u{}], ", number - 1) };
        format!("  u{number}: {{{after}webhook: {{url: \"RECEIVER/soon\"}}}}\n")
    };
    let units: String = (0..UNITS).map(unit).collect();
    harness.run("a", "fast", &format!("preStart:\n{units}"), TargetPhase::Ready).await;
    // A slow machine may store some of them.
    assert!(accepted(&harness, "a").await < UNITS);
    let held = harness.receiver.hold("POST /early");
    harness.receiver.always("POST /early", 202);
    harness.begin("b", "early", "preStart: {make: {webhook: {url: \"RECEIVER/early\"}}}\n").await;
    let call = harness.receiver.call("POST /early", 1).await;
    harness.callback(call.token(), &done()).await.is(204);
    harness.phase("b", TargetPhase::Ready).await;
    drop(held);
    // The end of the stack waits for the dispatch.
    harness.restart().await;
    assert_eq!(accepted(&harness, "b").await, 0);
}
