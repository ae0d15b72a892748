//! Notifications of subscriptions: what is shown of them, their limits, and the API of GitHub.

use std::sync::Mutex;

use crate::harness::*;

const TOKEN: &str = "github-token-of-the-test";

const STATUSES: &str = "POST /repos/acme/shop/statuses/abc123";

/// Serves the part of GitHub's API that subscriptions use: commit statuses and comments. Returns the comments, whose IDs
/// begin with 40.
fn serve_github(receiver: &TestReceiver) -> Arc<Mutex<Vec<String>>> {
    let comments = Arc::new(Mutex::new(vec!["looks good to me".to_owned()]));
    receiver.always(STATUSES, CannedReply::status(201).with(json!({"id": 1})));
    let own = Arc::clone(&comments);
    receiver.on("GET /repos/acme/shop/issues/7/comments", move |_, number| {
        // The comments of others are long. The next request is about a smaller page.
        if number % 2 == 0 {
            return CannedReply::ok(json!([{"id": 1, "body": "x".repeat(limits::RESPONSE_BODY)}]));
        }
        let comments = own.lock().unwrap();
        CannedReply::ok((40..).zip(comments.iter()).map(|(id, body)| json!({"id": id, "body": body})).collect())
    });
    let own = Arc::clone(&comments);
    receiver.on("POST /repos/acme/shop/issues/7/comments", move |call, _| {
        let mut comments = own.lock().unwrap();
        let body = call.body["body"].as_str().unwrap();
        comments.push(body.to_owned());
        // The comment of another target has the mark in a log.
        comments[0] = format!("{body}\n\n<!-- ebb:other -->");
        CannedReply::status(201).with(json!({"id": 39 + comments.len()}))
    });
    let own = Arc::clone(&comments);
    receiver.on("PATCH /repos/acme/shop/issues/comments/41", move |call, _| {
        own.lock().unwrap()[1] = call.body["body"].as_str().unwrap().to_owned();
        CannedReply::ok(json!({"id": 41}))
    });
    comments
}

/// A commit gets each status once and in order, and the pull request has one comment, which is changed.
pub(crate) async fn a_pull_request_shows_the_phases_of_its_target() {
    let harness = Harness::simple().await;
    let comments = serve_github(&harness.receiver);
    let states = || harness.receiver.calls(STATUSES).iter().map(|call| call.body["state"].clone()).collect::<Vec<_>>();
    harness.write_secrets(&json!({ "GITHUB_TOKEN": TOKEN }));
    let rest = "origin: RECEIVER\nauth: {bearer: {secret: GITHUB_TOKEN}}\nsubscriptions: [statuses, comments]\n";
    harness.put("Connection", "github", rest).await.is(200);
    let of_pull_request = r#"connection: github, repository: "${target.labels.repo}""#;
    let status = format!("to: {{github: {{{of_pull_request}, sha: \"${{target.labels.sha}}\"}}}}");
    harness.put("Subscription", "statuses", &format!("on: [starting, ready, failed, stuck]\n{status}")).await.is(200);
    let comment = format!("to: {{comment: {{{of_pull_request}, number: \"${{target.labels.number}}\"}}}}");
    harness.put("Subscription", "comments", &format!("on: [ready, failed, gone]\n{comment}")).await.is(200);
    harness.receiver.replies("POST /make", &[CannedReply::status(422), CannedReply::ok(json!({}))]);
    let mut data = sandbox("a", "a-uid", "simple");
    data.document = data.document.map(|text| text + "labels: {repo: acme/shop, sha: abc123, number: \"7\"}\n");
    harness.lifecycle(LifecycleType::Created, &data).await.is(202);
    harness.phase("a", TargetPhase::Failed).await;
    until("the failure", async || (states() == ["pending", "failure"]).then_some(())).await;
    until("a comment", async || (comments.lock().unwrap().len() == 2).then_some(())).await;
    let failure = harness.receiver.calls(STATUSES).remove(1).body;
    let description = failure["description"].as_str().unwrap();
    assert_eq!(failure["context"], "ebb/statuses");
    assert!(description.starts_with("failed: r/make: ") && description.contains("422"), "{failure:?}");
    harness.post("/v1/targets/sandbox/a/retry", json!({})).await.is(202);
    harness.phase("a", TargetPhase::Ready).await;
    until("the success", async || (states().last()? == "success").then_some(())).await;
    harness.tear_down("a").await;
    until("its end", async || comments.lock().unwrap()[1].contains("is **gone**").then_some(())).await;
    assert_eq!(states(), ["pending", "failure", "pending", "success"]);
    let comments = comments.lock().unwrap().clone();
    assert!(comments.len() == 2 && comments[0].ends_with("<!-- ebb:other -->"), "{comments:?}");
    let page = format!("[Details]({})", harness.url("/console/targets/sandbox/a"));
    assert!(comments[1].contains("deleted") && comments[1].contains(&page), "{comments:?}");
    let mut requests = harness.receiver.all().into_iter().filter(|call| call.line.contains("/repos/"));
    assert!(requests.all(|call| call.header("authorization") == format!("Bearer {TOKEN}")));
}
