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
        let tail = LogTail::new(Some(2), text, size);
        assert_eq!((tail.log.as_str(), tail.state.as_str()), (log, state), "{text:?} {size:?}");
        assert_eq!(tail.text(), text);
    }
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
