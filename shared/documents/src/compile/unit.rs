//! Compiles one unit of a plugin.

use std::collections::HashMap;

use ebb_engine::{Hook, Millis};

use super::checked::CompiledUnit;
use super::collector::{DiagnosticCollector, ExpressionRead};
use super::defaults::{
    BACKOFF_MS, MAX_ATTEMPTS, MAX_INPUTS, MAX_TIMEOUT_MS, POD_TIMEOUT_MS, RETRY_CLASSES, TIMEOUT_MS, UNTIL_TIMEOUT_MS,
    attempts, max_backoff,
};
use super::sensitive::TextRole;
use super::until::{self, answers};
use super::{clusters, infrakit_unit, input_destinations, webhook};
use crate::expr::{self, ReferenceUsage, Scope};
use crate::model::{
    ActionDoc, At, Dialect, LineColumn, Named, OutputFromDoc, PluginDoc, PodDoc, RunnerDoc, TemplateTree, UnitDoc,
    WebhookDoc, WebhookMethod,
};
use crate::plan::{
    Action, BoundConnection, InputPlan, ManifestConditions, ObjectAction, OutputFrom, OutputPlan, PLUGIN_UPDATE,
    PodAction, RetryPolicy, SourceLocation, UnitPlan, WebhookAction,
};

