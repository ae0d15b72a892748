//! Tables of requests and their answers, in YAML files beside the tests. The rows of a test are sent in their order.

mod expected_values;
mod minted_tokens;
mod receiver_rows;
mod stored_state;
mod table_requests;

use std::net::Ipv4Addr;
use std::os::unix::net::UnixListener;

use anyhow::{Context as _, bail};
use ebb_local::pods::secrets;
use ebb_local::stack::StackSettings;
use ebb_protocol::time::rfc3339;
use ebb_tests::receiver::ReplyHold;
use libtest_mimic::Trial;
use serde::de::DeserializeOwned;
use serde_json::Map;
use tokio::task::JoinHandle;

use crate::harness::*;
use crate::lifecycle::documented::block;
use crate::lifecycle::retention::RETENTION;
use crate::security::secrets::{assert_has_none, contains_canary};
use crate::security::{api_tokens, identity_tokens};

use expected_values::{differs, later, options, part};
use stored_state::{NotedStates, StateCheck};
use table_requests::TableCallers;

async fn start(stack: &str, clusters: &Value) -> Harness {
    match stack {
        "empty" => Harness::new().await,
        "simple" => Harness::simple().await,
        "platform" => Harness::with_platform().await,
        // Receivers in unique local addresses are allowed.
        "networks" => {
            Harness::start(|settings, _| StackSettings { egress_networks: "fd00::/8".to_owned(), ..settings }).await
        }
        "everywhere" => {
            Harness::start(|settings, _| StackSettings { listen: Some(Ipv4Addr::UNSPECIFIED.into()), ..settings }).await
        }
        // The plugin `files` is the receiver, and the plugin `dead` does not listen.
        "plugin" => {
            let harness = Harness::new().await;
            let address = harness.receiver.url().replace("http", "tcp");
            std::fs::write(harness.plugin_file("files.listen"), address).unwrap();
            UnixListener::bind(harness.plugin_file("dead")).unwrap();
            harness
        }
        // Without local units: each cluster is in the table, or has to be registered.
        "clusters" => Harness::with_clusters(clusters).await,
        // Data of ended instances is removed after a day, or never.
        "retention" => Harness::with_retention(Some(RETENTION)).await,
        // A caller of the API has one living target.
        "one living" => Harness::start(|settings, _| StackSettings { living_per_owner: Some(1), ..settings }).await,
        "no retention" => Harness::with_retention(None).await,
        // The receiver is the issuer of identity tokens.
        "issuer" => identity_tokens::trusting_receiver().await,
        // With a source for each scheme of signatures.
        "schemes" => {
            let harness = Harness::new().await;
            play(&harness, "security/source_abuse.yaml", "schemes", &[]).await;
            harness
        }
        _ => panic!("no stack {stack}"),
    }
}

/// The rows of a test, its plugins with the rest of their documents, and its tokens with their scopes. A table that begins
/// with its stack is a test, others are played by one. Each of its `cases` has a stack of its own. Names of a case stand for
/// parts of texts, or for other values.
///
/// `RECEIVER` and `STACK` stand for the URLs of the receiver and of the stack, `OTHER_ORIGIN` for the receiver by its name.
/// In rows, `LONG` stands for 5,000 times `x`, `WEBHOOK_SECRET` for the secret of lifecycle webhooks, `DEPLOYMENT_SECRET` for
/// that of units, `INSTALLATION` for the ID of the installation, `SIGN_IN_LINK` for the link of `ebb dev`, and `NOW_SECONDS`
/// for the time of the first row.
///
/// A row with `each` is played for each of its cases, or so many times with the number for `NUMBER`. `mint` of a row makes
/// tokens for it and for the next rows, by their names. The row `restart` of a test restarts the stack with the same state.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RequestTable {
    /// The rest of each document, or the name of its file in `lifecycle/documents`.
    #[serde(default)]
    plugins: BTreeMap<String, Value>,
    #[serde(default)]
    tokens: BTreeMap<String, Vec<String>>,
    /// Names for blocks of the book, each with its page and its beginning.
    #[serde(default)]
    blocks: BTreeMap<String, (String, String)>,
    /// Names for the URLs of servers with the same data whose clocks are so many seconds later. Their cookies are those of a
    /// server on AWS.
    #[serde(default)]
    later: BTreeMap<String, u64>,
    rows: Vec<Value>,
}

