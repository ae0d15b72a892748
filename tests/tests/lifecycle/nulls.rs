//! Values that are null: outputs, params and the environment.

use ebb_protocol::callback::ReasonCode;
use ebb_tests::platform;

use crate::harness::*;

const HOST: &str = r#"
preStart:
  make:
    webhook: {url: "RECEIVER/make"}
    outputs: {host: {value: "${response.body.host}"}}
outputs: {host: "${units.make.outputs.host}"}
"#;

/// Returns a plugin whose output may be null.
fn optional() -> String {
    HOST.replace("body.host}\"", "body.host}\", optional: true")
}

async fn failure(harness: &Harness, name: &str) -> (ReasonCode, String) {
    let reason = harness.unit(name, "preStart", "make", UnitState::Failed).await.reason.unwrap();
    (reason.code, reason.message)
}

pub(crate) async fn an_output_of_a_response_is_null_only_if_it_is_optional() {
    let harness = Harness::new().await;
    harness.receiver.always("POST /make", CannedReply::ok(json!({"host": null})));
    harness.begin("strict", "strict", HOST).await;
    let text = "output `host` is null: `response.body.host`; expected a value; wait for it with `until`, or add `optional: true`";
    assert_eq!(failure(&harness, "strict").await, (ReasonCode::OutputInvalid, text.to_owned()));
    let target = harness.run("lax", "lax", &optional(), TargetState::Ready).await;
    assert_eq!(outputs(&target), json!({"host": {"value": null}}));
}

pub(crate) async fn an_output_of_a_callback_is_null_only_if_it_is_optional() {
    let harness = Harness::new().await;
    harness.receiver.always("POST /make", 202);
    let null = json!({"status": "succeeded", "outputs": {"host": null}});
    harness.begin("strict", "strict", HOST).await;
    let call = harness.receiver.call("POST /make", 1).await;
    harness.callback(call.token(), &null).await.is(204);
    let text = "output `host` is null; expected a value; send one, or add `optional: true`";
    assert_eq!(failure(&harness, "strict").await, (ReasonCode::OutputInvalid, text.to_owned()));
    harness.publish("lax@1.0.0", &optional()).await;
    for (number, (name, callback)) in [("sent", null), ("unsent", done())].into_iter().enumerate() {
        harness.create(name, "lax").await;
        let call = harness.receiver.call("POST /make", number + 2).await;
        harness.callback(call.token(), &callback).await.is(204);
        let target = harness.phase(name, TargetState::Ready).await;
        assert_eq!(outputs(&target), json!({"host": {"value": null}}), "{name}");
    }
}

/// Its param is wired to the output of `HOST`.
const READER: &str = r#"
params: {host: {type: string, optional: OPTIONAL}}
preStart:
  make:
    webhook: {url: "RECEIVER/read", headers: {x-host: "${params.host}"}, body: {host: "${params.host}"}}
    cleanup: none
"#;

pub(crate) async fn a_param_that_is_null_fails_its_reader_unless_it_is_optional() {
    let harness = Harness::new().await;
    harness.receiver.always("POST /make", CannedReply::ok(json!({})));
    harness.publish("host@1.0.0", &optional()).await;
    for (name, is_optional) in [("strict", false), ("lax", true)] {
        harness.publish(&format!("{name}@1.0.0"), &READER.replace("OPTIONAL", &is_optional.to_string())).await;
        let resources = format!(
            "resources:\n  h: {{plugin: host}}\n  r: {{plugin: {name}, params: {{host: \"${{resources.h.outputs.host}}\"}}}}\n"
        );
        let data = platform::sandbox(name, &format!("{name}-uid"), &resources);
        harness.lifecycle(LifecycleType::Created, &data).await.is(202);
    }
    let (code, message) = failure(&harness, "strict").await;
    let needed = "header `x-host`: `params.host` is null; expected a value";
    assert!(code == ReasonCode::Render && message.starts_with(needed), "{message}");
    harness.phase("lax", TargetState::Ready).await;
    let calls = harness.receiver.calls("POST /read");
    assert_eq!(calls.iter().map(|call| &call.body).collect::<Vec<_>>(), [&json!({"host": null})]);
    assert!(!calls[0].headers.contains_key("x-host"), "{calls:?}");
}

pub(crate) async fn a_variable_that_is_null_is_an_error_unless_it_is_optional() {
    let harness = Harness::new().await;
    harness.receiver.always("POST /make", CannedReply::ok(json!({})));
    harness.publish("host@1.0.0", &optional()).await;
    let rest = "resources: {h: {plugin: host}}\nenv:\n  STRICT: \"${resources.h.outputs.host}\"\n  \
                LAX: {value: \"${resources.h.outputs.host}\", optional: true}\n  NAME: \"${target.name}\"\n";
    harness.lifecycle(LifecycleType::Created, &platform::sandbox("a", "a-uid", rest)).await.is(202);
    let target = harness.phase("a", TargetState::Ready).await;
    let env = json!({"NAME": {"value": "a"}});
    assert_eq!(json!(target.env), env);
    let problem = target.outputs_error.unwrap();
    let expected = "env `STRICT`: `${resources.h.outputs.host}` is null; expected a value; to leave it out, write";
    assert!(problem.starts_with(expected), "{problem}");
    let notified = harness.notified("a", &["failed"]).await;
    assert_eq!((&notified[0]["reason"]["code"], &notified[0]["env"]), (&json!("render"), &env));
}
