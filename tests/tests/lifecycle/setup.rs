//! Setups: failures, retries, acceptances, deadlines and skipped units.

use std::ops::RangeInclusive;

use ebb_protocol::callback::ReasonCode;

use crate::harness::*;

/// A name, the replies to the requests of a unit, its state, attempt and reason after them, and the number of requests.
type ResponseCase = (&'static str, Vec<CannedReply>, UnitState, u32, &'static str, RangeInclusive<usize>);

/// All requests of an attempt have the same id. All attempts have the same idempotency key.
pub(crate) async fn responses_of_a_webhook_unit() {
    use UnitState::{Failed, Succeeded};
    let ok = CannedReply::ok(json!({"id": "x"}));
    let again = CannedReply::status(202).after(1);
    let date = CannedReply::status(202).header("retry-after", "Tue, 14 Nov 2023 22:15:20 GMT");
    let limit = CannedReply::status(403).header("x-ratelimit-remaining", "0").header("x-ratelimit-reset-after", "2");
    let page = CannedReply::page("<html>\n<body>login to continue</body>");
    let shown = "the response is text/html, not JSON: `<html> <body>login to continue</body>`";
    let cases: [ResponseCase; 7] = [
        ("flaky", vec![503.into(), 425.into(), 500.into(), ok.clone()], Succeeded, 4, "", 4..=4),
        ("final", vec![410.into()], Failed, 1, "410", 1..=1),
        ("patient", vec![again.clone(), again, ok.clone()], Succeeded, 1, "", 3..=9),
        ("busy", vec![CannedReply::status(503).after(2), ok.clone()], Succeeded, 2, "", 2..=2),
        ("reset", vec![limit, ok.clone()], Succeeded, 2, "", 2..=2),
        ("dated", vec![date, ok], Succeeded, 1, "", 2..=2),
        // The reason shows the page instead of the failed expression.
        ("page", vec![page], Failed, 1, shown, 1..=1),
    ];
    let harness = Harness::new().await;
    harness.receiver.always("POST /unstated", 429);
    harness.begin("unstated", "unstated", "preStart: {make: {webhook: {url: \"RECEIVER/unstated\"}}}\n").await;
    for (name, replies, ..) in &cases {
        let attempts = if *name == "page" { 1 } else { 5 };
        let rest = format!(
            "preStart:\n  make: {{retry: {{attempts: {attempts}, backoff: 10ms}}, webhook: {{url: \"RECEIVER/{name}\", \
             headers: {{Content-Type: application/vnd.api+json}}}}, outputs: {{id: {{value: \"${{response.body.id}}\"}}}}}}\noutputs: {{id: \"${{units.make.outputs.id}}\"}}\n"
        );
        harness.receiver.replies(&format!("POST /{name}"), replies);
        harness.begin(name, name, &rest).await;
    }
    for (name, _, state, attempt, reason, requests) in cases {
        let unit = harness.unit(name, "preStart", "make", state).await;
        let message = unit.reason.map(|reason| reason.message).unwrap_or_default();
        assert!(unit.attempt == attempt && message.contains(reason), "{name}: {} {message}", unit.attempt);
        let calls = harness.receiver.calls(&format!("POST /{name}"));
        assert!(requests.contains(&calls.len()), "{name}: {calls:?}");
        let distinct = |header: &str| calls.iter().map(|call| call.header(header)).collect::<BTreeSet<_>>();
        let attempts: Vec<String> = (1..=attempt).map(|number| number.to_string()).collect();
        assert_eq!(distinct("ebb-attempt").into_iter().collect::<Vec<_>>(), attempts, "{name}");
        let ids = (distinct("webhook-id").len(), distinct("idempotency-key").len());
        assert_eq!(ids, (attempts.len(), 1), "{name}: {calls:?}");
        let types = calls.iter().flat_map(|call| call.headers.get_all("content-type"));
        assert!(types.eq(calls.iter().map(|_| "application/vnd.api+json")), "{name}: {calls:?}");
        assert!(distinct("webhook-signature").iter().all(|signature| signature.starts_with("v1,")), "{name}");
    }
    for name in ["busy", "reset"] {
        let calls = harness.receiver.calls(&format!("POST /{name}"));
        assert!(calls[1].at.duration_since(calls[0].at) >= Duration::from_secs(2), "{name}: it waits as requested");
    }
    let wait = until("the time of a further attempt", async || {
        let (.., record) = harness.state("unstated", Hook::PreStart).await.records.pop()?;
        let result = record.result?;
        Some(result.next?.since(result.at))
    });
    assert!(wait.await > Millis(29_000), "a limit without a stated wait");
    assert_eq!(outputs(&harness.phase("patient", TargetPhase::Ready).await), json!({"id": {"value": "x"}}));
    let target = harness.target("final").await.unwrap();
    assert_eq!(find(&target, "preStart", "make").unwrap().reason.unwrap().code, ReasonCode::Refused);
    assert_eq!(harness.why("page").await.cause.unwrap().evidence.unwrap().status, Some(200));
}

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

/// A wait that a server asks for ends with the timeout of its unit, also before the first sweep of the run.
pub(crate) async fn a_wait_ends_with_the_timeout() {
    const DESCRIBED: &str = r#"idempotent: false, maxProcessingTime: 1s, describe: {url: "RECEIVER/shown"}"#;
    const ASKED: &str = r#"}, until: {url: "RECEIVER/asked", ready: '${poll.body.state == "ready"}'"#;
    let later = |status: u16, seconds: &str| CannedReply::status(status).header("retry-after", seconds);
    let cases = [
        ("repeated", "", later(202, "86400")),
        ("latest", "", later(202, "99999999999999999999")),
        ("described", DESCRIBED, later(202, "86400")),
        ("asked", ASKED, later(200, "86400")),
        ("called", "", 202.into()),
    ];
    let harness = Harness::new().await;
    // Each unit has a run of its own, because a sweep looks at all units of a run.
    for (name, options, reply) in &cases {
        harness.receiver.always(&format!("POST /{name}"), reply.clone());
        let unit = format!("timeout: 2s, retry: {{attempts: 1}}, webhook: {{url: \"RECEIVER/{name}\", {options}}}");
        harness.begin(name, name, &format!("preStart:\n  make: {{{unit}}}\n")).await;
    }
    let script = "timeout: 2s, retry: {attempts: 1}, pod: {runner: sh, script: \"#!/bin/sh\\nsleep 600\"}";
    let script = format!("runners: {{sh: {{image: \"busybox:1\"}}}}\npreStart:\n  make: {{{script}}}\n");
    harness.begin("script", "script", &script).await;
    let call = harness.receiver.call("POST /called", 1).await;
    harness.callback(call.token(), &json!({"status": "again", "retryAfter": 86_400})).await.is(204);
    for (name, ..) in cases {
        let target = harness.phase(name, TargetPhase::Failed).await;
        // The first sweep follows after a minute.
        assert!(call.at.elapsed() < Duration::from_secs(30), "{name}: {:?}", call.at.elapsed());
        let reason = find(&target, "preStart", "make").unwrap().reason.unwrap();
        assert!(reason.message.starts_with("no result within 2 s"), "{name}: {reason:?}");
    }
    let target = harness.phase("script", TargetPhase::Failed).await;
    assert_eq!(find(&target, "preStart", "make").unwrap().reason.unwrap().code, ReasonCode::Timeout);
}
