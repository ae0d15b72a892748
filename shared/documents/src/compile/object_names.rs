//! Checks the names and labels of objects by the rules of Kubernetes, as soon as they are known.
//!
//! A unit that is refused by the API server would fail after the units before it have made things.

use std::sync::Arc;

use ebb_kube::podspec::{PodspecViolation, ViolationList, is_dns_part, is_label, with_article};
use serde_json::Value;

use super::{BoundResource, DiagnosticCollector};
use crate::render::{self, KnownOutputs, RenderedUnit, TargetFacts, UnitContext};
use crate::{ActionDoc, At, Diagnostic, Plan, SandboxDoc, SourceText, TemplatePiece, TemplateTree, template};

const WORD: &str = "at most 63 letters, digits, `-`, `_`, `.`";

/// Returns the errors of a manifest as it is written, or as it is rendered. `tree` has the positions in `source`.
pub(super) fn wrong(source: &Arc<SourceText>, tree: &At<TemplateTree>, manifest: &Value) -> Vec<Diagnostic> {
    let found = name_violations(manifest, known_parts).into_iter();
    found.map(|it| Diagnostic::error("object-name", source, tree.place(&it.path), it.why).help(it.help)).collect()
}

/// Returns the violations of the names, labels and annotations of a manifest, also of those of its pod template. The path of
/// a key ends with `#`. `known` returns a text with one digit for each part that is not known yet.
fn name_violations(manifest: &Value, known: impl Fn(&str) -> String) -> Vec<PodspecViolation> {
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

/// Returns true for the key of a label or an annotation. The domain of an annotation may have capital letters.
fn is_key(key: &str, field: &str) -> bool {
    let (domain, name) = key.rsplit_once('/').unwrap_or(("a", key));
    let domain = if field == "annotations" { domain.to_ascii_lowercase() } else { domain.to_owned() };
    is_label(name) && domain.len() <= 253 && domain.split('.').all(is_dns_part)
}

/// Returns a text with the shortest key of a resource for each key, and a digit for each other value that only the run has. A
/// written text has `${…}` for such a value, and a rendered one `<NAME>`.
fn known_parts(text: &str) -> String {
    let value = |is_key| if is_key { "r0123456789abcdef" } else { "0" };
    let Ok(pieces) = template::split(text) else { return value(false).to_owned() };
    let known = pieces.into_iter().map(|piece| match piece {
        TemplatePiece::Expression { text, .. } => value(text.trim() == "resource.key").to_owned(),
        TemplatePiece::Literal(text) => {
            let mut parts = text.split('<');
            let first = parts.next().unwrap_or_default().to_owned();
            parts.fold(first, |known, part| match part.split_once('>') {
                Some((name, rest)) => known + value(name.ends_with(".key") && !name.contains('/')) + rest,
                None => known + "<" + part,
            })
        }
    });
    known.collect()
}

/// Returns the manifests of an object unit.
pub(super) fn manifests(tree: &At<TemplateTree>) -> &[At<TemplateTree>] {
    match &tree.value {
        TemplateTree::List(manifests) => manifests,
        _ => std::slice::from_ref(tree),
    }
}

/// Checks the manifests of a plan with the name and the labels of the target, and with the params of its resources.
pub(super) fn check(
    report: &mut DiagnosticCollector,
    sandbox: &SandboxDoc,
    plan: &Plan,
    instances: &[BoundResource<'_>],
) {
    let facts = TargetFacts {
        kind: sandbox.target_kind.as_ref().map_or("sandbox", |kind| kind.value.as_str()).to_owned(),
        name: sandbox.name.value.clone(),
        uid: "<uid>".to_owned(),
        key: TargetFacts::UNKNOWN_KEY.to_owned(),
        generation: 1,
        namespace: plan.target.namespace.clone(),
        cluster: plan.target.cluster.clone(),
        labels: plan.target.labels.clone(),
    };
    let known = KnownOutputs::new();
    for instance in instances {
        for (unit, &at) in instance.checked.units.iter().zip(&instance.unit_refs) {
            let ActionDoc::Object(object) = &unit.doc.action else { continue };
            let context = UnitContext { plan, at, facts: &facts, known: &known };
            // Other errors of rendering can depend on the run.
            let Ok(RenderedUnit::Object { manifests: rendered, .. }) = render::preview(context) else { continue };
            for (tree, manifest) in manifests(&object.manifest).iter().zip(&rendered) {
                // Resources share plugins.
                for found in wrong(&instance.checked.plugin.source, tree, manifest) {
                    if !report.found.contains(&found) {
                        report.push(found);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::rows;

    #[test]
    fn names_and_labels() {
        for (manifest, expected) in rows::<(Value, Vec<String>)>("names_and_labels") {
            let found = name_violations(&manifest, |text| text.replace("<x>", "0"));
            let paths: Vec<&str> = found.iter().map(|it| &*it.path).collect();
            assert_eq!(paths, expected, "{manifest} {found:?}");
        }
    }
}
