//! Tables of requests and their answers, in YAML files beside the tests. The rows of a test are sent in their order.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::harness::*;

/// The rows of a test, its plugins with the rest of their documents, and its tokens with their scopes. `RECEIVER` stands for
/// the URL of the receiver.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RequestTable {
    #[serde(default)]
    plugins: BTreeMap<String, Value>,
    #[serde(default)]
    tokens: BTreeMap<String, Vec<String>>,
    rows: Vec<Value>,
}

/// A request to the API (`send`), a lifecycle webhook (`event`), a callback of a request that the receiver got (`callback`), a
/// wait for a target (`wait`), statuses or bodies with which the receiver answers from now on (`reply`), or the numbers of its
/// requests (`counts`).
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TableRow {
    /// Method and path, such as `GET /v1/targets`.
    send: Option<String>,
    /// Type and name, such as `created a`. A type without a document is an event of the target, such as `sleep`.
    event: Option<String>,
    /// The line of a request of a unit, such as `POST /make`.
    callback: Option<String>,
    /// The name of a sandbox.
    wait: Option<String>,
    #[serde(default)]
    reply: BTreeMap<String, Value>,
    #[serde(default)]
    counts: BTreeMap<String, usize>,
    /// A token of the table, or the text of another one. Without it, the operator sends the request.
    by: Option<String>,
    /// The body of a request or callback, or `document` and `plugin` of an event.
    body: Option<Value>,
    /// The UID of an event. The default is `NAME-uid`.
    uid: Option<String>,
    generation: Option<u64>,
    routing_key: Option<String>,
    /// The status of the answer, and the code of a problem.
    is: Option<Value>,
    /// Texts that the answer has.
    #[serde(default)]
    has: Vec<String>,
    #[serde(default)]
    lacks: Vec<String>,
    /// Values of the answer by JSON pointer. A missing one is null if its parent exists. An entry of a list has its number,
    /// `name`, `unit`, `hook` or `path`.
    #[serde(default)]
    json: BTreeMap<String, Value>,
    /// Texts that values of the answer contain, by JSON pointer.
    #[serde(default)]
    parts: BTreeMap<String, String>,
    /// Sends the request again until it has its answer.
    #[serde(default)]
    until: bool,
    /// The names of the listed targets or runs.
    names: Option<String>,
    /// Names for values of the answer, which the next rows contain.
    #[serde(default)]
    keep: BTreeMap<String, String>,
    /// The phase of the sandbox after the wait.
    phase: Option<TargetPhase>,
    /// Waits until the runs of the gone sandbox are closed.
    #[serde(default)]
    settled: bool,
    /// Waits until the platform has these notifications, each with its type and with values of its data.
    #[serde(default)]
    notified: Vec<(String, BTreeMap<String, Value>)>,
}

/// Returns a part of a file in the folder of the tests, with the values of the names.
pub(crate) fn table<T: DeserializeOwned>(file: &str, test: &str, names: &[(&str, &str)]) -> T {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(file);
    let text = std::fs::read_to_string(path).unwrap();
    let text = names.iter().fold(text, |text, (name, value)| text.replace(name, value));
    let mut tables: BTreeMap<String, Value> = serde_saphyr::from_str(&text).unwrap();
    let part = tables.remove(test).unwrap_or_else(|| panic!("{file} has no {test}"));
    serde_json::from_value(part).unwrap_or_else(|error| panic!("{test} of {file}: {error}"))
}