/// A request to the API (`send`), a lifecycle webhook (`event`), a callback of a request that the receiver got (`callback`), a
/// page (`open`) or form (`form`) of the console, a wait for a target (`wait`), how the receiver answers (`reply` to
/// `release`), or what it has got (`received` to `requests`). The parts apply in the order of the fields below, a request last.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct TableRow {
    /// The file of the secrets that sources, connections and subscriptions name. A text is its content as it is.
    secrets: Option<Value>,
    /// A Secret of the machine: its name, a key and its value.
    relay_secret: Option<(String, String, String)>,
    /// The root secrets of units after the next restart.
    unit_secrets: Option<String>,
    /// The beginning of the keys of stored objects that are lost, such as `plans/`. There are some.
    lost: Option<String>,
    /// A status, the body of a status 200, or a list of both and of headers, by the line of a request. `AUTHORIZATION` stands
    /// for this header of the request.
    reply: BTreeMap<String, Value>,
    /// Answers to one request after the other. The last one is repeated.
    replies: BTreeMap<String, Vec<Value>>,
    /// The responses of a relay at a path of the receiver, each by a text of its request. Others are `done`.
    relay: BTreeMap<String, Vec<(String, Value)>>,
    /// The line of requests whose answers wait until a row releases them.
    hold: Option<String>,
    release: Option<String>,
    /// The name of a sandbox.
    wait: Option<String>,
    /// Waits for so many requests with a line.
    received: BTreeMap<String, usize>,
    /// The body of the first request with a line.
    bodies: BTreeMap<String, Value>,
    /// Values of the body of the first request with a line, by JSON pointer.
    values: BTreeMap<String, BTreeMap<String, Value>>,
    /// Headers of the first request with a line. `*` at the end stands for any text that is not empty.
    headers: BTreeMap<String, BTreeMap<String, String>>,
    /// Waits until the body of the last request with a line has texts.
    texts: BTreeMap<String, Vec<String>>,
    /// Names for a value of the last request with a line, by JSON pointer, or for its header, or for what follows a text in it.
    taken: BTreeMap<String, (String, String)>,
    /// The distinct values of headers of the requests with a line, or their number.
    distinct: BTreeMap<String, BTreeMap<String, Value>>,
    /// Whether secrets have signed the first request with a line.
    signatures: BTreeMap<String, BTreeMap<String, bool>>,
    /// The least seconds between the first two requests with a line.
    pauses: BTreeMap<String, u64>,
    /// A list has the permitted ones.
    counts: BTreeMap<String, Value>,
    /// The lines of all requests since the last row with `requests`.
    order: Option<Vec<String>>,
    /// Texts, and whether the state of the stack has them.
    stored: BTreeMap<String, bool>,
    /// True if no Secret of the machine has a canary.
    forgotten: bool,
    /// Texts, and whether a line of the logs of all stacks has them. `…` separates parts of a line.
    logged: BTreeMap<String, bool>,
    /// Fields of stored sandboxes that another process has changed.
    alter: BTreeMap<String, Map<String, Value>>,
    /// Sources that observe their senders now, and the minutes by which the sandboxes and earlier observations become older.
    aged: BTreeMap<String, u64>,
    /// The number of orphaned tasks whose deletion a scan of a cluster requests.
    scan: Option<usize>,
    /// Hours after which expired data is removed, and the number of removals.
    remove: Option<(u64, usize)>,
    /// The stored runs of sandboxes.
    state: BTreeMap<String, StateCheck>,
    /// Waits for values of stored sandboxes by JSON pointer.
    target: BTreeMap<String, BTreeMap<String, Value>>,
    /// The sandbox whose next reader asks its relays again.
    refresh: Option<String>,
    /// A fault of a cluster that another process has recorded, long ago for an `outage` and now for a `denial`, and its reason.
    fault: Option<(String, String, String)>,
    /// The clusters whose polls are recorded as denied.
    denied: Option<Vec<String>>,
    /// Kinds of which an older version has stored a document `a` that does not load any more.
    older: Vec<String>,
    /// The number of stored outputs and logs.
    objects: Option<usize>,
    /// Waits for the distinct values of `id` that `POST /undo` was sent.
    undone: Option<BTreeSet<String>>,
    /// All requests since the last such row by line, each with values of its body, except those to relays.
    requests: Option<BTreeMap<String, Vec<BTreeMap<String, Value>>>>,
    /// Method and path, such as `GET /v1/targets`.
    send: Option<String>,
    /// The idempotency key of `send`.
    key: Option<String>,
    /// Further headers of `send` or `open`.
    with: BTreeMap<String, String>,
    /// The body of `send` or `callback` as it is: texts whose characters are bytes, each with the number of its repetitions,
    /// which `NUMBER` numbers.
    raw: Option<Vec<(String, usize)>>,
    /// The secret with which GitHub signs `send`, and the ID of the delivery. A body that is a text is sent as a form.
    github: Option<[String; 2]>,
    /// The secret that signs `send` as a webhook, `at` seconds from now. `altered` follows the signed body.
    signed: Option<String>,
    at: i64,
    altered: String,
    /// A name for `send`, whose answer is that of a later row with this name at `end`.
    begin: Option<String>,
    end: Option<String>,
    /// Type and name, such as `created a`, or `created namespace/a` for a target of another kind than a sandbox. A type without
    /// a document is an event of the target, such as `sleep`.
    event: Option<String>,
    /// The ID of the CloudEvent of `event`. Without it, the same event of an instance has the same ID.
    id: Option<String>,
    /// The line of a request of a unit, such as `POST /make`.
    callback: Option<String>,
    /// The path of a page.
    open: Option<String>,
    /// The path of a form. `fields` has its names and values without the token. A name without a value is left out.
    form: Option<String>,
    fields: Vec<(String, Option<String>)>,
    /// The origin of the form. An empty one is not sent. The default is that of the server.
    origin: Option<String>,
    /// The token of the browser that opens the page or sends the form. The default is that of the operator. `anonymous` has
    /// none.
    browser: Option<String>,
    /// A token of the table, or the text of another one. Without it, the operator sends the request. An empty one is not sent.
    by: Option<String>,
    /// The body of a request or callback, or `document` and `plugin` of an event.
    body: Option<Value>,
    /// The UID of an event. The default is `NAME-uid`.
    uid: Option<String>,
    generation: Option<u64>,
    routing_key: Option<String>,
    /// The status of the answer, and the code of a problem. A list has the permitted ones.
    is: Option<Value>,
    /// Headers of the answer. An empty one is missing.
    gives: BTreeMap<String, String>,
    /// The whole answer without line feeds at its end.
    text: Option<String>,
    /// Texts that the answer has.
    has: Vec<String>,
    /// Texts that the answer does not have. `canary` also stands for each canary in base64.
    lacks: Vec<String>,
    /// Values of the answer by JSON pointer. A missing one is null if its parent exists, any other is `*`, and a time from
    /// another one on is `>= TIME`, or `>= TIME + SECONDS`. An entry of a list has its number, `name`, `unit`, `hook`,
    /// `path`, `to` or `code`.
    json: BTreeMap<String, Value>,
    /// Texts that values of the answer contain, by JSON pointer.
    parts: BTreeMap<String, String>,
    /// Sends the request again until it has its answer.
    until: bool,
    /// The names of the listed targets, runs or tools.
    names: Option<String>,
    /// Names for values of the answer, for hidden fields of a page, for links with a beginning (`href=/console/assets/`), for
    /// headers (`header=location`), or for the whole answer (an empty text), which the next rows contain. A number replaces a
    /// whole text. `POINTER + SECONDS` is a later time, or an earlier one.
    keep: BTreeMap<String, String>,
    /// The phase of the sandbox after the wait.
    phase: Option<TargetPhase>,
    /// The most seconds from the first row to the end of the wait.
    within: Option<u64>,
    /// Waits until the runs of the gone sandbox are closed.
    settled: bool,
    /// A text that is stored about the sandbox. Neither the state nor answers, notifications and logs have a canary.
    hides: Option<String>,
    /// Waits until the platform has these notifications, each with its type and with values of its data.
    notified: Vec<(String, BTreeMap<String, Value>)>,
}

