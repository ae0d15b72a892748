use super::*;
use crate::exit::Exit;
use crate::progress::fixtures::rows;

#[test]
fn a_log_is_divided_from_the_state_of_its_attempt() {
    type Row = (String, Option<usize>, String, String);
    for (text, size, log, state) in rows::<Row>("a_log_is_divided_from_the_state_of_its_attempt") {
        let tail = LogTail::new(Some(2), &text, size);
        assert_eq!((&tail.log, &tail.state), (&log, &state), "{text:?} {size:?}");
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
