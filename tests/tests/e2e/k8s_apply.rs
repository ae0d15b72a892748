//! Signadot's plugin `k8s-apply` in a cluster, with unchanged documents.

use crate::prelude::*;

const UNITS: &str = "ebb-units";
const RECORDS: &str = "ebb-relay";
const NAME: &str = "objects-pr-6";

/// A document like Signadot's examples, with text that is easily parsed wrongly.
const DOCUMENT: &str = r#"name: "@{name}"
spec:
  cluster: "@{cluster}"
  resources:
  - name: customObjects
    plugin: k8s-apply
    params:
      data: |

        # Text in braces, as in {a}, is not replaced.
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

async fn apply(workdir: &Workdir, document: &str, name: &str, more: &[&str]) -> CommandResult {
    let file = workdir.write(&format!("{name}.yaml"), document);
    let values = [("name", name), ("cluster", "demo"), ("namespace", UNITS), ("image", BUSYBOX)];
    let values = values.map(|(name, value)| format!("{name}={value}"));
    let sets = values.iter().flat_map(|set| ["--set", set]);
    let apply = ["sandbox", "apply", "-f", &file].into_iter().chain(sets).chain(more.iter().copied());
    workdir.ebb(&apply.collect::<Vec<_>>()).await
}

/// Returns an object in the namespace of units, with its managed fields.
fn object(cluster: &TestCluster, kind: &str, name: &str) -> Value {
    let get = ["-n", UNITS, "get", kind, name, "--show-managed-fields", "-o", "json"];
    serde_json::from_str(&cluster.run("kubectl", &get, "").unwrap()).unwrap()
}

/// Returns the objects of units, and the records of the relay that are not tombstones.
fn objects_and_records(cluster: &TestCluster) -> Option<Vec<String>> {
    Some([unit_objects(cluster, UNITS)?, open_records(cluster, RECORDS)?].concat())
}

#[tokio::test]
async fn manifests_are_applied_and_removed() {
    let cluster = cluster().await;
    let workdir = workdir_setup::in_cluster(cluster, UNITS).await;
    let dev = workdir.dev().await;
    let before = objects_and_records(cluster).unwrap();
    let result = apply(&workdir, DOCUMENT, NAME, &[]).await.done();
    // The plugin has no outputs, like that of Signadot. The document chooses the names.
    assert_eq!(result.stdout, "", "{result:#?}");
    let target = workdir.get(NAME).await;
    let resource = &target.resources["customObjects"];
    assert_eq!((resource.plugin.as_str(), resource.outputs.len()), ("k8s-apply@0.0.0", 0));
    assert_eq!(target.info.phase, TargetState::Ready);

    let named = |what: &str| format!("{what}-{NAME}");
    let config = object(cluster, "configmap", &named("config"));
    let (secret, server) =
        (object(cluster, "secret", &named("secret")), object(cluster, "deployment", &named("server")));
    assert_eq!(config["data"], json!({"driver.properties": "home=${HOME}\ntimeout=1s\n"}));
    assert_eq!(config["metadata"]["annotations"]["answer"], "yes");
    assert_eq!(config["metadata"]["annotations"]["number"], "012");
    assert_eq!((&secret["data"], &secret["immutable"]), (&json!({"token": "dGVzdA=="}), &json!(true)));
    assert_eq!(server["status"]["availableReplicas"], 1, "the unit waited for the deployment: {server}");
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

    workdir.ebb(&["sandbox", "delete", NAME]).await.done();
    let target = workdir.get(NAME).await;
    let units = target.runs.iter().flat_map(|run| &run.units).map(|unit| (&*unit.key, unit.state));
    let expected = ["customObjects/provision", "customObjects/provision.removal"];
    assert_eq!(units.collect::<Vec<_>>(), expected.map(|key| (key, UnitState::Succeeded)));
    until("the deletion of all objects", async || (objects_and_records(cluster)? == before).then_some(())).await;

    dev.stop().await;
}

/// `ebb unit run` in a cluster prints the same as on this machine.
#[tokio::test]
async fn a_single_unit() {
    let cluster = cluster().await;
    let workdir = workdir_setup::in_cluster(cluster, UNITS).await;
    let before = objects_and_records(cluster).unwrap();
    let plugin = format!(
        r##"runners: {{shell: {{image: "{BUSYBOX}"}}}}
params: {{name: {{type: string}}}}
preStart:
  greet:
    pod: {{script: "#!/bin/sh\necho greets\nprintf 'hello %s' \"$NAME\" >/tmp/greeting\nexit ${{CODE:-0}}"}}
    inputs: {{name: "${{params.name}}", code: ""}}
    outputs: {{greeting: {{file: /tmp/greeting}}}}
"##
    );
    let plugin = workdir.write("hello.yaml", &crate::platform::named("Plugin", "hello@1.0.0", &plugin));
    let greet = ["unit", "run", &plugin, "greet", "--input", "name=you"];
    let result = workdir.ebb_there(&greet).await.done();
    assert_eq!((&*result.stdout, &*result.stderr), ("greeting = hello you\n", "greets\n"));
    let failed = workdir.ebb_there(&[&greet[..], &["--input", "code=3"]].concat()).await;
    assert_eq!(failed.code, Some(1), "{failed:#?}");
    // The log of a pod contains both streams, in any order.
    let lines: Vec<&str> = failed.stderr.lines().collect();
    assert!(lines.contains(&"greets") && failed.stderr.contains("(exit)"), "{failed:#?}");
    assert_eq!(objects_and_records(cluster).unwrap(), before);
}
