//! Tests merges against the results of the API server's code, and violations of overlays.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::json;

use super::generated::json_of;
use super::*;

fn yaml<T: serde::de::DeserializeOwned>(text: &str) -> T {
    serde_saphyr::from_str(text).expect("YAML")
}

/// Returns a base template like that of the control plane.
fn base() -> Value {
    yaml(include_str!("../../tests/base.yaml"))
}

#[derive(serde::Deserialize)]
struct MergeCases {
    base: Value,
    patches: BTreeMap<String, Value>,
}

/// Compares merges with the results of `k8s.io/apimachinery`. This base has no reserved parts.
#[test]
fn merges_equal_those_of_the_api_server() {
    let cases: MergeCases = yaml(include_str!("../../tests/merges/cases.yaml"));
    let expected: BTreeMap<String, Value> =
        serde_json::from_str(include_str!("../../tests/merges/merged.json")).expect("JSON");
    assert_eq!(cases.patches.len(), expected.len());
    for (name, patch) in &cases.patches {
        assert_eq!(strategic(&cases.base, patch), expected[name], "{name}");
    }
}

#[test]
fn peculiarities_of_the_api_server_are_kept() {
    let base = json!({"spec": {"containers": [{"name": "a", "args": ["x"]}]}});
    let cases: Vec<(Value, Value)> = yaml(include_str!("../../tests/merges/peculiarities.yaml"));
    for (patch, expected) in cases {
        assert_eq!(strategic(&base, &patch)["spec"], expected, "{patch}");
    }
}

fn violations(overlay: &str) -> String {
    let refused = match parse(overlay) {
        Ok(overlay) => merge(&base(), &overlay).err().unwrap_or_default(),
        Err(refusal) => vec![refusal],
    };
    refused.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

#[test]
fn reserved_parts_are_protected() {
    let cases: Vec<(String, String)> = yaml(include_str!("../../tests/overlays.yaml"));
    for (overlay, wanted) in &cases {
        let text = violations(overlay);
        assert!(text.contains(wanted) && (wanted.is_empty() == text.is_empty()), "{overlay}\n  {text}");
    }
    assert!(violations(&format!("# {}", "x".repeat(300_000))).contains("more than"));
}

#[test]
fn valid_overlays() {
    for (overlay, expected) in yaml::<Vec<(String, Value)>>(include_str!("../../tests/valid_overlays.yaml")) {
        assert_eq!(parse(&overlay).expect(&overlay), expected, "{overlay:?}");
    }
}

/// Generates patches with names and directives of pod templates.
fn anything() -> impl Strategy<Value = Value> {
    let keys = "metadata labels spec containers initContainers volumes env name image emptyDir volumeMounts mountPath \
                $patch tolerations securityContext";
    json_of("main ebb-io delete replace merge a name image", keys)
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
    fn merged_templates_have_the_reserved_parts(patch in fitting()) {
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
