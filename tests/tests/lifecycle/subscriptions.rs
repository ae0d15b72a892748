//! Notifications to a stand-in of GitHub.

use std::sync::Mutex;

use ebb_tests::github::GithubStandIn;

use crate::harness::*;

const TOKEN: &str = "github-token-of-the-test";

const REPOSITORY: &str = "connection: github, repository: \"${target.labels.repo}\"";

/// Serves GitHub. The comments of others are long, so the first page is too large.
fn serve_github(receiver: &TestReceiver) -> Arc<Mutex<GithubStandIn>> {
    let github = Arc::new(Mutex::new(GithubStandIn::default()));
    github.lock().unwrap().comments.push("looks good to me".to_owned());
    for (target, environment) in [("a", "earlier"), ("other", "a")] {
        let made = json!({"task": format!("ebb:sandbox/{target}"), "environment": environment});
        github.lock().unwrap().deployments.push((made, Vec::new()));
    }
    for method in ["GET", "POST", "PATCH"] {
        let served = Arc::clone(&github);
        receiver.on(&format!("{method} /repos/*"), move |call, _| {
            if call.query.contains("per_page=100") {
                return CannedReply::ok(json!([{"id": 1, "body": "x".repeat(limits::RESPONSE_BODY)}]));
            }
            let mut github = served.lock().unwrap();
            let path = call.line.split_once(' ').unwrap().1;
            let (status, body) = github.respond(method, &format!("{path}?{}", call.query), &call.body);
            // The comment of another target has the mark in a log.
            if github.comments.len() == 2 {
                github.comments[0] = format!("{}\n\n<!-- ebb:other -->", github.comments[1]);
            }
            CannedReply::status(status).with(body)
        });
    }
    github
}

/// A commit gets each status once and in order, with the URL of the preview. The pull request has one comment, which is
/// changed, and one deployment, which ends.
pub(crate) async fn a_pull_request_shows_the_phases_of_its_target() {
    let harness = Harness::simple().await;
    let github = serve_github(&harness.receiver);
    let states = || github.lock().unwrap().statuses.iter().map(|status| status["state"].clone()).collect::<Vec<_>>();
    harness.write_secrets(&json!({ "GITHUB_TOKEN": TOKEN }));
    let rest =
        "origin: RECEIVER\nauth: {bearer: {secret: GITHUB_TOKEN}}\nsubscriptions: [statuses, comments, deployments]\n";
    harness.put("Connection", "github", rest).await.is(200);
    let sha = "sha: \"${target.labels.sha}\"";
    for (name, on, to) in [
        ("statuses", "starting, ready, failed, stuck", format!("github: {{{REPOSITORY}, {sha}}}")),
        (
            "comments",
            "ready, failed, gone",
            format!("comment: {{{REPOSITORY}, number: \"${{target.labels.number}}\"}}"),
        ),
        ("deployments", "starting, ready, failed, gone", format!("deployment: {{{REPOSITORY}, {sha}}}")),
    ] {
        harness.put("Subscription", name, &format!("on: [{on}]\nto: {{{to}}}\n")).await.is(200);
    }
    harness.publish("preview@1.0.0", include_str!("documents/preview.yaml")).await;
    harness.receiver.replies("POST /make", &[CannedReply::status(422), CannedReply::ok(json!({"id": "p7"}))]);
    let mut data = sandbox("a", "a-uid", "preview");
    data.document = data.document.map(|text| text + "labels: {repo: acme/shop, sha: abc123, number: \"7\"}\n");
    harness.lifecycle(LifecycleType::Created, &data).await.is(202);
    harness.phase("a", TargetPhase::Failed).await;
    until("the failure", async || (states() == ["pending", "failure"]).then_some(())).await;
    until("a comment", async || (github.lock().unwrap().comments.len() == 2).then_some(())).await;
    let failure = github.lock().unwrap().statuses[1].clone();
    let description = failure["description"].as_str().unwrap();
    assert_eq!(failure["context"], "ebb/statuses/a");
    assert!(description.starts_with("failed: r/make: ") && description.contains("422"), "{failure:?}");
    harness.post("/v1/targets/sandbox/a/retry", json!({})).await.is(202);
    harness.phase("a", TargetPhase::Ready).await;
    until("the success", async || (states().last()? == "success").then_some(())).await;
    let preview = "https://p7.preview.test/";
    assert_eq!(github.lock().unwrap().statuses.last().unwrap()["target_url"], preview);
    let shown = format!("- `r.url`: <{preview}>");
    until("the URL", async || github.lock().unwrap().comments[1].contains(&shown).then_some(())).await;
    harness.tear_down("a").await;
    until("its end", async || github.lock().unwrap().comments[1].contains("is **gone**").then_some(())).await;
    assert_eq!(states(), ["pending", "failure", "pending", "success"]);
    let is_inactive = || github.lock().unwrap().deployments[2].1.last().is_some_and(|last| last["state"] == "inactive");
    until("the end of the deployment", async || is_inactive().then_some(())).await;
    let github = github.lock().unwrap();
    let page = format!("[Details]({})", harness.url("/console/targets/sandbox/a"));
    assert!(github.comments.len() == 2 && github.comments[0].ends_with("<!-- ebb:other -->"), "{github:?}");
    assert!(github.comments[1].contains("it was deleted") && github.comments[1].contains(&page), "{github:?}");
    let [(_, earlier), (_, other), (made, deployed)] = &github.deployments[..] else {
        panic!("one is made: {github:?}")
    };
    // It ends once, and that of another target in the same environment stays.
    assert_eq!((earlier.len(), &earlier[0]["state"], other.len()), (1, &json!("inactive"), 0));
    assert_eq!((&made["environment"], &made["task"]), (&json!("a"), &json!("ebb:sandbox/a")));
    assert_eq!((&made["transient_environment"], &deployed[0]["auto_inactive"]), (&json!(true), &json!(false)));
    let urls: Vec<_> = deployed.iter().filter_map(|status| status["environment_url"].as_str()).collect();
    assert_eq!((urls, &github.wrong), (vec![preview], &Vec::new()));
    let mut requests = harness.receiver.all().into_iter().filter(|call| call.line.contains("/repos/"));
    assert!(requests.all(|call| call.header("authorization") == format!("Bearer {TOKEN}")));
}
