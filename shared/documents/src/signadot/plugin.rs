//! ResourcePlugin.

use std::collections::BTreeMap;

use crate::diagnostic::Diagnostic;
use crate::load::names::NameSyntax;
use crate::load::reader::{DocumentReader, MapReader};
use crate::load::yaml::{YamlNode, YamlValue};
use crate::model::{
    ActionDoc, At, Dialect, HookDoc, InputDoc, LineColumn, OutputDoc, OutputFromDoc, ParamDoc, ParamKind, PluginDoc,
    RunnerDoc, TemplateText, TemplateTree, UnitDoc,
};
use crate::plan::HookName;

pub(crate) const SPEC: [&str; 4] = ["description", "runner", "create", "delete"];
pub(crate) const RUNNER: [&str; 3] = ["image", "namespace", "podTemplateOverlay"];
pub(crate) const STEP: [&str; 4] = ["name", "inputs", "outputs", "script"];
pub(crate) const INPUT: [&str; 5] = ["name", "type", "valueFromSandbox", "valueFromStep", "as"];
pub(crate) const FROM_STEP: [&str; 2] = ["name", "output"];
pub(crate) const AS: [&str; 2] = ["env", "path"];
pub(crate) const OUTPUT: [&str; 4] = ["name", "type", "description", "valueFromPath"];

/// Both phases: the key in Signadot's documents and the hook that it is.
const PHASES: [(&str, &str, HookName); 2] =
    [("create", "preStart", HookName::PreStart), ("delete", "postStop", HookName::PostStop)];

/// Reads a plugin. `None`: so much is wrong that there is none; what is wrong stands in the reader in any case.
pub(crate) fn plugin(reader: &mut DocumentReader<'_>, document: &YamlNode, expanded: String) -> Option<PluginDoc> {
    let (name, spec) = reader.top(document)?;
    let definition = reader.definition(&name);
    let spec = reader.map(spec, "spec", &SPEC)?;
    let description = reader.optional_string(&spec, "description").map(|text| text.value);
    let runner = runner(reader, &spec);
    let mut params = Vec::new();
    let mut outputs = Vec::new();
    let mut hooks = Vec::new();
    let mut seen = BTreeMap::new();
    for (key, hook_name, hook) in PHASES {
        let Some((at, node)) = spec.entry(key) else { continue };
        let path = spec.below(key);
        let mut units = Vec::new();
        for (n, step) in reader.list(node, &path).unwrap_or_default().iter().enumerate() {
            let Some(unit) = unit(reader, step, &format!("{path}[{n}]"), &mut seen, &mut params) else {
                continue;
            };
            if hook == HookName::PreStart {
                outputs.extend(public(&unit));
            }
            units.push(unit);
        }
        hooks.push(HookDoc { name: At { value: hook_name.to_owned(), at: at.at }, hook, units });
    }
    let (name, version) = definition?;
    Some(PluginDoc {
        source: reader.source.clone(),
        dialect: Dialect::Signadot,
        name,
        version,
        description,
        expanded,
        params,
        runners: vec![runner?],
        hooks,
        outputs,
    })
}

fn runner(reader: &mut DocumentReader<'_>, spec: &MapReader<'_>) -> Option<(At<String>, RunnerDoc)> {
    let node = reader.required(spec, "runner")?;
    let map = reader.map(node, &spec.below("runner"), &RUNNER)?;
    let image = reader.required_string(&map, "image");
    let namespace = reader.optional_string(&map, "namespace");
    let pod_template = reader.optional_string(&map, "podTemplateOverlay");
    let runner = RunnerDoc { image: image?, namespace, pod_template };
    if let Some(overlay) = map.get("podTemplateOverlay") {
        reader.check_pod_template(overlay, &map.below("podTemplateOverlay"), &runner);
    }
    Some((At { value: "default".to_owned(), at: node.at }, runner))
}

