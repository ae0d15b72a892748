//! The REST API: tokens, scopes, unknown routes, invalid bodies and names in paths.

use std::collections::BTreeMap;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::{BehaviorVersion, Config, Credentials, Region};
use axum::Router;
use axum::http::StatusCode;
use ebb_api::queries::checks;
use ebb_api::{ApiRole, ApiTokens};
use ebb_local::embedded;
use ebb_protocol::api::CheckList;
use ebb_store::{NamedDocument, NamedKind, SdkTable, Store};

use crate::harness::*;

/// A unit that prints a line.
pub(super) const SCRIPT: &str = r##"
runners: {sh: {image: "busybox:1"}}
preStart: {hello: {pod: {runner: sh, script: "#!/bin/sh\necho hello from the unit\n"}}}
"##;
/// What its log contains.
pub(super) const PRINTED: &str = "hello from the unit";

/// Starts a sandbox `a` and waits until it is ready.
async fn ready() -> Harness {
    let harness = Harness::new().await;
    harness.run("a", "simple", SCRIPT, TargetPhase::Ready).await;
    harness
}

/// Routes without an API token. Events, callbacks, polls and registrations have their own signatures and tokens.
const OPEN: [&str; 7] = [
    "GET /v1/openapi.json",
    "GET /healthz",
    "POST /v1/events",
    "POST /v1/callbacks",
    "POST /v1/clusters/a/poll",
    "POST /v1/clusters/a/register",
    "POST /v1/sources/s",
];

/// The scopes that permit a request. `operate` permits each.
const OPERATE: &[&str] = &["operate"];
const READ: &[&str] = &["read", "operate"];
const READ_PLUGINS: &[&str] = &["read", "plugins:write", "operate"];
const WRITE_PLUGINS: &[&str] = &["plugins:write", "operate"];
const READ_CONNECTIONS: &[&str] = WRITE_PLUGINS;
const READ_SOURCES: &[&str] = &["sources:write", "plugins:write", "operate"];
const WRITE_SOURCES: &[&str] = &["sources:write", "operate"];
const WRITE_TARGETS: &[&str] = &["targets:write", "operate"];
const ANY: &[&str] = &["read", "targets:write", "plugins:write", "sources:write", "operate"];

/// A request, and the scopes that permit it.
pub(super) struct ApiRequest {
    scopes: &'static [&'static str],
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) body: Option<Value>,
}