/// Sends the rows of a test.
pub(crate) async fn play(harness: &Harness, file: &str, test: &str, names: &[(&str, &str)]) {
    let receiver = [("RECEIVER", harness.receiver.url())];
    let RequestTable { plugins, tokens, rows } = table(file, test, &[names, &receiver].concat());
    for (name, mut plugin) in plugins {
        (plugin["kind"], plugin["name"]) = (json!("Plugin"), json!(name));
        harness.post("/v1/plugins", completed(json!({"document": plugin}))).await.is(201);
    }
    let mut callers = BTreeMap::new();
    for (name, scopes) in tokens {
        let scopes: Vec<&str> = scopes.iter().map(String::as_str).collect();
        let token = harness.token(&name, &scopes).await;
        callers.insert(name, token);
    }
    let mut kept = Vec::<(String, String)>::new();
    for row in rows {
        let text = kept.iter().fold(row.to_string(), |text, (name, value)| text.replace(name, value));
        let row: TableRow = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{test}: {error}: {text}"));
        row.assert_is_checked(test);
        for (line, reply) in &row.reply {
            let status = reply.as_u64().map(|status| CannedReply::status(u16::try_from(status).unwrap()));
            harness.receiver.always(line, status.unwrap_or_else(|| CannedReply::ok(reply.clone())));
        }
        if let Some(name) = &row.wait {
            row.await_target(harness, name).await;
        }
        for (line, count) in &row.counts {
            assert_eq!(harness.receiver.count(line), *count, "{test}: {line}");
        }
        let Some(mut reply) = row.answer(harness, &callers).await else { continue };
        if row.until {
            until(&format!("{test}: {row:?}"), async || {
                reply = row.answer(harness, &callers).await?;
                row.check(&reply).ok()
            })
            .await;
        }
        row.check(&reply).unwrap_or_else(|difference| panic!("{test}: {difference}: {row:?}\n{reply:?}"));
        for (name, pointer) in &row.keep {
            let value = part(&reply.json(), pointer).as_str().map(str::to_owned);
            kept.push((name.clone(), value.unwrap_or_else(|| panic!("{test}: no text {pointer}: {reply:?}"))));
        }
    }
}

/// Returns a value by its pointer.
fn part(value: &Value, pointer: &str) -> Value {
    let found = pointer.split('/').skip(1).try_fold(value, |value, key| {
        let key = key.replace("~1", "/");
        let is_named =
            |entry: &&Value| ["name", "unit", "hook", "path"].iter().any(|field| entry[field] == key.as_str());
        match value {
            Value::Array(entries) => match key.parse::<usize>() {
                Ok(at) => entries.get(at),
                Err(_) => entries.iter().find(is_named),
            },
            value => value.get(&key),
        }
    });
    found.cloned().unwrap_or_default()
}

/// Returns the first value that differs or has no parent, if there is one.
fn differs(value: &Value, expected: &BTreeMap<String, Value>) -> Result<(), String> {
    for (pointer, expected) in expected {
        let (parent, found) = (pointer.rsplit_once('/').map_or("", |(parent, _)| parent), part(value, pointer));
        if found != *expected {
            return Err(format!("{pointer} is {found}"));
        }
        if part(value, parent).is_null() {
            return Err(format!("{pointer} has no parent"));
        }
    }
    Ok(())
}

impl TableRow {
    /// Panics if nothing would check a part of the row.
    fn assert_is_checked(&self, test: &str) {
        let Self { send, event, callback, wait, uid, generation, .. } = self;
        let of_wait = self.phase.is_some() || self.settled || !self.notified.is_empty();
        assert!(wait.is_some() || !of_wait, "{test}: {self:?} has no `wait`");
        let texts = self.has.len() + self.lacks.len() + self.json.len() + self.parts.len() + self.keep.len();
        let of_answer = self.is.is_some() || self.names.is_some() || self.until || texts > 0;
        let has_answer = send.is_some() || event.is_some() || callback.is_some();
        assert!(has_answer || !of_answer, "{test}: {self:?} has no request");
        let of_instance = uid.is_some() || generation.is_some();
        assert!(wait.is_some() || event.is_some() || !of_instance, "{test}: {self:?} is for no instance");
    }

    async fn await_target(&self, harness: &Harness, name: &str) {
        if let Some(generation) = self.generation {
            harness.generation(name, generation).await;
        }
        if let Some(uid) = &self.uid {
            harness.instance_is_ready(name, uid).await;
        }
        if let Some(phase) = self.phase {
            harness.phase(name, phase).await;
        }
        if self.settled {
            harness.settled(name).await;
        }
        if !self.notified.is_empty() {
            let types: Vec<&str> = self.notified.iter().map(|(notified, _)| notified.as_str()).collect();
            let notified = harness.notified(name, &types).await;
            for (data, (_, expected)) in notified.iter().zip(&self.notified) {
                differs(data, expected).unwrap_or_else(|difference| panic!("{difference}: {data}"));
            }
        }
    }

