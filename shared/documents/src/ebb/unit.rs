//! Units: what they run, read and give.

use super::inner;
use crate::compile::defaults::{MAX_ATTEMPTS, RETRY_CLASSES};
use crate::load::names::NameSyntax;
use crate::load::reader::{DocumentReader, MapReader};
use crate::load::yaml::{YamlNode, YamlValue};
use crate::model::{ActionDoc, At, InputDoc, LineColumn, OutputDoc, OutputFromDoc, RetryDoc, UnitDoc};

pub(crate) const KEYS: [&str; 12] = [
    "pod", "webhook", "object", "cluster", "when", "after", "undoes", "cleanup", "timeout", "retry", "inputs",
    "outputs",
];
/// The values of `cleanup`.
const CLEANUP: [&str; 1] = ["none"];
pub(crate) const KINDS: [&str; 3] = ["pod", "webhook", "object"];
pub(crate) const POD: [&str; 2] = ["runner", "script"];
pub(crate) const WEBHOOK: [&str; 7] =
    ["url", "method", "headers", "body", "maxProcessingTime", "idempotent", "describe"];
pub(crate) const DESCRIBE: [&str; 1] = ["url"];
pub(crate) const OBJECT: [&str; 3] = ["manifest", "ready", "fail"];
pub(crate) const INPUT: [&str; 3] = ["value", "env", "path"];
pub(crate) const OUTPUT: [&str; 5] = ["file", "value", "secret", "sensitive", "description"];
pub(crate) const SECRET: [&str; 2] = ["name", "key"];
pub(crate) const RETRY: [&str; 4] = ["attempts", "backoff", "maxBackoff", "on"];
const METHODS: [&str; 5] = ["POST", "PUT", "PATCH", "DELETE", "GET"];

/// `timeout` and `retry` of a unit, or of `defaults`.
#[derive(Clone, Debug, Default)]
pub(super) struct UnitLimits {
    timeout_ms: Option<u64>,
    retry: Option<RetryDoc>,
}

pub(super) fn unit(
    reader: &mut DocumentReader<'_>,
    name: At<String>,
    node: &YamlNode,
    path: &str,
    defaults: &UnitLimits,
) -> Option<UnitDoc> {
    let map = reader.map(node, path, &KEYS)?;
    let cluster = map.get("cluster").and_then(|node| reader.text(node, &map.below("cluster")));
    let when = map.get("when").and_then(|node| reader.text(node, &map.below("when")));
    let after = map.get("after").map(|node| reader.names(node, &map.below("after"))).unwrap_or_default();
    let undoes = map.get("undoes").map(|node| reader.names(node, &map.below("undoes")));
    let leaves_nothing = cleanup(reader, &map);
    let own = limits(reader, &map);
    let kind = kind(reader, &map, &name);
    let inputs = inputs(reader, &map, kind);
    let outputs = outputs(reader, &map, kind);
    let work = match kind? {
        "pod" => pod(reader, &map),
        "webhook" => webhook(reader, &map),
        _ => object(reader, &map),
    };
    Some(UnitDoc {
        name,
        action: work?,
        cluster,
        when,
        after,
        undoes,
        leaves_nothing,
        inputs,
        outputs,
        timeout_ms: own.timeout_ms.or(defaults.timeout_ms),
        retry: merged(own.retry, defaults.retry.as_ref()),
    })
}

/// Returns whether the unit declares that nothing has to be undone.
fn cleanup(reader: &mut DocumentReader<'_>, map: &MapReader<'_>) -> bool {
    let Some(text) = reader.optional_string(map, "cleanup") else { return false };
    let known = CLEANUP.contains(&text.value.as_str());
    if !known {
        let wrong = reader.wrong("unknown-value", text.at, format!("`cleanup` cannot be `{}`", text.value));
        reader.note_near(wrong, &text.value, CLEANUP);
    }
    known
}

/// The one kind that the unit has.
fn kind(reader: &mut DocumentReader<'_>, map: &MapReader<'_>, name: &At<String>) -> Option<&'static str> {
    let given: Vec<_> = KINDS.into_iter().filter_map(|kind| map.entry(kind).map(|(key, _)| (kind, key.at))).collect();
    match given.as_slice() {
        [(kind, _)] => Some(kind),
        [] => {
            let wrong =
                reader.wrong("unit-kind", name.at, format!("the unit `{}` does not say what it runs", name.value));
            reader.note(wrong.help("add one of `pod:`, `webhook:` and `object:`"));
            None
        }
        [(first, first_at), (second, at), ..] => {
            let wrong = reader
                .wrong("unit-kind", *at, format!("the unit `{}` is a {first} and a {second}", name.value))
                .help("make two units of it")
                .related(*first_at, "the first kind");
            reader.note(wrong);
            None
        }
    }
}