/// Returns a valid request for each route that needs a token.
pub(super) fn routes(run: &str) -> Vec<ApiRequest> {
    let document = |kind: &str, name: &str, rest: &str| Some(json!({"document": named(kind, name, rest)}));
    let target = document("Sandbox", "p", "");
    let request = request_for("p", "");
    let action = json!({"select": {"targets": [{"kind": "sandbox", "name": "a"}]}, "action": {"retry": {}}});
    let source = document("Source", "s", "preset: github\ndocument: {ttl: 1h}\n");
    let connection = "origin: https://a.example\nauth: {bearer: {secret: S}}\nplugins: [simple]\n";
    let subscription = "on: [ready]\nto: {slack: {secret: S}}\n";
    let rows = [
        ("GET /v1/plugins", READ_PLUGINS, None),
        ("POST /v1/plugins", WRITE_PLUGINS, document("Plugin", "other@1.0.0", SCRIPT)),
        ("GET /v1/plugins/simple", READ_PLUGINS, None),
        // A user of sandboxes must not be able to sign requests as Ebb.
        ("GET /v1/plugins/simple/signing-secret", WRITE_PLUGINS, None),
        ("GET /v1/plugins/simple/versions/1.0.0", READ_PLUGINS, None),
        ("DELETE /v1/plugins/simple/versions/1.0.0", WRITE_PLUGINS, None),
        ("POST /v1/plans", READ_PLUGINS, target),
        ("PUT /v1/sources/s", WRITE_SOURCES, source),
        ("GET /v1/sources", READ_SOURCES, None),
        ("GET /v1/sources/s", READ_SOURCES, None),
        ("DELETE /v1/sources/s", WRITE_SOURCES, None),
        ("PUT /v1/connections/c", OPERATE, document("Connection", "c", connection)),
        ("GET /v1/connections", READ_CONNECTIONS, None),
        ("GET /v1/connections/c", READ_CONNECTIONS, None),
        ("DELETE /v1/connections/c", OPERATE, None),
        ("PUT /v1/subscriptions/n", OPERATE, document("Subscription", "n", subscription)),
        ("GET /v1/subscriptions", READ_CONNECTIONS, None),
        ("GET /v1/subscriptions/n", READ_CONNECTIONS, None),
        ("DELETE /v1/subscriptions/n", OPERATE, None),
        ("GET /v1/targets", READ, None),
        ("GET /v1/changes", READ, None),
        ("GET /v1/targets/sandbox/a", READ, None),
        ("GET /v1/targets/sandbox/a/why", READ, None),
        ("GET /v1/targets/sandbox/a/history", READ, None),
        ("GET /v1/targets/sandbox/a/history/0", READ, None),
        ("GET /v1/runs", READ, None),
        ("POST /v1/targets", WRITE_TARGETS, Some(request)),
        ("POST /v1/targets/actions", WRITE_TARGETS, Some(action)),
        ("DELETE /v1/targets/sandbox/a", WRITE_TARGETS, None),
        ("POST /v1/targets/sandbox/a/retry", WRITE_TARGETS, None),
        ("POST /v1/targets/sandbox/a/force-complete", OPERATE, Some(json!({"unit": "r/u", "reason": "x"}))),
        ("POST /v1/targets/sandbox/a/force-delete", OPERATE, Some(json!({"reason": "x"}))),
        ("GET /v1/caller", ANY, None),
        ("GET /v1/tokens", OPERATE, None),
        ("POST /v1/tokens", OPERATE, Some(json!({"name": "a", "scopes": ["read"]}))),
        ("DELETE /v1/tokens/a", OPERATE, None),
        ("GET /v1/clusters", OPERATE, None),
        ("PUT /v1/clusters/a", OPERATE, Some(json!({"entrypointImage": "r"}))),
        // Authors compare their documents with its policy.
        ("GET /v1/clusters/a", READ_PLUGINS, None),
        ("POST /v1/clusters/a/rotate", OPERATE, None),
        ("DELETE /v1/clusters/a", OPERATE, None),
        ("GET /v1/orphans", OPERATE, None),
        ("GET /v1/checks", OPERATE, None),
        ("POST /v1/orphans/delete", OPERATE, Some(json!({"uids": []}))),
        ("GET /v1/runs/RUN", READ, None),
        ("GET /v1/runs/RUN/logs?unit=r/hello", READ, None),
        ("GET /v1/runs/RUN/rendered?unit=r/hello", READ, None),
    ];
    let request = |(line, scopes, body): (&str, _, _)| {
        let (method, path) = line.split_once(' ').unwrap();
        ApiRequest { scopes, method: method.parse().unwrap(), path: path.replace("RUN", run), body }
    };
    rows.map(request).into()
}

impl ApiRequest {
    async fn send(&self, harness: &Harness, base: &str, token: Option<&str>) -> ApiReply {
        let url = format!("{base}{}", self.path);
        ApiReply::to(&harness.http, &url, token, self.method.clone(), self.body.clone()).await
    }
}

/// The body of DynamoDB's response to a request for a table that does not exist.
const MISSING_TABLE: &str = r#"{
    "__type": "com.amazonaws.dynamodb.v20120810#ResourceNotFoundException", "message": "Requested resource not found"
}"#;

