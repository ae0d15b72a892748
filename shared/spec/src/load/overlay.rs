//! Pod templates: kept as text, read only to refuse what cannot work.

use crate::diagnostic::Diagnostic;
use crate::load::reader::Reader;
use crate::load::yaml::{self, Node, Value};
use crate::model::{At, Pos, Runner, SourceText};

/// Names in a pod that are not the author's, and what they are for.
const RESERVED: [(&str, &str); 3] = [
    ("volumes", "signadot-execunit-io"),
    ("initContainers", "signadot-execunit-input-manager"),
    ("containers", "signadot-execunit-output-manager"),
];

/// Names that begin so are ours.
const OURS: &str = "ebb-";

/// A pod template inside a document.
struct Template<'r, 'a, 'n> {
    reader: &'r mut Reader<'a>,
    outer: &'n Node,
    text: &'n str,
    path: &'n str,
}

impl Reader<'_> {
    /// Notes what a runner's pod template may not have.
    pub(crate) fn check_pod_template(&mut self, outer: &Node, path: &str, runner: &Runner) {
        let Value::String(text) = &outer.value else { return };
        Template { reader: self, outer, text, path }.check(runner);
    }
}

impl Template<'_, '_, '_> {
    fn check(&mut self, runner: &Runner) {
        let source = SourceText::new(self.path, self.text);
        let tree = match yaml::parse(&source) {
            Ok(mut documents) => match (documents.pop(), documents.len()) {
                (Some(tree), 0) => tree,
                (None, _) => return,
                (Some(_), more) => {
                    let message = format!("one pod template is wanted, here are {}", more + 1);
                    return self.note("pod-template", Pos { line: 1, column: 1 }, message, "leave one");
                }
            },
            Err(error) => {
                let at = error.at.unwrap_or(Pos { line: 1, column: 1 });
                let help = error
                    .help
                    .unwrap_or_else(|| "a pod template is YAML with `metadata` and `spec`".to_owned());
                return self.note(
                    "pod-template",
                    at,
                    format!("the pod template is no YAML: {}", error.message),
                    help,
                );
            }
        };
        let Value::Map(entries) = &tree.value else {
            let message = format!("the pod template is {}, a mapping is wanted", tree.value.noun());
            return self.note("pod-template", tree.at, message, "it has `metadata` and `spec`");
        };
        for (key, _) in entries {
            if !["metadata", "spec", "apiVersion", "kind"].contains(&key.name.as_str()) {
                let wrong =
                    self.found("pod-template", key.at, format!("a pod template has no `{}`", key.name));
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

    fn metadata(&mut self, metadata: &Node, runner: &Runner) {
        if let Some(name) = metadata.get("name").filter(|name| name.value != Value::Null) {
            self.note(
                "pod-name",
                name.at,
                "the pod's name cannot be chosen",
                "take `name` out; each try of each unit has a pod of its own",
            );
        }
        let (Some(own), Some(node)) = (&runner.namespace, metadata.get("namespace")) else { return };
        if let Value::String(namespace) = &node.value
            && *namespace != own.value
        {
            let message = format!("the namespace `{namespace}` conflicts with the runner's `{}`", own.value);
            self.conflict(node.at, message, own, "take it out of the pod template");
        }
    }

    fn spec(&mut self, spec: &Node, runner: &Runner) {
        if !matches!(spec.value, Value::Map(_) | Value::Null) {
            let message = format!("`spec` is {}, a mapping is wanted", spec.value.noun());
            return self.note("pod-template", spec.at, message, "it is a Kubernetes PodSpec");
        }
        if let Some(policy) = spec.get("restartPolicy")
            && policy.value != Value::String("Never".to_owned())
        {
            self.note(
                "restart-policy",
                policy.at,
                "the pod's `restartPolicy` can only be `Never`",
                "take it out; `retry` of a unit says how often it is tried",
            );
        }
        for (list, reserved) in RESERVED {
            let Some(node) = spec.get(list).filter(|node| node.value != Value::Null) else { continue };
            let Value::List(items) = &node.value else {
                let message = format!("`{list}` is {}, a list is wanted", node.value.noun());
                self.note("pod-template", node.at, message, "it is a list of mappings with `name`");
                continue;
            };
            for item in items {
                let Some(Node { value: Value::String(name), at, .. }) = item.get("name") else { continue };
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

    fn main(&mut self, container: &Node, runner: &Runner) {
        let Some(Node { value: Value::String(image), at, .. }) = container.get("image") else { return };
        if *image != runner.image.value {
            let message = format!("the image `{image}` conflicts with the runner's `{}`", runner.image.value);
            self.conflict(*at, message, &runner.image, "take it out of the pod template");
        }
    }

    fn conflict(&mut self, at: Pos, message: String, own: &At<String>, help: &str) {
        let wrong = self.found("pod-template-conflict", at, message).help(help);
        self.reader.note(wrong.related(own.at, "the runner's"));
    }

    fn note(&mut self, code: &'static str, at: Pos, message: impl Into<String>, help: impl Into<String>) {
        let wrong = self.found(code, at, message.into()).help(help);
        self.reader.note(wrong);
    }

    /// At the place in the document if the template stands there, else at what embeds it, saying the place in it.
    fn found(&mut self, code: &'static str, at: Pos, message: String) -> Diagnostic {
        if self.outer.bytes.is_some() {
            let place = self.reader.inside(self.outer, self.text, at);
            return self.reader.wrong(code, place, message);
        }
        let place = format!("line {}, column {} of what is embedded", at.line, at.column);
        self.reader.wrong(code, self.outer.at, format!("{message} ({place})"))
    }
}
