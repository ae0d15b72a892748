//! Checks the names and labels of objects by the rules of Kubernetes, as soon as they are known.
//!
//! A unit that is refused by the API server would fail after the units before it have made things.

use std::sync::Arc;

use ebb_kube::podspec::name_violations;
use serde_json::Value;

use super::{BoundResource, DiagnosticCollector};
use crate::render::{self, KnownOutputs, RenderedUnit, TargetFacts, UnitContext};
use crate::{ActionDoc, At, Diagnostic, Plan, SandboxDoc, SourceText, TemplatePiece, TemplateTree, template};

/// Returns the errors of a manifest as it is written, or as it is rendered. `tree` has the positions in `source`.
pub(super) fn wrong(source: &Arc<SourceText>, tree: &At<TemplateTree>, manifest: &Value) -> Vec<Diagnostic> {
    let found = name_violations(manifest, known_parts).into_iter();
    found.map(|it| Diagnostic::error("object-name", source, tree.place(&it.path), it.why).help(it.help)).collect()
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