/// Each part of the deployment is checked separately. A failed check shows the error.
pub(crate) async fn checks() {
    let harness = ready().await;
    let list = harness.get("/v1/checks").await.is(200).json::<CheckList>();
    assert!(list.checks.iter().all(|check| check.passed), "{list:?}");
    let folder = tempfile::tempdir().unwrap();
    let objects = folder.path().join("objects");
    let bucket = embedded::FolderBucket::open(&objects, embedded::StateDurability::Process).unwrap();
    std::fs::remove_dir_all(&objects).unwrap();
    std::fs::write(&objects, "a file").unwrap();
    let endpoint = serve(|_| Router::new().fallback(|| async { (StatusCode::BAD_REQUEST, MISSING_TABLE) })).await;
    let config = Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("us-east-1"))
        .credentials_provider(Credentials::new("test", "test", None, None, "test"))
        .endpoint_url(endpoint);
    let table = Arc::new(SdkTable::new(Client::from_conf(config.build()), "nowhere"));
    let failed = checks::all(harness.stack().env(), &Store::new(table, Arc::new(bucket))).await;
    let names = ["table", "list-index", "due-index", "sweep", "bucket", "queue"];
    assert_eq!((list.checks.len(), failed.checks.len()), (names.len(), names.len()));
    // The queue works. Its check fails because it writes to a missing table.
    for ((passed, check), name) in list.checks.iter().zip(&failed.checks).zip(names) {
        assert_eq!((passed.name.as_str(), check.name.as_str(), check.passed), (name, name, false));
        let error = if name == "bucket" { "PutObject" } else { "NotFound" };
        assert!(check.detail.contains(error), "{check:?}");
    }
}

/// Returns the responses of each documented operation. The names in its path are those of `routes`.
async fn documented(harness: &Harness, run: &str) -> BTreeMap<String, Value> {
    let document: Value = harness.get("/v1/openapi.json").await.is(200).json();
    assert!(document["openapi"].as_str().unwrap().starts_with("3."), "{}", document["openapi"]);
    let mut found = BTreeMap::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        let names = [("plugins", "simple"), ("sources", "s"), ("connections", "c"), ("subscriptions", "n"), ("", "a")];
        let name = names.iter().find(|(collection, _)| path.contains(collection)).unwrap().1;
        let filled = path.replace("{kind}", "sandbox").replace("{name}", name).replace("{version}", "1.0.0");
        let filled = filled.replace("{run}", run).replace("{id}", "0");
        assert!(!filled.contains('{'), "{path}");
        let methods = item.as_object().unwrap().iter().filter(|(_, operation)| operation["responses"].is_object());
        found.extend(methods.map(|(method, operation)| {
            (format!("{} {filled}", method.to_uppercase()), operation["responses"].clone())
        }));
    }
    found
}

