//! Tests of sources: entries, rendered documents, hostile events.

use serde_json::{Value, json};

use super::compiling::fixtures::{SHARED_PG, TENANT_DB, compiled};
use crate::event::{EventInput, EventOutcome};
use crate::tests::rows;
use crate::{DocumentVars, EventSource, NoFiles, SandboxDoc, Template, TtlFrom, VerifyDoc, canonical, compile, load};

pub(super) fn source(text: &str) -> EventSource {
    let doc =
        load::event_source("source.yaml", text, &NoFiles, &DocumentVars::none()).unwrap_or_else(|e| panic!("{e}"));
    compile::event_source(&doc).unwrap_or_else(|e| panic!("{e}")).0
}

fn shop() -> EventSource {
    source(include_str!("../../tests/fixtures/source.yaml"))
}

pub(super) fn event(headers: &[(&str, &str)], body: Value) -> EventInput {
    let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    EventInput { headers, body, fetched: None }
}

fn shop_event(changes: &Value) -> EventInput {
    let mut body = json!({
        "action": "open", "number": 7, "repository": "shop", "author": "ann", "title": "A title", "rows": 5, "id": 99,
        "urgent": false, "at": "2026-11-25T10:00:00Z",
    });
    for (key, value) in changes.as_object().unwrap() {
        body[key] = value.clone();
    }
    event(&[], body)
}

/// Returns the outcome in one line without the document, or the error.
pub(super) fn shown(source: &EventSource, input: &EventInput) -> String {
    source.explain(input).outcome.map_or_else(|error| format!("error: {error}"), |outcome| effect(&outcome))
}

/// Returns an outcome in one line without the document.
pub(super) fn effect(outcome: &EventOutcome) -> String {
    let placed = |action: &str, (kind, name): (&str, &str), uid: &Option<String>, (time, order): (Option<u64>, u8)| {
        let order = if order == 0 { String::new() } else { format!(" order {order}") };
        format!("{action} {kind}/{name} {uid:?} {time:?}{order}")
    };
    match outcome {
        EventOutcome::Apply { kind, name, uid, time_ms, order, .. } => {
            placed("apply", (kind, name), uid, (*time_ms, *order))
        }
        EventOutcome::Delete { kind, name, uid, time_ms, order, reason } => {
            let reason = reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
            placed("delete", (kind, name), uid, (*time_ms, *order)) + &reason
        }
        EventOutcome::Ignored { reason } => format!("ignored: {reason}"),
    }
}

pub(super) fn rendered(source: &EventSource, input: &EventInput) -> (String, SandboxDoc) {
    let outcome = source.explain(input).outcome;
    let Ok(EventOutcome::Apply { document, .. }) = outcome else { panic!("{outcome:?}") };
    let sandbox = load::sandbox("rendered", &document, &NoFiles, &DocumentVars::none());
    let sandbox = sandbox.unwrap_or_else(|error| panic!("{error}\n{document}"));
    (document, sandbox)
}

#[test]
fn a_rendered_document_loads_and_compiles() {
    let (document, sandbox) = rendered(&shop(), &shop_event(&json!({})));
    insta::assert_snapshot!("rendered_document", document);
    let (plan, _) = compiled(&document, &[TENANT_DB, SHARED_PG]).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(plan.resources["users"].params["seedRows"], Template::Literal(5.into()));
    assert_eq!(plan.env["DATABASE_URL"], Template::Text("${resources.users.outputs.dsn}".to_owned()));
    assert_eq!(sandbox.labels["author"], "ann");

    let (document, sandbox) = rendered(&shop(), &shop_event(&json!({"action": "cluster"})));
    assert_eq!(sandbox.target_kind.as_ref().map(|kind| kind.value.as_str()), Some("namespace"));
    let (plan, _) = compiled(&document, &[SHARED_PG]).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(plan.resources.len(), 1);
}