/// Returns the parts of a file in the folder of the tests, with the values of the names.
fn parts(file: &str, names: &[(&str, &str)]) -> BTreeMap<String, Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(file);
    let text = std::fs::read_to_string(path).unwrap();
    let text = names.iter().fold(text, |text, (name, value)| text.replace(name, value));
    serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{file}: {error}"))
}

pub(crate) fn table<T: DeserializeOwned>(file: &str, test: &str, names: &[(&str, &str)]) -> T {
    let part = parts(file, names).remove(test).unwrap_or_else(|| panic!("{file} has no {test}"));
    serde_json::from_value(part).unwrap_or_else(|error| panic!("{test} of {file}: {error}"))
}

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for folder in ["lifecycle", "security"] {
        let files = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(folder);
        for entry in std::fs::read_dir(files).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let Some(module) = name.strip_suffix(".yaml") else { continue };
            let file = format!("{folder}/{name}");
            for (test, part) in parts(&file, &[]) {
                let Some(stack) = part["stack"].as_str().map(str::to_owned) else { continue };
                let cases = part["cases"].as_array().map_or(1, Vec::len);
                let clusters = part.get("clusters").cloned().unwrap_or_else(|| json!({}));
                let file = file.clone();
                trials.push(Trial::test(format!("{folder}::{module}::{test}"), move || {
                    for case in 0..cases {
                        block_on(async {
                            let mut harness = start(&stack, &clusters).await;
                            let (rows, mut state) = begin(&harness, &file, &test, &[], case).await;
                            for (number, rows) in rows.split(|row| row == "restart").enumerate() {
                                if number > 0 {
                                    harness.restart().await;
                                }
                                play_rows(&harness, &test, rows, &mut state).await;
                            }
                            assert!(state.sent.is_empty(), "{test}: no row has the answers of {:?}", state.sent.keys());
                        });
                    }
                    Ok(())
                }));
            }
        }
    }
    trials
}

