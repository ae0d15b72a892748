//! Tests that the expanded text of a random document loads unchanged.

use proptest::prelude::*;
use serde_json::json;

use super::meaning;
use crate::load::{self, DocumentVars, NoFiles};

fn check_expansion(text: &str) -> Result<(), TestCaseError> {
    match load::documents("f.yaml", text, &NoFiles, &DocumentVars::none()) {
        Ok((documents, _)) => {
            for document in &documents {
                let again = load::document("g.yaml", document.expanded(), &NoFiles, &DocumentVars::none());
                let again = again.map_err(|e| TestCaseError::fail(format!("{e}\n{}", document.expanded())))?;
                prop_assert_eq!(meaning(document), meaning(&again));
            }
        }
        Err(wrong) => {
            prop_assert!(wrong.has_errors());
            for diagnostic in wrong.iter() {
                diagnostic.drawn(crate::diagnostic::DiagnosticStyle::Plain);
                diagnostic.drawn(crate::diagnostic::DiagnosticStyle::Ascii);
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_texts_are_expanded_unchanged(description in ".*", script in "\\PC*[\\n \\t]{0,3}", label in "\\PC{0,20}") {
        let document = json!({
            "name": "a",
            "spec": {
                "description": description,
                "runner": {"image": "x"},
                "create": [{"name": "b", "script": format!("#!/bin/sh\n{script}")}]
            }
        });
        check_expansion(&document.to_string())?;
        check_expansion(&json!({"name": "a", "spec": {"cluster": "c", "labels": {label.clone(): label}}}).to_string())?;
    }

    #[test]
    fn arbitrary_numbers_are_expanded_unchanged(number in any::<f64>(), whole in any::<i64>(), large in any::<u64>()) {
        let document = json!({
            "apiVersion": "ebb.dev/v1",
            "kind": "Sandbox",
            "name": "a",
            "resources": {"r": {"plugin": "p", "params": {"n": number, "w": whole, "l": large}}}
        });
        check_expansion(&document.to_string())?;
    }
}

#[test]
fn the_deepest_document_fits_on_a_usual_stack() {
    let deep = |levels: usize| -> String { (0..levels).map(|n| format!("{}a:\n", " ".repeat(n))).collect() };
    let loading = std::thread::Builder::new().stack_size(1536 << 10).spawn(move || {
        for levels in [1, load::MAX_DEPTH - 1, load::MAX_DEPTH, load::MAX_DEPTH + 1, 100, 2000] {
            let wrong = load::documents("f", &deep(levels), &NoFiles, &DocumentVars::none()).unwrap_err();
            let deep = wrong.iter().any(|d| d.code == "too-complex");
            assert_eq!(deep, levels > load::MAX_DEPTH, "{levels} {wrong}");
        }
    });
    loading.unwrap().join().unwrap();
}