/// Compiles a unit and reports its errors.
pub(super) fn compile<'a>(
    report: &mut DiagnosticCollector,
    plugin: &'a PluginDoc,
    doc: &'a UnitDoc,
    hook: Hook,
) -> CompiledUnit<'a> {
    let mut uses = Vec::new();
    let mut collect =
        |role: TextRole, found: Vec<ExpressionRead<'a>>| uses.extend(found.into_iter().map(|found| (role, found)));
    limits(report, doc);

    let mut found = Vec::new();
    let when = doc.when.as_ref().and_then(|when| report.expression("`when`", when, report.units, &mut found));
    collect(TextRole::When, std::mem::take(&mut found));

    let cluster = clusters::named(report, plugin, doc, &mut found);
    collect(TextRole::Cluster, std::mem::take(&mut found));

    if let (Some(until), false) = (&doc.until, matches!(doc.action, ActionDoc::Webhook(_))) {
        let help = "a script waits by itself, and an object has `ready`";
        let at = until.url.as_ref().or(until.path.as_ref()).map_or(doc.name.at, |url| url.at);
        report.push(report.error("until", at, "only a webhook has `until`").help(help));
    }
    fail_fast(report, doc);
    let (work, role) = match &doc.action {
        ActionDoc::Pod(action) => {
            input_destinations::check_inputs(report, &doc.inputs);
            (Action::Pod(pod(report, plugin, doc, action)), TextRole::PodInput)
        }
        ActionDoc::Webhook(webhook) => {
            let method = webhook.method.as_str().to_owned();
            let connection = webhook.connection.as_ref();
            let url = webhook::destination(report, &doc.name, connection, (&webhook.url, &webhook.path), &mut found);
            collect(TextRole::Url, std::mem::take(&mut found));
            let role = webhook::role(webhook.url.as_ref());
            let headers = webhook::headers(report, &webhook.headers, &mut found);
            let body = webhook.body.as_ref().map(|body| report.strings(body, report.units, &mut found));
            collect(role, std::mem::take(&mut found));
            let describe = webhook
                .describe
                .as_ref()
                .map(|it| webhook::destination(report, &doc.name, connection, (&it.url, &it.path), &mut found));
            if connection.is_some() {
                webhook::check_connection_headers(report, &webhook.headers);
            }
            collect(TextRole::Url, std::mem::take(&mut found));
            let found_text = webhook.describe.as_ref().and_then(|describe| describe.found.as_ref());
            let describe_found =
                found_text.and_then(|text| report.expression("`found`", text, answers(report), &mut found));
            let absent = webhook.absent.as_ref();
            let absent = absent.and_then(|text| report.expression("`absent`", text, answers(report), &mut found));
            let until =
                doc.until.as_ref().map(|until| until::compile(report, doc, hook, connection, until, &mut found));
            collect(TextRole::Answer, std::mem::take(&mut found));
            if let (Some(_), Some(first)) = (&body, doc.inputs.first()) {
                let message = "this webhook has a body, so its inputs go nowhere";
                let help = "put the values into `body`; without `body`, the inputs are sent as an object";
                report.push(report.error("input", first.name.at, message).help(help));
            }
            let max_processing_time_ms = webhook.max_processing_time.map(|time| time.0);
            let non_idempotent = webhook.idempotent == Some(false);
            let name = connection.map(|connection| connection.value.clone());
            let connection = name.map(|name| BoundConnection { name, origin: String::new() });
            let webhook = WebhookAction {
                method,
                connection,
                url,
                headers,
                body,
                max_processing_time_ms,
                non_idempotent,
                describe,
                describe_found,
                until,
                absent,
            };
            (Action::Webhook(webhook), role)
        }
        ActionDoc::Object(object) => {
            let manifest = &object.manifest;
            if hook == PLUGIN_UPDATE {
                let message = format!("`{}` in update cannot be an `object` unit", doc.name.value);
                let help = "leave `update` out: the objects are then deleted, and applied again";
                report.push(report.error("hook-order", manifest.at, message).help(help));
            }
            let mut tree = report.strings(manifest, report.units, &mut found);
            match &manifest.value {
                _ if object.data.is_some() => check_bound_place(report, &found),
                TemplateTree::List(manifests) => {
                    if manifests.is_empty() {
                        report.push(report.error("manifest", manifest.at, "the list of manifests is empty"));
                    }
                    manifests.iter().for_each(|one| check_manifest(report, one));
                }
                _ => check_manifest(report, manifest),
            }
            collect(TextRole::Manifest, std::mem::take(&mut found));
            if let Some(data) = &object.data {
                tree["data"] = report.strings(data, report.units, &mut found);
                let is_secret = tree["kind"] == "Secret";
                let role = if is_secret { TextRole::BoundSecret } else { TextRole::BoundConfigMap };
                collect(role, std::mem::take(&mut found));
            }
            let ready = object.ready.as_ref().and_then(|ready| conditions(report, "`ready`", ready, manifest));
            let fail = object.fail.as_ref().and_then(|fail| conditions(report, "`fail`", fail, manifest));
            if let Some(first) = doc.inputs.first() {
                let help = "put the value into the manifest: `${…}`";
                report.push(report.error("input", first.name.at, "an object has no inputs").help(help));
            }
            let bound = object.data.is_some();
            let fail_fast = doc.fail_fast.as_ref().is_some_and(|fails| fails.value);
            (Action::Object(ObjectAction { manifest: tree, ready, fail, bound, fail_fast }), TextRole::Manifest)
        }
        ActionDoc::Infrakit(instance) => {
            let mut properties = Vec::new();
            let action = infrakit_unit::action(report, doc, hook, instance, (&mut properties, &mut found));
            collect(TextRole::Infrakit, properties);
            collect(TextRole::InfrakitText, std::mem::take(&mut found));
            (Action::Infrakit(action), TextRole::Infrakit)
        }
    };
    if role != TextRole::PodInput {
        for door in doc.inputs.iter().filter_map(|input| input.env.as_ref().or(input.path.as_ref())) {
            report.push(report.error("input", door.at, "only an input of a pod has `env` or `path`"));
        }
    }

    let mut inputs = Vec::with_capacity(doc.inputs.len());
    let mut wholes = Vec::with_capacity(doc.inputs.len());
    unique(report, "input", doc.inputs.iter().map(|input| &input.name));
    for input in &doc.inputs {
        let value = report.tree(&input.value.value, input.value.at, report.units, &mut found);
        wholes.push(match found.as_slice() {
            [one] if one.usage == ReferenceUsage::Whole => Some(one.source.clone()),
            _ => None,
        });
        collect(role, std::mem::take(&mut found));
        let (env, path) = if role == TextRole::PodInput { input_destinations::of_input(input) } else { (None, None) };
        let name = input.name.value.clone();
        inputs.push(InputPlan { name, value, env, path, optional: input.optional, sensitive: false });
    }

    unique(report, "output", doc.outputs.iter().map(|output| &output.name));
    let mut answered = Vec::new();
    let outputs = doc.outputs.iter().filter_map(|output| {
        let from = match (&output.from, &doc.action) {
            (OutputFromDoc::File(path), ActionDoc::Pod(_)) => {
                input_destinations::check_path(report, path);
                OutputFrom::File(path.value.clone())
            }
            (OutputFromDoc::File(path), _) => {
                let help = "take it from the answer: `{value: \"${response.body.id}\"}`, from the object: `${object.status…}`, or from the instance: `${instance.ID}`";
                report.push(report.error("output", path.at, "only a pod has files").help(help));
                return None;
            }
            (OutputFromDoc::Value(text), ActionDoc::Pod(_)) => {
                let help = format!("let the script write a file and name it: `{}: {{file: /out/{}}}`", output.name.value, output.name.value);
                report.push(report.error("output", text.at, "an output of a pod is a file").help(help));
                return None;
            }
            (OutputFromDoc::Secret(secret), ActionDoc::Pod(_) | ActionDoc::Webhook(_) | ActionDoc::Infrakit(_)) => {
                let help = "name a pod's file with `file: /PATH`, or take a value of the answer with `value: ${…}`";
                report.push(report.error("output", secret.key.at, "only objects bring Secrets").help(help));
                return None;
            }
            (OutputFromDoc::Secret(secret), ActionDoc::Object(_)) => {
                let name = &secret.name;
                let what = format!("the Secret's name of output `{}`", output.name.value);
                let expression = match name.value.contains("${") {
                    true => report.expression(&what, name, Scope::Objects, &mut Vec::new())?,
                    // A literal name becomes a CEL string.
                    false => serde_json::Value::from(name.value.as_str()).to_string(),
                };
                OutputFrom::Secret { name: expression, key: secret.key.value.clone() }
            }
            (OutputFromDoc::Value(text), work) => {
                let what = format!("output `{}`", output.name.value);
                OutputFrom::Expression(match work {
                    ActionDoc::Webhook(_) => report.expression(&what, text, answers(report), &mut answered)?,
                    ActionDoc::Infrakit(_) => report.expression(&what, text, Scope::Instance, &mut Vec::new())?,
                    ActionDoc::Pod(_) | ActionDoc::Object(_) => {
                        report.expression(&what, text, Scope::Objects, &mut Vec::new())?
                    }
                })
            }
        };
        if output.optional && !matches!(output.from, OutputFromDoc::Value(_)) {
            let message = format!("output `{}` cannot be `optional`", output.name.value);
            let help = "only a `value` can be missing; a script can write an empty file";
            report.push(report.error("output", output.name.at, message).help(help));
        }
        let (optional, description) = (output.optional, output.description.clone());
        let sensitive = output.is_sensitive();
        let sensitive_by_default = sensitive && plugin.dialect == Dialect::Signadot;
        let plan = OutputPlan { from, sensitive, sensitive_by_default, optional, description };
        Some((output.name.value.clone(), plan))
    });
    let outputs = outputs.collect();
    uses.extend(answered.into_iter().map(|found| (TextRole::Answer, found)));
    until::check_answers(report, doc, &uses);

    let place = report.source.author(doc.name.at);
    let source = SourceLocation { file: report.source.name.clone(), line: place.line, column: place.column };
    let default = match work {
        Action::Pod(_) => POD_TIMEOUT_MS,
        _ if doc.until.is_some() => UNTIL_TIMEOUT_MS,
        _ => TIMEOUT_MS,
    };
    let plan = UnitPlan {
        key: doc.name.value.clone(),
        action: work,
        cluster: None,
        dependencies: Vec::new(),
        reads: Vec::new(),
        old_params: Vec::new(),
        when,
        inputs,
        outputs,
        undoes: Vec::new(),
        ordered_after: Vec::new(),
        stage: None,
        unless: Vec::new(),
        verifies: doc.verifies.is_some(),
        evidence: None,
        timeout_ms: doc.timeout.map_or(default, |timeout| timeout.0),
        retry: retry(report, doc, hook),
        source,
    };
    CompiledUnit { doc, hook, plan, cluster, uses, wholes, after: Vec::new(), undoes: Vec::new() }
}

