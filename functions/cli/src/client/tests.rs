use super::*;
use crate::exit::Exit;

#[test]
fn a_log_is_divided_from_the_state_of_its_attempt() {
    for (text, size, log, state) in [
        ("a\nwaiting: b\n", Some(2), "a\n", "waiting: b\n"),
        ("a\nwaiting: b\n", Some(1), "a", "waiting: b\n"),
        ("waiting: b\n", Some(0), "", "waiting: b\n"),
        ("a\nwaiting: b\n", None, "a\nwaiting: b\n", ""),
        ("ä", Some(1), "ä", ""),
    ] {
        let tail = LogTail::new(Some(2), text.to_owned(), size);
        assert_eq!((tail.log.as_str(), tail.state.as_str()), (log, state), "{text:?} {size:?}");
        assert_eq!(tail.text(), text);
    }
}

/// Commands on several targets repeat requests to a busy server, and end at an error that all requests have.
#[test]
fn an_error_of_a_tool_keeps_its_kind() {
    let url = Url::parse("http://127.0.0.1:1").unwrap();
    let access = ServerAccess { url, token: None, webhook_secret: None, origin: AddressOrigin::Given };
    let client = ApiClient::new(access).unwrap();
    let refused = |status| {
        let (code, detail) = ("x".to_owned(), "no".to_owned());
        client.tool_error(ToolError::Refused(ProblemDetails { status, code, detail, errors: Vec::new() }))
    };
    assert!(refused(429).is_busy() && refused(503).is_busy() && !refused(409).is_busy());
    assert!(refused(401).is_general() && !refused(409).is_general());
    assert_eq!((refused(409).exit(), refused(409).message()), (Exit::Failed, "no".to_owned()));
    assert!(client.tool_error(ToolError::Unreachable("gone".to_owned())).is_general());
}

#[test]
fn a_missing_target_is_distinguished_from_other_missing_things() {
    let target = TargetRef { kind: "sandbox".to_owned(), name: "pr-7".to_owned() };
    let message = |status, code: &str| {
        let (code, detail) = (code.to_owned(), "the detail".to_owned());
        let error = missing(&target, refused(&ProblemDetails { status, code, detail, errors: Vec::new() }));
        (error.message(), error.exit())
    };
    assert_eq!(message(404, "not-found"), (format!("{target} does not exist"), Exit::Failed));
    for code in ["event-rejected", "unknown-version"] {
        assert_eq!(message(404, code), ("the detail".to_owned(), Exit::Failed));
    }
    assert_eq!(message(503, "unavailable"), ("the detail".to_owned(), Exit::Broken));
}
