//! Compiles one unit of a plugin.

use std::collections::{BTreeMap, HashMap};

use ebb_engine::{Hook, Millis};

use super::checked::CompiledUnit;
use super::collector::{DiagnosticCollector, TextRole, whole};
use super::defaults::{
    self, BACKOFF_MS, MAX_ATTEMPTS, MAX_INPUTS, MAX_TIMEOUT_MS, RETRY_CLASSES, attempts, max_backoff,
};
use super::{clusters, for_each, infrakit_unit, input_destinations, object_action, webhook, webhook_action};
use crate::cel::{self, ReferenceSource, Scope};
use crate::model::{
    ActionDoc, At, Dialect, FailureClass, HookOwner, InputDoc, LineColumn, Named, OnFailure, OutputDoc, OutputFromDoc,
    PluginDoc, PodDoc, RunnerDoc, UnitDoc,
};
use crate::plan::{Action, InputPlan, OutputFrom, OutputPlan, PodAction, RetryPolicy, SourceLocation, UnitPlan};

pub(super) fn compile<'a>(
    report: &mut DiagnosticCollector,
    plugin: &'a PluginDoc,
    doc: &'a UnitDoc,
    hook: Hook,
) -> CompiledUnit<'a> {
    limits(report, doc);
    until_of_webhook(report, doc);
    fail_fast(report, doc);
    report.role = TextRole::When;
    let when = doc.when.as_ref().and_then(|when| report.expression("`when`", when, report.units));
    let list = for_each::list(report, plugin, doc);
    report.role = TextRole::Cluster;
    let cluster = clusters::named(report, plugin, doc);
    let (work, role) = action(report, plugin, doc, hook);
    unique(report, "input", doc.inputs.iter().map(|input| &input.name));
    report.role = role;
    let (inputs, wholes) = doc.inputs.iter().map(|input| input_plan(report, input)).unzip();
    unique(report, "output", doc.outputs.iter().map(|output| &output.name));
    report.role = TextRole::Answer;
    let outputs = output_plans(report, plugin, doc);
    let uses = std::mem::take(&mut report.reads);
    webhook_action::check_answers(report, doc, &uses);

    let place = report.source.author(doc.name.at);
    let source = SourceLocation { file: report.source.name.clone(), line: place.line, column: place.column };
    let plan = UnitPlan {
        key: doc.name.value.clone(),
        action: work,
        when,
        inputs,
        outputs,
        verifies: doc.verifies.is_some(),
        lists: plugin.owner == HookOwner::Inventory,
        tolerated: doc.on_failure.as_ref().is_some_and(|on| on.value == OnFailure::Continue),
        timeout_ms: defaults::timeout(doc),
        retry: retry(report, doc, hook),
        source,
        ..UnitPlan::default()
    };
    CompiledUnit { doc, hook, plan, cluster, list, uses, wholes, after: Vec::new(), undoes: Vec::new() }
}

/// Compiles the action of a unit. Returns the role of its inputs, too.
fn action(report: &mut DiagnosticCollector, plugin: &PluginDoc, doc: &UnitDoc, hook: Hook) -> (Action, TextRole) {
    match &doc.action {
        ActionDoc::Pod(action) => {
            input_destinations::check_inputs(report, &doc.inputs);
            (Action::Pod(pod(report, plugin, doc, action)), TextRole::PodInput)
        }
        ActionDoc::Webhook(request) => {
            let action = webhook_action::compile(report, doc, hook, request);
            (Action::Webhook(action), webhook::role(request.url.as_ref().filter(|_| doc.cluster.is_none())))
        }
        ActionDoc::Object(object) => {
            (Action::Object(object_action::compile(report, doc, hook, object)), TextRole::Manifest)
        }
        ActionDoc::Infrakit(instance) => {
            (Action::Infrakit(infrakit_unit::action(report, doc, hook, instance)), TextRole::Infrakit)
        }
    }
}

