//! The expressions in the templates of a plan.

use serde_json::Value as Json;

use crate::{Scope, TemplatePiece, cel, template};

/// Returns the strings of a tree, without its keys.
pub(super) fn strings(tree: &Json) -> Vec<&str> {
    match tree {
        Json::String(text) => vec![text],
        Json::Array(items) => items.iter().flat_map(strings).collect(),
        Json::Object(map) => map.values().flat_map(strings).collect(),
        Json::Null | Json::Bool(_) | Json::Number(_) => Vec::new(),
    }
}

/// Returns the expressions of a text. The compiler of the plan has checked them.
pub(super) fn expressions(text: &str) -> Vec<cel::Expression> {
    let parsed = |piece| match piece {
        TemplatePiece::Expression { text, .. } => cel::parse(&text, Scope::Plan).ok(),
        TemplatePiece::Literal(_) => None,
    };
    template::split(text).unwrap_or_default().into_iter().filter_map(parsed).collect()
}