pub(crate) async fn play(harness: &Harness, file: &str, test: &str, names: &[(&str, &str)]) {
    let (rows, mut state) = begin(harness, file, test, names, 0).await;
    play_rows(harness, test, &rows, &mut state).await;
}

/// What the rows of a test share.
struct TableState {
    callers: TableCallers,
    /// Names with their values.
    kept: Vec<(String, String)>,
    held: BTreeMap<String, ReplyHold>,
    sent: BTreeMap<String, JoinHandle<ApiReply>>,
    noted: NotedStates,
    begun: Instant,
}

/// Returns a text as it is within a text of JSON.
fn in_json(text: &str) -> String {
    let json = json!(text).to_string();
    json[1..json.len() - 1].to_owned()
}

fn with_values(text: String, case: &Value) -> String {
    case.as_object().into_iter().flatten().fold(text, |text, (name, value)| match value {
        Value::String(value) => text.replace(name, &in_json(value)),
        value => text.replace(&json!(name).to_string(), &value.to_string()),
    })
}

fn replaced(text: String, names: &[(String, String)]) -> String {
    names.iter().fold(text, |text, (name, value)| text.replace(name, value))
}

/// Returns the texts of a row, one for each of its cases.
fn repeated(mut row: Value) -> Vec<String> {
    let cases: Vec<Value> = match row.as_object_mut().unwrap().remove("each") {
        None => return vec![row.to_string()],
        Some(Value::Array(cases)) => cases,
        Some(count) => (0..count.as_u64().unwrap()).map(|at| json!({"NUMBER": at.to_string()})).collect(),
    };
    cases.iter().map(|case| with_values(row.to_string(), case)).collect()
}

