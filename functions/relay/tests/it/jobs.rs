//! Scripts in Jobs, from the request to the callback.

use std::collections::BTreeMap;

use ebb_protocol::entrypoint::ScriptReport;
use ebb_protocol::relay::{DocumentFill, FillWith};
use ebb_protocol::value::{SecretRef, UnitValue as Input};

use crate::fixture::*;

/// Inputs, a Secret's value among them, outputs of every kind, and the log; then nothing is left.
#[tokio::test(flavor = "multi_thread")]
async fn from_inputs_to_outputs() {
    let fixture = RelayFixture::new("jobs", &[]).await;
    let given = json!({"metadata": {"name": "given"}, "stringData": {"password": "hunter2"}});
    create(&fixture.api::<Secret>(), given).await;
    let unit = name("run-1", 1);
    let text = r#"
        echo "hello $WHO"; printf %s "$WHO $PASSWORD" > /tmp/text
        printf '\377\000' > /tmp/bytes; head -c 200000 /dev/zero | tr '\0' x > /tmp/large
        printf %s "$PASSWORD" > /tmp/sensitive"#;
    let mut script =
        ScriptJob::new(&unit, text).input("who", Input::Json("world".into())).input("password", Input::Json("".into()));
    for output in ["text", "bytes", "large"] {
        script = script.output(output, false);
    }
    script = script.output("sensitive", true);
    let from = SecretRef { cluster: None, namespace: None, name: "given".to_owned(), key: "password".to_owned() };
    script.fill.push(DocumentFill { pointer: "/inputs/1/value".to_owned(), with: FillWith::Secret(from) });
    fixture.run(&unit, script).await;
    let result = fixture.succeeds(&unit).await;
    let large = "x".repeat(200_000);
    let outputs = [("text", "world hunter2"), ("large", &large)].map(|(name, value)| (name.to_owned(), value.into()));
    assert_eq!(result.outputs, BTreeMap::from(outputs));
    assert_eq!(result.binary, BTreeMap::from([("bytes".to_owned(), "/wA=".to_owned())]));
    assert_eq!(result.log.as_deref(), Some("hello world\n"));
    let held = &result.secrets["sensitive"];
    assert_eq!(held.namespace.as_deref(), Some(&*fixture.units));
    assert_eq!(fixture.sensitive(&result, "sensitive").await, b"hunter2");
    // Another unit of the instance reads it, one of another instance does not.
    let other = |unit: &str, life: &str| {
        let unit = name(unit, 1);
        let mut script = ScriptJob::new(&unit, "test \"$KEPT\" = hunter2").input("kept", Input::Json("".into()));
        script.fill.push(DocumentFill { pointer: "/inputs/0/value".to_owned(), with: FillWith::Secret(held.clone()) });
        let mut objects = script.objects(&unit);
        objects.instance = life.to_owned();
        (unit.clone(), fixture.ensure_of(&unit, objects))
    };
    let (own, request) = other("run-2", "instance-1");
    fixture.ensure(request).await;
    fixture.succeeds(&own).await;
    let (foreign, request) = other("run-3", "instance-2");
    fixture.ensure(request).await;
    assert!(fixture.reason(&foreign).await.1.contains("another instance"));
    assert_eq!(fixture.release("instance-1").await, RelayResponse::Done);
    assert!(fixture.api::<Secret>().get_opt(&held.name).await.unwrap().is_none());
    fixture.close().await;
}

/// A second request changes nothing; the log of what runs is there; the exit code is in the result; a result stays until it is
/// taken, by the callback or by a verb.
#[tokio::test(flavor = "multi_thread")]
async fn a_name_starts_once() {
    let fixture = RelayFixture::new("once", &[]).await;
    let unit = name("run-1", 1);
    fixture.plane.answer(Some(503));
    fixture.run(&unit, ScriptJob::new(&unit, "echo begun; sleep 5; echo done; exit 3")).await;
    fixture.printed(&unit, "begun").await;
    let before = fixture.api::<Job>().get("ebb-run-1-1").await.unwrap();
    fixture.run(&unit, ScriptJob::new(&unit, "echo another; exit 0")).await;
    let after = fixture.api::<Job>().get("ebb-run-1-1").await.unwrap();
    assert_eq!((before.uid(), before.metadata.generation), (after.uid(), after.metadata.generation));
    let ended = fixture.ended(&unit).await;
    let reason = ended.reason.clone().unwrap();
    assert_eq!((reason.message.as_str(), ended.log.as_deref()), ("the script ended with 3", Some("begun\ndone\n")));
    // A second request gets the same response.
    until("the callback", async || (fixture.plane.refused(&token(&unit)) > 0).then_some(())).await;
    let refused = fixture.plane.refused(&token(&unit));
    let again = fixture.apply(&unit, script(&unit, "")).await;
    assert_eq!(again, RelayResponse::State(TaskState::Ended(Box::new(ended))));
    until("another callback", async || (fixture.plane.refused(&token(&unit)) > refused).then_some(())).await;
    assert_eq!(fixture.ask(RelayRequest::Acknowledge(unit.clone())).await, RelayResponse::Done);
    until("a tombstone", async || (fixture.get(&unit).await == TaskState::Tombstoned).then_some(())).await;
    // A request that was sent twice and arrives late starts nothing.
    let late = fixture.apply(&unit, script(&unit, "")).await;
    assert_eq!(late, RelayResponse::State(TaskState::Tombstoned));
    // Reports of its entrypoint are not accepted any more.
    let url = format!("http://127.0.0.1:{}/v1/reports/run-1/1", fixture.port());
    let report =
        json!(ScriptReport { v: 1, log_bytes: 0, state: ebb_protocol::entrypoint::ReportState::Running }).to_string();
    let answer = reqwest::Client::new().post(url).bearer_auth("x").body(report).send().await.unwrap();
    assert_eq!(answer.status(), 410);
    fixture.close().await;
}

/// As much as a unit may give, in plain and kept by the cluster: more than one Secret holds.
#[tokio::test(flavor = "multi_thread")]
async fn as_much_as_may_be() {
    let fixture = RelayFixture::new("much", &[]).await;
    fixture.plane.answer(Some(503));
    let unit = name("unit", 1);
    let text = "for i in a b c kept; do head -c 1048576 /dev/zero | tr '\\0' $i > /tmp/$i; done
        head -c 1048576 /dev/zero | tr '\\0' k > /tmp/kept; head -c 300000 /dev/zero | tr '\\0' l";
    let mut script = ScriptJob::new(&unit, text).output("kept", true);
    for output in ["a", "b", "c"] {
        script = script.output(output, false);
    }
    script.spec.log_tail = 256 << 10;
    fixture.run(&unit, script).await;
    until("a callback", async || (fixture.plane.refused(&token(&unit)) > 0).then_some(())).await;
    fixture.kill().await;
    fixture.start().await;
    fixture.plane.answer(None);
    let result = fixture.result(&unit).await;
    for output in ["a", "b", "c"] {
        assert!(result.outputs[output] == output.repeat(1 << 20), "{output}");
    }
    assert_eq!(result.log.as_ref().map(String::len), Some(256 << 10));
    assert!(fixture.sensitive(&result, "kept").await == [b'k'; 1 << 20]);
    fixture.release("instance-1").await;
    fixture.close().await;
}