fn unit(
    reader: &mut DocumentReader<'_>,
    step: &YamlNode,
    path: &str,
    seen: &mut BTreeMap<String, LineColumn>,
    params: &mut Vec<(At<String>, ParamDoc)>,
) -> Option<UnitDoc> {
    let map = reader.map(step, path, &STEP)?;
    let name = reader.required_string(&map, "name");
    if let Some(name) = &name {
        reader.short_name(name, "the step's name");
        if let Some(first) = seen.insert(name.value.clone(), name.at) {
            let wrong = reader
                .wrong("duplicate-unit", name.at, format!("there are two steps `{}`", name.value))
                .help("names of steps are unique over `create` and `delete` together")
                .related(first, "first here");
            reader.note(wrong);
        }
    }
    let mut inputs: Vec<InputDoc> = Vec::new();
    if let Some(list) = map.get("inputs").and_then(|node| reader.list(node, &map.below("inputs"))) {
        for (n, node) in list.iter().enumerate() {
            let Some(input) = input(reader, node, &format!("{path}.inputs[{n}]"), params) else { continue };
            let first = inputs.iter().find(|other| other.name.value == input.name.value).map(|other| other.name.at);
            twice(reader, "input", &input.name, first);
            inputs.push(input);
        }
    }
    let mut outputs: Vec<OutputDoc> = Vec::new();
    if let Some(list) = map.get("outputs").and_then(|node| reader.list(node, &map.below("outputs"))) {
        for (n, node) in list.iter().enumerate() {
            let Some(output) = output(reader, node, &format!("{path}.outputs[{n}]")) else { continue };
            let first = outputs.iter().find(|other| other.name.value == output.name.value).map(|other| other.name.at);
            twice(reader, "output", &output.name, first);
            outputs.push(output);
        }
    }
    let script = reader.required_string(&map, "script");
    if let Some(script) = &script {
        reader.check_script(script);
    }
    Some(UnitDoc {
        name: name?,
        action: ActionDoc::Pod { runner: None, script: script? },
        cluster: None,
        when: None,
        after: Vec::new(),
        undoes: None,
        leaves_nothing: false,
        inputs,
        outputs,
        timeout_ms: None,
        retry: None,
    })
}

fn twice(reader: &mut DocumentReader<'_>, what: &str, name: &At<String>, first: Option<LineColumn>) {
    if let Some(first) = first {
        let wrong = reader
            .wrong("duplicate-name", name.at, format!("this step has two {what}s `{}`", name.value))
            .help("give one of them another name")
            .related(first, "first here");
        reader.note(wrong);
    }
}

fn input(
    reader: &mut DocumentReader<'_>,
    node: &YamlNode,
    path: &str,
    params: &mut Vec<(At<String>, ParamDoc)>,
) -> Option<InputDoc> {
    let map = reader.map(node, path, &INPUT)?;
    let name = reader.required_string(&map, "name");
    if let Some(name) = &name {
        reader.short_name(name, "the input's name");
    }
    reader.optional_string(&map, "type");
    let sandbox = reader.flag(&map, "valueFromSandbox");
    let step = map.get("valueFromStep");
    let (env, file) = door(reader, &map);
    let name = name?;
    let (value, optional) = match (sandbox?, step) {
        (true, None) => {
            if !params.iter().any(|(known, _)| known.value == name.value) {
                params.push((name.clone(), param()));
            }
            let at = map.get("valueFromSandbox").map_or(node.at, |node| node.at);
            (template(format!("${{params[?\"{}\"]}}", name.value), at), true)
        }
        (false, Some(step)) => (from_step(reader, step, &map.below("valueFromStep"))?, false),
        (true, Some(step)) => {
            let wrong = reader
                .wrong("value-source", step.at, format!("the input `{}` has two sources", name.value))
                .help("leave one of `valueFromSandbox` and `valueFromStep`");
            reader.note(wrong);
            return None;
        }
        (false, None) => {
            let wrong = reader
                .wrong("value-source", name.at, format!("the input `{}` has no source", name.value))
                .help("add `valueFromSandbox: true` or `valueFromStep: {name: STEP, output: OUTPUT}`");
            reader.note(wrong);
            return None;
        }
    };
    Some(InputDoc { name, value, env, path: file, optional })
}