fn limits(report: &mut DiagnosticCollector, doc: &UnitDoc) {
    let at = doc.name.at;
    for (count, what) in [(doc.inputs.len(), "inputs"), (doc.outputs.len(), "outputs")] {
        if count > MAX_INPUTS {
            let message = format!("`{}` has {count} {what}; the limit is {MAX_INPUTS}", doc.name.value);
            report.push(report.error("limit", at, message).help("hand on one file, or split the unit"));
        }
    }
    if let Some(timeout) = doc.timeout.map(|timeout| timeout.0)
        && !(1..=MAX_TIMEOUT_MS).contains(&timeout)
    {
        let message =
            format!("`{}` has a timeout of {}; it must be above 0 and at most 24h", doc.name.value, Millis(timeout));
        report.push(report.error("limit", at, message));
    }
    if let ActionDoc::Webhook(webhook) = &doc.action {
        max_processing_time(report, doc, webhook);
    }
}

/// Compiles `ready` or `fail` of objects: one text, or a list with an entry for each manifest.
fn conditions(
    report: &mut DiagnosticCollector,
    what: &str,
    written: &At<TemplateTree>,
    manifest: &At<TemplateTree>,
) -> Option<ManifestConditions> {
    let TemplateTree::List(entries) = &written.value else {
        return condition(report, what, written).map(ManifestConditions::First);
    };
    let expected = match &manifest.value {
        TemplateTree::List(manifests) => manifests.len(),
        _ => 1,
    };
    if entries.len() != expected {
        let message = format!("{what} is a list of {}; expected {expected}, one for each manifest", entries.len());
        let help = "keep the order of the manifests, and write `null` for one that is judged by its kind";
        report.push(report.error("contradiction", written.at, message).help(help));
    }
    let entries = entries.iter().map(|entry| match &entry.value {
        TemplateTree::Scalar(serde_json::Value::Null) => None,
        _ => condition(report, what, entry),
    });
    Some(ManifestConditions::Each(entries.collect()))
}

