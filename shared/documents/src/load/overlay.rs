//! Pod templates: kept as text, read only to refuse what cannot work.

use crate::diagnostic::Diagnostic;
use crate::load::reader::DocumentReader;
use crate::load::yaml::{self, YamlNode, YamlValue};
use crate::model::{At, LineColumn, RunnerDoc, SourceText};

/// Names in a pod that are not the author's, and what they are for.
const RESERVED: [(&str, &str); 3] = [
    ("volumes", "signadot-execunit-io"),
    ("initContainers", "signadot-execunit-input-manager"),
    ("containers", "signadot-execunit-output-manager"),
];

/// Names that begin so are ours.
const OURS: &str = "ebb-";

/// A pod template inside a document.
struct PodTemplateCheck<'r, 'a, 'n> {
    reader: &'r DocumentReader<'a>,
    outer: &'n YamlNode,
    text: &'n str,
    path: &'n str,
}

impl DocumentReader<'_> {
    /// Notes what a runner's pod template may not have.
    pub(crate) fn check_pod_template(&self, outer: &YamlNode, path: &str, runner: &RunnerDoc) {
        let YamlValue::String(text) = &outer.value else { return };
        PodTemplateCheck { reader: self, outer, text, path }.check(runner);
    }
}

impl PodTemplateCheck<'_, '_, '_> {
    fn check(&self, runner: &RunnerDoc) {
        let source = SourceText::new(self.path, self.text);
        let tree = match yaml::parse(&source) {
            Ok(mut documents) => match (documents.pop(), documents.len()) {
                (Some(tree), 0) => tree,
                (None, _) => return,
                (Some(_), more) => {
                    let message = format!("one pod template is wanted, here are {}", more + 1);
                    return self.note("pod-template", LineColumn { line: 1, column: 1 }, message, "leave one");
                }
            },
            Err(error) => {
                let at = error.at.unwrap_or(LineColumn { line: 1, column: 1 });
                let help = error.help.unwrap_or_else(|| "a pod template is YAML with `metadata` and `spec`".to_owned());
                return self.note("pod-template", at, format!("the pod template is no YAML: {}", error.message), help);
            }
        };
        let YamlValue::Map(entries) = &tree.value else {
            let message = format!("the pod template is {}, a mapping is wanted", tree.value.noun());
            return self.note("pod-template", tree.at, message, "it has `metadata` and `spec`");
        };
        for (key, _) in entries {
            if !["metadata", "spec", "apiVersion", "kind"].contains(&key.name.as_str()) {
                let wrong = self.found("pod-template", key.at, format!("a pod template has no `{}`", key.name));
                let wrong = wrong.suggest(&key.name, ["metadata", "spec"]);
                self.reader.note(wrong);
            }
        }
        if let Some(metadata) = tree.get("metadata") {
            self.metadata(metadata, runner);
        }
        if let Some(spec) = tree.get("spec") {
            self.spec(spec, runner);
        }
    }

    fn metadata(&self, metadata: &YamlNode, runner: &RunnerDoc) {
        if let Some(name) = metadata.get("name").filter(|name| name.value != YamlValue::Null) {
            self.note(
                "pod-name",
                name.at,
                "the pod's name cannot be chosen",
                "take `name` out; each try of each unit has a pod of its own",
            );
        }
        let (Some(own), Some(node)) = (&runner.namespace, metadata.get("namespace")) else { return };
        if let YamlValue::String(namespace) = &node.value
            && *namespace != own.value
        {
            let message = format!("the namespace `{namespace}` conflicts with the runner's `{}`", own.value);
            self.conflict(node.at, message, own, "take it out of the pod template");
        }
    }

    fn spec(&self, spec: &YamlNode, runner: &RunnerDoc) {
        if !matches!(spec.value, YamlValue::Map(_) | YamlValue::Null) {
            let message = format!("`spec` is {}, a mapping is wanted", spec.value.noun());
            return self.note("pod-template", spec.at, message, "it is a Kubernetes PodSpec");
        }
        if let Some(policy) = spec.get("restartPolicy")
            && policy.value != YamlValue::String("Never".to_owned())
        {
            self.note(
                "restart-policy",
                policy.at,
                "the pod's `restartPolicy` can only be `Never`",
                "take it out; `retry` of a unit says how often it is tried",
            );
        }
        for (list, reserved) in RESERVED {
            let Some(node) = spec.get(list).filter(|node| node.value != YamlValue::Null) else { continue };
            let YamlValue::List(items) = &node.value else {
                let message = format!("`{list}` is {}, a list is wanted", node.value.noun());
                self.note("pod-template", node.at, message, "it is a list of mappings with `name`");
                continue;
            };
            for item in items {
                let Some(YamlNode { value: YamlValue::String(name), at, .. }) = item.get("name") else {
                    continue;
                };
                if name == reserved || name.starts_with(OURS) {
                    let what = list.trim_end_matches('s');
                    self.note(
                        "reserved-name",
                        *at,
                        format!("the name `{name}` is reserved"),
                        format!("give the {what} another name"),
                    );
                }
                if list == "containers" && name == "main" {
                    self.main(item, runner);
                }
            }
        }
    }

    fn main(&self, container: &YamlNode, runner: &RunnerDoc) {
        let Some(YamlNode { value: YamlValue::String(image), at, .. }) = container.get("image") else {
            return;
        };
        if *image != runner.image.value {
            let message = format!("the image `{image}` conflicts with the runner's `{}`", runner.image.value);
            self.conflict(*at, message, &runner.image, "take it out of the pod template");
        }
    }

    fn conflict(&self, at: LineColumn, message: String, own: &At<String>, help: &str) {
        let wrong = self.found("pod-template-conflict", at, message).help(help);
        self.reader.note(wrong.related(own.at, "the runner's"));
    }

    fn note(&self, code: &'static str, at: LineColumn, message: impl Into<String>, help: impl Into<String>) {
        let wrong = self.found(code, at, message.into()).help(help);
        self.reader.note(wrong);
    }

    /// At the place in the document if the template stands there, else at what embeds it, saying the place in it.
    fn found(&self, code: &'static str, at: LineColumn, message: String) -> Diagnostic {
        if self.outer.bytes.is_some() {
            let place = self.reader.inside(self.outer, self.text, at);
            return self.reader.wrong(code, place, message);
        }
        let place = format!("line {}, column {} of what is embedded", at.line, at.column);
        self.reader.wrong(code, self.outer.at, format!("{message} ({place})"))
    }
}
