//! Signadot's ResourcePlugin.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::model::{
    ActionDoc, At, Dialect, Entries, HookDoc, InputDoc, InputSpec, NameList, Named, OutputFromDoc, OutputSpec,
    ParamDoc, PluginDoc, PodDoc, PublicOutputDoc, RunnerDoc, TemplateTree, UnitDoc, UnitSpec,
};
use crate::{DocumentReader, YamlNode, template};

/// A Signadot ResourcePlugin.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct ResourcePlugin {
    /// `name` or `name@1.2.3`. A plugin without a version is published as `0.0.0`.
    name: At<String>,
    spec: PluginSpec,
    /// The settings that only Ebb reads.
    ebb: Option<PluginExtension>,
}

/// The keys that Ebb adds to a plugin. Signadot ignores them.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PluginExtension {
    /// The outputs that Ebb stores and shows in clear, each as `STEP.OUTPUT`, or `open` for all. The others stay in the
    /// cluster.
    #[serde(default)]
    outputs: NameList,
}

/// The value of `outputs` that opens all outputs.
const ALL_OUTPUTS: &str = "open";

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PluginSpec {
    /// Free text.
    description: Option<String>,
    runner: At<SignadotRunner>,
    /// Steps before the sandbox starts.
    create: Option<Named<Vec<SignadotStep>>>,
    /// Steps after the sandbox stopped.
    delete: Option<Named<Vec<SignadotStep>>>,
}

/// The image and the pod template for the scripts of all steps.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "Runner")]
struct SignadotRunner {
    /// The image of the container `main`.
    image: At<String>,
    /// The namespace of the pods.
    namespace: Option<At<String>>,
    /// A Kubernetes PodTemplateSpec as YAML text. It is merged onto the default pod.
    pod_template_overlay: Option<At<String>>,
}

/// A script with its inputs and outputs.
#[serde_with::apply(Vec => #[serde(default)])]
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "Step")]
struct SignadotStep {
    /// A name that is unique over `create` and `delete` together.
    #[schemars(with = "SignadotName")]
    name: At<String>,
    /// The values that the step reads.
    inputs: Vec<SignadotInput>,
    /// The values that the step makes.
    outputs: Vec<SignadotOutput>,
    /// The script. Its first line begins with `#!`.
    script: At<String>,
}

#[derive(JsonSchema)]
#[schemars(transparent, rename = "Name")]
#[expect(dead_code, reason = "only its schema is used")]
struct SignadotName(#[schemars(length(max = 30), regex(pattern = "^[a-zA-Z]([a-zA-Z0-9-]*[a-zA-Z0-9])?$"))] String);

/// An input from exactly one source.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "Input")]
struct SignadotInput {
    /// The name. For a value of the sandbox, it is also the key in its `params`.
    #[schemars(with = "SignadotName")]
    name: At<String>,
    #[expect(dead_code, reason = "Signadot ignores it too")]
    r#type: Option<String>,
    /// If `true`, the sandbox sets the value. It may be missing.
    value_from_sandbox: Option<At<bool>>,
    /// The output of another step.
    value_from_step: Option<At<FromStep>>,
    /// The destination. The default is the variable of its name.
    #[serde(default)]
    r#as: InputDestination,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FromStep {
    /// The step.
    #[schemars(with = "SignadotName")]
    name: At<String>,
    /// Its output.
    #[schemars(with = "SignadotName")]
    output: At<String>,
}

/// A variable, a file, or both.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct InputDestination {
    /// The environment variable.
    env: Option<At<String>>,
    /// The absolute path of the file.
    path: Option<At<String>>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "Output")]
struct SignadotOutput {
    #[schemars(with = "SignadotName")]
    name: At<String>,
    #[expect(dead_code, reason = "Signadot ignores it too")]
    r#type: Option<String>,
    /// Free text.
    description: Option<String>,
    /// An absolute path in the pod. The bytes of the file are taken as they are.
    value_from_path: At<String>,
}