/// Each documented route needs a token, and is permitted by its scopes only: those of named tokens, and the one of each role.
pub(crate) async fn scopes() {
    let harness = ready().await;
    let run = run_id("a", Hook::PreStart).to_string();
    let documented = documented(&harness, &run).await;
    let line = |route: &ApiRequest| format!("{} {}", route.method, route.path.split('?').next().unwrap());
    let tested: Vec<String> = routes(&run).iter().map(line).collect();
    for name in documented.keys() {
        let is_open = OPEN.contains(&name.as_str());
        assert!(tested.contains(name) != is_open, "{name} is in neither `routes` nor `OPEN`");
    }
    let roles = [("user", ApiRole::User), ("author", ApiRole::Author), ("operator", ApiRole::Operator)];
    let server = harness.functions(Arc::clone(harness.stack().env()), ApiTokens::new(roles));
    let base = serve(|_| ebb_api::all(server.clone())).await;
    let mut callers: Vec<(&str, String)> = [("read", "user"), ("plugins:write", "author"), ("operate", "operator")]
        .map(|(scope, role)| (scope, role.to_owned()))
        .into();
    for scope in ["read", "targets:write", "plugins:write", "sources:write", "operate"] {
        callers.push((scope, harness.token(&scope.replace(':', "-"), &[scope]).await));
    }
    for route in routes(&run) {
        for (authorization, code) in [
            (None, "missing-token"),
            (Some("Basic operator"), "missing-token"),
            (Some("operator"), "missing-token"),
            (Some(""), "missing-token"),
            (Some("Bearer operatorx"), "invalid-token"),
            (Some("Bearer OPERATOR"), "invalid-token"),
        ] {
            route.send(&harness, &base, authorization).await.is_problem(401, code);
        }
        for (scope, token) in &callers {
            let response = route.send(&harness, &base, Some(&format!("bearer {token}"))).await;
            let place = format!("{scope} {} {}", route.method, route.path);
            if !route.scopes.contains(scope) {
                let problem = response.is_problem(403, "forbidden");
                let needed = [format!("needs the scope {}", route.scopes[0]), format!("has: {scope}")];
                assert!(needed.iter().all(|text| problem.detail.contains(text)), "{place}: {problem:?}");
            } else if response.status < 300 {
                let responses = &documented[&line(&route)];
                assert!(responses[response.status.to_string()].is_object(), "{place} does not document {response:?}");
            } else {
                assert!(matches!(response.status, 404 | 409), "{place}: {response:?}");
            }
        }
    }
    // The router of `api` does not have the routes of the other functions.
    let base = serve(|_| ebb_api::api(server)).await;
    let url = format!("{base}/v1/events");
    let event = ApiReply::to(&harness.http, &url, Some("Bearer operator"), Method::POST, Some(json!({}))).await;
    event.is_problem(404, "not-found");
}

/// Requests with the status and code of their answers. RUN is the run of the sandbox `a`.
const REFUSED: &str = "\
GET /v1 404 not-found
GET /v2/plugins 404 not-found
GET /v1/plugins/ 404 not-found
GET /v1/plugin 404 not-found
GET /v1/targets/sandbox 404 not-found
GET /v1/run 404 not-found
PUT /v1/plugins 405 method-not-allowed
GET /v1/events 405 method-not-allowed
PUT /v1/targets/sandbox/a 405 method-not-allowed
GET /v1/plugins/nothing/signing-secret 404 not-found
GET /v1/plugins/simple/versions/9.9.9 404 not-found
DELETE /v1/plugins/simple/versions/1.0.1 404 not-found
DELETE /v1/plugins/nothing/versions/1.0.0 404 not-found
GET /v1/targets/room/a 404 not-found
GET /v1/targets/sandbox/none/why 404 not-found
GET /v1/targets/sandbox/none/history 404 not-found
GET /v1/targets/sandbox/a/history/0 404 not-found
GET /v1/targets/sandbox/a/history?nextToken=x 400 invalid-next-token
POST /v1/targets/sandbox/none/retry 404 not-found
POST /v1/targets/sandbox/a/retry 409 nothing-failed
GET /v1/runs?name=a 400 invalid-query
GET /v1/runs?since=yesterday 400 invalid-query
GET /v1/runs?limit=1 400 invalid-query
GET /v1/runs/aaaaaaaaaaaaaaaa-1-pre-start 404 not-found
GET /v1/runs/not-a-run 400 invalid-run-id
GET /v1/runs/aaaaaaaaaaaaaaaa-1-pre-start/logs?unit=r/hello 404 not-found
GET /v1/runs/RUN/logs 400 invalid-query
GET /v1/runs/RUN/logs?attempt=1 400 invalid-query
GET /v1/runs/RUN/logs?unit=r/hello&attempt= 400 invalid-query
GET /v1/runs/RUN/logs?unit=r/hello&attempt=x 400 invalid-query
GET /v1/runs/RUN/logs?unit=r/hello&attempt=-1 400 invalid-query
GET /v1/runs/RUN/logs?unit=r/hello&attempt=1.5 400 invalid-query
GET /v1/runs/RUN/logs?unit=r/hello&attempt=4294967296 400 invalid-query
GET /v1/runs/RUN/logs?unit=r/hello&attempt=7 404 not-found
GET /v1/runs/RUN/logs?unit= 404 not-found
GET /v1/runs/RUN/logs?unit=hello 404 not-found
GET /v1/runs/RUN/logs?unit=r/nothing 404 not-found
GET /v1/runs/RUN/logs?unit=..%2f..%2ftable 404 not-found
GET /v1/runs/RUN/logs?unit=r%2fhello%23 404 not-found
GET /v1/runs/RUN/logs?unit=r/hello%00 404 not-found
GET /v1/runs/RUN/logs?unit=%2fetc%2fpasswd 404 not-found
GET /v1/plugins/%ff 400 invalid-path
GET /v1/plugins/a/versions/%ff 400 invalid-path
GET /v1/targets/%ff/a 400 invalid-path
GET /v1/targets/sandbox/%c3%28/why 400 invalid-path
GET /v1/runs/%ff 400 invalid-path
GET /v1/runs/%ff/logs?unit=a 400 invalid-path
POST /v1/targets/sandbox/a/retry?dryRun=true 400 invalid-query
POST /v1/targets/sandbox/a/force-delete?dryRun=true 400 invalid-query
POST /v1/plugins?dryRun=true 400 invalid-query
DELETE /v1/plugins/simple/versions/1.0.0?dryRun=true 400 invalid-query
DELETE /v1/tokens/none?dryRun=true 400 invalid-query
DELETE /v1/sources/none?dryRun=true 400 invalid-query
PUT /v1/sources/none?dryRun=true 400 invalid-query
POST /v1/clusters/none/rotate?dryRun=true 400 invalid-query";

