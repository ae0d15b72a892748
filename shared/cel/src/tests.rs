use std::collections::BTreeSet;

use serde::de::DeserializeOwned;

use super::*;

/// Returns the rows of a test in `tests/texts.yaml`.
pub(crate) fn rows<T: DeserializeOwned>(test: &str) -> Vec<T> {
    let mut parts: BTreeMap<String, serde_json::Value> =
        serde_saphyr::from_str(include_str!("../tests/texts.yaml")).unwrap();
    serde_json::from_value(parts.remove(test).unwrap_or_else(|| panic!("no rows of {test}"))).unwrap()
}

fn shown(text: &str, scope: Scope) -> String {
    let parsed = parse(text, scope).map(|expression| {
        let references = expression.references.iter().map(|r| {
            let optional = if r.optional { "?" } else { "" };
            format!("{}{optional} {:?} {}+{}", r.source, r.usage, r.offset, r.length)
        });
        references.collect::<Vec<_>>().join("; ")
    });
    parsed.unwrap_or_else(|mistakes| {
        let mistakes = mistakes.iter().map(|m| {
            let help = m.help.as_deref().map(|help| format!(" ({help})")).unwrap_or_default();
            format!("{} {}+{}: {}{help}", m.code, m.offset, m.length, m.message)
        });
        mistakes.collect::<Vec<_>>().join("\n")
    })
}

/// Returns each expression with its references or errors: `texts` in a plugin, and the rows of a test in other scopes.
fn table<'a>(texts: impl Iterator<Item = &'a str>, test: &str) -> String {
    let line = |text: &str, scope| {
        let head: String = text.chars().take(90).collect();
        let scope_name = if scope == Scope::Plugin { String::new() } else { format!(" in {scope:?}") };
        format!("{head}{scope_name}\n    {}\n", shown(text, scope).replace('\n', "\n    "))
    };
    let others = rows::<(String, Scope)>(test);
    let others = others.iter().map(|(text, scope)| line(text, *scope));
    texts.map(|text| line(text, Scope::Plugin)).chain(others).collect()
}

#[test]
fn references_in_all_spellings() {
    let texts = include_str!("../tests/expressions/references.txt").lines();
    let table = table(texts, "references_in_all_spellings");
    insta::assert_snapshot!(table);
}

#[test]
fn keys_are_found_in_all_spellings() {
    for (text, expected) in rows::<(String, Option<BTreeSet<String>>)>("keys_are_found_in_all_spellings") {
        let keys = parse(&text, Scope::Plugin).unwrap().keys_of(RootVariable::Target, "labels");
        assert_eq!(keys, expected, "{text}");
    }
}

#[test]
fn mistakes() {
    let long = format!("'{}'", "x".repeat(MAX_LENGTH));
    let deep = format!("{}1{}", "[".repeat(30), "]".repeat(30));
    let wide = vec!["1"; 600].join("+");
    let texts = include_str!("../tests/expressions/mistakes.txt").lines().chain([long.as_str(), &deep, &wide]);
    let table = table(texts, "mistakes");
    insta::assert_snapshot!(table);
}

#[test]
fn no_text_before_an_error_moves_it() {
    let texts = ["1 +  )", "1 +\r )", "1 +\n )", "'é')", "'a\\n' +\n'é' )"];
    let offsets = texts.map(|text| text.len() - parse(text, Scope::Plugin).unwrap_err()[0].offset);
    assert_eq!(offsets, [1; 5]);
}

#[test]
fn patterns_are_literal_and_small() {
    for (text, expected) in rows::<(String, String)>("patterns_are_literal_and_small") {
        let shown = shown(&text, Scope::Response);
        assert_eq!(shown.split(" (use small").next(), Some(expected.as_str()), "{text}");
        assert_eq!(shown.starts_with("pattern"), shown.contains("small numbers"), "{shown}");
    }
}

#[test]
fn the_cost_of_matching_is_proportional_to_the_text() {
    let expression = parse("response.body.matches('(a|b|ab)*(a|b| )*c$')", Scope::Response).unwrap();
    let over = |bytes: usize| {
        let text = serde_json::json!({"body": "ab ".repeat(bytes / 3)});
        evaluate(&expression, &[("response", convert::from_json(&text))].into())
    };
    assert_eq!(over(300), Ok(convert::CelOutput::Json(false.into())));
    assert_eq!(over(1 << 20), Ok(convert::CelOutput::Json(false.into())));
    let Err(EvaluationError::TooCostly(cost)) = over(10 << 20) else { panic!("10 MiB are accepted") };
    assert!((MAX_COST..MAX_COST * 20).contains(&cost), "{cost}");
    let response = serde_json::json!({"body": "aaa"});
    let variables = [("response", convert::from_json(&response))].into();
    for (text, expected) in rows::<(String, bool)>("the_cost_of_matching_is_proportional_to_the_text") {
        let expression = parse(&text, Scope::Response).unwrap();
        assert_eq!(evaluate(&expression, &variables), Ok(convert::CelOutput::Json(expected.into())), "{text}");
    }
}