/// Publishes the plugins of a test and makes its tokens. Returns its rows.
async fn begin(
    harness: &Harness,
    file: &str,
    test: &str,
    names: &[(&str, &str)],
    case: usize,
) -> (Vec<Value>, TableState) {
    let (receiver, stack) = (harness.receiver.url(), harness.stack().url());
    let other = receiver.replace("127.0.0.1", "localhost");
    let urls = [("RECEIVER", receiver), ("OTHER_ORIGIN", other.as_str()), ("STACK", stack)];
    let mut part: Value = table(file, test, &[names, &urls].concat());
    let fields = part.as_object_mut().unwrap();
    fields.retain(|field, _| !["stack", "clusters"].contains(&field.as_str()));
    let case = fields.remove("cases").unwrap_or_default()[case].clone();
    let text = with_values(part.to_string(), &case);
    let RequestTable { plugins, tokens, blocks, later, rows } =
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{test}: {error}: {text}"));
    for (name, plugin) in plugins {
        publish(harness, &name, plugin).await;
    }
    let mut callers = TableCallers::default();
    for (name, scopes) in tokens {
        let scopes: Vec<&str> = scopes.iter().map(String::as_str).collect();
        let token = harness.token(&name, &scopes).await;
        callers.tokens.insert(name, token);
    }
    let mut kept = vec![
        ("LONG".to_owned(), "x".repeat(5_000)),
        ("WEBHOOK_SECRET".to_owned(), harness.stack().webhook_secret().to_owned()),
        ("DEPLOYMENT_SECRET".to_owned(), harness.stack().env().settings.unit_keys.first().reveal().to_string()),
        ("SIGN_IN_LINK".to_owned(), harness.stack().sign_in_url()),
        ("INSTALLATION".to_owned(), harness.stack().env().settings.installation.clone()),
        ("NOW_SECONDS".to_owned(), (now().0 / 1_000).to_string()),
    ];
    kept.extend(blocks.into_iter().map(|(name, (page, start))| (name, in_json(&block(&page, &start)))));
    for (name, seconds) in later {
        kept.push((name, api_tokens::later(harness, seconds).await));
    }
    let (held, sent, noted) = (BTreeMap::new(), BTreeMap::new(), NotedStates::default());
    (rows, TableState { callers, kept, held, sent, noted, begun: Instant::now() })
}

