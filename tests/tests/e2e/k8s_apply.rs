//! Signadot's own plugin `k8s-apply` in a real cluster: its documents as they are.

use crate::prelude::*;

const UNITS: &str = "ebb-units";
const RECORDS: &str = "ebb-relay";
const NAME: &str = "objects-pr-6";

/// As those in Signadot's examples, with what is easily read as something else than it is.
const DOCUMENT: &str = r#"name: "@{name}"
spec:
  cluster: "@{cluster}"
  resources:
  - name: customObjects
    plugin: k8s-apply
    params:
      data: |

        # What is written here in braces, as in {a}, stays.
        apiVersion: v1
        kind: ConfigMap
        metadata:
          name: config-@{name}
          namespace: @{namespace}
          annotations: {answer: "yes", number: "012"}
        data:
          driver.properties: |
            home=${HOME}
            timeout=1s
        ---
        apiVersion: v1
        kind: Secret
        metadata: {name: secret-@{name}, namespace: "@{namespace}"}
        data: {token: dGVzdA==}
        immutable: yes
        ---
        apiVersion: apps/v1
        kind: Deployment
        metadata: {name: "server-@{name}"}
        spec:
          selector: {matchLabels: {app: "@{name}"}}
          template:
            metadata: {labels: {app: "@{name}"}}
            spec:
              terminationGracePeriodSeconds: 1
              containers:
              - name: server
                image: @{image}
                imagePullPolicy: IfNotPresent
                command: [sh, -ec, "grep home= /etc/server/driver.properties; exec sleep 1000"]
                env:
                - {name: TOKEN, valueFrom: {secretKeyRef: {name: "secret-@{name}", key: token}}}
                volumeMounts: [{name: config, mountPath: /etc/server}]
              volumes:
              - {name: config, configMap: {name: "config-@{name}"}}
        ---
  forks:
  - forkOf: {namespace: "@{namespace}", name: echo-env, kind: Deployment}
    customizations:
      patch:
        type: strategic
        value: "spec: {template: {spec: {containers: [{name: echo-env, envFrom: [{configMapRef: {name: config-@{name}}}]}]}}}"
"#;

async fn apply(place: &Workdir, document: &str, name: &str, more: &[&str]) -> CommandResult {
    let file = place.write(&format!("{name}.yaml"), document);
    let values = [("name", name), ("cluster", "demo"), ("namespace", UNITS), ("image", BUSYBOX)];
    let values = values.map(|(name, value)| format!("{name}={value}"));
    let sets = values.iter().flat_map(|set| ["--set", set]);
    let apply = ["sandbox", "apply", "-f", &file].into_iter().chain(sets).chain(more.iter().copied());
    place.ebb(&apply.collect::<Vec<_>>()).await
}

/// An object of units, with who has written what of it.
fn object(cluster: &TestCluster, kind: &str, name: &str) -> Value {
    let get = ["-n", UNITS, "get", kind, name, "--show-managed-fields", "-o", "json"];
    serde_json::from_str(&cluster.run("kubectl", &get, "").unwrap()).unwrap()
}

/// What there is of units, and what the relay still has to do or holds.
fn there(cluster: &TestCluster) -> Option<Vec<String>> {
    Some([of_units(cluster, UNITS)?, open_records(cluster, RECORDS)?].concat())
}

#[tokio::test]
async fn manifests_are_applied_and_removed() {
    let cluster = cluster().await;
    let place = elsewhere::in_cluster(cluster, UNITS).await;
    let dev = place.dev().await;
    let before = there(cluster).unwrap();
    let ran = apply(&place, DOCUMENT, NAME, &[]).await.done();
    // Signadot's plugin has no outputs either: names are agreed upon by the document.
    assert_eq!(ran.stdout, "", "{ran:#?}");
    let seen = place.get(NAME).await;
    let resource = &seen.resources["customObjects"];
    assert_eq!((resource.plugin.as_str(), resource.outputs.len()), ("k8s-apply@0.0.0", 0));
    assert_eq!(seen.info.phase, TargetState::Ready);

    let named = |what: &str| format!("{what}-{NAME}");
    let config = object(cluster, "configmap", &named("config"));
    let (secret, server) =
        (object(cluster, "secret", &named("secret")), object(cluster, "deployment", &named("server")));
    assert_eq!(config["data"], json!({"driver.properties": "home=${HOME}\ntimeout=1s\n"}));
    assert_eq!(config["metadata"]["annotations"]["answer"], "yes");
    assert_eq!(config["metadata"]["annotations"]["number"], "012");
    assert_eq!((&secret["data"], &secret["immutable"]), (&json!({"token": "dGVzdA=="}), &json!(true)));
    assert_eq!(server["status"]["availableReplicas"], 1, "it was waited for: {server}");
    for object in [&config, &secret, &server] {
        let metadata = &object["metadata"];
        let managers = metadata["managedFields"].as_array().unwrap();
        let first = managers.iter().find(|entry| entry["subresource"].is_null()).unwrap();
        assert_eq!(first["manager"], "ebb", "{metadata}");
        assert!(metadata["labels"]["ebb.dev/unit"].as_str().is_some(), "{metadata}");
    }
    let pods = list(cluster, UNITS, "pods").unwrap();
    let pod = pods.iter().find(|pod| pod["metadata"]["labels"]["app"] == NAME).map(name).unwrap();
    let log = cluster.run("kubectl", &["-n", UNITS, "logs", &pod], "").unwrap();
    assert_eq!(log, "home=${HOME}\n");

    place.ebb(&["sandbox", "delete", NAME]).await.done();
    let seen = place.get(NAME).await;
    let units = seen.runs.iter().flat_map(|run| &run.units).map(|unit| (&*unit.key, unit.state));
    let expected = ["customObjects/provision", "customObjects/provision.removal"];
    assert_eq!(units.collect::<Vec<_>>(), expected.map(|key| (key, UnitState::Succeeded)));
    until("nothing to be left", async || (there(cluster)? == before).then_some(())).await;

    dev.stop().await;
}

/// One unit alone runs there too, and says what it says on this machine.
#[tokio::test]
async fn a_unit_alone() {
    let cluster = cluster().await;
    let place = elsewhere::in_cluster(cluster, UNITS).await;
    let before = there(cluster).unwrap();
    let plugin = format!(
        r##"apiVersion: ebb.dev/v1
kind: Plugin
name: hello@1.0.0
runners: {{shell: {{image: "{BUSYBOX}"}}}}
params: {{name: {{type: string}}}}
preStart:
  greet:
    pod: {{script: "#!/bin/sh\necho greets\nprintf 'hello %s' \"$NAME\" >/tmp/said\nexit ${{CODE:-0}}"}}
    inputs: {{name: "${{params.name}}", code: ""}}
    outputs: {{said: {{file: /tmp/said}}}}
"##
    );
    let plugin = place.write("hello.yaml", &plugin);
    let greet = ["unit", "run", &plugin, "greet", "--input", "name=you"];
    let ran = place.ebb_there(&greet).await.done();
    assert_eq!((&*ran.stdout, &*ran.stderr), ("said = hello you\n", "greets\n"));
    let failed = place.ebb_there(&[&greet[..], &["--input", "code=3"]].concat()).await;
    assert_eq!(failed.code, Some(1), "{failed:#?}");
    // A pod's two streams are one log, in no certain order.
    let said: Vec<&str> = failed.stderr.lines().collect();
    assert!(said.contains(&"greets") && failed.stderr.contains("(exit)"), "{failed:#?}");
    assert_eq!(there(cluster).unwrap(), before);
}