pub(super) fn limits(reader: &mut DocumentReader<'_>, map: &MapReader<'_>) -> UnitLimits {
    let timeout_ms = map.get("timeout").and_then(|node| reader.duration(node, &map.below("timeout")));
    let retry = map.get("retry").and_then(|node| retry(reader, node, &map.below("retry")));
    UnitLimits { timeout_ms, retry }
}

fn retry(reader: &mut DocumentReader<'_>, node: &YamlNode, path: &str) -> Option<RetryDoc> {
    let map = reader.map(node, path, &RETRY)?;
    let attempts = reader.integer(&map, "attempts", 1, u64::from(MAX_ATTEMPTS)).and_then(|n| u32::try_from(n).ok());
    let backoff_ms = map.get("backoff").and_then(|node| reader.duration(node, &map.below("backoff")));
    let max_backoff_ms = map.get("maxBackoff").and_then(|node| reader.duration(node, &map.below("maxBackoff")));
    if let (Some(first), Some(most), Some(node)) = (backoff_ms, max_backoff_ms, map.get("backoff"))
        && first > most
    {
        let wrong = reader.wrong("contradiction", node.at, "`backoff` is longer than `maxBackoff`");
        reader.note(wrong.help("`backoff` bounds the first wait, `maxBackoff` every wait"));
    }
    let mut on = Vec::new();
    if let Some(items) = map.get("on").and_then(|node| reader.list(node, &map.below("on"))) {
        for item in items {
            on.extend(class(reader, item, &map.below("on")));
        }
    }
    Some(RetryDoc { attempts, backoff_ms, max_backoff_ms, on })
}

fn class(reader: &mut DocumentReader<'_>, node: &YamlNode, path: &str) -> Option<At<String>> {
    let text = match &node.value {
        YamlValue::String(text) => text.clone(),
        YamlValue::Number(number) => number.to_string(),
        _ => {
            reader.wrong_type(node, path, "a failure class");
            return None;
        }
    };
    let status = text.len() == 3 && text.parse::<u16>().is_ok_and(|status| (400..600).contains(&status));
    if !status && !RETRY_CLASSES.contains(&text.as_str()) {
        let wrong = reader.wrong("unknown-value", node.at, format!("there is no failure class `{text}`"));
        reader.note_near(wrong, &text, RETRY_CLASSES);
        return None;
    }
    Some(At { value: text, at: node.at })
}

/// A unit's own parts first, then those of `defaults`.
fn merged(own: Option<RetryDoc>, defaults: Option<&RetryDoc>) -> Option<RetryDoc> {
    let Some(own) = own else { return defaults.cloned() };
    let Some(defaults) = defaults else { return Some(own) };
    Some(RetryDoc {
        attempts: own.attempts.or(defaults.attempts),
        backoff_ms: own.backoff_ms.or(defaults.backoff_ms),
        max_backoff_ms: own.max_backoff_ms.or(defaults.max_backoff_ms),
        on: if own.on.is_empty() { defaults.on.clone() } else { own.on },
    })
}

fn pod(reader: &mut DocumentReader<'_>, map: &MapReader<'_>) -> Option<ActionDoc> {
    let pod = reader.map(map.get("pod")?, &map.below("pod"), &POD)?;
    let runner = reader.optional_string(&pod, "runner");
    let script = reader.required_string(&pod, "script")?;
    reader.check_script(&script);
    Some(ActionDoc::Pod { runner, script })
}

fn webhook(reader: &mut DocumentReader<'_>, map: &MapReader<'_>) -> Option<ActionDoc> {
    let webhook = reader.map(map.get("webhook")?, &map.below("webhook"), &WEBHOOK)?;
    let method = reader.optional_string(&webhook, "method");
    if let Some(method) = &method
        && !METHODS.contains(&method.value.as_str())
    {
        let wrong = reader.wrong("unknown-value", method.at, format!("there is no method `{}`", method.value));
        reader.note_near(wrong, &method.value, METHODS);
    }
    let mut headers = Vec::new();
    if let Some(node) = webhook.get("headers") {
        let path = webhook.below("headers");
        for (key, value) in reader.entries(node, &path).unwrap_or_default() {
            let name = super::named(key);
            let token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
            if name.value.is_empty() || !name.value.chars().all(token) {
                let wrong = reader.wrong("bad-name", name.at, format!("`{}` is no header name", name.value));
                reader.note(wrong.help("letters, digits and `-`"));
            }
            if let Some(text) = reader.text(value, &inner(&path, &name)) {
                headers.push((name, text));
            }
        }
    }
    let body = webhook.get("body").map(super::tree);
    let url = reader.required_string(&webhook, "url")?;
    let url = At { value: crate::model::TemplateText::Template(url.value), at: url.at };
    let max_processing_time_ms =
        webhook.get("maxProcessingTime").and_then(|node| reader.duration(node, &webhook.below("maxProcessingTime")));
    let idempotent = match webhook.get("idempotent") {
        Some(_) => reader.flag(&webhook, "idempotent")?,
        None => true,
    };
    let describe = describe(reader, &webhook);
    if let (true, Some(describe)) = (idempotent, &describe) {
        let wrong = reader.wrong("contradiction", describe.at, "`describe` needs `idempotent: false`");
        reader.note(wrong.help("a request that is idempotent is sent again instead"));
    }
    Some(ActionDoc::Webhook { method, url, headers, body, max_processing_time_ms, idempotent, describe })
}