pub(crate) async fn refused_requests() {
    let harness = ready().await;
    let run = run_id("a", Hook::PreStart).to_string();
    let log = harness.get(&format!("/v1/runs/{run}/logs?unit=r/hello")).await;
    assert_eq!(log.is(200).body.trim_end(), PRINTED);
    for row in REFUSED.lines() {
        let [method, path, status, code] = row.split(' ').collect::<Vec<_>>()[..] else { panic!("{row}") };
        let reply = harness.request(method.parse().unwrap(), &path.replace("RUN", &run), None).await;
        assert_eq!(reply.status.to_string(), status, "{row}: {reply:?}");
        reply.is_problem(reply.status, code);
    }
    let with_parameter = "targets targets/sandbox/a sources connections subscriptions tokens plugins plugins/simple \
                          clusters orphans checks runs/RUN";
    for path in with_parameter.replace("RUN", &run).split(' ') {
        harness.get(&format!("/v1/{path}?limit=-1")).await.is_problem(400, "invalid-query");
    }
    // Names that change when they are decoded, or that have a meaning in a key or a path.
    let long = "x".repeat(5_000);
    for name in ["%23", "a%23b", "..%2f..%2fstate", "a%00b", "%0a", "%F0%9F%98%80", "t%23sandbox%23a", &long] {
        for path in ["targets/sandbox", "plugins", "plugins/simple/versions"] {
            harness.get(&format!("/v1/{path}/{name}")).await.is_problem(404, "not-found");
        }
        for path in ["runs/", "targets?nextToken="] {
            let response = harness.get(&format!("/v1/{path}{name}")).await;
            assert!(response.status < 500 && (response.status > 399 || path != "runs/"), "{response:?}");
        }
    }
    harness.get(&format!("/v1/runs/{run}/logs?unit={long}")).await.is_problem(404, "not-found");
}

