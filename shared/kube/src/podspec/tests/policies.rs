//! Policies in both forms, the texts of refusals, and what pods of scripts get.

use std::collections::BTreeSet;

use serde_json::Value;

use super::yaml;
use crate::podspec::policy::{ask_operator, listed, shown};
use crate::podspec::{ClusterPolicy, NamespacePolicy, PodSecurityLevel, fill_defaults};

fn policy() -> ClusterPolicy {
    yaml(include_str!("../../../tests/policy.yaml"))
}

#[test]
fn both_forms_of_a_namespace_are_read() {
    let policy = policy();
    let builder = || BTreeSet::from(["builder".to_owned()]);
    let signadot = NamespacePolicy {
        level: Some(PodSecurityLevel::Baseline),
        service_accounts: builder(),
        image_pull_secrets: ["registry".to_owned()].into(),
    };
    for namespace in ["units", "none"] {
        assert_eq!(policy.namespaces[namespace], NamespacePolicy::default());
    }
    assert_eq!(policy.namespaces["listed"].service_accounts, builder());
    assert_eq!(policy.namespaces["signadot"], signadot);
    let levels = ["units", "listed", "signadot", "open", "other"].map(|namespace| policy.level(namespace).name());
    assert_eq!(levels, ["restricted", "restricted", "baseline", "privileged", "restricted"]);
    assert_eq!(serde_json::from_value::<ClusterPolicy>(serde_json::to_value(&policy).unwrap()).unwrap(), policy);
    for (text, expected) in yaml::<Vec<(String, String)>>(include_str!("../../../tests/wrong_policies.yaml")) {
        let error = serde_saphyr::from_str::<ClusterPolicy>(&text).unwrap_err().to_string();
        assert!(error.contains(&expected), "{text}: {error}");
    }
}

#[test]
fn refusals_name_the_key_the_allowed_values_and_the_command() {
    let policy = policy();
    assert_eq!(policy.namespace_violation("units"), None);
    let (of_namespace, of_service, fixes): (String, String, Vec<[String; 3]>) =
        yaml(include_str!("../../../tests/refusals.yaml"));
    assert_eq!(policy.namespace_violation("team-a").unwrap().to_string(), of_namespace);
    assert_eq!(policy.service_refusal("files").to_string(), of_service);
    for [namespace, why, fix] in fixes {
        assert_eq!(policy.pod_security_fix(&namespace, &why), fix);
    }
    let many: Vec<String> = (10..22).map(|number| number.to_string()).collect();
    assert_eq!(listed(many.iter()), "10, 11, 12, 13, 14, 15, 16, 17, 18, 19, and 2 more");
    assert_eq!(listed(many[..1].iter()), "10");
}

/// The API server refuses a namespace that its rules do not list, and suggests the same command.
#[test]
fn the_admission_policy_suggests_the_same_command() {
    let rules: Value = yaml(include_str!("../../../../../infra/relay/chart/rules.yaml"));
    let text = rules["validations"][0]["messageExpression"].as_str().unwrap();
    let suggested = text.replace("' + request.namespace + '", "team-a");
    assert!(suggested.contains(&format!("{}' ", policy().namespace_violation("team-a").unwrap().help)), "{suggested}");
}

/// A name comes from a document, and an operator copies the command.
#[test]
fn a_hostile_name_is_no_part_of_a_command() {
    for name in ["a;reboot", "$(reboot)", "a b", "a\nb", "--help", "", "a`b", &"a".repeat(254)] {
        let violation = policy().namespace_violation(name).unwrap();
        assert_eq!(violation.help, "ask its operator", "{name}");
        assert!(violation.why.len() < 400 && !violation.why.contains('\n'), "{name}");
    }
    assert!(ask_operator("--kind Job.batch", "Job.batch").ends_with("--kind Job.batch"));
    assert_eq!(shown("a\u{1b}[31m\n"), "a[31m");
}

#[test]
fn pods_of_scripts_get_what_their_namespace_needs() {
    let cases: Vec<(String, Value, Value)> = yaml(include_str!("../../../tests/filled.yaml"));
    for (namespace, pod, expected) in cases {
        let mut filled = pod.clone();
        fill_defaults(&mut filled, &namespace, &policy());
        assert_eq!(filled, expected, "{namespace}: {pod}");
    }
}