/// The URL that tells what a request with an unknown outcome has made.
fn describe(reader: &mut DocumentReader<'_>, webhook: &MapReader<'_>) -> Option<At<crate::model::TemplateText>> {
    let describe = reader.map(webhook.get("describe")?, &webhook.below("describe"), &DESCRIBE)?;
    let url = reader.required_string(&describe, "url")?;
    Some(At { value: crate::model::TemplateText::Template(url.value), at: url.at })
}

fn object(reader: &mut DocumentReader<'_>, map: &MapReader<'_>) -> Option<ActionDoc> {
    let object = reader.map(map.get("object")?, &map.below("object"), &OBJECT)?;
    let ready = object.get("ready").and_then(|node| reader.text(node, &object.below("ready")));
    let fail = object.get("fail").and_then(|node| reader.text(node, &object.below("fail")));
    let node = reader.required(&object, "manifest")?;
    let path = object.below("manifest");
    if let YamlValue::String(_) = node.value {
        let wrong = reader.wrong("wrong-type", node.at, format!("`{path}` is a string, a mapping is wanted"));
        reader.note(wrong.help("write it as YAML here, or embed it with `@{embed[yaml]: FILE}`"));
        return None;
    }
    let manifests = match &node.value {
        YamlValue::List(items) => items.as_slice(),
        _ => std::slice::from_ref(node),
    };
    for manifest in manifests {
        let manifest = reader.any_map(manifest, &path)?;
        for key in ["apiVersion", "kind"] {
            reader.required_string(&manifest, key);
        }
    }
    Some(ActionDoc::Object { manifest: super::tree(node), ready, fail })
}

fn inputs(reader: &mut DocumentReader<'_>, map: &MapReader<'_>, kind: Option<&str>) -> Vec<InputDoc> {
    let Some(node) = map.get("inputs") else { return Vec::new() };
    let path = map.below("inputs");
    let mut inputs: Vec<InputDoc> = Vec::new();
    for (name, node) in reader.named(node, &path, "the input's name", NameSyntax::Ours) {
        let path = inner(&path, &name);
        let Some(input) = input(reader, name, node, &path) else { continue };
        if kind.is_some_and(|kind| kind != "pod") {
            for door in [&input.env, &input.path].into_iter().flatten() {
                let wrong = reader.wrong("not-a-pod", door.at, "only a pod's inputs go to a variable or a file");
                reader.note(wrong.help("leave the value alone"));
            }
        }
        if let Some(env) = variable(&input).filter(|_| kind == Some("pod"))
            && (env.value.starts_with("EBB_") || env.value.starts_with("SIGNADOT_"))
        {
            let wrong = reader.wrong("reserved-name", env.at, format!("the variable `{}` is reserved", env.value));
            reader.note(wrong.help("choose a name that begins with neither `EBB_` nor `SIGNADOT_`"));
        }
        let clash = inputs.iter().find_map(|other| clash(&input, other));
        if let Some((at, first, message)) = clash {
            let wrong = reader
                .wrong("duplicate-name", at, message)
                .help("give one of them another")
                .related(first, "first here");
            reader.note(wrong);
        }
        inputs.push(input);
    }
    inputs
}

/// The variable that an input goes to: with neither `env` nor `path` that of its name.
fn variable(input: &InputDoc) -> Option<At<String>> {
    match (&input.env, &input.path) {
        (Some(env), _) => Some(env.clone()),
        (None, None) => Some(At { value: input.name.value.to_uppercase().replace('-', "_"), at: input.name.at }),
        (None, Some(_)) => None,
    }
}

/// Where two inputs would be written to the same place.
fn clash(new: &InputDoc, old: &InputDoc) -> Option<(LineColumn, LineColumn, String)> {
    let same = |new: Option<At<String>>, old: Option<At<String>>, what: &str| match (new, old) {
        (Some(new), Some(old)) if new.value == old.value => {
            Some((new.at, old.at, format!("two inputs go to the {what} `{}`", new.value)))
        }
        _ => None,
    };
    same(variable(new), variable(old), "variable").or_else(|| same(new.path.clone(), old.path.clone(), "file"))
}

