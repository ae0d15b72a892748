use super::*;
use crate::tests::rows;

#[test]
fn waits_failures_outputs_and_names_have_a_text() {
    for (wait, text) in rows::<(TargetWait, String)>("a_wait_names_both_parties") {
        assert_eq!(target_wait(&wait), text);
    }
    for (failure, text) in rows::<(FailureReason, String)>("the_class_of_a_failure_follows_its_message") {
        assert_eq!(reason(&failure), text);
    }
    for (value, text, is_masked) in rows::<(OutputValue, String, bool)>("each_output_has_a_text") {
        assert_eq!(output(&value), (text, is_masked));
    }
    assert_eq!((quoted("two\nlines"), quoted("plain")), ("\"two\\nlines\"".to_owned(), "plain".to_owned()));
    assert_eq!(
        (named(&["a", "b"], 2), named(&["a", "b", "c"], 30)),
        ("a, b".to_owned(), "a, b, c and 27 more".to_owned())
    );
    assert_eq!(first_named(&["a"; 22], 2, 22), "a, a and 20 more");
}
