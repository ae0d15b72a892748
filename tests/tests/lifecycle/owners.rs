//! Owners, labels and first causes of targets, and lists that select by them.

use crate::harness::*;

/// An update by another caller changes the labels, and not the owner. So does the wait for the name.
pub(crate) async fn an_instance_keeps_its_owner() {
    let harness = Harness::simple().await;
    let token = harness.token("ann", &["read", "targets:write"]).await;
    let create = async |body: Value| harness.with_token(&token, "POST /v1/targets", Some(body)).await.is(202).status;
    create(simple_request("a", "labels: {team: x}\n")).await;
    let shown = async |phase| {
        let info = harness.phase("a", phase).await.info;
        (info.owner, info.labels.get("team").cloned())
    };
    let (ann, team) = (Some("token ann".to_owned()), |name: &str| Some(name.to_owned()));
    assert_eq!(shown(TargetPhase::Ready).await, (ann.clone(), team("x")));
    harness.post("/v1/targets", simple_request("a", "labels: {team: y}\n")).await.is(202);
    assert_eq!(shown(TargetPhase::Ready).await, (ann.clone(), team("y")));
    let mut next = simple_request("a", "labels: {team: z}\n");
    next["uid"] = "next".into();
    harness.post("/v1/targets", next).await.is(202);
    assert_eq!(shown(TargetPhase::Ready).await, (ann, team("y")));
    let uid = harness.target("a").await.unwrap().info.uid;
    harness.request(Method::DELETE, &format!("/v1/targets/sandbox/a?uid={uid}"), None).await.is(202);
    harness.instance_is_ready("a", "next").await;
    assert_eq!(shown(TargetPhase::Ready).await, (Some("role operator".to_owned()), team("z")));
    assert_eq!(harness.ready("b", "simple").await.info.owner.as_deref(), Some("platform"));
}

pub(crate) async fn lists_are_filtered() {
    let harness = Harness::simple().await;
    harness.publish("other@2.0.0", SIMPLE).await;
    let create = async |name: &str, rest: &str| {
        let data = ebb_tests::platform::sandbox(name, &format!("{name}-uid"), rest);
        harness.lifecycle(LifecycleType::Created, &data).await.is(202);
    };
    create("a", "labels: {team: x, tier: front}\nresources: {r: {plugin: simple}}\n").await;
    create("b", "labels: {team: x}\nresources: {r: {plugin: other@2.0.0}}\n").await;
    harness.phase("a", TargetPhase::Ready).await;
    harness.phase("b", TargetPhase::Ready).await;
    harness.receiver.always("POST /make", 500);
    harness.post("/v1/targets", simple_request("c", "")).await.is(202);
    harness.phase("c", TargetPhase::Failed).await;
    for (query, expected) in [
        ("", "a b c"),
        ("label=team%3Dx", "a b"),
        ("label=team%3Dx&label=tier%3Dfront", "a"),
        ("label=team%3Dy", ""),
        ("label=team%3D", ""),
        ("phase=failed", "c"),
        ("phase=failed&phase=ready", "a b c"),
        ("phase=stuck", ""),
        ("owner=platform", "a b"),
        ("owner=role%20operator", "c"),
        ("owner=role", ""),
        ("plugin=simple", "a c"),
        ("plugin=other@2.0.0&label=team%3Dx", "b"),
        ("plugin=other@1.0.0", ""),
        ("q=FRONT", "a"),
        ("q=c", "c"),
        ("q=answered%20500", "c"),
    ] {
        assert_eq!(harness.listed(query).await.join(" "), expected, "{query}");
    }
    for query in ["label=team", "label=%3Dx", "phase=broken", "phase=", "q=a&q=b", "owner=a&owner=b", "gone=yes", "x=y"]
    {
        harness.get(&format!("/v1/targets?{query}")).await.is_problem(400, "invalid-query");
    }
}
