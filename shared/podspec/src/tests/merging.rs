//! Tests merges against the results of the API server's code, and violations of overlays.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::base::{base, yaml};
use crate::{merge, parse};

#[derive(serde::Deserialize)]
struct MergeCases {
    base: Value,
    patches: BTreeMap<String, Value>,
}

/// The results of `k8s.io/apimachinery`. That base has no reserved parts.
#[test]
fn as_the_api_server_merges() {
    let cases: MergeCases = yaml(include_str!("../../tests/merges/cases.yaml"));
    let expected: BTreeMap<String, Value> =
        serde_json::from_str(include_str!("../../tests/merges/merged.json")).expect("JSON");
    assert_eq!(cases.patches.len(), expected.len());
    let mut wrong = Vec::new();
    for (name, patch) in &cases.patches {
        let merged = crate::strategic(&cases.base, patch).expect(name);
        if merged != expected[name] {
            wrong.push(format!("{name}\n  {merged}\n  {}", expected[name]));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_the_go_code_leaves_behind_is_followed() {
    let base = json!({"spec": {"containers": [{"name": "a", "args": ["x"]}]}});
    for (patch, wanted) in [
        // An error in `k8s.io/apimachinery`.
        (
            "spec: {$patch: merge, containers: [{$patch: merge, name: a, tty: true}]}",
            json!({"containers": [{"name": "a", "args": ["x"], "tty": true}]}),
        ),
        // Fields in `k8s.io/apimachinery`.
        (
            "spec: {containers: [{name: b, env: [{name: X, $patch: delete}, {name: Z}]}]}",
            json!({"containers": [{"name": "b", "env": [{"name": "Z"}]}, {"name": "a", "args": ["x"]}]}),
        ),
        (
            "spec: {containers: [{name: b, env: [{$patch: replace}, {name: X}], resources: {$patch: replace, limits: {cpu: 1}}}]}",
            json!({"containers": [{"name": "b", "env": [{"name": "X"}], "resources": {"limits": {"cpu": 1}}}, {"name": "a", "args": ["x"]}]}),
        ),
        (
            "spec: {volumes: [{name: v, $retainKeys: [name, emptyDir], emptyDir: {}}]}",
            json!({"containers": [{"name": "a", "args": ["x"]}], "volumes": [{"name": "v", "emptyDir": {}}]}),
        ),
    ] {
        assert_eq!(crate::strategic(&base, &yaml(patch)).expect(patch)["spec"], wanted, "{patch}");
    }
}

/// Overlays with their expected violation.
fn violations(overlay: &str) -> String {
    let refused = match parse(overlay) {
        Ok(overlay) => merge(&base(), &overlay).err().unwrap_or_default(),
        Err(refusal) => vec![refusal],
    };
    refused.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

#[test]
fn patches_that_are_none() {
    for (overlay, wanted) in [
        ("sepc: {}", "sepc: there is no field `sepc` here; did you mean `spec`?"),
        (
            "spec: {containers: [{name: main, volumemounts: []}]}",
            "spec.containers[main].volumemounts: there is no field `volumemounts` here; did you mean `volumeMounts`?",
        ),
        (
            "spec: {containers: [{name: main, env: [{name: A, valueFrom: {secretKeyRef: {nam: s}}}]}]}",
            "spec.containers[main].env[A].valueFrom.secretKeyRef.nam: ",
        ),
        ("spec: {volumes: [{name: a, xyzzy: {}}]}", "spec.volumes[a].xyzzy: there is no field `xyzzy` here; remove it"),
        ("spec: {containers: [{image: a}]}", "spec.containers[0]: an item lacks its key `name`; write `name`"),
        ("spec: {containers: [{name: null}]}", "spec.containers[null]: an item lacks its key `name`"),
        ("spec: {containers: [main]}", "spec.containers[0]: expected a mapping, got a text"),
        ("spec: {containers: [null]}", "spec.containers[0]: an item is null"),
        ("spec: {containers: {name: main}}", "spec.containers: expected a list, got a mapping"),
        (
            "spec: {containers: [{name: main, env: [{name: A, value: 5}]}]}",
            "spec.containers[main].env[A].value: expected a text, got a number",
        ),
        ("spec: {hostNetwork: 'yes'}", "spec.hostNetwork: expected true or false, got a text"),
        (
            "spec: {terminationGracePeriodSeconds: 1.5}",
            "spec.terminationGracePeriodSeconds: expected a whole number, got a number",
        ),
        (
            "spec: {containers: [{name: main, resources: {limits: {cpu: true}}}]}",
            "resources.limits.cpu: expected a quantity",
        ),
        (
            "spec: {containers: [{name: main, livenessProbe: {tcpSocket: {port: []}}}]}",
            "port: expected a whole number or a text",
        ),
        ("metadata: {labels: {a: true}}", "metadata.labels.a: expected a text, got true or false"),
        ("spec: {$patch: remove}", "spec.$patch: there is no `$patch: remove`; write `delete`, `merge` or `replace`"),
        (
            "spec: {volumes: [{name: a, $retainKeys: [name], emptyDir: {}}]}",
            "$retainKeys: `emptyDir` is set but not retained",
        ),
        ("spec: {volumes: [{name: a, $retainKeys: name}]}", "`$retainKeys` is a list"),
        ("spec: {$setElementOrder/tolerations: []}", "`tolerations` is not a merged list"),
        ("spec: {$setElementOrder/volumes: [a]}", "expected a list of items with `name`"),
        (
            "spec: {$setElementOrder/volumes: [{name: a}], volumes: [{name: b, emptyDir: {}}]}",
            "`volumes` is not in this order",
        ),
        ("spec: {$deleteFromPrimitiveList/containers: [a]}", "`containers` is not a list of texts"),
        ("spec: {containers: [", "the pod template is not YAML: "),
        ("a: 1\na: 2", "duplicate"),
        ("[]", "the pod template is not a mapping"),
        ("{}\n---\n{}", "not YAML"),
    ] {
        let text = violations(overlay);
        assert!(text.contains(wanted), "{overlay}\n  {text}");
    }
    assert!(violations(&format!("# {}", "x".repeat(300_000))).contains("more than"));
    // All violations are reported together.
    assert_eq!(violations("a: 1\nspec: {b: 1, containers: [{c: 1}]}").lines().count(), 4);
}

#[test]
fn what_is_ours_stays() {
    for (overlay, wanted) in [
        (
            "spec: {containers: [{name: main, image: other}]}",
            "spec.containers[main].image: `image` cannot be changed by a pod template; set the `image` of the runner",
        ),
        ("spec: {containers: [{name: main, command: [sh]}]}", "spec.containers[main].command: "),
        ("spec: {containers: [{name: main, args: [x]}]}", "spec.containers[main].args: "),
        ("spec: {containers: [{name: main, restartPolicy: Always}]}", "spec.containers[main].restartPolicy: "),
        ("spec: {containers: [{name: main, $patch: delete}]}", "the container `main` must stay"),
        ("spec: {containers: [{$patch: replace}, {name: mine, image: img}]}", "the container `main` must stay"),
        ("spec: {containers: null}", "the container `main` must stay"),
        (
            "$patch: replace\nspec: {containers: [{name: main, image: img}]}",
            "spec.initContainers: `ebb-entrypoint` must stay",
        ),
        ("spec: {$patch: delete}", "spec.restartPolicy: "),
        ("spec: {restartPolicy: OnFailure}", "set the `retry` of the unit"),
        ("spec: {activeDeadlineSeconds: 5}", "set the `timeout` of the unit"),
        (
            "spec: {initContainers: [{name: ebb-entrypoint, image: mine}]}",
            "spec.initContainers[ebb-entrypoint]: the name `ebb-entrypoint` is reserved; give it another name",
        ),
        (
            "spec: {initContainers: [{name: ebb-entrypoint, $patch: delete}]}",
            "spec.initContainers: `ebb-entrypoint` must stay",
        ),
        ("spec: {initContainers: [{name: ebb-mine, image: a}]}", "`ebb-mine` is reserved"),
        (
            "spec: {containers: [{name: signadot-execunit-output-manager, image: a}]}",
            "`signadot-execunit-output-manager` is reserved",
        ),
        ("spec: {volumes: [{name: signadot-execunit-io, emptyDir: {}}]}", "spec.volumes[signadot-execunit-io]: "),
        ("spec: {volumes: [{name: ebb-io, emptyDir: {medium: Memory}}]}", "spec.volumes[ebb-io]: "),
        ("spec: {volumes: [{name: ebb-io, $patch: delete}]}", "`ebb-io` must stay"),
        ("spec: {volumes: []}\n", ""),
        (
            "spec: {containers: [{name: main, env: [{name: EBB_KEY, value: x}]}]}",
            "spec.containers[main].env[EBB_KEY]: `EBB_KEY` is reserved; use another one",
        ),
        ("spec: {containers: [{name: main, env: [{name: TOKEN, $patch: delete}]}]}", "env[TOKEN]: "),
        ("spec: {containers: [{name: main, volumeMounts: [{mountPath: /ebb, name: mine}]}]}", "volumeMounts[/ebb]: "),
        (
            "spec: {containers: [{name: main, volumeMounts: [{mountPath: /x, name: ebb-in}]}]}",
            "spec.containers[main].volumeMounts[ebb-in]: the volume `ebb-in` is reserved",
        ),
        (
            "spec: {containers: [{name: spy, image: a, volumeMounts: [{mountPath: /x, name: ebb-io}]}]}",
            "spec.containers[spy].volumeMounts[ebb-io]: ",
        ),
        (
            "spec: {initContainers: [{name: early, image: a, volumeMounts: [{mountPath: /ebb, name: ebb-io}]}]}",
            "spec.initContainers[early].volumeMounts[ebb-io]: ",
        ),
        ("metadata: {labels: {ebb.dev/unit: other}}", "metadata.labels[ebb.dev/unit]: `ebb.dev/` is reserved"),
        ("metadata: {labels: {ebb.dev/unit: null}}", "metadata.labels[ebb.dev/unit]: "),
        ("metadata: {annotations: {x.ebb.dev/run: r}}", "metadata.annotations[x.ebb.dev/run]: "),
        ("metadata: {annotations: {notebb.dev/run: r, ebb.dev: r}}", ""),
        ("spec: {restartPolicy: Never, containers: [{name: main, image: img}]}", ""),
    ] {
        let text = violations(overlay);
        assert!(text.contains(wanted) && (wanted.is_empty() == text.is_empty()), "{overlay}\n  {text}");
    }
}

#[test]
fn texts_of_overlays() {
    for empty in ["", "  \n", "# nothing", "null", "apiVersion: v1\nkind: PodTemplate"] {
        assert_eq!(parse(empty).expect(empty), json!({}), "{empty:?}");
    }
    // Quoted, plain and YAML 1.1 booleans.
    let read = parse("spec: {hostUsers: yes, hostname: 'yes', subdomain: no1, setHostnameAsFQDN: off}").expect("YAML");
    assert_eq!(
        read["spec"],
        json!({"hostUsers": true, "hostname": "yes", "subdomain": "no1", "setHostnameAsFQDN": false})
    );
}

/// Generates patches of names that templates have, with directives.
fn anything() -> impl Strategy<Value = Value> {
    let keys = [
        "metadata",
        "labels",
        "finalizers",
        "spec",
        "containers",
        "initContainers",
        "volumes",
        "env",
        "name",
        "image",
        "emptyDir",
        "volumeMounts",
        "mountPath",
        "$patch",
        "$retainKeys",
        "$setElementOrder/containers",
        "$setElementOrder/env",
        "$deleteFromPrimitiveList/finalizers",
        "tolerations",
        "securityContext",
    ];
    let words = ["main", "ebb-io", "delete", "replace", "merge", "a", "name", "image"];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        (0..words.len()).prop_map(move |at| words[at].into()),
    ];
    leaf.prop_recursive(6, 64, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((0..keys.len(), inner), 0..5)
                .prop_map(move |entries| entries.into_iter().map(|(at, value)| (keys[at], value)).collect()),
        ]
    })
}

/// Generates a valid patch of containers and volumes.
fn fitting() -> impl Strategy<Value = Value> {
    let name = prop_oneof![Just("main"), Just("side"), Just("ebb-entrypoint"), Just("ebb-io"), Just("x")];
    let item = (name, prop_oneof![Just(None), Just(Some("delete")), Just(Some("replace"))], any::<bool>());
    let list = move |field: &'static str, value: Value| {
        prop::collection::vec(item.clone(), 0..4).prop_map(move |items| {
            let items = items.into_iter().map(|(name, directive, set)| {
                let mut item = json!({"name": name});
                if let Some(directive) = directive {
                    item["$patch"] = directive.into();
                } else if set {
                    item[field] = value.clone();
                }
                item
            });
            items.collect::<Value>()
        })
    };
    (list("tty", json!(true)), list("image", json!("i")), list("emptyDir", json!({"medium": "Memory"}))).prop_map(
        |(containers, init, volumes)| json!({"spec": {"containers": containers, "initContainers": init, "volumes": volumes}}),
    )
}

proptest! {
    #[test]
    fn nothing_panics(patch in anything(), base in anything()) {
        let _ = merge(&base, &patch);
    }

    #[test]
    fn whatever_is_merged_has_what_is_ours(patch in fitting()) {
        let base = base();
        if let Ok(merged) = merge(&base, &patch) {
            prop_assert!(!merged.to_string().contains("$patch"));
            for (list, name) in [("initContainers", "ebb-entrypoint"), ("volumes", "ebb-io"), ("volumes", "ebb-in")] {
                let find = |pod: &Value| pod["spec"][list].as_array().unwrap().iter().filter(|it| it["name"] == name).cloned().collect::<Vec<_>>();
                prop_assert_eq!(find(&merged), find(&base));
            }
            prop_assert_eq!(merged["spec"]["containers"].as_array().unwrap().iter().filter(|it| it["name"] == "main").count(), 1);
        }
    }
}