fn condition(report: &mut DiagnosticCollector, what: &str, written: &At<TemplateTree>) -> Option<String> {
    let TemplateTree::Text(text) = &written.value else {
        let message = format!("{what} must be a text with an expression over `object`, or a list of such texts");
        report.push(report.error("wrong-type", written.at, message).help("such as `${object.status.ready}`"));
        return None;
    };
    let text = At { value: text.clone(), at: written.at };
    report.expression(what, &text, Scope::Object, &mut Vec::new())
}

/// Rejects `failFast` of a unit without objects.
fn fail_fast(report: &mut DiagnosticCollector, doc: &UnitDoc) {
    let help = match (&doc.fail_fast, &doc.action) {
        (None, _) | (_, ActionDoc::Object(_)) => return,
        (Some(_), ActionDoc::Pod(_)) => {
            "leave it out: a pod that cannot start fails after `podStartTimeoutSeconds` of its relay"
        }
        (Some(_), ActionDoc::Webhook(_)) => "leave it out: `failed` of `until` ends a wait early",
        (Some(_), ActionDoc::Infrakit(_)) => "leave it out: a plugin of InfraKit reports its failures itself",
    };
    let at = doc.fail_fast.as_ref().map_or(doc.name.at, |fails| fails.at);
    let message = format!("`{}` has `failFast`, which only a unit with `object` may have", doc.name.value);
    report.push(report.error("fail-fast", at, message).help(help));
}

