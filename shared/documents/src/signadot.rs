//! Signadot's documents: `name` and `spec` at the top, no `kind`; what they are shows in `spec`.
//!
//! Unknown keys at the top are ignored, as its own reader does; below `spec` they are errors. What only Signadot acts
//! on (forks, local workloads, routing) is carried along and read for nothing but the resources' outputs it uses.

mod plugin;
mod sandbox;

pub(crate) use plugin::{kept, plugin};
pub(crate) use sandbox::{route_group, sandbox};

use crate::load::names::{MAX_SIGNADOT_NAME, NameSyntax};
use crate::load::reader::{DocumentReader, MapReader};
use crate::load::yaml::{YamlNode, YamlValue};
use crate::model::At;

/// Which of Signadot's documents something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SignadotKind {
    Plugin,
    Sandbox,
    RouteGroup,
    /// The format before the first release.
    Alpha,
}

/// What a document is by the keys of its `spec`. `None`: neither.
pub(crate) fn shape(document: &YamlNode) -> Option<SignadotKind> {
    if let Some(YamlValue::String(version)) = document.get("apiVersion").map(|node| &node.value) {
        return version.starts_with("signadot.com/").then_some(SignadotKind::Alpha);
    }
    let spec = document.get("spec")?;
    let has = |keys: &[&str]| keys.iter().any(|key| spec.get(key).is_some());
    if has(&["runner", "create", "delete"]) {
        Some(SignadotKind::Plugin)
    } else if has(&[
        "image",
        "provisioner",
        "deprovisioner",
        "provision",
        "deprovision",
        "template",
        "pod",
        "container",
    ]) {
        Some(SignadotKind::Alpha)
    } else if has(&["match"]) {
        Some(SignadotKind::RouteGroup)
    } else if has(&sandbox::SPEC) {
        Some(SignadotKind::Sandbox)
    } else {
        None
    }
}

impl DocumentReader<'_> {
    /// The name and the mapping of a Signadot document.
    fn top<'n>(&mut self, document: &'n YamlNode) -> Option<(At<String>, &'n YamlNode)> {
        let top = self.any_map(document, "")?;
        let name = self.top_key(&top, "name").and_then(|node| self.string(node, "name"));
        let spec = self.top_key(&top, "spec");
        Some((name?, spec?))
    }

    fn top_key<'n>(&mut self, top: &MapReader<'n>, key: &str) -> Option<&'n YamlNode> {
        let found = top.get(key);
        if found.is_none() {
            let wrong = self.wrong("missing-key", top.at, "missing name or spec fields");
            self.note(wrong.help(format!("add `{key}:` at the top")));
        }
        found
    }

    /// A name of a step, an input, an output or a sandbox.
    fn short_name(&mut self, name: &At<String>, what: &str) {
        self.check_name(name, what, NameSyntax::Signadot, MAX_SIGNADOT_NAME);
    }

    /// Says what an old document has to become.
    pub(crate) fn alpha(&mut self, document: &YamlNode) {
        let at = document.get("apiVersion").map_or(document.at, |node| node.at);
        let wrong = self.wrong("old-format", at, "this is Signadot's format from before its API, which is not read");
        let plugin =
            document.get("kind").is_none_or(|kind| kind.value == YamlValue::String("ResourcePlugin".to_owned()));
        self.note(wrong.help(if plugin {
            "write `name:` and `spec:` at the top, with `spec.runner.image` for the image and each provisioning program \
             as the `script` of a step under `spec.create` and `spec.delete`; a step's files become \
             `outputs[].valueFromPath`, the sandbox's params `inputs[].valueFromSandbox: true`"
        } else {
            "write `name:` and `spec:` at the top, without `apiVersion`, `kind` and `metadata`"
        }));
    }
}

/// The keys that are read, for the test that the schemas have the same.
#[cfg(test)]
pub(crate) mod keys {
    pub(crate) use super::plugin::{AS, FROM_STEP, INPUT, OUTPUT, RUNNER, SPEC, STEP};
    pub(crate) use super::sandbox::{RESOURCE, SPEC as SANDBOX_SPEC, TTL};
}