/// Compiles an input, whose role the collector has. Returns the value that it hands on, too, if it is exactly one.
fn input_plan(report: &mut DiagnosticCollector, input: &InputDoc) -> (InputPlan, Option<ReferenceSource>) {
    let first = report.reads.len();
    let value = report.tree(&input.value.value, input.value.at, report.units);
    let whole = whole(&report.reads[first..]).cloned();
    let of_pod = report.role == TextRole::PodInput;
    let (env, path) = if of_pod { input_destinations::of_input(input) } else { (None, None) };
    if let Some(destination) = input.env.as_ref().or(input.path.as_ref()).filter(|_| !of_pod) {
        report.push(report.error("input", destination.at, "only an input of a pod has `env` or `path`"));
    }
    let name = input.name.value.clone();
    (InputPlan { name, value, env, path, optional: input.optional, sensitive: false }, whole)
}

fn output_plans(report: &mut DiagnosticCollector, plugin: &PluginDoc, doc: &UnitDoc) -> BTreeMap<String, OutputPlan> {
    let outputs = doc.outputs.iter().filter_map(|output| {
        let from = output_source(report, &doc.action, output)?;
        if output.optional && !matches!(output.from, OutputFromDoc::Value(_)) {
            let message = format!("output `{}` cannot be `optional`", output.name.value);
            let help = "only a `value` can be missing; a script can write an empty file";
            report.push(report.error("output", output.name.at, message).help(help));
        }
        let key = if output.json { Some("json") } else { output.trim.then_some("trim") };
        let sensitive = output.is_sensitive();
        let refusal = match output.from {
            OutputFromDoc::File(_) if sensitive => Some((
                "it is sensitive, so Ebb does not read it",
                "let the script write each value to a file of its own, without white space: `printf %s`",
            )),
            OutputFromDoc::File(_) => None,
            _ => Some(("it is not a file", "leave it out; a `value` can call `json.parse` and `trim`")),
        };
        if let (Some(key), Some((why, help))) = (key, refusal) {
            let message = format!("output `{}` cannot have `{key}`: {why}", output.name.value);
            report.push(report.error("output", output.name.at, message).help(help));
        }
        let sensitive_by_default = sensitive && plugin.dialect == Dialect::Signadot;
        let (optional, json, trim) = (output.optional, output.json, output.trim);
        let description = output.description.clone();
        let plan = OutputPlan { from, sensitive, sensitive_by_default, optional, json, trim, description };
        Some((output.name.value.clone(), plan))
    });
    outputs.collect()
}

fn output_source(report: &mut DiagnosticCollector, action: &ActionDoc, output: &OutputDoc) -> Option<OutputFrom> {
    let name = &output.name.value;
    let what = format!("output `{name}`");
    let (at, message, help) = match (&output.from, action) {
        (OutputFromDoc::File(path), ActionDoc::Pod(_)) => {
            input_destinations::check_path(report, path);
            return Some(OutputFrom::File(path.value.clone()));
        }
        (OutputFromDoc::Secret(secret), ActionDoc::Object(_)) => {
            let what = format!("the Secret's name of {what}");
            let expression = if secret.name.value.contains("${") {
                report.expression(&what, &secret.name, Scope::Objects)?
            } else {
                // A literal name becomes a CEL string.
                serde_json::Value::from(secret.name.value.as_str()).to_string()
            };
            return Some(OutputFrom::Secret { name: expression, key: secret.key.value.clone() });
        }
        (OutputFromDoc::Value(text), ActionDoc::Webhook(_)) => {
            return report.expression(&what, text, webhook_action::answers(report)).map(OutputFrom::Expression);
        }
        (OutputFromDoc::Value(text), ActionDoc::Infrakit(_)) => {
            return report.expression(&what, text, Scope::Instance).map(OutputFrom::Expression);
        }
        (OutputFromDoc::Value(text), ActionDoc::Object(_)) => {
            return report.expression(&what, text, Scope::Objects).map(OutputFrom::Expression);
        }
        (OutputFromDoc::File(path), _) => (
            path.at,
            "only a pod has files",
            "take it from the answer: `{value: \"${response.body.id}\"}`, from the object: `${object.status…}`, or from \
             the instance: `${instance.ID}`"
                .to_owned(),
        ),
        (OutputFromDoc::Value(text), ActionDoc::Pod(_)) => (
            text.at,
            "an output of a pod is a file",
            format!("let the script write a file and name it: `{name}: {{file: /out/{name}}}`"),
        ),
        (OutputFromDoc::Secret(secret), _) => (
            secret.key.at,
            "only objects bring Secrets",
            "name a pod's file with `file: /PATH`, or take a value of the answer with `value: ${…}`".to_owned(),
        ),
    };
    report.push(report.error("output", at, message).help(help));
    None
}

