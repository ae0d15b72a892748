//! Scripts in Jobs, from the request to the callback.

use std::collections::BTreeMap;

use ebb_protocol::relay::{DocumentFill, FillWith};
use ebb_protocol::value::{SecretRef, UnitValue as Input};

use crate::fixture::*;

/// A script reads inputs, one of them from a Secret, and writes outputs of every kind and a log. No object remains.
#[tokio::test(flavor = "multi_thread")]
async fn inputs_outputs_and_log() {
    let fixture = RelayFixture::new("jobs", &[]).await;
    let secret = json!({"metadata": {"name": "secret"}, "stringData": {"password": "hunter2"}});
    create(&fixture.api::<Secret>(), secret).await;
    let unit = name("run-1", 1);
    let text = r#"
        echo "hello $WHO"; printf %s "$WHO $PASSWORD" > /tmp/text
        printf '\377\000' > /tmp/bytes; head -c 200000 /dev/zero | tr '\0' x > /tmp/large
        printf %s "$PASSWORD" > /tmp/sensitive
        id -u; test -e /var/run/secrets/kubernetes.io || echo no token"#;
    // The pod gets what its author leaves open: a user at the level `restricted`, and no token.
    let open = |pod: &mut Value| {
        pod["securityContext"] = json!({"seccompProfile": {"type": "RuntimeDefault"}});
        pod.as_object_mut().unwrap().remove("automountServiceAccountToken");
    };
    let mut script = ScriptJob::new(&unit, text).pod(open);
    script = script.input("who", Input::Json("world".into())).input("password", Input::Json("".into()));
    for output in ["text", "bytes", "large"] {
        script = script.output(output, false);
    }
    script = script.output("sensitive", true);
    let from = SecretRef { cluster: None, namespace: None, name: "secret".to_owned(), key: "password".to_owned() };
    script.fill.push(DocumentFill { pointer: "/inputs/1/value".to_owned(), with: FillWith::Secret(from) });
    fixture.run(&unit, script).await;
    let result = fixture.success(&unit).await;
    let large = "x".repeat(200_000);
    let outputs = [("text", "world hunter2"), ("large", &large)].map(|(name, value)| (name.to_owned(), value.into()));
    assert_eq!(result.outputs, BTreeMap::from(outputs));
    assert_eq!(result.binary, BTreeMap::from([("bytes".to_owned(), "/wA=".to_owned())]));
    assert_eq!(result.log.as_deref(), Some("hello world\n65532\nno token\n"));
    let reference = &result.secrets["sensitive"];
    assert_eq!(reference.namespace.as_deref(), Some(&*fixture.units));
    assert_eq!(fixture.sensitive_output(&result, "sensitive").await, b"hunter2");
    // Another unit of the instance can read the sensitive output. A unit of another instance cannot.
    let other = |unit: &str, instance: &str| {
        let unit = name(unit, 1);
        let mut script = ScriptJob::new(&unit, "test \"$KEPT\" = hunter2").input("kept", Input::Json("".into()));
        script
            .fill
            .push(DocumentFill { pointer: "/inputs/0/value".to_owned(), with: FillWith::Secret(reference.clone()) });
        let mut objects = script.into_task(&unit);
        objects.instance = instance.to_owned();
        (unit.clone(), fixture.ensure_of(&unit, objects))
    };
    let (own, request) = other("run-2", "instance-1");
    fixture.ensure(request).await;
    fixture.success(&own).await;
    let (foreign, request) = other("run-3", "instance-2");
    fixture.ensure(request).await;
    assert!(fixture.reason(&foreign).await.1.contains("another instance"));
    assert_eq!(fixture.release("instance-1").await, RelayResponse::Done);
    assert!(fixture.api::<Secret>().get_opt(&reference.name).await.unwrap().is_none());
    fixture.close().await;
}

/// Plain and sensitive outputs of the maximum size. Together they exceed the size of one Secret.
#[tokio::test(flavor = "multi_thread")]
async fn outputs_of_the_maximum_size() {
    let fixture = RelayFixture::new("maximum", &[]).await;
    fixture.callbacks.reject_with(Some(503));
    let unit = name("unit", 1);
    let text = "for i in a b c kept; do head -c 1048576 /dev/zero | tr '\\0' $i > /tmp/$i; done
        head -c 1048576 /dev/zero | tr '\\0' k > /tmp/kept; yes l | head -c 300000";
    let mut script = ScriptJob::new(&unit, text).output("kept", true);
    for output in ["a", "b", "c"] {
        script = script.output(output, false);
    }
    fixture.run(&unit, script).await;
    until("a callback", async || (fixture.callbacks.rejected(&token(&unit)) > 0).then_some(())).await;
    fixture.restart().await;
    fixture.callbacks.reject_with(None);
    let result = fixture.result(&unit).await;
    for output in ["a", "b", "c"] {
        assert!(result.outputs[output] == output.repeat(1 << 20), "{output}");
    }
    // The first line of a log that is cut may be the rest of a sensitive value, so it is left out.
    assert_eq!(result.log.as_ref().map(String::len), Some((256 << 10) - 1));
    assert!(fixture.sensitive_output(&result, "kept").await == [b'k'; 1 << 20]);
    fixture.release("instance-1").await;
    fixture.close().await;
}
