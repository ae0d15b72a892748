use super::*;
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
