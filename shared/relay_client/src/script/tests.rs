use super::*;
use crate::ClusterRegistry;

fn objects(request: EnsureTask) -> Result<EnsureTask<ObjectTask>, String> {
    let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let image = "ebb.test/entrypoint:1";
    let cluster = json!({"secret": secret, "uid": "u", "entrypointImage": image});
    let clusters = ClusterRegistry::parse(&json!({"default": cluster}).to_string()).unwrap();
    super::objects(request, PodSettings { cluster: clusters.named(None).unwrap(), grace: Duration::from_secs(30) })
}

fn request(unit: &str, pod_template: Option<&str>, text: &str) -> EnsureTask {
    let mut request: EnsureTask = serde_json::from_str(include_str!("../../tests/script.json")).unwrap();
    request.task.unit = unit.to_owned();
    if let TaskBody::Script(script) = &mut request.body {
        (script.pod_template, script.text) = (pod_template.map(str::to_owned), text.to_owned());
    }
    request
}

const UNIT: &str = "k5ncuujcjllj2abc-1-pre-start-0";

#[test]
fn a_script_is_a_job_and_a_secret() {
    let overlay = "metadata: {annotations: {sidecar.istio.io/inject: \"false\"}}\nspec:\n  serviceAccountName: seeder\n  automountServiceAccountToken: true\n  containers:\n  - {name: main, resources: {requests: {memory: 1Gi}}}\n  - {name: proxy, image: proxy}\n";
    let request = objects(request(UNIT, Some(overlay), "#!/bin/sh\ntrue\n")).unwrap();
    // A sensitive value is only in the Secret.
    assert!(!json!(request.body.apply).to_string().contains("canary"));
    insta::assert_json_snapshot!(request);
    // The document with all values is a valid spec of the entrypoint.
    let mut document = request.body.secrets[0].document.clone();
    for fill in &request.body.secrets[0].fill {
        let value = match fill.with {
            FillWith::Secret(_) => json!({"json": "s3cret"}),
            FillWith::Report => {
                json!({"url": "http://10.0.0.1/r", "token": "t", "heartbeatMs": 1, "reportRetryMs": 1})
            }
        };
        *document.pointer_mut(&fill.pointer).unwrap() = value;
    }
    let spec: EntrypointSpec = serde_json::from_value(document).unwrap();
    assert!(spec.relay.is_some());
    let values: Vec<_> = spec.inputs.iter().map(|input| input.value.as_ref().map(UnitValue::size)).collect();
    assert_eq!(values, [Some(1), Some(6), None, Some(6), Some(6)]);
}

/// As in Kubernetes, a pod has the token of the account that its author names, and others have none. The API server
/// rejects a privileged container that may not gain rights.
#[test]
fn the_token_and_the_gain_of_rights_follow_the_pod_template() {
    let rows: Vec<(Option<String>, String, Option<bool>)> =
        serde_json::from_str(include_str!("../../tests/pod_rights.json")).unwrap();
    for (overlay, field, expected) in rows {
        let made = objects(request(UNIT, overlay.as_deref(), "")).unwrap().body;
        let found = made.apply[0].pointer(&format!("/spec/template/spec/{field}"));
        assert_eq!(found.and_then(Value::as_bool), expected, "{overlay:?} {field}");
    }
}

#[test]
fn names_are_deterministic_and_short_enough() {
    let long = format!("{}-18446744073709551615-post-start-4294967295", "k".repeat(16));
    for (unit, expected) in [(UNIT, Some("ebb-k5ncuujcjllj2abc-1-pre-start-0-2")), (&long, None)] {
        let build = || objects(request(unit, None, "#!/bin/sh")).unwrap().body;
        let (first, second) = (build(), build());
        let name = first.apply[0]["metadata"]["name"].as_str().unwrap();
        assert_eq!(first, second);
        assert_eq!(name, first.secrets[0].name);
        assert!(name.starts_with(RESERVED_PREFIX) && name.len() <= 63, "{name}");
        assert_eq!(first.instance, &unit[..16]);
        assert!(expected.is_none_or(|expected| expected == name), "{name}");
    }
}

#[test]
fn jobs_have_readable_names() {
    let rows = include_str!("../../tests/job_names.json").replace("LONG", &"feature-".repeat(30));
    for (names, expected) in serde_json::from_str::<Vec<(TaskNames, String)>>(&rows).unwrap() {
        let name = |attempt| job_name(&TaskId { unit: UNIT.to_owned(), attempt }, &names);
        let (first, second) = (name(1), name(2));
        assert_eq!(first.rsplit_once('-').unwrap().0, expected);
        assert!(first != second && first == name(1) && first.len() <= 57, "{first} {second}");
        assert!(first.split('.').all(ebb_protocol::id::is_dns_label), "{first}");
    }
}

#[test]
fn invalid_scripts_are_rejected_with_the_reason() {
    let large = "x".repeat(MAX_SECRET);
    let two_violations = "spec: {restartPolicy: Always, volumes: [{name: ebb-in, emptyDir: {}}]}";
    for (overlay, text, expected) in [
        (None, large.as_str(), "bytes together, and their Secret holds at most 1048576"),
        (Some("a: ["), "", "pod template: the pod template is not YAML"),
        (Some(two_violations), "", "\nspec.volumes[ebb-in]: the name `ebb-in` is reserved"),
    ] {
        let error = objects(request(UNIT, overlay, text)).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
}
