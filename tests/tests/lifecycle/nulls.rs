//! Values that are null: outputs and the environment.

use ebb_tests::platform;

use crate::harness::*;

const HOST: &str = r#"
preStart:
  make:
    webhook: {url: "RECEIVER/make"}
    outputs: {host: {value: "${response.body.host}", optional: true}}
outputs: {host: "${units.make.outputs.host}"}
"#;

pub(crate) async fn a_variable_that_is_null_is_an_error_unless_it_is_optional() {
    let harness = Harness::new().await;
    harness.receiver.always("POST /make", json!({}));
    harness.publish("host@1.0.0", HOST).await;
    let rest = "resources: {h: {plugin: host}}\nenv:\n  STRICT: \"${resources.h.outputs.host}\"\n  \
                LAX: {value: \"${resources.h.outputs.host}\", optional: true}\n  NAME: \"${target.name}\"\n";
    harness.lifecycle(LifecycleType::Created, &platform::sandbox("a", "a-uid", rest)).await.is(202);
    let target = harness.phase("a", TargetPhase::Ready).await;
    assert_eq!(json!(target.resources["h"].outputs), json!({"host": {"value": null}}));
    let env = json!({"NAME": {"value": "a"}});
    assert_eq!(json!(target.env), env);
    let problem = target.outputs_error.unwrap();
    let expected = "env `STRICT`: `${resources.h.outputs.host}` is null; expected a value; to leave it out, write";
    assert!(problem.starts_with(expected), "{problem}");
    let notified = harness.notified("a", &["failed"]).await;
    assert_eq!((&notified[0]["reason"]["code"], &notified[0]["env"]), (&json!("render"), &env));
}