fn until_of_webhook(report: &mut DiagnosticCollector, doc: &UnitDoc) {
    if let (Some(until), false) = (&doc.until, matches!(doc.action, ActionDoc::Webhook(_))) {
        let help = "a script waits by itself, and an object has `ready`";
        let at = until.url.as_ref().or(until.path.as_ref()).map_or(doc.name.at, |url| url.at);
        report.push(report.error("until", at, "only a webhook has `until`").help(help));
    }
    if let (Some(repeat), false) = (&doc.repeat, matches!(doc.action, ActionDoc::Webhook(_))) {
        let wrong = report.error("repeat", repeat.condition.at, "only a webhook has `repeat`");
        report.push(wrong.help("a script has loops of its own"));
    }
}

fn limits(report: &mut DiagnosticCollector, doc: &UnitDoc) {
    let at = doc.name.at;
    for (count, what) in [(doc.inputs.len(), "inputs"), (doc.outputs.len(), "outputs")] {
        if count > MAX_INPUTS {
            let message = format!("`{}` has {count} {what}; the limit is {MAX_INPUTS}", doc.name.value);
            report.push(report.error("limit", at, message).help("hand on one file, or split the unit"));
        }
    }
    let timeout = doc.timeout.map(|timeout| timeout.0);
    if let Some(timeout) = timeout.filter(|timeout| !(1..=MAX_TIMEOUT_MS).contains(timeout)) {
        let message =
            format!("`{}` has a timeout of {}; it must be above 0 and at most 24h", doc.name.value, Millis(timeout));
        report.push(report.error("limit", at, message));
    }
}

fn fail_fast(report: &mut DiagnosticCollector, doc: &UnitDoc) {
    let Some(fails) = &doc.fail_fast else { return };
    let help = match &doc.action {
        ActionDoc::Object(_) => return,
        ActionDoc::Pod(_) => "leave it out: a pod that cannot start fails after `podStartTimeoutSeconds` of its relay",
        ActionDoc::Webhook(_) => "leave it out: `failed` of `until` ends a wait early",
        ActionDoc::Infrakit(_) => "leave it out: a plugin of InfraKit reports its failures itself",
    };
    let message = format!("`{}` has `failFast`, which only a unit with `object` may have", doc.name.value);
    report.push(report.error("fail-fast", fails.at, message).help(help));
}

fn unique<'a>(report: &mut DiagnosticCollector, what: &str, names: impl Iterator<Item = &'a At<String>>) {
    let mut seen: HashMap<&str, LineColumn> = HashMap::new();
    for name in names {
        if let Some(first) = seen.insert(&name.value, name.at) {
            let message = format!("{what} `{}` is declared twice", name.value);
            report.push(report.error("duplicate", name.at, message).related(first, "the first one"));
        }
    }
}

/// Returns the runner of a script: the one that it names, `default`, or the only one.
pub(super) fn runner<'a>(plugin: &'a PluginDoc, action: &PodDoc) -> Option<&'a Named<RunnerDoc>> {
    let named = |wanted: &str| plugin.runners.iter().find(|runner| runner.name.value == wanted);
    match &action.runner {
        Some(name) => named(&name.value),
        None => named("default").or(plugin.runners.first().filter(|_| plugin.runners.len() == 1)),
    }
}

