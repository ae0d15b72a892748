//! Generates JSON for properties that hold for all objects.

use proptest::prelude::*;
use serde_json::Value;

/// Generates JSON with these texts and these keys, each separated by spaces, so that it has what the code reads.
pub(crate) fn json_of(texts: &'static str, keys: &'static str) -> impl Strategy<Value = Value> {
    let one_of = |words: &'static str| prop::sample::select(words.split(' ').collect::<Vec<_>>());
    let (texts, keys) = (one_of(texts), one_of(keys));
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        texts.prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 64, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((keys.clone(), inner), 0..8)
                .prop_map(|entries| entries.into_iter().collect::<Value>()),
        ]
    })
}