/// Reads a plugin. Returns `None` after it has reported an error.
pub(super) fn read(reader: &DocumentReader<'_>, node: &YamlNode, expanded: String) -> Option<PluginDoc> {
    let ResourcePlugin { mut name, spec, ebb } = reader.read(node)?;
    let version = reader.split_version(&mut name);
    let SignadotRunner { image, namespace, pod_template_overlay } = spec.runner.value;
    let runner = RunnerDoc { image, namespace, pod_template: pod_template_overlay };
    let template = node.find("spec").and_then(|spec| spec.find("runner")?.find("podTemplateOverlay"));
    if let Some(template) = template {
        reader.check_pod_template(template, "spec.runner.podTemplateOverlay", &runner);
    }
    let mut params = Entries::default();
    let mut hook = |steps: Named<Vec<SignadotStep>>, hook: &str| HookDoc {
        name: At { value: hook.to_owned(), at: steps.name.at },
        inner: Entries(steps.inner.into_iter().map(|step| unit(reader, step, &mut params)).collect()),
    };
    let mut pre_start = spec.create.map(|steps| hook(steps, "preStart"));
    let mut post_stop = spec.delete.map(|steps| hook(steps, "postStop"));
    let units = [&mut pre_start, &mut post_stop].into_iter().flatten().flat_map(|hook| hook.iter_mut());
    close_outputs(reader, &ebb.unwrap_or_default().outputs.0, units);
    let outputs = pre_start.iter().flat_map(|hook| hook.iter()).flat_map(|unit| {
        unit.outputs.iter().map(|Named { name, .. }| Named {
            name: At { value: format!("{}.{}", unit.name.value, name.value), at: name.at },
            inner: PublicOutputDoc {
                value: At { value: template::of_output(&unit.name.value, &name.value), at: name.at },
                show: None,
            },
        })
    });
    Some(PluginDoc {
        outputs: Entries(outputs.collect()),
        name,
        version,
        description: spec.description,
        params,
        runners: Entries(vec![Named { name: At { value: "default".to_owned(), at: spec.runner.at }, inner: runner }]),
        pre_start,
        post_stop,
        dialect: Dialect::Signadot,
        source: reader.source.clone(),
        expanded,
        ..PluginDoc::default()
    })
}

/// Makes all outputs sensitive except the `opened` ones. Signadot, too, keeps outputs in Secrets of the cluster.
fn close_outputs<'u>(reader: &DocumentReader<'_>, opened: &[At<String>], units: impl Iterator<Item = &'u mut UnitDoc>) {
    let is_all = matches!(opened, [all] if all.value == ALL_OUTPUTS);
    let names: BTreeSet<&str> = opened.iter().map(|name| name.value.as_str()).collect();
    let mut known = BTreeSet::new();
    for unit in units {
        let step = unit.name.value.clone();
        for output in &mut unit.outputs.0 {
            let name = format!("{step}.{}", output.name.value);
            output.sensitive = Some(!is_all && !names.contains(name.as_str()));
            known.insert(name);
        }
    }
    for name in opened.iter().filter(|name| !is_all && !known.contains(&name.value)) {
        let wrong = reader.wrong("unknown-output", name.at, format!("no step has the output `{}`", name.value));
        reader.note_near(wrong, &name.value, known.iter().map(String::as_str));
    }
}

fn unit(reader: &DocumentReader<'_>, step: SignadotStep, params: &mut Entries<ParamDoc>) -> Named<UnitSpec> {
    reader.check_short_name(&step.name, "the step's name");
    reader.check_script(&step.script);
    let outputs = step.outputs.into_iter().map(|output| {
        reader.check_short_name(&output.name, "the output's name");
        let from = OutputFromDoc::File(output.value_from_path);
        let inner = OutputSpec { description: output.description, ..OutputSpec::of(from) };
        Named { name: output.name, inner }
    });
    let inputs = step.inputs.into_iter().filter_map(|one| input(reader, one, params)).collect();
    let spec = UnitSpec {
        action: ActionDoc::Pod(PodDoc { runner: None, script: step.script }),
        inputs: Entries(inputs),
        outputs: Entries(outputs.collect()),
        ..UnitSpec::default()
    };
    Named { name: step.name, inner: spec }
}

fn input(reader: &DocumentReader<'_>, input: SignadotInput, params: &mut Entries<ParamDoc>) -> Option<InputDoc> {
    let name = input.name;
    reader.check_short_name(&name, "the input's name");
    let wrong = |at, message| reader.wrong("value-source", at, format!("the input `{}` {message}", name.value));
    let nowhere = input.value_from_sandbox.as_ref().map_or(name.at, |given| given.at);
    let (text, at, optional) = match (input.value_from_sandbox.filter(|given| given.value), input.value_from_step) {
        (Some(given), None) => {
            if !params.iter().any(|known| known.name.value == name.value) {
                let required = Some(At { value: false, at: name.at });
                params.push(Named { name: name.clone(), inner: ParamDoc { required, ..ParamDoc::default() } });
            }
            (format!("${{params[?\"{}\"]}}", name.value), given.at, true)
        }
        (None, Some(At { value: step, .. })) => {
            reader.check_short_name(&step.name, "the step's name");
            reader.check_short_name(&step.output, "the output's name");
            (template::of_output(&step.name.value, &step.output.value), step.output.at, false)
        }
        (Some(_), Some(step)) => {
            reader.note(wrong(step.at, "has two sources").help("keep one of `valueFromSandbox` and `valueFromStep`"));
            return None;
        }
        (None, None) => {
            let wrong = wrong(nowhere, "has no source");
            reader.note(wrong.help("add `valueFromSandbox: true` or `valueFromStep: {name: STEP, output: OUTPUT}`"));
            return None;
        }
    };
    // Signadot's decoder, as usual in Go, does not distinguish an empty text from an absent one.
    let given = |text: Option<At<String>>| text.filter(|text| !text.value.is_empty());
    let value = At { value: TemplateTree::Text(text), at };
    Some(Named { name, inner: InputSpec { value, env: given(input.r#as.env), path: given(input.r#as.path), optional } })
}