fn pod(report: &mut DiagnosticCollector, plugin: &PluginDoc, doc: &UnitDoc, action: &PodDoc) -> PodAction {
    let names = || plugin.runners.iter().map(|runner| runner.name.value.as_str());
    let found = runner(plugin, action);
    match &action.runner {
        _ if found.is_some() => {}
        Some(name) => {
            let diagnostic = report.error("unknown-runner", name.at, format!("there is no runner `{}`", name.value));
            report.push(report.found.suggest(diagnostic, &name.value, names()));
        }
        None => {
            let list = names().take(8).collect::<Vec<_>>().join("`, `");
            let help = match list.is_empty() {
                true => "declare one: `runners: {default: {image: …}}`".to_owned(),
                false => format!("name one with `runner:`, there is `{list}`; or call one `default`"),
            };
            let message = format!("`{}` does not say which runner runs it", doc.name.value);
            report.push(report.error("unknown-runner", doc.name.at, message).help(help));
        }
    }
    let text = |value: &Option<At<String>>| value.as_ref().map(|value| value.value.clone());
    PodAction {
        image: found.map(|runner| runner.image.value.clone()).unwrap_or_default(),
        namespace: found.and_then(|runner| text(&runner.namespace)),
        pod_template: found.and_then(|runner| text(&runner.pod_template)),
        script: action.script.value.clone(),
    }
}

fn retry(report: &mut DiagnosticCollector, doc: &UnitDoc, hook: Hook) -> RetryPolicy {
    let given = doc.retry.clone().unwrap_or_default();
    let tries = given.attempts.as_ref().map_or_else(|| attempts(hook), |attempts| attempts.value);
    let backoff_ms = given.backoff.as_ref().map_or(BACKOFF_MS, |backoff| backoff.value.0);
    let max_backoff_ms =
        given.max_backoff.as_ref().map_or_else(|| max_backoff(hook).max(backoff_ms), |backoff| backoff.value.0);
    if !(1..=MAX_ATTEMPTS).contains(&tries) {
        let message = format!("`{}` has {tries} attempts; there can be 1 to {MAX_ATTEMPTS}", doc.name.value);
        let at = given.attempts.as_ref().map_or(doc.name.at, |attempts| attempts.at);
        report.push(report.error("limit", at, message));
    }
    if backoff_ms > max_backoff_ms || max_backoff_ms > MAX_TIMEOUT_MS {
        let (backoff, max_backoff) = (Millis(backoff_ms), Millis(max_backoff_ms));
        let message = format!("`{}` has backoff {backoff} and maxBackoff {max_backoff}", doc.name.value);
        let at = given.backoff.as_ref().or(given.max_backoff.as_ref()).map_or(doc.name.at, |backoff| backoff.at);
        report.push(report.error("limit", at, message).help("`backoff` is at most `maxBackoff`, and that at most 24h"));
    }
    for class in given.on.iter().chain(&given.never) {
        let name = class.value.0.as_str();
        let number = name.parse::<u16>().ok().filter(|number| number.to_string() == name);
        if !matches!(number, Some(1..=255 | 400..=599)) && RETRY_CLASSES.split(' ').all(|class| class != name) {
            let message = format!("`{name}` is not a failure class");
            let help = match cel::nearest(name, RETRY_CLASSES.split(' ')) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("expected `{}`, or a code like 78 or 503", RETRY_CLASSES.replace(' ', "`, `")),
            };
            report.push(report.error("retry", class.at, message).help(help));
        }
    }
    for class in given.never.iter().filter(|class| given.on.iter().any(|on| on.value == class.value)) {
        let message = format!("`retry` has `{}` in `on` and in `never`", class.value.0);
        report.push(report.error("contradiction", class.at, message).help("leave it out of one of them"));
    }
    let names = |classes: Vec<At<FailureClass>>| classes.into_iter().map(|class| class.value.0).collect();
    RetryPolicy { attempts: tries, backoff_ms, max_backoff_ms, on: names(given.on), never: names(given.never) }
}
