//! Compares an active target with its update.
//!
//! The comparison ignores the order of members, comments and positions.

use std::collections::BTreeSet;

use ebb_documents::model::VersionRange;
use ebb_documents::{Action, Plan, SandboxDoc, UnitPlan, compile};
use ebb_protocol::{DocumentChange, limits};
use serde_json::{Map, Value};

/// Maximum characters of a value.
const MAX_VALUE: usize = 200;
/// Maximum listed changes. A document may differ in thousands of places.
const MAX_CHANGES: usize = 50;

/// The plugin versions of resources that do not name one exact version.
#[derive(Clone, Copy, Debug)]
pub enum PinnedVersions<'a> {
    Latest,
    /// The versions of an active target's plan.
    OfPlan(&'a Plan),
    /// Versions as `NAME@VERSION`, for a target whose plan is lost.
    Listed(&'a [String]),
}

impl<'a> PinnedVersions<'a> {
    pub(super) fn current(self) -> Option<&'a Plan> {
        match self {
            Self::OfPlan(plan) => Some(plan),
            Self::Latest | Self::Listed(_) => None,
        }
    }

    /// Sets the pinned versions in a document. A range that does not allow the pinned version stays.
    pub fn apply(self, sandbox: &mut SandboxDoc) {
        for resource in sandbox.resources.iter_mut() {
            let mut pinned = self.pinned_versions(&resource.name.value, &resource.plugin.value);
            pinned.retain(|version| resource.version.as_ref().is_none_or(|range| range.allows(version)));
            if let Some(version) = pinned.into_iter().next() {
                resource.version = Some(VersionRange::Exact(version));
            }
        }
    }

    /// Returns the versions of `plugin` that `resource` of the active target has or may have. A withdrawn version
    /// remains usable.
    pub(crate) fn pinned_versions(self, resource: &str, plugin: &str) -> Vec<semver::Version> {
        let pinned: Vec<&String> = match self {
            Self::Latest => Vec::new(),
            Self::OfPlan(plan) => plan.resources.get(resource).map(|pinned| &pinned.plugin).into_iter().collect(),
            Self::Listed(list) => list.iter().collect(),
        };
        pinned.into_iter().filter_map(|pinned| version_of(pinned, plugin)).collect()
    }
}

/// Returns the version in `NAME@VERSION` if the name is `plugin`.
fn version_of(pinned: &str, plugin: &str) -> Option<semver::Version> {
    let (name, version) = pinned.rsplit_once('@')?;
    (name == plugin).then(|| version.parse().ok())?
}

/// Returns the differences between the plan of an active target and that of its update, by path.
pub fn between(current: &Plan, updated: &Plan) -> Vec<DocumentChange> {
    let mut changes = Vec::new();
    compare("", Some(&compile::content(current)), Some(&compile::content(updated)), &mut changes);
    changes.truncate(MAX_CHANGES);
    changes
}

/// Returns the differences of two versions of a unit. Of two scripts, the lines between their common ones differ.
pub fn of_unit(old: &UnitPlan, new: &UnitPlan) -> Vec<DocumentChange> {
    let [mut before, mut after] = [old, new].map(compile::unit_content);
    if let (Action::Pod(old), Action::Pod(new)) = (&old.action, &new.action) {
        let (old, new) = differing_lines(&old.script, &new.script);
        before["pod"]["script"] = Value::String(old);
        after["pod"]["script"] = Value::String(new);
    }
    let mut changes = Vec::new();
    compare("", Some(&before), Some(&after), &mut changes);
    changes.truncate(MAX_CHANGES);
    changes
}

/// Returns two texts without the lines with which both begin, and those with which both end.
fn differing_lines(old: &str, new: &str) -> (String, String) {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let first = old.iter().zip(&new).take_while(|(old, new)| old == new).count();
    let (old, new) = (&old[first..], &new[first..]);
    let last = old.iter().rev().zip(new.iter().rev()).take_while(|(old, new)| old == new).count();
    (old[..old.len() - last].join("\n"), new[..new.len() - last].join("\n"))
}

fn is_sealed(members: &Map<String, Value>) -> bool {
    members.len() == 1 && members.contains_key(compile::SEALED)
}

fn compare(path: &str, old: Option<&Value>, new: Option<&Value>, changes: &mut Vec<DocumentChange>) {
    let (old, new) = (old.filter(|value| !value.is_null()), new.filter(|value| !value.is_null()));
    if old == new {
        return;
    }
    if let (Some(Value::Object(old)), Some(Value::Object(new))) = (old, new)
        && !is_sealed(old)
        && !is_sealed(new)
    {
        let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
        // Another plugin has other units and outputs, so its name is enough.
        let other_plugin = old.get("plugin") != new.get("plugin");
        let is_shown = |name: &&String| !(other_plugin && matches!(name.as_str(), "units" | "outputs"));
        for name in names.into_iter().filter(is_shown) {
            compare(&below(path, name), old.get(name), new.get(name), changes);
        }
        return;
    }
    if let (Some(Value::Array(old)), Some(Value::Array(new))) = (old, new)
        && old.len() == new.len()
    {
        for (at, (old, new)) in old.iter().zip(new).enumerate() {
            compare(&format!("{path}[{at}]"), Some(old), Some(new), changes);
        }
        return;
    }
    changes.push(DocumentChange { path: path.to_owned(), old: old.map(text), new: new.map(text) });
}

/// Returns the path of a member. A name with a dot is in brackets.
fn below(path: &str, name: &str) -> String {
    match (path, name.contains('.')) {
        ("", false) => name.to_owned(),
        (_, false) => format!("{path}.{name}"),
        (_, true) => format!("{path}[{name:?}]"),
    }
}

