//! Checks of pod templates. A template is stored as text and parsed only for the checks.

use ebb_kube::podspec::{is_reserved, is_reserved_key};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use crate::load::yaml::{self, YamlNode, YamlValue};
use crate::model::{At, LineColumn, RunnerDoc, SourceText};
use crate::{Diagnostic, DocumentReader, EmbeddedLines, NodePath, Strictness};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[expect(dead_code, reason = "a template may say what it is")]
struct PodTemplate {
    api_version: Option<IgnoredAny>,
    kind: Option<IgnoredAny>,
    metadata: Option<PodTemplateMetadata>,
    spec: Option<PodTemplateSpec>,
}

#[derive(Deserialize)]
struct PodTemplateMetadata {
    name: Option<At<Value>>,
    namespace: Option<At<String>>,
}

#[serde_with::apply(Vec => #[serde(default)])]
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodTemplateSpec {
    restart_policy: Option<At<Value>>,
    volumes: Vec<PodTemplateItem>,
    init_containers: Vec<PodTemplateItem>,
    containers: Vec<PodTemplateItem>,
}

#[derive(Deserialize)]
struct PodTemplateItem {
    name: Option<At<String>>,
    image: Option<At<String>>,
}

impl DocumentReader<'_> {
    /// Reports the errors of a runner's pod template. `outer` is the node of its text.
    pub(crate) fn check_pod_template(&self, outer: &YamlNode, path: &str, runner: &RunnerDoc) {
        let Some(At { value: text, .. }) = &runner.pod_template else { return };
        let source = SourceText::new(path, text.as_str());
        let inner = DocumentReader::new(&source, Strictness::Kubernetes);
        inner.pod_template(path, runner);
        let lines = EmbeddedLines::of(self.source, &source, outer.at);
        for found in inner.into_found() {
            let at = found.at.unwrap_or(LineColumn { line: 1, column: 1 });
            // The position is in the document if the document contains the template, otherwise at the directive that
            // embeds it.
            let moved = match outer.bytes {
                Some(_) => self.wrong(found.code, lines.place(at), found.message),
                None => {
                    let place = format!("line {}, column {} of what is embedded", at.line, at.column);
                    self.wrong(found.code, outer.at, format!("{} ({place})", found.message))
                }
            };
            self.note(Diagnostic { help: found.help, related: found.related, ..moved });
        }
    }

    /// Reports the errors of the pod template in this reader.
    fn pod_template(&self, path: &str, runner: &RunnerDoc) {
        let wrong = |code, at, message: String, help: &str| self.note(self.wrong(code, at, message).help(help));
        let nodes = match yaml::parse(self.source) {
            Ok(nodes) => nodes,
            Err(error) => {
                let message = format!("the pod template is not YAML: {}", error.message);
                let help = error.help.as_deref().unwrap_or("a pod template is YAML with `metadata` and `spec`");
                return wrong("pod-template", error.at.unwrap_or_default(), message, help);
            }
        };
        let node = match nodes.as_slice() {
            [] => return,
            [node] => node,
            [.., last] => {
                let message = format!("expected one pod template, found {}", nodes.len());
                return wrong("pod-template", last.at, message, "leave one");
            }
        };
        let template: Option<PodTemplate> = self.read_below(node, &NodePath::Key(&NodePath::Root, path));
        let Some(PodTemplate { metadata, spec, .. }) = template else { return };
        let conflict = |given: &At<String>, own: &At<String>, what: &str| {
            if given.value != own.value {
                let message = format!("the {what} `{}` conflicts with the runner's `{}`", given.value, own.value);
                let wrong = self.wrong("pod-template-conflict", given.at, message);
                self.note(wrong.help("take it out of the pod template").related(own.at, "the runner's"));
            }
        };
        if let Some(metadata) = &metadata {
            if let Some(name) = &metadata.name {
                let help = "take `name` out; each attempt of each unit has a pod of its own";
                wrong("pod-name", name.at, "the pod's name cannot be chosen".to_owned(), help);
            }
            if let (Some(given), Some(own)) = (&metadata.namespace, &runner.namespace) {
                conflict(given, own, "namespace");
            }
        }
        for part in ["labels", "annotations"] {
            let Some(YamlValue::Map(keys)) = node.find("metadata").and_then(|it| it.find(part)).map(|it| &it.value)
            else {
                continue;
            };
            for (key, _) in keys.iter().filter(|(key, _)| is_reserved_key(&key.value)) {
                wrong("reserved-name", key.at, "`ebb.dev/` is reserved".to_owned(), "use another key");
            }
        }
        let Some(spec) = &spec else { return };
        if let Some(policy) = spec.restart_policy.as_ref().filter(|policy| policy.value != "Never") {
            let message = "the pod's `restartPolicy` can only be `Never`".to_owned();
            wrong("restart-policy", policy.at, message, "remove it; `retry` of a unit sets the number of attempts");
        }
        let named =
            [(&spec.volumes, "volume"), (&spec.init_containers, "init container"), (&spec.containers, "container")];
        for (items, what) in named {
            let names = items.iter().filter_map(|item| item.name.as_ref());
            for At { at, value: name } in names.filter(|name| is_reserved(&name.value)) {
                let message = format!("the name `{name}` is reserved");
                wrong("reserved-name", *at, message, &format!("give the {what} another name"));
            }
        }
        let main = spec.containers.iter().filter(|item| item.name.as_ref().is_some_and(|name| name.value == "main"));
        for image in main.filter_map(|item| item.image.as_ref()) {
            conflict(image, &runner.image, "image");
        }
    }
}
