//! Documents with their plans, as a table lists them.
#![allow(clippy::disallowed_methods, reason = "tests read files")]

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};

use super::fixtures::{ALONE, compiled};
use super::plans::outline;
use crate::{Diagnostic, Diagnostics, Plan};

/// Documents and what is made of them. The table describes the keys.
#[serde_with::apply(BTreeMap => #[serde(default)])]
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DocumentCase {
    case: String,
    documents: Vec<String>,
    #[serde(default)]
    changes: Vec<(String, String)>,
    error: Option<String>,
    outline: Option<String>,
    teardown: Option<Vec<String>>,
    warnings: Option<Vec<String>>,
    codes: BTreeMap<String, bool>,
    parts: BTreeMap<String, Value>,
}

impl DocumentCase {
    fn text(&self, written: &str) -> String {
        let text = match written.ends_with(".yaml") {
            true => std::fs::read_to_string(format!("{}/tests/plans/{written}", env!("CARGO_MANIFEST_DIR"))).unwrap(),
            false => written.to_owned(),
        };
        self.changes.iter().fold(text, |text, (from, to)| text.replace(from, to))
    }

    fn compiled(&self) -> Result<(Plan, Vec<Diagnostic>), Diagnostics> {
        let texts: Vec<String> = self.documents.iter().map(|written| self.text(written)).collect();
        let documents: Vec<&str> = texts.iter().flat_map(|text| text.split("\n---\n")).collect();
        match documents.split_last() {
            Some((sandbox, plugins)) if !plugins.is_empty() => compiled(sandbox, plugins),
            _ => compiled(ALONE, &documents),
        }
    }

    fn check_plan(&self, plan: &Plan, warned: &[Diagnostic]) {
        let case = &self.case;
        let outline = outline(plan);
        if let Some(expected) = &self.outline {
            assert_eq!(outline, *expected, "{case}");
        }
        if let Some(expected) = &self.teardown {
            let found: Vec<&str> = outline.lines().filter(|line| line.starts_with("postStop: ")).collect();
            assert_eq!(found, *expected, "{case}");
        }
        let found: Vec<String> = warned.iter().map(Diagnostic::plain).collect();
        if let Some(expected) = &self.warnings {
            assert_eq!(found, *expected, "{case}");
        }
        for (code, is_warned) in &self.codes {
            assert_eq!(warned.iter().any(|warning| warning.code == *code), *is_warned, "{case}: {code}: {found:?}");
        }
        let json = json!(plan);
        for (pointer, expected) in &self.parts {
            assert_eq!(json.pointer(pointer).unwrap_or(&Value::Null), expected, "{case}: {pointer}");
        }
    }
}

#[test]
fn documents_have_these_plans() {
    let cases: Vec<DocumentCase> = serde_saphyr::from_str(include_str!("../../../tests/planned.yaml")).unwrap();
    for of in &cases {
        match (of.compiled(), &of.error) {
            (Ok((plan, warned)), None) => of.check_plan(&plan, &warned),
            (Err(errors), Some(expected)) => assert_eq!(errors.to_string(), *expected, "{}", of.case),
            (made, _) => panic!("{}: {made:?}", of.case),
        }
    }
}