    /// Sends the request of the row, if it has one.
    async fn answer(&self, harness: &Harness, callers: &BTreeMap<String, String>) -> Option<ApiReply> {
        if let Some(line) = &self.send {
            let operator = harness.stack().token();
            let caller = self.by.as_ref().map_or(operator, |by| callers.get(by).unwrap_or(by).as_str());
            return Some(harness.with_token(caller, line, self.body.clone().map(completed)).await);
        }
        if let Some(line) = &self.callback {
            let number = harness.receiver.count(line).max(1);
            let call = harness.receiver.call(line, number).await;
            return Some(harness.callback(call.token(), self.body.as_ref().unwrap()).await);
        }
        let event = self.event.as_ref()?;
        Some(self.lifecycle(harness, event).await)
    }

    async fn lifecycle(&self, harness: &Harness, event: &str) -> ApiReply {
        let (event_type, name) = event.split_once(' ').unwrap();
        let (event_type, event) = match event_type {
            "created" => (LifecycleType::Created, None),
            "updated" => (LifecycleType::Updated, None),
            "deleted" => (LifecycleType::Deleted, None),
            event => (LifecycleType::Event, Some(event.to_owned())),
        };
        let document = self.body.clone().map(|mut body| {
            body["name"] = json!(name);
            completed(body)["document"].as_str().unwrap().to_owned()
        });
        let data = LifecycleData {
            generation: self.generation.unwrap_or(1),
            document,
            event,
            routing_key: self.routing_key.clone(),
            ..sandbox(name, self.uid.as_ref().unwrap_or(&format!("{name}-uid")), "none")
        };
        harness.lifecycle(event_type, &data).await
    }

    fn check(&self, reply: &ApiReply) -> Result<(), String> {
        let expected = self.is.as_ref().ok_or("no answer is expected")?;
        let expected = expected.as_str().map_or_else(|| expected.to_string(), str::to_owned);
        let (status, code) = expected.split_once(' ').unwrap_or((expected.as_str(), ""));
        if reply.status.to_string() != status {
            return Err(format!("the status is {}", reply.status));
        }
        if !code.is_empty() {
            reply.is_problem(reply.status, code);
        }
        if let Some(text) = self.has.iter().find(|text| !reply.body.contains(*text)) {
            return Err(format!("{text:?} is missing"));
        }
        if let Some(text) = self.lacks.iter().find(|text| reply.body.contains(*text)) {
            return Err(format!("{text:?} is in the answer"));
        }
        let is_part = |pointer: &str, text: &str| part(&reply.json(), pointer).to_string().contains(text);
        if let Some((pointer, text)) = self.parts.iter().find(|(pointer, text)| !is_part(pointer, text)) {
            return Err(format!("{pointer} has no {text:?}"));
        }
        if let Some(names) = &self.names {
            let body: Value = reply.json();
            let listed = body["targets"].as_array().or(body["runs"].as_array()).ok_or("the answer has no list")?;
            let listed: Vec<&str> = listed.iter().filter_map(|entry| entry["name"].as_str()).collect();
            if listed.join(" ") != *names {
                return Err(format!("the list has {listed:?}"));
            }
        }
        if self.json.is_empty() { Ok(()) } else { differs(&reply.json(), &self.json) }
    }
}

/// Makes a text of a document that is a mapping. Without a kind, it is a sandbox with the name of the body and with a
/// resource `r` of `plugin`, if there is one.
pub(crate) fn completed(mut body: Value) -> Value {
    let Some(rest) = body["document"].as_object().cloned() else { return body };
    let mut document = json!({"apiVersion": "ebb.dev/v1"});
    if !rest.contains_key("kind") {
        document["kind"] = json!("Sandbox");
        document["name"] = body["name"].clone();
        body["kind"] = json!("sandbox");
        if let Some(plugin) = body.as_object_mut().and_then(|body| body.remove("plugin")) {
            document["resources"] = json!({"r": {"plugin": plugin}});
        }
    }
    document.as_object_mut().unwrap().extend(rest);
    body["document"] = json!(document.to_string());
    body
}