/// Returns a value in at most [`MAX_VALUE`] characters. An added or removed resource is shown as its plugin.
fn text(value: &Value) -> String {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Object(members) => match (members.get("plugin"), members.contains_key("secret") || is_sealed(members)) {
            (Some(Value::String(plugin)), _) => plugin.clone(),
            (_, true) => "(sensitive)".to_owned(),
            _ => value.to_string(),
        },
        value => value.to_string(),
    };
    limits::excerpt(&text, MAX_VALUE)
}

#[cfg(test)]
mod tests {
    use ebb_documents::compile::BoundPlugin;
    use ebb_documents::model::ResourceDoc;
    use ebb_documents::plan::Template;
    use ebb_documents::{Document, DocumentVars, NoFiles, load};

    use super::*;

    const PLUGIN: &str = include_str!("../../tests/db.yaml");

    fn sandbox(rest: &str) -> SandboxDoc {
        let text = format!("apiVersion: ebb.dev/v1\nkind: Sandbox\nname: a\n{rest}");
        match load::document("document", &text, &NoFiles, &DocumentVars::none()) {
            Ok(Document::Sandbox(sandbox)) => sandbox,
            other => panic!("{other:?}"),
        }
    }

    fn plan_of(sandbox: &SandboxDoc) -> Plan {
        let plugins = load::plugins("db", PLUGIN, &NoFiles, &DocumentVars::none()).unwrap();
        let latest = semver::Version::new(1, 1, 0);
        let exact = |resource: &ResourceDoc| resource.version.as_ref()?.exact().cloned();
        let versions: Vec<_> =
            sandbox.resources.iter().map(|resource| exact(resource).unwrap_or(latest.clone())).collect();
        let bound = sandbox.resources.iter().zip(&versions).filter(|(resource, _)| resource.plugin.value == "db");
        let bound = bound.map(|(resource, version)| {
            (resource.name.value.clone(), BoundPlugin { plugin: &plugins[0], version, digest: "sha256:d" })
        });
        compile::plan(sandbox, &bound.collect()).unwrap().0
    }

    fn changes(old: &str, new: &str) -> Vec<String> {
        let (old, new) = (plan_of(&sandbox(old)), plan_of(&sandbox(new)));
        let line = |change: DocumentChange| {
            let value = |value: Option<String>| value.unwrap_or_else(|| "nothing".to_owned());
            format!("{}: {} -> {}", change.path, value(change.old), value(change.new))
        };
        between(&old, &new).into_iter().map(line).collect()
    }

    #[test]
    fn encrypted_literals_are_compared_and_not_shown() {
        let with = |value: Template| {
            let mut plan = plan_of(&sandbox("resources: {x: {plugin: db@1.0.0}}\n"));
            plan.resources.get_mut("x").unwrap().params.insert("password".to_owned(), value);
            plan
        };
        let sealed = |text: &str| with(Template::Sealed(text.to_owned()));
        let secret = with(Template::Secret { name: "s".to_owned(), key: "k".to_owned() });
        assert!(between(&sealed("one"), &sealed("one")).is_empty());
        for (old, new) in [(sealed("one"), sealed("two")), (secret.clone(), sealed("one")), (sealed("one"), secret)] {
            let mask = Some("(sensitive)".to_owned());
            let path = "resources.x.params.password".to_owned();
            assert_eq!(between(&old, &new), [DocumentChange { path, old: mask.clone(), new: mask }]);
        }
    }

    /// Each case has a document, its update, and their differences.
    #[test]
    fn each_change_has_its_path() {
        for case in include_str!("../../tests/changes.txt").split("\n\n") {
            let parts: Vec<&str> = case.split("---").map(str::trim).collect();
            let [old, new, expected] = parts[..] else { panic!("{case}") };
            assert_eq!(changes(old, new).join("\n"), expected, "{case}");
        }
        let own = "preStart: {one: {webhook: {url: \"https://e.example.org/one\"}}}\n";
        let [found] = &changes(own, "resources: {}\n")[..] else { panic!("one change") };
        assert!(found.starts_with("preStart: {\"one\":") && found.ends_with(" -> nothing"), "{found}");
    }

    #[test]
    fn pinned_versions_are_kept() {
        let current = plan_of(&sandbox(
            "resources: {x: {plugin: db@1.0.0}, z: {plugin: db@1.0.0}, v: {plugin: db@1.0.0}, w: {plugin: db@1.0.0}}\n",
        ));
        let mut repeated = sandbox(
            "resources: {x: {plugin: db}, y: {plugin: db}, z: {plugin: db@1.1.0}, v: {plugin: db@1}, w: {plugin: db@2}}\n",
        );
        PinnedVersions::OfPlan(&current).apply(&mut repeated);
        let versions = |document: &SandboxDoc| -> Vec<String> {
            let shown =
                |resource: &ResourceDoc| resource.version.as_ref().map_or("none".to_owned(), ToString::to_string);
            document.resources.iter().map(shown).collect()
        };
        assert_eq!(versions(&repeated), ["1.0.0", "none", "1.1.0", "1.0.0", "2"]);
        let mut lost = sandbox("resources: {x: {plugin: db}, y: {plugin: k8s-apply, params: {data: \"\"}}}\n");
        PinnedVersions::Listed(&["db@1.0.0".to_owned()]).apply(&mut lost);
        assert_eq!(versions(&lost), ["1.0.0", "none"]);
    }
}
