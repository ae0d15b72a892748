//! Manifests, as an author writes them, and policies of operators.

mod manifests;
mod policies;

fn yaml<T: serde::de::DeserializeOwned>(text: &str) -> T {
    serde_saphyr::from_str(text).expect("YAML")
}
