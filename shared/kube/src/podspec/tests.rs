//! Overlays and manifests, as an author writes them, and policies of operators.

mod manifests;
mod merging;
mod pods;
mod policies;

use serde_json::Value;

fn yaml<T: serde::de::DeserializeOwned>(text: &str) -> T {
    serde_saphyr::from_str(text).expect("YAML")
}

/// Returns a base template like that of the control plane.
fn base() -> Value {
    yaml(include_str!("../../tests/base.yaml"))
}
