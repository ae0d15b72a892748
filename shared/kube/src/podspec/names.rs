//! The names, labels and annotations that the API server accepts.

use serde_json::Value;

use crate::podspec::{PodspecViolation, ViolationList};

const WORD: &str = "at most 63 letters, digits, `-`, `_`, `.`";

/// Returns the violations of the names, labels and annotations of a manifest, also of those of its pod template. The path of
/// a key ends with `#`. `known` returns a text with one digit for each part that is not known yet.
pub fn name_violations(manifest: &Value, known: impl Fn(&str) -> String) -> Vec<PodspecViolation> {
    let mut report = ViolationList::default();
    let known = |value: &Value| value.as_str().map(|text| (text.to_owned(), known(text)));
    let text = |field: &str| manifest[field].as_str().unwrap_or_default();
    let (version, kind, metadata) = (text("apiVersion"), text("kind"), &manifest["metadata"]);
    // These have any names.
    let is_free = version.starts_with("rbac.authorization.k8s.io/") || kind == "CertificateSigningRequest";
    let is_short = version == "v1" && matches!(kind, "Namespace" | "Service");
    let (of_kind, of_namespace) = (("name", kind, is_short), ("namespace", "Namespace", true));
    for (field, kind, is_short) in [of_kind, of_namespace].into_iter().skip(usize::from(is_free)) {
        let Some((name, known)) = known(&metadata[field]) else { continue };
        let (most, more) = if is_short { (63, "") } else { (253, ", `.`") };
        if known.len() > most || !(if is_short { is_dns_part(&known) } else { known.split('.').all(is_dns_part) }) {
            let fits = if field == "name" { "; `${resource.key}` fits" } else { "" };
            let help = format!("at most {most} of a-z, 0-9, `-`{more}, no `-` at an end{fits}");
            let why = format!("`{name}` is not a valid name of {}", with_article(kind));
            report.add(format!("metadata.{field}"), why, help);
        }
    }
    for (path, metadata) in [("", metadata), ("spec.template.", &manifest["spec"]["template"]["metadata"])] {
        for field in ["labels", "annotations"] {
            for (key, value) in metadata[field].as_object().into_iter().flatten() {
                let path = format!("{path}metadata.{field}[{key}]");
                if !is_key(key, field) {
                    let why = format!("`{key}` is not a valid key of {field}");
                    report.add(format!("{path}#"), why, format!("{WORD}, after an optional `DOMAIN/`"));
                }
                let value = known(value).filter(|(_, it)| field == "labels" && !it.is_empty() && !is_label(it));
                if let Some((value, _)) = value {
                    let why = format!("`{value}` is not a valid value of a label");
                    report.add(path, why, format!("{WORD}; an annotation takes any text"));
                }
            }
        }
    }
    report.0
}

pub fn with_article(noun: &str) -> String {
    format!("{} {noun}", if noun.starts_with(['A', 'E', 'I', 'O']) { "an" } else { "a" })
}

/// Returns true for the key of a label or an annotation. The domain of an annotation may have capital letters.
fn is_key(key: &str, field: &str) -> bool {
    let (domain, name) = key.rsplit_once('/').unwrap_or(("a", key));
    let domain = if field == "annotations" { domain.to_ascii_lowercase() } else { domain.to_owned() };
    is_label(name) && domain.len() <= 253 && domain.split('.').all(is_dns_part)
}

/// Returns true for the value of a label that is not empty.
pub fn is_label(text: &str) -> bool {
    text.len() <= 63 && is_made_of(text, |c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}

fn is_dns_part(text: &str) -> bool {
    is_made_of(text, |c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
}

/// Returns true if a text has only these characters, and a letter or digit at both ends.
fn is_made_of(text: &str, inner: impl Fn(char) -> bool) -> bool {
    let is_end = |c: char| c.is_ascii_alphanumeric();
    text.starts_with(is_end) && text.ends_with(is_end) && text.chars().all(inner)
}
