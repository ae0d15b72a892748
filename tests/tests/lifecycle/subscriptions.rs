//! Notifications of subscriptions: what is shown of them, their limits, and the API of GitHub.

use std::sync::Mutex;

use crate::harness::*;
use crate::request_table;

const TOKEN: &str = "github-token-of-the-test";

/// The part of GitHub's API that subscriptions use: commit statuses and comments.
struct GithubServer {
    /// Contexts and states by commit, in the order of their arrival.
    statuses: Mutex<Vec<(String, String, String)>>,
    comments: Mutex<Vec<(u64, String)>>,
}

impl GithubServer {
    fn start(receiver: &TestReceiver) -> Arc<Self> {
        let server = Arc::new(Self { statuses: Mutex::default(), comments: Mutex::default() });
        let is_authorized = |call: &ReceivedCall| call.header("authorization") == format!("Bearer {TOKEN}");
        let own = Arc::clone(&server);
        receiver.on("POST /repos/acme/shop/statuses/abc123", move |call, _| {
            let text = |key: &str| call.body[key].as_str().unwrap_or_default().to_owned();
            if !is_authorized(call) || !["error", "failure", "pending", "success"].contains(&text("state").as_str()) {
                return CannedReply::status(if is_authorized(call) { 422 } else { 401 });
            }
            own.statuses.lock().unwrap().push((text("context"), text("state"), text("description")));
            CannedReply::status(201).with(json!({"id": 1}))
        });
        let own = Arc::clone(&server);
        receiver.on("GET /repos/acme/shop/issues/7/comments", move |call, number| {
            assert!(is_authorized(call), "{call:?}");
            // The comments of others are long. The next request is about a smaller page.
            if number % 2 == 0 {
                return CannedReply::ok(json!([{"id": 1, "body": "x".repeat(ebb_protocol::limits::RESPONSE_BODY)}]));
            }
            let comments = own.comments.lock().unwrap();
            CannedReply::ok(comments.iter().map(|(id, body)| json!({"id": id, "body": body})).collect())
        });
        let own = Arc::clone(&server);
        receiver.on("POST /repos/acme/shop/issues/7/comments", move |call, _| {
            let mut comments = own.comments.lock().unwrap();
            let id = 40 + comments.len() as u64;
            let body = call.body["body"].as_str().unwrap();
            comments.push((id, body.to_owned()));
            // The comment of another target has the mark in a log.
            comments[0].1 = format!("{body}\n\n<!-- ebb:other -->");
            CannedReply::status(201).with(json!({"id": id}))
        });
        let own = Arc::clone(&server);
        receiver.on("PATCH /repos/acme/shop/issues/comments/41", move |call, _| {
            let mut comments = own.comments.lock().unwrap();
            comments[1].1 = call.body["body"].as_str().unwrap().to_owned();
            CannedReply::ok(json!({"id": 41}))
        });
        server
    }

    fn states(&self) -> Vec<String> {
        self.statuses.lock().unwrap().iter().map(|(_, state, _)| state.clone()).collect()
    }
}

impl Harness {
    async fn subscribe(&self, name: &str, rest: &str) {
        self.put("Subscription", name, rest).await.is(200);
    }
}

/// A commit gets each status once and in order, and the pull request has one comment, which is changed.
pub(crate) async fn a_pull_request_shows_the_phases_of_its_target() {
    let harness = Harness::simple().await;
    let github = GithubServer::start(&harness.receiver);
    github.comments.lock().unwrap().push((40, "looks good to me".to_owned()));
    harness.write_secrets(&json!({ "GITHUB_TOKEN": TOKEN }));
    let rest = "origin: RECEIVER\nauth: {bearer: {secret: GITHUB_TOKEN}}\nsubscriptions: [statuses, comments]\n";
    harness.put("Connection", "github", rest).await.is(200);
    let of_pull_request = r#"connection: github, repository: "${target.labels.repo}""#;
    let status = format!("to: {{github: {{{of_pull_request}, sha: \"${{target.labels.sha}}\"}}}}");
    harness.subscribe("statuses", &format!("on: [starting, ready, failed, stuck]\n{status}")).await;
    let comment = format!("to: {{comment: {{{of_pull_request}, number: \"${{target.labels.number}}\"}}}}");
    harness.subscribe("comments", &format!("on: [ready, failed, gone]\n{comment}")).await;
    harness.receiver.replies("POST /make", &[CannedReply::status(422), CannedReply::ok(json!({}))]);
    let mut data = sandbox("a", "a-uid", "simple");
    data.document = data.document.map(|text| text + "labels: {repo: acme/shop, sha: abc123, number: \"7\"}\n");
    harness.lifecycle(LifecycleType::Created, &data).await.is(202);
    harness.phase("a", TargetPhase::Failed).await;
    until("the failure", async || (github.states() == ["pending", "failure"]).then_some(())).await;
    until("a comment", async || (github.comments.lock().unwrap().len() == 2).then_some(())).await;
    let failure = github.statuses.lock().unwrap()[1].clone();
    assert_eq!(failure.0, "ebb/statuses");
    assert!(failure.2.starts_with("failed: r/make: ") && failure.2.contains("422"), "{failure:?}");
    harness.post("/v1/targets/sandbox/a/retry", json!({})).await.is(202);
    harness.phase("a", TargetPhase::Ready).await;
    until("the success", async || (github.states().last()? == "success").then_some(())).await;
    harness.tear_down("a").await;
    until("its end", async || github.comments.lock().unwrap()[1].1.contains("is **gone**").then_some(())).await;
    assert_eq!(github.states(), ["pending", "failure", "pending", "success"]);
    let comments = github.comments.lock().unwrap().clone();
    assert!(comments.len() == 2 && comments[0].1.ends_with("<!-- ebb:other -->"), "{comments:?}");
    let page = format!("[Details]({})", harness.url("/console/targets/sandbox/a"));
    assert!(comments[1].1.contains("deleted") && comments[1].1.contains(&page), "{comments:?}");
}

/// A connection sends only the notifications of subscriptions that it lists, and neither the table nor a response has its
/// credential.
pub(crate) async fn a_connection_permits_its_subscriptions() {
    let harness = Harness::simple().await;
    let table = "lifecycle/subscriptions.yaml";
    request_table::play(&harness, table, "a_connection_permits_its_subscriptions", &[("CREDENTIAL", TOKEN)]).await;
    assert!(!harness.stores(TOKEN));
}

/// A target stores the names of subscriptions, so their number is limited. A deleted one makes room.
pub(crate) async fn subscriptions_are_limited() {
    let harness = Harness::new().await;
    let put = async |name: &str| harness.put("Subscription", name, "on: [gone]\nto: {slack: {secret: S}}\n").await;
    for number in 0..100 {
        put(&format!("s{number}")).await.is(200);
    }
    assert!(put("more").await.is(422).body.contains("100 subscriptions exist"));
    put("s7").await.is(200);
    harness.request(Method::DELETE, "/v1/subscriptions/s8", None).await.is(204);
    put("more").await.is(200);
}
