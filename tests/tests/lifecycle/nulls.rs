//! Values that are null: outputs, params and the environment.

use ebb_protocol::callback::ReasonCode;
use ebb_tests::platform;

use crate::harness::*;

const HOST: &str = r#"
preStart:
  make:
    webhook: {url: "RECEIVER/make"}
    outputs: {host: {value: "${response.body.host}", optional: OPTIONAL}}
outputs: {host: "${units.make.outputs.host}"}
"#;

/// Its param is wired to the output of `HOST`.
const READER: &str = r#"
params: {host: {type: string, optional: OPTIONAL}}
preStart:
  make:
    webhook: {url: "RECEIVER/read", headers: {x-host: "${params.host}"}, body: {host: "${params.host}"}}
    cleanup: none
"#;

async fn failure(harness: &Harness, name: &str) -> (ReasonCode, String) {
    let reason = harness.unit(name, "preStart", "make", UnitState::Failed).await.reason.unwrap();
    (reason.code, reason.message)
}

pub(crate) async fn values_are_null_only_if_they_are_optional() {
    let harness = Harness::new().await;
    harness.receiver.always("POST /make", json!({"host": null}));
    harness.begin("strict", "strict", &HOST.replace("OPTIONAL", "false")).await;
    let (code, message) = failure(&harness, "strict").await;
    assert!(code == ReasonCode::OutputInvalid && message.starts_with("output `host` is null: "), "{message}");
    let target = harness.run("lax", "lax", &HOST.replace("OPTIONAL", "true"), TargetState::Ready).await;
    assert_eq!(outputs(&target), json!({"host": {"value": null}}));
    for is_optional in [false, true] {
        let name = format!("reads-{is_optional}");
        harness.publish(&format!("{name}@1.0.0"), &READER.replace("OPTIONAL", &is_optional.to_string())).await;
        let param = "params: {host: \"${resources.h.outputs.host}\"}";
        let rest = format!("resources:\n  h: {{plugin: lax}}\n  r: {{plugin: {name}, {param}}}\n");
        let data = platform::sandbox(&name, &format!("{name}-uid"), &rest);
        harness.lifecycle(LifecycleType::Created, &data).await.is(202);
    }
    let (code, message) = failure(&harness, "reads-false").await;
    let needed = "header `x-host`: `params.host` is null; expected a value";
    assert!(code == ReasonCode::Render && message.starts_with(needed), "{message}");
    harness.phase("reads-true", TargetState::Ready).await;
    let calls = harness.receiver.calls("POST /read");
    assert_eq!(calls.iter().map(|call| &call.body).collect::<Vec<_>>(), [&json!({"host": null})]);
    assert!(!calls[0].headers.contains_key("x-host"), "{calls:?}");
}

pub(crate) async fn a_variable_that_is_null_is_an_error_unless_it_is_optional() {
    let harness = Harness::new().await;
    harness.receiver.always("POST /make", json!({}));
    harness.publish("host@1.0.0", &HOST.replace("OPTIONAL", "true")).await;
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
