//! Tests every contract with small statuses, and properties of all contracts.

use std::sync::LazyLock;

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::contract::{self, DocumentRules, MAX_TEXT, ObjectReadiness, built_in, deletion};
use crate::generated::json_of;

/// An object, and cases with their readiness, a part of the message, a status and a patch.
#[derive(Clone, serde::Deserialize)]
struct ContractCases {
    of: Value,
    cases: Vec<Vec<Value>>,
}

#[derive(serde::Deserialize)]
struct RuleCases {
    rules: Vec<(Value, Option<bool>, Option<bool>, String)>,
    fields: Vec<(String, Option<String>)>,
    deletions: Vec<(Value, String)>,
}

static RULES: LazyLock<RuleCases> =
    LazyLock::new(|| serde_saphyr::from_str(include_str!("../../tests/rules.yaml")).expect("cases"));

static CONTRACTS: LazyLock<Vec<ContractCases>> = LazyLock::new(|| {
    let files = [
        include_str!("../../tests/contracts/core.yaml"),
        include_str!("../../tests/contracts/operators.yaml"),
        include_str!("../../tests/contracts/workloads.yaml"),
    ];
    files.iter().flat_map(|file| serde_saphyr::from_str::<Vec<ContractCases>>(file).expect("cases")).collect()
});

/// The objects of all cases with their expected readiness.
static CASES: LazyLock<Vec<(String, String, Value)>> = LazyLock::new(|| {
    let mut cases = Vec::new();
    for ContractCases { of, cases: lines } in CONTRACTS.iter() {
        for line in lines {
            let mut object = of.clone();
            if !line[2].is_null() {
                object["status"] = line[2].clone();
            }
            if let Some(more) = line.get(3) {
                merge_into(&mut object, more);
            }
            let text = |value: &Value| value.as_str().expect("text").to_owned();
            cases.push((text(&line[0]), text(&line[1]), object));
        }
    }
    assert!(cases.len() > 200, "{}", cases.len());
    cases
});

fn merge_into(object: &mut Value, more: &Value) {
    match (object, more) {
        (Value::Object(map), Value::Object(more)) => {
            more.iter().for_each(|(key, value)| merge_into(map.entry(key.clone()).or_insert(json!({})), value));
        }
        (object, more) => *object = more.clone(),
    }
}

fn judge(object: Option<&Value>, uid: Option<&str>, rules: DocumentRules) -> ObjectReadiness {
    contract::judge(built_in(), object, uid, rules)
}

fn plain(object: &Value) -> ObjectReadiness {
    judge(Some(object), None, DocumentRules::default())
}

#[test]
fn readiness_of_all_cases() {
    for (wanted, words, object) in CASES.iter() {
        let verdict = plain(object);
        let (name, text) = match &verdict {
            ObjectReadiness::Ready => ("ready", String::new()),
            ObjectReadiness::Pending { reason: why } => ("pending", why.clone()),
            ObjectReadiness::Failed { reason, message } => ("failed", format!("{reason}: {message}")),
            ObjectReadiness::Gone => ("gone", String::new()),
        };
        let wanted = if wanted == "applied" { "ready" } else { wanted };
        let is_judged = !text.contains("cannot be judged");
        assert!(name == wanted && text.contains(words) && is_judged, "{wanted} {words:?} but {verdict:?}\n  {object}");
    }
}

