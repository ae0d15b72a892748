//! Compares the policy of each function with the requests that it makes.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::functions::FUNCTIONS;
use super::record::PolicyRights;
use super::run;
use super::template::{allowed, statements, template};
use crate::tree;

/// Returns a line for each right that is needed but not allowed, or allowed but neither needed nor waived.
fn differences(template: &Value, needed: &BTreeMap<&str, PolicyRights>) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for function in FUNCTIONS {
        let allowed = allowed(template, function);
        let waived: Vec<[String; 4]> =
            serde_saphyr::from_str(&tree::read("tests/tests/deployment/waived_rights.yaml")).unwrap();
        let waived = waived.into_iter().filter(|[of, ..]| of.is_empty() || of == function);
        let waived = waived.map(|[_, action, place, _]| (action, place.replace("LOG", &format!("{function}Log"))));
        let waived: PolicyRights = waived.collect();
        let mut add = |what: &str, rights: &mut dyn Iterator<Item = &(String, String)>| {
            found.extend(rights.map(|(action, place)| format!("{function} {what}: {action} {place}")));
        };
        add("needs", &mut needed[function].difference(&allowed));
        let unused = waived.difference(&allowed).filter(|right| !needed[function].contains(*right));
        add("has a waiver without a right", &mut { unused });
        add(
            "has a right without a need",
            &mut allowed.iter().filter(|right| !needed[function].contains(*right) && !waived.contains(*right)),
        );
    }
    found
}

/// The template has no differences. Without any one statement, the comparison finds all rights of the statement.
#[tokio::test(flavor = "multi_thread")]
async fn policies_match_the_requests_of_functions() {
    let (template, functions) = (template(), run::all().await);
    let needed = functions.recorders.iter().map(|(name, recorder)| (*name, recorder.rights())).collect();
    let found = differences(&template, &needed);
    assert!(found.is_empty(), "{found:#?}");
    let mut cuts = 0;
    for function in FUNCTIONS {
        let whole = allowed(&template, function);
        for index in 0..statements(&mut template.clone(), function).len() {
            let mut cut = template.clone();
            let statement = statements(&mut cut, function).remove(index);
            let lost: Vec<_> = whole.difference(&allowed(&cut, function)).cloned().collect();
            assert!(!lost.is_empty(), "{function}: {statement}");
            let found = differences(&cut, &needed);
            assert_eq!(found.len(), lost.len(), "{found:#?}");
            for (action, place) in lost {
                let named = |what: &str| found.contains(&format!("{function} {what}: {action} {place}"));
                let named = named("needs") || named("has a waiver without a right");
                assert!(named, "{function} without {statement}: {found:#?}");
            }
            cuts += 1;
        }
    }
    assert!(cuts > 40, "{cuts} statements");
}
