use serde_json::{Value, json};

use super::*;

fn parsed<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

#[test]
fn a_wait_names_both_parties() {
    let rows = [
        (
            json!({"waiter": "update", "waiterName": "4", "awaits": "units", "awaitedName": "preStart", "since": "T",
                "release": "the present run ends"}),
            "update 4 waits since T for units of preStart, until the present run ends",
        ),
        (
            json!({"waiter": "target", "awaits": "platform", "awaitedName": "ready", "reason": "503\nbusy", "release": "r"}),
            "target waits for the platform, for the notification ready: 503; busy, until r",
        ),
    ];
    for (wait, text) in rows {
        assert_eq!(target_wait(&parsed(wait)), text);
    }
}

#[test]
fn the_class_of_a_failure_follows_its_message() {
    for (code, message, text) in
        [("exit", "code\n3", "code 3 (exit)"), ("exit", " ", "exit"), ("overridden", "by ada", "by ada")]
    {
        assert_eq!(reason(&parsed(json!({"code": code, "message": message}))), text);
    }
}

#[test]
fn each_output_has_a_text() {
    for (value, text, is_masked) in [
        (json!({"value": "two\nlines"}), "two\nlines", false),
        (json!({"value": {"a": 1}}), "{\"a\":1}", false),
        (json!({"base64": "AAE="}), "base64:AAE=", false),
        (json!({"secret": {"name": "s", "key": "k"}}), "secret s key k", true),
        (json!({"sensitive": true}), "(sensitive)", true),
    ] {
        assert_eq!(output(&parsed(value)), (text.to_owned(), is_masked));
    }
    assert_eq!((quoted("two\nlines"), quoted("plain")), ("\"two\\nlines\"".to_owned(), "plain".to_owned()));
}

#[test]
fn many_names_are_counted() {
    assert_eq!(
        (named(&["a", "b"], 2), named(&["a", "b", "c"], 30)),
        ("a, b".to_owned(), "a, b, c and 27 more".to_owned())
    );
    assert_eq!(first_named(&["a"; 22], 2, 22), "a, a and 20 more");
}
