//! The policy changes while the relay runs.

use crate::fixture::*;

async fn reported(fixture: &RelayFixture, what: &str, is_expected: fn(&ReportedPolicy) -> bool) -> ReportedPolicy {
    until(what, async || match fixture.send(RelayRequest::About).await {
        RelayResponse::About(about) => about.policy.filter(is_expected),
        other => panic!("{other:?}"),
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_policy_concerns_new_tasks_only() {
    let fixture = RelayFixture::new("policy", &[]).await;
    let (first, runs) = (std::fs::read_to_string(fixture.file("policy.yaml")).unwrap(), name("runs", 1));
    let before = reported(&fixture, "the first policy", |policy| policy.error.is_none()).await;
    fixture.run(&runs, ScriptJob::new(&runs, "echo up; sleep 1000").output("kept", true)).await;
    fixture.wait_for_log(&runs, "up").await;

    fixture.replace_policy("namespaces: {a: {levels: baseline}}");
    let invalid = reported(&fixture, "the error", |policy| policy.error.is_some()).await;
    assert!(invalid.error.as_ref().is_some_and(|error| error.contains("unknown field `levels`")), "{invalid:?}");
    assert_eq!(ReportedPolicy { error: None, ..invalid }, before);
    // The relay reads the file every two seconds. It logs an error of the same text once.
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(fixture.log().matches("the policy cannot be used").count(), 1, "{}", fixture.log());

    fixture.replace_policy("kinds: [Job.batch]");
    reported(&fixture, "the second policy", |policy| policy.namespaces.is_empty() && policy.error.is_none()).await;
    let refused = fixture.send(fixture.request(&name("new", 1), script(&name("new", 1), "#"))).await;
    let expected = format!(
        "the namespace `{units}` is not allowed by the policy of the cluster (`namespaces`: none); ask its operator to \
         run: ebb cluster connect NAME --apply --namespace {units}:baseline",
        units = fixture.units
    );
    assert_eq!(refused, RelayResponse::Refused(expected));
    // The task that runs is still read, listed and removed, also by a relay that never had the first policy.
    for _ in 0..2 {
        assert!(matches!(fixture.get(&runs).await, TaskState::Running { .. }));
        let listed = fixture.send(RelayRequest::List { after: None }).await;
        let RelayResponse::Listing(listing) = &listed else { panic!("{listed:?}") };
        assert_eq!((listing.tasks.len(), listing.tasks[0].objects.len()), (1, 2), "{listing:?}");
        fixture.restart().await;
    }
    fixture.delete(&runs).await;
    assert_eq!(fixture.release("instance-1").await, RelayResponse::Done);

    fixture.replace_policy(&first);
    reported(&fixture, "the first policy again", |policy| !policy.namespaces.is_empty()).await;
    let again = name("again", 1);
    fixture.run(&again, ScriptJob::new(&again, "echo done")).await;
    fixture.success(&again).await;
    fixture.close().await;
}