#[test]
fn an_expression_has_bounded_issues_and_patterns() {
    let wrong = parse(&format!("[{}]", "f(),".repeat(200)), Scope::Plugin).unwrap_err();
    assert_eq!(wrong.len(), MAX_ISSUES);
    let matching = |pattern: &str, count: usize| {
        let all: Vec<String> = (0..count).map(|n| format!("response.body.matches('{pattern}{n}')")).collect();
        parse(&format!("[{}]", all.join(", ")), Scope::Response)
    };
    let steps = |pattern| matching(pattern, 9).unwrap().steps;
    assert!(steps("a") < 10_000 && steps("(?i)[^a]") > 9 * 100_000);
    let wrong = matching("(?i)[^a]", 60).unwrap_err();
    assert!((30..60).contains(&wrong.len()) || wrong.len() == MAX_ISSUES, "{}", wrong.len());
    assert!(wrong.iter().all(|wrong| wrong.message.ends_with("it takes too many steps to compile")), "{wrong:?}");
}

#[test]
fn a_missing_value_differs_from_other_failures() {
    let body = serde_json::json!({"n": null, "list": [1, null], "text": "a", "pull": {"repo": null}});
    let variables = [("body", convert::from_json(&body))].into();
    for (text, expected) in rows::<(String, Option<String>)>("a_missing_value_differs_from_other_failures") {
        let missing = match evaluate(&parse(&text, Scope::Event).unwrap(), &variables) {
            Err(EvaluationError::MissingValue(reason)) => Some(reason),
            _ => None,
        };
        assert_eq!(missing, expected, "{text}");
    }
}

#[test]
fn lists_of_many_entries_are_read() {
    let field = |n: u32| (format!("f{n}"), serde_json::Value::from("x".repeat(70)));
    let more: serde_json::Map<String, serde_json::Value> = (0..27).map(field).collect();
    let tags = |id: u32| [serde_json::json!({"key": "t"}), serde_json::json!({"key": format!("t-{id}")})];
    let entry = |id: u32| serde_json::json!({"id": id, "name": format!("b-{id}"), "tags": tags(id), "more": more});
    let items: Vec<_> = (0..1000).map(entry).collect();
    let numbers = serde_json::json!(vec![2; 2000]).to_string();
    let body = serde_json::json!({"items": items, "last": "b-999", "text": numbers});
    assert!(body.to_string().len() > 2 << 20);
    let variables = [("body", convert::from_json(&body))].into();
    let many = (format!("[{}]", vec!["body.items == []"; 60].join(",")), None);
    let rows = rows::<(String, Option<serde_json::Value>)>("lists_of_many_entries_are_read");
    for (text, expected) in rows.into_iter().chain([many]) {
        let made = evaluate(&parse(&text, Scope::Event).unwrap(), &variables);
        let made = made.map_err(|error| matches!(error, EvaluationError::TooCostly(_)));
        assert_eq!(made, expected.map(convert::CelOutput::Json).ok_or(true), "{text}");
    }
}

#[test]
fn a_selection_costs_what_it_selects() {
    let body = serde_json::json!({"a-b": {"c": 1, "text": "x".repeat(640)}, "list": vec![0; 1000]});
    let variables = [("body", convert::from_json(&body))].into();
    for (text, expected) in rows::<(String, u64)>("a_selection_costs_what_it_selects") {
        let shared = SharedCost::new(10_000);
        let _ = evaluate_within(&parse(&text, Scope::Event).unwrap(), &variables, &shared, MAX_VALUE_BYTES);
        assert_eq!(shared.spent.get(), expected, "{text}");
    }
    let list = |text: &str, limit, bytes| {
        let list = parse(text, Scope::Event).unwrap();
        evaluate_within(&list, &variables, &SharedCost::new(limit), bytes).map_err(|error| error.to_string())
    };
    assert!(list("body.list", 1003, 2001).is_ok());
    let costly = "this expression and those before it could touch more than 1002 values";
    assert_eq!(list("body.list", 1002, 2001), Err(costly.to_owned()));
    for text in ["body.list", "body.?list", "[body.list]"] {
        assert_eq!(list(text, 9000, 2000), Err("the value has more than 2000 bytes".to_owned()), "{text}");
    }
}