#[test]
fn an_event_supplies_the_time_of_a_ttl() {
    let (fixed, time) = (include_str!("../../tests/fixtures/source.yaml"), r#"'${body.urgent ? "2h" : "72h"}'"#);
    let sliding = source(&fixed.replace(time, r#"{after: "${body.lifetime}", from: activity}"#));
    for (changes, ttl) in [(json!({"lifetime": "2h"}), Some((7_200_000, TtlFrom::Activity))), (json!({}), None)] {
        let (_, sandbox) = rendered(&sliding, &shop_event(&changes));
        assert_eq!(sandbox.ttl.map(|ttl| (ttl.after.0, ttl.from)), ttl);
    }
}

#[test]
fn the_first_entry_that_holds_decides() {
    let source = shop();
    for (changes, expected) in rows::<(Value, String)>("the_first_entry_that_holds_decides") {
        let mut input = shop_event(&changes);
        assert_eq!(shown(&source, &input), expected, "{changes}");
        // A missing value is as null.
        input.body.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        assert_eq!(shown(&source, &input), expected, "{changes} without null");
    }
    let explained = source.explain(&shop_event(&json!({})));
    assert_eq!((explained.entry, explained.skipped.len()), (Some(2), 1));
    assert_eq!(source.delivery_id(&event(&[], json!({}))), Ok(None));
    assert!(matches!(&source.verify, VerifyDoc::Hmac(hmac) if hmac.secret.value == "SHOP_WEBHOOK"));
}

#[test]
fn an_identity_has_visible_characters_only() {
    for (text, stays) in rows::<(String, bool)>("an_identity_has_visible_characters_only") {
        let id = shop().delivery_id(&event(&[("x-shop-delivery", &text)], json!({}))).unwrap();
        assert_eq!(id, Some(if stays { text } else { canonical::digest(&text) }));
    }
}

#[test]
fn times_with_and_without_a_zone() {
    let source = shop();
    for (time, expected) in rows::<(String, String)>("times_with_and_without_a_zone") {
        let found = shown(&source, &shop_event(&json!({"action": "close", "at": time})));
        assert!(found.starts_with(&expected), "{time}: {found}");
    }
}

/// A null does not reject an event that a later entry deletes by.
#[test]
fn a_condition_that_reads_null_does_not_hold() {
    let source = source(include_str!("../../tests/sources/nulls.yaml"));
    let body = json!({
        "action": "closed", "number": 41, "labels": null, "pull_request": {"head": {"repo": null}, "draft": null},
        "build": null,
    });
    let input = event(&[], body);
    assert_eq!(shown(&source, &input), "delete sandbox/n-41 None None");
    let explained = source.explain(&input);
    let reasons: Vec<&str> = explained.skipped.iter().map(|skipped| skipped.reason.as_str()).collect();
    let nulls = ["body.pull_request.head.repo", "body.pull_request.draft", "body.labels"];
    assert_eq!(reasons, nulls.map(|null| format!("`when` is false: `{null}` is null")));
    assert_eq!(source.fetch(&input), Ok(None));
    // A name, time or text that needs a value rejects the event.
    let nameless = event(&[], json!({"action": "closed", "number": null}));
    assert_eq!(shown(&source, &nameless), "error: entry 4: `target.name`: `${body.number}`: the value is missing");
}

const HOSTILE: &str = include_str!("../../tests/sources/hostile.yaml");

/// A plugin whose parameters have any type.
fn any_plugin(whole: &str) -> String {
    format!(
        "apiVersion: ebb.dev/v1\nkind: Plugin\nname: p\nparams: {{whole: {{type: {whole}}}, part: {{type: string}}, deep: \
         {{type: array}}}}\npreStart: {{u: {{webhook: {{url: \"https://e.example.org/\"}}, cleanup: none}}}}\n"
    )
}

#[test]
fn a_hostile_value_changes_nothing_else() {
    let source = source(HOSTILE);
    let words = "${params.x} $${x} $$${x} ${ } $ a${resources.r.outputs.y}b @{var} @{ @{}@{a} null ~ true no y 1 1.10 \
                 0x1F 1e3 1:30 2026-01-01 &x *x | >- %YAML --- ... ' [a] << = ? .. ../../x a/b%2f?c#d";
    let texts = rows::<String>("a_hostile_value_changes_nothing_else");
    let long = ["x".repeat(12_000), "${x}".repeat(3_000)];
    for text in words.split(' ').map(str::to_owned).chain(texts).chain(long) {
        let (document, sandbox) = rendered(&source, &event(&[], json!({"x": text})));
        assert!(sandbox.name.value.starts_with("a-") && sandbox.name.value.len() <= 63, "{}", sandbox.name.value);
        assert_eq!(sandbox.labels["x"], text);
        assert_eq!(sandbox.labels["own"], "${x}");
        assert_eq!(sandbox.description.as_deref(), Some(text.as_str()));
        let (plan, _) =
            compiled(&document, &[&any_plugin("string")]).unwrap_or_else(|error| panic!("{text:?} {error}"));
        let literal = |text: &str| Template::Literal(text.into());
        let params = &plan.resources["r"].params;
        assert_eq!(params["whole"], literal(&text));
        assert_eq!(params["part"], literal(&format!("${{a}}{text}")));
        assert_eq!(params["deep"], Template::Literal(json!([{"x": text}])));
        assert_eq!(plan.env["X"], literal(&text));
        assert_eq!(plan.env["Z"], literal("${body.x}"));
        assert_eq!(plan.env["W"], literal(&format!("${{body.x}}{text}")));
        assert_eq!((plan.resources.len(), plan.env.len(), sandbox.labels.len()), (1, 3, 2));
    }
    for (value, kind) in rows::<(String, String)>("a_hostile_value_of_any_type") {
        let value: Value = serde_json::from_str(&value).unwrap();
        let (document, _) = rendered(&source, &event(&[], json!({"x": value})));
        let (plan, _) = compiled(&document, &[&any_plugin(&kind)]).unwrap_or_else(|error| panic!("{value} {error}"));
        assert_eq!(plan.resources["r"].params["whole"], Template::Literal(value));
    }
}

#[test]
fn a_hostile_value_that_does_not_fit_is_an_error() {
    let source = source(HOSTILE);
    let deep = (0..60).fold(json!(1), |inner, _| json!([inner]));
    for (value, expected) in [
        (json!({"secret": "a", "key": "b"}), "`document.resources.r.params.whole`: an event cannot select a Secret"),
        (deep, "`document`: the document is nested more than 32 levels deep"),
        (json!("y".repeat(600_000)), "`target.name`: `${body.x}`: the values have more than 131072 bytes"),
        (json!("y".repeat(200_000)), "the values have more than 131072 bytes"),
    ] {
        let error = source.explain(&event(&[], json!({"x": value}))).outcome.unwrap_err().to_string();
        assert!(error.contains(expected) && !error.contains("yyy"), "{error}");
    }
    let omitted = "{secret: \"${body.a}\", key: \"${body.b}\", c: \"${body.?c}\"}";
    let source = self::source(&HOSTILE.replace("[{x: \"${body.x}\"}]", omitted));
    let error = source.explain(&event(&[], json!({"x": "x", "a": "a", "b": "b"}))).outcome.unwrap_err();
    assert_eq!(error.to_string(), "entry 1: `document.resources.r.params.deep`: an event cannot select a Secret");
}

#[test]
fn the_target_of_an_event_is_known_although_its_entry_fails() {
    let source = shop();
    let target = |changes| source.target(&shop_event(&changes)).map(|(kind, name, _)| format!("{kind}/{name}"));
    let whole = Some("sandbox/pr-7-shop".to_owned());
    for changes in [json!({"at": "yesterday"}), json!({"title": "x".repeat(200_000)})] {
        assert!(source.explain(&shop_event(&changes)).outcome.is_err());
        assert_eq!(target(changes), whole);
    }
    for changes in [json!({"action": "nothing"}), json!({"number": null})] {
        assert_eq!(target(changes), None);
    }
}

#[test]
fn the_expressions_of_a_source_have_a_limit_together() {
    let with = |when: &str| {
        let entries = format!("  - {{when: \"${{{when}}}\", ignore: skipped}}\n").repeat(99);
        let last = "  - {when: \"${body.deep.of.action == 'end'}\", ignore: the end}\n";
        let head = "apiVersion: ebb.dev/v1\nkind: Source\nname: s\nverify: {bearer: {secret: S}}\n";
        source(&format!("{head}target: {{kind: sandbox, name: a}}\nevents:\n{entries}{last}"))
    };
    let body = json!({"deep": {"of": {"action": "end"}}, "items": vec![json!({}); 119_000]});
    let input = event(&[], body);
    for cheap in [
        "body.deep.of.action == 'x'",
        "body.deep.missing.x == 'x'",
        "body['deep'].?of.action == body.?deep.of.action.orValue('') + 'x'",
        "has(body.missing) && !has(body.deep)",
    ] {
        assert_eq!(shown(&with(cheap), &input), "ignored: the end", "{cheap}");
    }
    for costly in ["size(body) == 0", "body.items != body.items", "{} in body.items && false"] {
        let error = with(costly).explain(&input).outcome.unwrap_err();
        let expected = "this expression and those before it could touch more than 10000000 values";
        assert_eq!((error.key.as_str(), error.problem.as_str()), ("when", expected), "{costly}");
        assert!(error.entry.is_some_and(|entry| (10..90).contains(&entry)), "{costly}: {error}");
    }
}

#[test]
fn different_texts_have_different_names() {
    let source = source(&HOSTILE.replace("a-${body.x}", "${body.x}"));
    let name = |text: &str| match source.explain(&event(&[], json!({"x": text}))).outcome {
        Ok(EventOutcome::Apply { name, .. }) => name,
        other => format!("{other:?}"),
    };
    assert_eq!([name("feature-1"), name("A1")], ["feature-1", "A1"]);
    let hashed = name("feature/1");
    assert_eq!(hashed, "feature-1-d675fb4e9a9e288f");
    let long = name(&"x".repeat(64));
    let names = [hashed.clone(), name(&hashed), name("feature.1"), name("1"), name("é"), long, name(&"x".repeat(65))];
    for (at, name) in names.iter().enumerate() {
        assert!(!names[..at].contains(name) && name.len() <= 63 && name.starts_with(|c: char| c.is_ascii_alphabetic()));
    }
    assert!(name(" ").contains("the name is empty"));
}

#[test]
fn plugins_that_must_be_published() {
    let source = source(include_str!("../../tests/sources/plugins.yaml"));
    let plugins = crate::compile::named_plugins(&source).into_iter().map(|plugin| plugin.to_string());
    assert_eq!(plugins.collect::<Vec<_>>(), ["db@2.0.0", "db@2", "queue"]);
}