pub(crate) async fn invalid_bodies() {
    let harness = Harness::new().await;
    for path in ["/v1/plugins", "/v1/plans"] {
        for body in [
            json!([]),
            json!(["kind: Plugin"]),
            json!({}),
            json!({"document": 1}),
            json!({"document": "", "force": true}),
        ] {
            harness.post(path, body).await.is_problem(400, "invalid-json");
        }
        for document in ["", "x: [", "kind: Plugin", "- 1", "\u{0}"] {
            let response = harness.post(path, json!({ "document": document })).await;
            assert!(!response.is_problem(422, "invalid-document").errors.is_empty());
        }
        let large = harness.http.post(harness.url(path)).bearer_auth(harness.stack().token());
        let large = large.body(vec![b' '; limits::API_BODY + 1]).send().await.unwrap();
        ApiReply::of(large).await.is_problem(413, "too-large");
    }
    let two = format!("{}---\n{}", plugin("a@1.0.0", SCRIPT), plugin("b@1.0.0", SCRIPT));
    let wrong = plugin("a@1.0.0", &SCRIPT.replace("runner: sh", "runner: bash"));
    for (document, code, line) in [(two, Some("several-documents"), None), (wrong, None, Some(6))] {
        let response = harness.post("/v1/plugins", json!({ "document": document })).await;
        let error = response.is_problem(422, "invalid-document").errors.remove(0);
        assert!(code.is_none_or(|code| error.code == code) && (line.is_none() || error.line == line), "{error:?}");
    }
    assert_eq!(harness.get("/v1/plugins").await.json::<Value>()["plugins"], json!([]));
}

pub(crate) async fn versions_are_immutable() {
    let harness = ready().await;
    let same = || json!({"document": plugin("simple@1.0.0", SCRIPT)});
    let other = || json!({"document": plugin("simple@1.0.0", &SCRIPT.replace("hello", "hallo"))});
    harness.post("/v1/plugins", same()).await.is(200);
    harness.post("/v1/plugins", other()).await.is_problem(409, "already-exists");
    let path = "/v1/plugins/simple/versions/1.0.0";
    // A client repeats the request if the response is lost.
    for _ in 0..2 {
        harness.request(Method::DELETE, path, None).await.is(204);
    }
    for none in ["/v1/plugins/simple", "/v1/plugins/simple/versions/latest"] {
        harness.get(none).await.is_problem(404, "not-found");
    }
    let withdrawn: Value = harness.get(path).await.is(200).json();
    assert!(withdrawn["withdrawn"].is_string(), "{withdrawn}");
    assert!(withdrawn["document"].as_str().unwrap().contains(PRINTED), "{withdrawn}");
    // The same document can be published again. A different one is rejected.
    let problem = harness.post("/v1/plugins", other()).await.is_problem(409, "already-exists");
    assert!(problem.detail.contains("simple@1.0.0 was published and withdrawn"), "{problem:?}");
    harness.post("/v1/plugins", same()).await.is(201);
    harness.get("/v1/plugins/simple/versions/latest").await.is(200);
}

/// A newer version can refuse a stored document. Lists show it with the reason, beside the others.
pub(crate) async fn documents_that_no_longer_load() {
    let harness = Harness::new().await;
    let rest = "origin: https://b.example.com\nauth: {bearer: {secret: B}}\nplugins: [p]\n";
    harness.put("Connection", "b", rest).await.is(200);
    let broken = NamedDocument { name: "a".to_owned(), document: "kind: Older".to_owned(), changed: now() };
    for (kind, path) in [(NamedKind::Connection, "connections"), (NamedKind::Subscription, "subscriptions")] {
        harness.stack().store().put_document(kind, &broken).await.unwrap();
        let list: Value = harness.get(&format!("/v1/{path}")).await.is(200).json();
        let reason = list[path][0]["unreadable"].as_str().unwrap_or_default();
        assert!(!reason.is_empty(), "{list}");
        let detail: Value = harness.get(&format!("/v1/{path}/a")).await.is(200).json();
        assert_eq!(detail["document"], "kind: Older", "{detail}");
    }
    let list: Value = harness.get("/v1/connections").await.is(200).json();
    assert_eq!((&list["connections"][1]["name"], &list["connections"][1]["unreadable"]), (&json!("b"), &Value::Null));
}
