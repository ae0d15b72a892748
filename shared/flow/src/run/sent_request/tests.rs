use serde_json::json;

use super::*;
use crate::tests::rows;

fn unit(sensitive: bool) -> UnitPlan {
    let outputs = serde_json::from_value(json!({"o": {"from": {"file": "/o"}, "sensitive": sensitive}})).unwrap();
    UnitPlan { outputs, ..UnitPlan::default() }
}

fn response_with(content_type: &str, body: &str) -> HttpResponse {
    let headers = vec![("content-type".to_owned(), content_type.to_owned())];
    HttpResponse { status: 400, headers, body: body.as_bytes().to_vec() }
}

const URL: &str = "https://ada:hunter2@api.example.org/v1/db?key=hunter3&flag#part";

fn evidence(sensitive: bool, response: Option<&HttpResponse>) -> Evidence {
    let headers = [
        ("content-type".to_owned(), "application/json".to_owned()),
        ("x-tenant-access".to_owned(), "opaque-value-of-a-header".to_owned()),
        ("ebb-callback-token".to_owned(), "the-callback-token".to_owned()),
    ];
    let opened = [SecretText::new("an-opened-value".to_owned())];
    SentRequest { method: "POST", url: URL, headers: &headers, opened: &opened }.evidence(&unit(sensitive), response)
}

fn scrub(text: &str) -> String {
    evidence(false, Some(&response_with("text/plain", text))).body.unwrap_or_default()
}

#[test]
fn a_failed_request_is_shown_without_credentials() {
    let response = response_with("application/json", r#"{"error":"tier must be gold"}"#);
    let shown = evidence(false, Some(&response));
    assert_eq!(
        (shown.method.as_str(), shown.url.as_str(), shown.status),
        ("POST", "https://api.example.org/v1/db?key=***&***", Some(400))
    );
    assert_eq!(shown.body.as_deref(), Some(r#"{"error":"tier must be gold"}"#));
    assert_eq!((shown.content_type.as_deref(), shown.truncated), (Some("application/json"), false));
    let secret = ("retry-after".to_owned(), format!("{} the-callback-token", "9".repeat(60)));
    let waits = HttpResponse { headers: vec![secret], ..HttpResponse::new(503, "") };
    assert_eq!(evidence(false, Some(&waits)).limits, Some(format!("retry-after: {} ***", "9".repeat(60))));
    let unanswered = evidence(false, None);
    assert_eq!((unanswered.url, unanswered.status, unanswered.body), (shown.url, None, None));
}

#[test]
fn the_response_of_a_unit_with_sensitive_outputs_is_not_stored() {
    let response = response_with("application/json", r#"{"value":"canary"}"#);
    let shown = evidence(true, Some(&response));
    assert_eq!((shown.status, shown.body, shown.truncated), (Some(400), None, false));
    let sent = SentRequest { method: "POST", url: URL, headers: &[], opened: &[] };
    let foreign = sent.foreign_format(&unit(true), &response_with("text/html", "<p>canary")).unwrap();
    assert_eq!(foreign, "the response is text/html, not JSON");
}

#[test]
fn credentials_are_masked() {
    for text in include_str!("../../../tests/credentials.txt").lines().map(|line| line.replace("\\n", "\n")) {
        let shown = scrub(&text);
        let leaks = ["canary", "opaque-value", "the-callback-token", "an-opened-value", "MfKQ", "Y2FuYX"];
        assert!(shown.contains(MASK) && !leaks.iter().any(|leak| shown.contains(leak)), "{text}: {shown}");
    }
    for text in ["tier must be gold", r#"{"error":"no such tenant","id":7}"#, "see https://docs.example.org/quota"] {
        assert_eq!(scrub(text), text);
    }
}

#[test]
fn a_body_is_cut_and_a_credential_at_the_cut_is_masked() {
    let long = format!("{}é{}", "x".repeat(limits::EVIDENCE - 1), "y".repeat(100));
    let shown = evidence(false, Some(&response_with("text/plain", &long)));
    assert_eq!(shown.body.unwrap(), "x".repeat(limits::EVIDENCE - 1));
    assert!(shown.truncated);
    let at_the_cut = format!("{} {{\"password\":\"canary-{}\"}}", "x".repeat(limits::EVIDENCE - 30), "z".repeat(5_000));
    let shown = evidence(false, Some(&response_with("text/plain", &at_the_cut))).body.unwrap();
    assert!(!shown.contains("canary") && shown.len() <= limits::EVIDENCE, "{shown}");
    assert_eq!(scrub("a\u{1b}[2Jb\0"), "a\u{fffd}[2Jb\u{fffd}");
}

/// A row has a content type, a body, and its description, unless it is JSON.
#[test]
fn a_response_in_another_format_is_described() {
    let sent = SentRequest { method: "POST", url: URL, headers: &[], opened: &[] };
    for (content_type, body, expected) in rows::<(String, String, Option<String>)>("foreign_formats") {
        assert_eq!(sent.foreign_format(&unit(false), &response_with(&content_type, &body)), expected, "{body}");
    }
}