fn door(reader: &mut DocumentReader<'_>, map: &MapReader<'_>) -> (Option<At<String>>, Option<At<String>>) {
    let Some(door) = map.get("as").and_then(|node| reader.map(node, &map.below("as"), &AS)) else {
        return (None, None);
    };
    // Go's reader leaves an empty text and an absent one alike.
    let env = reader.optional_string(&door, "env").filter(|env| !env.value.is_empty());
    if let Some(env) = &env {
        reader.check_name(env, "the environment variable", NameSyntax::Environment, 255);
        if env.value.starts_with("EBB_") || env.value.starts_with("SIGNADOT_") {
            let message = format!("the variable `{}` hides one that is set for every step", env.value);
            let warning = Diagnostic::warning("reserved-name", reader.source, env.at, message);
            reader.note(warning.help("choose a name that begins with neither `EBB_` nor `SIGNADOT_`"));
        }
    }
    let path = reader.optional_string(&door, "path").filter(|path| !path.value.is_empty());
    if let Some(path) = &path {
        reader.check_path(path);
    }
    (env, path)
}

fn from_step(reader: &mut DocumentReader<'_>, node: &YamlNode, path: &str) -> Option<At<TemplateTree>> {
    let map = reader.map(node, path, &FROM_STEP)?;
    let step = reader.required_string(&map, "name");
    let output = reader.required_string(&map, "output");
    let (step, output) = (step?, output?);
    reader.short_name(&step, "the step's name");
    reader.short_name(&output, "the output's name");
    Some(template(reference(&step.value, &output.value), output.at))
}

fn output(reader: &mut DocumentReader<'_>, node: &YamlNode, path: &str) -> Option<OutputDoc> {
    let map = reader.map(node, path, &OUTPUT)?;
    let name = reader.required_string(&map, "name");
    if let Some(name) = &name {
        reader.short_name(name, "the output's name");
    }
    reader.optional_string(&map, "type");
    let description = reader.optional_string(&map, "description").map(|text| text.value);
    let file = reader.required_string(&map, "valueFromPath");
    if let Some(file) = &file {
        reader.check_path(file);
    }
    Some(OutputDoc { name: name?, from: OutputFromDoc::File(file?), sensitive: false, description })
}

fn public(unit: &UnitDoc) -> impl Iterator<Item = (At<String>, At<TemplateText>)> {
    unit.outputs.iter().map(|output| {
        let name = format!("{}.{}", unit.name.value, output.name.value);
        let text = TemplateText::Template(reference(&unit.name.value, &output.name.value));
        (At { value: name, at: output.name.at }, At { value: text, at: output.name.at })
    })
}

fn reference(unit: &str, output: &str) -> String {
    format!("${{units[\"{unit}\"].outputs[\"{output}\"]}}")
}

fn template(text: String, at: LineColumn) -> At<TemplateTree> {
    At { value: TemplateTree::Text(TemplateText::Template(text)), at }
}

/// What a declared sandbox input is: a text that may be missing.
fn param() -> ParamDoc {
    ParamDoc {
        kind: ParamKind::String,
        default: None,
        optional: true,
        sensitive: false,
        one_of: Vec::new(),
        minimum: None,
        maximum: None,
        min_length: None,
        max_length: None,
        pattern: None,
        description: None,
    }
}

/// The document without what the platform adds to it.
pub(crate) fn kept(document: &YamlNode) -> YamlNode {
    let mut kept = document.clone();
    if let YamlValue::Map(entries) = &mut kept.value {
        entries.retain(|(key, _)| ["name", "spec"].iter().any(|kept| key.name.eq_ignore_ascii_case(kept)));
    }
    kept
}