fn input(reader: &mut DocumentReader<'_>, name: At<String>, node: &YamlNode, path: &str) -> Option<InputDoc> {
    let plain = |value| InputDoc { name: name.clone(), value, env: None, path: None, optional: false };
    match &node.value {
        YamlValue::Map(_) => {}
        YamlValue::List(_) => {
            reader.wrong_type(node, path, "a value, or a mapping with `value`");
            return None;
        }
        _ => return Some(plain(super::tree(node))),
    }
    let map = reader.map(node, path, &INPUT)?;
    let env = reader.optional_string(&map, "env");
    if let Some(env) = &env {
        reader.check_name(env, "the environment variable", NameSyntax::Environment, 255);
    }
    let file = reader.optional_string(&map, "path");
    if let Some(file) = &file {
        reader.check_path(file);
    }
    let value = super::tree(reader.required(&map, "value")?);
    Some(InputDoc { env, path: file, ..plain(value) })
}

fn outputs(reader: &mut DocumentReader<'_>, map: &MapReader<'_>, kind: Option<&str>) -> Vec<OutputDoc> {
    let Some(node) = map.get("outputs") else { return Vec::new() };
    let path = map.below("outputs");
    let named = reader.named(node, &path, "the output's name", NameSyntax::Ours);
    named.into_iter().filter_map(|(name, node)| output(reader, name, node, &path, kind)).collect()
}

fn output(
    reader: &mut DocumentReader<'_>,
    name: At<String>,
    node: &YamlNode,
    path: &str,
    kind: Option<&str>,
) -> Option<OutputDoc> {
    let map = reader.map(node, &inner(path, &name), &OUTPUT)?;
    let mut sensitive = reader.flag(&map, "sensitive");
    let description = reader.optional_string(&map, "description").map(|text| text.value);
    let right = match kind {
        Some("pod") => "`file: /PATH`",
        Some("object") => "`value: ${…}` or `secret: {name: …, key: …}`",
        _ => "`value: ${…}`",
    };
    if let Some((key, node)) = map.entry("secret") {
        let other = map.entry("file").or(map.entry("value"));
        if kind.is_some_and(|kind| kind != "object") {
            let wrong = reader.wrong("output-source", key.at, "only objects bring Secrets");
            reader.note(wrong.help(format!("write {right}")));
            return None;
        }
        if let Some((_, _)) = other {
            let wrong = reader.wrong("output-source", key.at, format!("the output `{}` has two sources", name.value));
            reader.note(wrong.help("leave one of `secret` and `value`"));
            return None;
        }
        let from = secret(reader, node, &map.below("secret"))?;
        // What is in a Secret is there for a reason: it is shown only where a document says so.
        if map.entry("sensitive").is_none() {
            sensitive = Some(true);
        }
        return Some(OutputDoc { name, from, sensitive: sensitive?, description });
    }
    let from = match (map.entry("file"), map.entry("value")) {
        (Some((key, _)), None) if kind.is_some_and(|kind| kind != "pod") => {
            let wrong = reader.wrong("output-source", key.at, "only a pod has files");
            reader.note(wrong.help(format!("write {right}")));
            return None;
        }
        (None, Some((key, _))) if kind == Some("pod") => {
            let wrong = reader.wrong("output-source", key.at, "a pod's outputs are files");
            reader.note(wrong.help(format!("write {right}, and let the script write the file")));
            return None;
        }
        (Some((_, node)), None) => {
            let file = reader.string(node, &map.below("file"))?;
            reader.check_path(&file);
            OutputFromDoc::File(file)
        }
        (None, Some((_, node))) => OutputFromDoc::Value(reader.text(node, &map.below("value"))?),
        (Some(_), Some((key, _))) => {
            let wrong = reader.wrong("output-source", key.at, format!("the output `{}` has two sources", name.value));
            reader.note(wrong.help("leave one of `file` and `value`"));
            return None;
        }
        (None, None) => {
            let wrong = reader.wrong("output-source", name.at, format!("the output `{}` has no source", name.value));
            reader.note(wrong.help(format!("add {right}")));
            return None;
        }
    };
    Some(OutputDoc { name, from, sensitive: sensitive?, description })
}

fn secret(reader: &mut DocumentReader<'_>, node: &YamlNode, path: &str) -> Option<OutputFromDoc> {
    let map = reader.map(node, path, &SECRET)?;
    let (name, key) = (reader.required(&map, "name"), reader.required_string(&map, "key"));
    Some(OutputFromDoc::Secret { name: reader.text(name?, &map.below("name"))?, key: key? })
}