/// Checks `maxProcessingTime` of a webhook. A response 404 of the `describe` URL is final only after that time, and the
/// unit ends at its timeout.
fn max_processing_time(report: &mut DiagnosticCollector, doc: &UnitDoc, webhook: &WebhookDoc) {
    let name = &doc.name.value;
    let time = webhook.max_processing_time.map(|time| time.0);
    if let Some(time) = time
        && time > MAX_TIMEOUT_MS
    {
        let message = format!("`{name}` has a `maxProcessingTime` of {}; it must be at most 24h", Millis(time));
        report.push(report.error("limit", doc.name.at, message));
    }
    let timeout =
        doc.timeout.map_or(if doc.until.is_some() { UNTIL_TIMEOUT_MS } else { TIMEOUT_MS }, |timeout| timeout.0);
    let Some(describe) = &webhook.describe else { return };
    let at = describe.url.as_ref().or(describe.path.as_ref()).map_or(doc.name.at, |url| url.at);
    if webhook.method == WebhookMethod::Delete {
        let help = "a repeated `DELETE` is harmless: leave out `describe` and `idempotent: false`";
        report.push(report.error("contradiction", at, "`describe` does not fit a `DELETE`").help(help));
    } else if webhook.idempotent != Some(false) {
        let help = "a request that is idempotent is sent again instead";
        report.push(report.error("contradiction", at, "`describe` needs `idempotent: false`").help(help));
    } else if time.unwrap_or(timeout) >= timeout {
        let message = format!(
            "`describe` needs a `maxProcessingTime` below the timeout of `{name}`, which is {}",
            Millis(timeout)
        );
        let help = "set `maxProcessingTime` to the longest time for which the receiver processes a request";
        report.push(report.error("limit", at, message).help(help));
    }
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
    for class in &given.on {
        let name = class.value.0.as_str();
        let status = name.len() == 3 && name.parse::<u16>().is_ok_and(|status| (400..600).contains(&status));
        if !status && !RETRY_CLASSES.contains(&name) {
            let message = format!("`{name}` is not a failure class that can be retried");
            let help = match expr::nearest(name, RETRY_CLASSES) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("there is `{}`, and a status such as 503", RETRY_CLASSES.join("`, `")),
            };
            report.push(report.error("retry", class.at, message).help(help));
        }
    }
    let on = given.on.into_iter().map(|class| class.value.0).collect();
    RetryPolicy { attempts: tries, backoff_ms, max_backoff_ms, on }
}

/// Checks that the name and the namespace of an object of `bind` follow from the target.
fn check_bound_place(report: &mut DiagnosticCollector, reads: &[ExpressionRead<'_>]) {
    for found in reads.iter().filter(|found| !matches!(found.source, expr::ReferenceSource::Target(_))) {
        let message = format!("the place of a bound object cannot depend on `{}`", found.source);
        let help = "write name and namespace literally, or with `${target.…}`";
        report.push(report.error_in("bind", &found.spot, message).help(help));
    }
}

/// Checks a manifest: `apiVersion` and `kind` are literal, and the namespace does not depend on inputs.
fn check_manifest(report: &mut DiagnosticCollector, manifest: &At<TemplateTree>) {
    let TemplateTree::Map(_) = &manifest.value else {
        let message = "a manifest is a mapping with `apiVersion`, `kind` and `metadata`";
        let help = "write it as YAML here, or embed it with `@{embed[yaml]: FILE}`";
        return report.push(report.error("manifest", manifest.at, message).help(help));
    };
    for key in ["apiVersion", "kind"] {
        match manifest.value.get(key).map(|value| (value.at, &value.value)) {
            Some((at, TemplateTree::Text(text))) if text.contains("${") => {
                let wrong = report.error("manifest", at, format!("`{key}` must be literal"));
                report.push(wrong.help("what is made must not depend on inputs"));
            }
            Some((_, TemplateTree::Text(text))) if !text.is_empty() => {}
            _ => {
                let wrong = report.error("manifest", manifest.at, format!("the manifest has no `{key}`"));
                report.push(wrong.help(format!("add `{key}:`, a text")));
            }
        }
    }
    let metadata = manifest.value.get("metadata").map(|metadata| &metadata.value);
    if metadata.is_none_or(|metadata| metadata.get("name").is_none()) {
        let wrong = report.error("manifest", manifest.at, "the manifest has no `metadata.name`");
        report.push(wrong.help("such as `name: \"cache-${target.key}\"`"));
    }
    if let Some(namespace) = metadata.and_then(|metadata| metadata.get("namespace")) {
        let mut used = Vec::new();
        // A separate collector discards the errors, because they are reported with the rest of the manifest.
        DiagnosticCollector::new(&report.source, &report.steps).strings(namespace, report.units, &mut used);
        if used.iter().any(|found| !matches!(found.source, expr::ReferenceSource::Target(_))) {
            let help = "write it literally, or `${target.namespace}`";
            report.push(report.error("manifest", namespace.at, "an input cannot choose the namespace").help(help));
        }
    }
}
