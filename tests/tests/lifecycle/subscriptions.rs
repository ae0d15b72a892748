//! Notifications to a stand-in of GitHub.

use ebb_tests::github::GithubStandIn;

use crate::harness::*;

const TOKEN: &str = "github-token-of-the-test";

/// Serves GitHub. The comments of others are long, so the first page is too large, as is each answer to a change.
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
            let (status, mut body) = github.respond(method, &format!("{path}?{}", call.query), &call.body);
            if method != "GET" {
                body["padding"] = json!("x".repeat(limits::RESPONSE_BODY));
            }
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
    request_table::play(&harness, "lifecycle/subscriptions.yaml", "the_life_of_a_pull_request", &[]).await;
    let github = github.lock().unwrap();
    let states: Vec<_> = github.statuses.iter().map(|status| status["state"].clone()).collect();
    assert_eq!(states, ["pending", "failure", "pending", "success"]);
    let (failure, preview) = (&github.statuses[1], "https://p7.preview.test/");
    let description = failure["description"].as_str().unwrap();
    assert_eq!((&failure["context"], &github.statuses[3]["target_url"]), (&json!("ebb/statuses/a"), &json!(preview)));
    assert!(description.starts_with("failed: r/make: ") && description.contains("422"), "{failure:?}");
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