async fn play_rows(harness: &Harness, test: &str, rows: &[Value], state: &mut TableState) {
    let TableState { callers, kept, held, sent, noted, begun } = state;
    for text in rows.iter().cloned().flat_map(repeated) {
        let mut row: Value = serde_json::from_str(&text).unwrap();
        let minted = minted_tokens::mint(harness, &mut row, kept);
        kept.retain(|(name, _)| !minted.iter().any(|(new, _)| new == name));
        kept.splice(0..0, minted);
        let text = replaced(row.to_string(), kept);
        let row: TableRow = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{test}: {error}: {text}"));
        row.assert_is_checked(test);
        if let Some(secrets) = &row.secrets {
            harness.write_secrets(secrets);
        }
        if let Some((name, key, value)) = &row.relay_secret {
            secrets::put(&harness.folder().join("state"), name, key, value.as_bytes()).unwrap();
        }
        if let Some(secrets) = &row.unit_secrets {
            let file = harness.folder().join("state/keys.json");
            let mut keys: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
            keys["unitSecret"] = secrets.as_str().into();
            std::fs::write(&file, keys.to_string()).unwrap();
        }
        if let Some(lost) = &row.lost {
            let bucket = &harness.stack().store().bucket;
            assert!(!bucket.list(lost).await.unwrap().is_empty(), "{test}: no object {lost} is stored");
            bucket.remove_all(lost).await.unwrap();
        }
        row.instruct(&harness.receiver, held);
        if let Some(name) = &row.wait {
            row.await_target(harness, name).await;
        }
        assert!(row.within.is_none_or(|most| begun.elapsed().as_secs() < most), "{test}: {row:?} is late");
        row.check_requests(&harness.receiver)
            .await
            .unwrap_or_else(|difference| panic!("{test}: {difference}: {row:?}"));
        for (name, (line, at)) in &row.taken {
            let call = harness.receiver.call(line, harness.receiver.count(line).max(1)).await;
            let (header, start) = at.split_once(' ').unwrap_or((at.as_str(), ""));
            let header = call.header(header).split_once(start).map(|(_, rest)| rest.trim_matches('"'));
            let value = if at.starts_with('/') { part(&call.body, at) } else { header.into() };
            let text = value.as_str().filter(|text| !text.is_empty());
            kept.push((name.clone(), in_json(text.unwrap_or_else(|| panic!("{test}: no text {at}: {call:?}")))));
        }
        let wrong = row.stored.iter().find(|(text, is_stored)| harness.stores(text) != **is_stored);
        assert!(wrong.is_none(), "{test}: {wrong:?}");
        row.check_state(harness, noted).await.unwrap_or_else(|difference| panic!("{test}: {difference}: {row:?}"));
        row.sign_in(harness, callers).await;
        if let Some(name) = &row.begin {
            let request = row.request(harness, callers).unwrap();
            sent.insert(name.clone(), tokio::spawn(ApiReply::to(request)));
            continue;
        }
        let reply = match &row.end {
            Some(name) => Some(sent.remove(name).unwrap_or_else(|| panic!("{name} has not begun")).await.unwrap()),
            None => row.answer(harness, callers).await,
        };
        let Some(mut reply) = reply else { continue };
        if row.until {
            until(&format!("{test}: {row:?}"), async || {
                reply = row.answer(harness, callers).await?;
                row.check(&reply).ok()
            })
            .await;
        }
        row.check(&reply).unwrap_or_else(|difference| panic!("{test}: {difference}: {row:?}\n{reply:?}"));
        for (name, at) in &row.keep {
            kept.push(match kept_value(&reply, at) {
                Value::String(text) => (name.clone(), in_json(&text)),
                value => (json!(name).to_string(), value.to_string()),
            });
        }
    }
}

/// Returns a text or number of an answer by its pointer, a link or a hidden field of a page, a header, or the whole answer as
/// `text` has it.
fn kept_value(reply: &ApiReply, at: &str) -> Value {
    if at.is_empty() {
        return reply.body.trim_end().into();
    }
    if let Some(start) = at.strip_prefix("href=") {
        let link = reply.body.split("href=\"").find(|rest| rest.starts_with(start)).expect("the page has the link");
        return link.split('"').next().into();
    }
    if let Some(name) = at.strip_prefix("header=") {
        return reply.header(name).into();
    }
    if !at.starts_with('/') {
        return reply.field(at).into();
    }
    let (at, seconds) = at.split_once(" + ").unwrap_or((at, ""));
    let value = part(&reply.json(), at);
    assert!(value.is_string() || value.is_number(), "no text {at}: {reply:?}");
    if !seconds.is_empty() {
        return rfc3339(later(value.as_str().unwrap(), seconds)).into();
    }
    value
}

async fn publish(harness: &Harness, name: &str, mut plugin: Value) {
    if let Some(file) = plugin.as_str() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/lifecycle/documents").join(file);
        return harness.publish(name, &std::fs::read_to_string(path).unwrap()).await;
    }
    (plugin["kind"], plugin["name"]) = (json!("Plugin"), json!(name));
    harness.post("/v1/plugins", completed(json!({"document": plugin}))).await.is(201);
}