#[test]
fn readiness_depends_on_status_generation_and_deletion() {
    for (wanted, _, object) in CASES.iter() {
        if !["ready", "applied"].contains(&wanted.as_str()) {
            continue;
        }
        let changed = |change: fn(&mut Value)| {
            let mut object = object.clone();
            change(&mut object);
            plain(&object)
        };
        let bare = changed(|object| drop(object.as_object_mut().unwrap().remove("status")));
        assert_eq!(bare == ObjectReadiness::Ready, wanted == "applied", "without a status: {object}");
        let stale = changed(|object| {
            object["metadata"]["generation"] = json!(9);
            object["status"]["observedGeneration"] = json!(8);
        });
        assert!(matches!(stale, ObjectReadiness::Pending { .. }), "stale: {object}");
        let stale = changed(|object| {
            object["metadata"]["generation"] = json!(9);
            let conditions = object["status"]["conditions"].as_array_mut();
            conditions.into_iter().flatten().for_each(|it| it["observedGeneration"] = json!(8));
        });
        let judged_by_conditions = object["status"]["conditions"][0].is_object()
            && object["kind"] != "CertificateSigningRequest"
            && object["status"].get("initialization").is_none()
            && object["status"].get("v1beta2").is_none();
        assert!(stale != ObjectReadiness::Ready || !judged_by_conditions, "stale conditions: {object}");
        let ending = changed(|object| object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"));
        assert!(matches!(ending, ObjectReadiness::Failed { reason, .. } if reason == "Terminating"), "{object}");
    }
}

#[test]
fn rules_of_a_document_override_the_contracts() {
    for (object, ready, fail, wanted) in RULES.rules.iter().cloned() {
        let verdict = judge(Some(&object), None, DocumentRules { ready, fail });
        let text = format!("{verdict:?}").replace("Ready", "ready");
        let is_ready = verdict == ObjectReadiness::Ready;
        assert!(text.contains(&wanted) && (wanted == "ready") == is_ready, "{wanted}: {text}");
    }
}

#[test]
fn uids_and_deletions() {
    let object = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"uid": "a"}});
    let rules = DocumentRules { ready: Some(true), fail: Some(true) };
    assert_eq!(judge(None, None, rules), ObjectReadiness::Gone);
    assert_eq!(judge(Some(&object), Some("b"), rules), ObjectReadiness::Gone);
    assert_eq!(judge(Some(&object), Some("a"), DocumentRules::default()), ObjectReadiness::Ready);
    for (ending, expected) in &RULES.deletions {
        assert_eq!(deletion(ending), *expected);
    }
}

#[test]
fn a_reason_about_a_field_begins_with_it() {
    for (reason, expected) in &RULES.fields {
        assert_eq!(ObjectReadiness::pending(reason).awaited_field(), expected.as_deref(), "{reason}");
    }
    assert_eq!(ObjectReadiness::failed("status", "`status.phase` is").awaited_field(), None);
}

#[test]
fn foreign_texts_are_short_and_in_one_line() {
    let message = format!("a\n\u{1b}[31m{}", "é".repeat(5000));
    let object =
        json!({"apiVersion": "argoproj.io/v1", "kind": "Workflow", "status": {"phase": "Error", "message": message}});
    let ObjectReadiness::Failed { message, .. } = plain(&object) else { panic!("failed") };
    assert_eq!(message.chars().count(), MAX_TEXT);
    assert!(message.starts_with("a  [31mé") && message.ends_with('…'));
}

/// Values that contracts read. One of them is empty.
const WORDS: &str = "apps/v1 batch/v1 v1 kro.run/v1 cluster.x-k8s.io/v1beta2 source.toolkit.fluxcd.io/v1 Deployment Job \
    Pod Service Cluster LoadBalancer True False Ready Synced Stalled Complete Running Succeeded 9  a.b";
/// Fields that contracts read.
const KEYS: &str = "apiVersion kind metadata spec status generation observedGeneration conditions type reason phase \
    replicas containerStatuses state waiting terminated exitCode ingress annotations finalizers deletionTimestamp uid \
    initialization updateStrategy rollingUpdate partition";

proptest! {
    #[test]
    fn nothing_panics(of in any::<prop::sample::Index>(), patch in json_of(WORDS, KEYS), ready in any::<Option<bool>>(), fail in any::<Option<bool>>(), uid in any::<Option<String>>()) {
        let all = &*CONTRACTS;
        let mut object = all[of.index(all.len())].of.clone();
        for object in [patch.clone(), { merge_into(&mut object, &patch); object }] {
            judge(Some(&object), uid.as_deref(), DocumentRules { ready, fail });
            deletion(&object);
        }
    }

    #[test]
    fn unobserved_generations_are_never_ready(of in any::<prop::sample::Index>(), patch in json_of(WORDS, KEYS), ready in any::<Option<bool>>(), now in 1i64.., behind in 1i64..5) {
        let all = &*CASES;
        let mut object = all[of.index(all.len())].2.clone();
        merge_into(&mut object, &patch);
        merge_into(&mut object, &json!({"metadata": {"generation": now}, "status": {"observedGeneration": now - behind}}));
        prop_assert_ne!(judge(Some(&object), None, DocumentRules { ready, fail: None }), ObjectReadiness::Ready);
    }
}
