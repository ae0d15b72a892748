//! Compares serialized messages with golden files, and reads them back.

use std::fmt::Debug;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

/// Compares a message with the golden file of this name, and reads it back.
macro_rules! golden {
    ($name:expr, $message:expr) => {{
        let message = $message;
        crate::tests::golden::read_back(&message);
        insta::assert_json_snapshot!($name, message);
    }};
}

pub(crate) fn read_back<T: Serialize + DeserializeOwned + PartialEq + Debug>(message: &T) {
    let text = serde_json::to_string(message).expect("it can be written");
    assert_eq!(&serde_json::from_str::<T>(&text).expect("it can be read"), message, "{text}");
}

/// Later versions of our own programs add fields, which must be ignored.
pub(crate) fn ignores_unknown_fields<T: Serialize + DeserializeOwned + PartialEq + Debug>(message: &T) {
    let mut json = serde_json::to_value(message).expect("it can be written");
    json["addedLater"] = json!({"a": 1});
    assert_eq!(&serde_json::from_value::<T>(json).expect("it can be read"), message);
}