impl TableRow {
    /// Panics if nothing would use a part of the row.
    fn assert_is_checked(&self, test: &str) {
        let Self { send, event, callback, open, form, wait, end, .. } = self;
        let requests = [send, event, callback, open, form, end].into_iter().flatten().count();
        assert!(requests <= 1, "{test}: {self:?} has several requests");
        let texts = self.has.len() + self.lacks.len() + self.json.len() + self.parts.len() + self.keep.len();
        let texts = texts + self.gives.len();
        let of_answer = self.is.is_some() || self.names.is_some() || self.text.is_some();
        let of_answer = of_answer || self.until || texts > 0;
        let of_wait = self.phase.is_some() || self.settled || !self.notified.is_empty() || self.hides.is_some();
        let of_instance = self.uid.is_some() || self.generation.is_some();
        let of_send = self.by.is_some() || self.key.is_some() || self.github.is_some() || self.signed.is_some();
        let has_body = send.is_some() || event.is_some() || callback.is_some();
        for (is_stated, is_used, user) in [
            (of_answer, requests == 1 && self.begin.is_none(), "request"),
            (self.begin.is_some(), send.is_some(), "`send`"),
            (self.at != 0 || !self.altered.is_empty(), self.signed.is_some(), "`signed`"),
            (of_wait || self.within.is_some(), wait.is_some(), "`wait`"),
            (of_instance, wait.is_some() || event.is_some(), "instance"),
            (wait.is_some(), of_wait || of_instance, "condition for its `wait`"),
            (of_send, send.is_some(), "`send`"),
            (!self.with.is_empty(), send.is_some() || open.is_some(), "`send` or page"),
            (self.body.is_some() || self.raw.is_some(), has_body, "request with a body"),
            (self.routing_key.is_some() || self.id.is_some(), event.is_some(), "`event`"),
            (self.browser.is_some(), open.is_some() || form.is_some(), "page or form"),
            (!self.fields.is_empty() || self.origin.is_some(), form.is_some(), "`form`"),
        ] {
            assert!(is_used || !is_stated, "{test}: {self:?} has no {user}");
        }
    }

    async fn await_target(&self, harness: &Harness, name: &str) {
        if let Some(generation) = self.generation {
            until(&format!("generation {generation} of {name}"), async || {
                (harness.target(name).await?.info.generation == generation).then_some(())
            })
            .await;
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
        if let Some(marker) = &self.hides {
            assert_has_none(harness, name, marker, contains_canary).await;
        }
        if !self.notified.is_empty() {
            let types: Vec<&str> = self.notified.iter().map(|(notified, _)| notified.as_str()).collect();
            let notified = harness.notified(name, &types).await;
            for (data, (_, expected)) in notified.iter().zip(&self.notified) {
                differs(data, expected).unwrap_or_else(|difference| panic!("{difference}: {data}"));
            }
        }
    }

    fn check(&self, reply: &ApiReply) -> anyhow::Result<()> {
        let expected = self.is.as_ref().context("no answer is expected")?;
        let mut expected = options(expected).iter().map(|is| is.as_str().map_or_else(|| is.to_string(), str::to_owned));
        let is_right = |expected: &String| expected.split(' ').next() == Some(&*reply.status.to_string());
        let expected = expected.find(is_right).with_context(|| format!("the status is {}", reply.status))?;
        let code = expected.split_once(' ').map_or("", |(_, code)| code);
        if !code.is_empty() {
            reply.is_problem(reply.status, code);
        }
        if let Some((name, _)) = self.gives.iter().find(|(name, value)| reply.header(name) != **value) {
            bail!("the header {name} is {:?}", reply.header(name));
        }
        ensure!(self.text.as_ref().is_none_or(|text| text == reply.body.trim_end()), "the answer has another text");
        let missing = self.has.iter().find(|text| !reply.body.contains(*text));
        ensure!(missing.is_none(), "{missing:?} is missing");
        let is_canary = |text: &str| text == "canary" && contains_canary(reply.body.as_bytes());
        let present = self.lacks.iter().find(|text| reply.body.contains(*text) || is_canary(text));
        ensure!(present.is_none(), "{present:?} is in the answer");
        let is_part = |pointer: &str, text: &str| part(&reply.json(), pointer).to_string().contains(text);
        let missing = self.parts.iter().find(|(pointer, text)| !is_part(pointer, text));
        ensure!(missing.is_none(), "{missing:?} is missing");
        if let Some(names) = &self.names {
            let body: Value = reply.json();
            let lists = [&body["targets"], &body["runs"], &body["result"]["tools"]];
            let listed = lists.into_iter().find_map(Value::as_array).context("the answer has no list")?;
            let listed: Vec<&str> = listed.iter().filter_map(|entry| entry["name"].as_str()).collect();
            ensure!(listed.join(" ") == *names, "the list has {listed:?}");
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
