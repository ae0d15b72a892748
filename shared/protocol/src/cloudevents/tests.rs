use super::*;
use crate::lifecycle::OutcomeData;
use crate::tests::{headers, rows};

const TIME: ebb_engine::Timestamp = ebb_engine::Timestamp(1_790_000_000_123);

fn read(body: &str) -> Result<LifecycleEvent, EventError> {
    parse(&headers(&[("content-type", "application/cloudevents+json")]), body.as_bytes())
}

/// Returns an event with members replaced, added, or removed by `null`.
fn event_with(changes: serde_json::Value) -> String {
    let mut event = rows::<serde_json::Value>("an_event").remove(0);
    for (name, value) in changes.as_object().unwrap() {
        if value.is_null() {
            event.as_object_mut().unwrap().shift_remove(name);
        } else {
            event[name] = value.clone();
        }
    }
    event.to_string()
}

fn data_with(changes: serde_json::Value) -> String {
    let mut data = serde_json::json!({"kind": "sandbox", "name": "pr-1234", "uid": "8c1a", "document": "d"});
    data.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
    event_with(serde_json::json!({ "data": data }))
}

#[test]
fn built_events_are_parsed() {
    for event_type in LifecycleType::ALL {
        let event = (event_type == LifecycleType::Event).then(|| "sleep".to_owned());
        let data = LifecycleData { event, ..rows("data_of_an_event").remove(0) };
        let (content_type, body) = lifecycle("e-1", "//platform.example.org", event_type, TIME, &data);
        let event = parse(&headers(&[("content-type", content_type)]), &body).unwrap();
        assert_eq!((event.id.as_str(), event.event_type, event.data), ("e-1", event_type, data));
    }
}

#[test]
fn extensions_except_the_trace_are_ignored() {
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let also = serde_json::json!({
        "time": "2026-09-21T13:33:20.123+02:00", "traceparent": trace, "partitionkey": "pr-1234", "sampled": true,
    });
    let event = read(&event_with(also)).unwrap();
    assert_eq!((event.data.generation, event.traceparent.as_deref()), (1, Some(trace)));
}

/// The binary mode has the type in a header, which is not signed.
#[test]
fn only_one_content_type_is_accepted() {
    let attributes =
        [("ce-specversion", "1.0"), ("ce-id", "e-1"), ("ce-source", "//platform.example.org"), ("ce-type", DELETED)];
    for (content_types, status, text) in rows::<(Vec<String>, u16, String)>("only_one_content_type_is_accepted") {
        let content_types = content_types.iter().map(|content_type| ("content-type", content_type.as_str()));
        let given: Vec<_> = attributes.into_iter().chain(content_types).collect();
        let error = parse(&headers(&given), b"{}").unwrap_err();
        assert!(error.status() == status && error.to_string().contains(&text), "{given:?}: {error}");
    }
}

#[test]
fn errors_explain_the_problem_and_its_place() {
    use serde_json::json;
    let mut report = String::new();
    let mut show = |given: &str, result: Result<LifecycleEvent, EventError>| {
        let error = result.unwrap_err();
        report.push_str(&format!("{given:.110}\n  {} {error}\n", error.status()));
    };
    for body in rows::<String>("texts_that_are_no_events") {
        show(&body, read(&body));
    }
    let mut rows = include_str!("../../tests/wrong_events.txt").to_owned();
    for length in [64, 129, 254, 1025] {
        rows = rows.replace(&format!("<{length} characters>"), &"x".repeat(length));
    }
    for row in rows.lines() {
        let (part, changes) = row.split_once(' ').unwrap();
        let changes: serde_json::Value = serde_json::from_str(changes).unwrap();
        let event = if part == "event" { event_with(changes.clone()) } else { data_with(changes.clone()) };
        show(&changes.to_string(), read(&event));
    }
    let unnamed = json!({"type": LifecycleType::Event.as_type()});
    show(&unnamed.to_string(), read(&event_with(unnamed.clone())));
    show("data with kind twice", read(&event_with(json!({"data": {}})).replace("{}", r#"{"kind": "a", "kind": "b"}"#)));
    insta::assert_snapshot!(report);
}

#[test]
fn limits_hold_exactly() {
    for (field, most) in [("kind", 63), ("name", 253), ("uid", 128), ("routingKey", 128)] {
        let of = |length: usize| read(&data_with(serde_json::json!({ field: "x".repeat(length) })));
        assert!(of(1).is_ok() && of(most).is_ok(), "{field}");
        assert!(of(most + 1).is_err(), "{field}");
    }
}

#[test]
fn outcomes() {
    let data = rows::<OutcomeData>("data_of_an_outcome").remove(0);
    let (content_type, body) =
        super::event("o-1", "//ebb.example.org", crate::lifecycle::FAILED, "sandbox/pr-1234", TIME, &data);
    assert_eq!(content_type, CONTENT_TYPE);
    let event: CloudEvent<OutcomeData> = serde_json::from_slice(&body).unwrap();
    assert_eq!(event.data, data);
    insta::assert_json_snapshot!(event);
    // The maximum timestamp does not panic.
    let (_, body) = super::event("o", "s", "t", "s", ebb_engine::Timestamp(u64::MAX), &data);
    assert!(String::from_utf8(body).unwrap().contains("9999-12-30"));
}
