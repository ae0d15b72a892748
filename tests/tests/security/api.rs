//! The REST API: tokens, scopes, unknown routes, invalid bodies and names in paths.

use ebb_api::queries::checks;
use ebb_api::{ApiRole, ApiTokens};
use ebb_local::embedded;
use ebb_protocol::api::{CheckList, CreatedToken};
use ebb_store::{NamedDocument, NamedKind, SdkTable, Store};
use ebb_tests::emulated_dynamodb;

use crate::harness::*;

/// A unit that prints a line.
pub(super) const SCRIPT: &str = r##"
runners: {sh: {image: "busybox:1"}}
preStart: {hello: {pod: {runner: sh, script: "#!/bin/sh\necho hello from the unit\n"}}}
"##;

/// Starts a sandbox `a` and waits until it is ready.
async fn ready() -> Harness {
    let harness = Harness::new().await;
    harness.run("a", "simple", SCRIPT, TargetState::Ready).await;
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
    let request = json!({"kind": "sandbox", "name": "p", "document": named("Sandbox", "p", "")});
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

pub(crate) async fn tokens() {
    let harness = ready().await;
    let run = run_id("a", Hook::PreStart).to_string();
    let own = harness.stack().token().to_owned();
    let base = harness.stack().url().to_owned();
    for route in routes(&run) {
        route.send(&harness, &base, None).await.is_problem(401, "missing-token");
        for (token, code) in [
            (format!("Basic {own}"), "missing-token"),
            (own.clone(), "missing-token"),
            (String::new(), "missing-token"),
            ("Bearer x".to_owned(), "invalid-token"),
            (format!("Bearer {own}x"), "invalid-token"),
            (format!("Bearer {}", own.to_lowercase()), "invalid-token"),
        ] {
            route.send(&harness, &base, Some(&token)).await.is_problem(401, code);
        }
    }
    assert_eq!(harness.get("/v1/plugins").await.json::<Value>()["plugins"].as_array().unwrap().len(), 1);
}

/// Each part of the deployment is checked separately. A failed check shows the error.
pub(crate) async fn checks() {
    let harness = ready().await;
    let list = harness.get("/v1/checks").await.is(200).json::<CheckList>();
    let names: Vec<&str> = list.checks.iter().map(|check| check.name.as_str()).collect();
    assert_eq!(names, ["table", "list-index", "due-index", "sweep", "bucket", "queue"]);
    assert!(list.checks.iter().all(|check| check.passed), "{list:?}");
    let folder = tempfile::tempdir().unwrap();
    let objects = folder.path().join("objects");
    let bucket = embedded::FolderBucket::open(&objects).unwrap();
    std::fs::remove_dir_all(&objects).unwrap();
    std::fs::write(&objects, "a file").unwrap();
    let table = Arc::new(SdkTable::new(emulated_dynamodb::client().await, "nowhere"));
    let list = checks::all(harness.stack().env(), &Store::new(table, Arc::new(bucket))).await;
    // The queue works. Its check fails because it writes to a missing table.
    let expected = ["NotFound"; 4].into_iter().chain(["PutObject", "NotFound"]);
    assert_eq!(list.checks.len(), names.len());
    for (check, error) in list.checks.iter().zip(expected) {
        assert!(!check.passed && check.detail.contains(error), "{check:?}");
    }
}

/// A request is permitted by its scopes only: those of named tokens, and the one of each role.
pub(crate) async fn scopes() {
    let harness = ready().await;
    let run = run_id("a", Hook::PreStart).to_string();
    let roles = [("user", ApiRole::User), ("author", ApiRole::Author), ("operator", ApiRole::Operator)];
    let server = harness.functions(Arc::clone(harness.stack().env()), ApiTokens::new(roles));
    let base = serve(|_| ebb_api::all(server.clone())).await;
    let mut callers: Vec<(&str, String)> = [("read", "user"), ("plugins:write", "author"), ("operate", "operator")]
        .map(|(scope, role)| (scope, role.to_owned()))
        .into();
    for scope in ["read", "targets:write", "plugins:write", "sources:write", "operate"] {
        let token = json!({"name": scope.replace(':', "-"), "scopes": [scope]});
        callers.push((scope, harness.post("/v1/tokens", token).await.is(201).json::<CreatedToken>().token));
    }
    for route in routes(&run) {
        for (scope, token) in &callers {
            let response = route.send(&harness, &base, Some(&format!("bearer {token}"))).await;
            let place = format!("{scope} {} {}", route.method, route.path);
            if route.scopes.contains(scope) {
                assert!(response.status < 300 || matches!(response.status, 404 | 409), "{place}: {response:?}");
            } else {
                let problem = response.is_problem(403, "forbidden");
                let needed = format!("needs the scope {}", route.scopes[0]);
                assert!(problem.detail.contains(&needed), "{place}: {problem:?}");
                assert!(problem.detail.contains(&format!("has: {scope}")), "{place}: {problem:?}");
            }
        }
    }
    // The router of `api` does not have the routes of the other functions.
    let base = serve(|_| ebb_api::api(server)).await;
    let url = format!("{base}/v1/events");
    let event = ApiReply::to(&harness.http, &url, Some("Bearer operator"), Method::POST, Some(json!({}))).await;
    event.is_problem(404, "not-found");
}

pub(crate) async fn unknown_routes_and_methods() {
    let harness = ready().await;
    for path in ["/v1", "/v2/plugins", "/v1/plugins/", "/v1/plugin", "/v1/targets/sandbox", "/v1/run"] {
        harness.get(path).await.is_problem(404, "not-found");
    }
    for (line, status, code) in [
        ("PUT /v1/plugins", 405, "method-not-allowed"),
        ("GET /v1/events", 405, "method-not-allowed"),
        ("PUT /v1/targets/sandbox/a", 405, "method-not-allowed"),
        ("GET /v1/plugins/nothing/signing-secret", 404, "not-found"),
        ("GET /v1/plugins/simple/versions/9.9.9", 404, "not-found"),
        ("GET /v1/targets/room/a", 404, "not-found"),
        ("GET /v1/targets/sandbox/none/why", 404, "not-found"),
        ("GET /v1/targets/sandbox/none/history", 404, "not-found"),
        ("GET /v1/targets/sandbox/a/history/0", 404, "not-found"),
        ("GET /v1/targets/sandbox/a/history?nextToken=x", 400, "invalid-next-token"),
        ("GET /v1/runs?name=a", 400, "invalid-query"),
        ("GET /v1/runs?since=yesterday", 400, "invalid-query"),
        ("GET /v1/runs/aaaaaaaaaaaaaaaa-1-pre-start", 404, "not-found"),
        ("GET /v1/runs/not-a-run", 400, "invalid-run-id"),
        ("DELETE /v1/plugins/nothing/versions/1.0.0", 404, "not-found"),
        ("POST /v1/targets/sandbox/none/retry", 404, "not-found"),
        ("POST /v1/targets/sandbox/a/retry", 409, "nothing-failed"),
        // The parameter of another route does not make a request a dry run.
        ("POST /v1/targets/sandbox/a/retry?dryRun=true", 400, "invalid-query"),
        ("POST /v1/targets/sandbox/a/force-delete?dryRun=true", 400, "invalid-query"),
        ("POST /v1/plugins?dryRun=true", 400, "invalid-query"),
        ("DELETE /v1/plugins/simple/versions/1.0.0?dryRun=true", 400, "invalid-query"),
        ("DELETE /v1/tokens/none?dryRun=true", 400, "invalid-query"),
        ("DELETE /v1/sources/none?dryRun=true", 400, "invalid-query"),
        ("PUT /v1/sources/none?dryRun=true", 400, "invalid-query"),
        ("POST /v1/clusters/none/rotate?dryRun=true", 400, "invalid-query"),
    ] {
        let (method, path) = line.split_once(' ').unwrap();
        harness.request(method.parse().unwrap(), path, None).await.is_problem(status, code);
    }
    let problem = harness.get("/v1/runs?limit=1").await.is_problem(400, "invalid-query");
    assert!(problem.detail.starts_with("a query parameter is missing or wrong: limit: unknown field"), "{problem:?}");
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
            let problem = response.is_problem(422, "invalid-document");
            assert!(!problem.errors.is_empty(), "{problem:?}");
        }
        let large = harness.http.post(harness.url(path)).bearer_auth(harness.stack().token());
        let large = large.body(vec![b' '; limits::API_BODY + 1]).send().await.unwrap();
        ApiReply::of(large).await.is_problem(413, "too-large");
    }
    let two = format!("{}---\n{}", plugin("a@1.0.0", SCRIPT), plugin("b@1.0.0", SCRIPT));
    let response = harness.post("/v1/plugins", json!({ "document": two })).await;
    assert_eq!(response.is_problem(422, "invalid-document").errors[0].code, "several-documents");
    let wrong = plugin("a@1.0.0", &SCRIPT.replace("runner: sh", "runner: bash"));
    let response = harness.post("/v1/plugins", json!({ "document": wrong })).await;
    let problem = response.is_problem(422, "invalid-document");
    assert_eq!((problem.errors[0].line, problem.errors[0].column > Some(0)), (Some(6), true), "{problem:?}");
    assert_eq!(harness.get("/v1/plugins").await.json::<Value>()["plugins"], json!([]));
}

pub(crate) async fn versions_are_immutable() {
    let harness = ready().await;
    let same = json!({"document": plugin("simple@1.0.0", SCRIPT)});
    harness.post("/v1/plugins", same.clone()).await.is(200);
    let other = json!({"document": plugin("simple@1.0.0", &SCRIPT.replace("hello", "hallo"))});
    harness.post("/v1/plugins", other.clone()).await.is_problem(409, "already-exists");
    let path = "/v1/plugins/simple/versions/1.0.0";
    let kept: Value = harness.get(path).await.is(200).json();
    assert!(kept["document"].as_str().unwrap().contains("hello from"), "{kept}");
    assert_eq!(kept["withdrawn"], Value::Null);
    // A client repeats the request if the response is lost.
    for _ in 0..2 {
        harness.request(Method::DELETE, path, None).await.is(204);
    }
    for gone in ["/v1/plugins/simple/versions/1.0.1", "/v1/plugins/simple/versions/latest"] {
        harness.request(Method::DELETE, gone, None).await.is_problem(404, "not-found");
    }
    for none in ["/v1/plugins/simple", "/v1/plugins/simple/versions/latest"] {
        harness.get(none).await.is_problem(404, "not-found");
    }
    assert_eq!(harness.get("/v1/plugins").await.json::<Value>()["plugins"], json!([]));
    let withdrawn: Value = harness.get(path).await.is(200).json();
    assert!(withdrawn["withdrawn"].is_string(), "{withdrawn}");
    assert_eq!(withdrawn["document"], kept["document"]);
    // The same document can be published again. A different one is rejected.
    let problem = harness.post("/v1/plugins", other).await.is_problem(409, "already-exists");
    assert!(problem.detail.contains("simple@1.0.0 was published and withdrawn"), "{problem:?}");
    harness.post("/v1/plugins", same).await.is(201);
    let again: Value = harness.get("/v1/plugins/simple/versions/latest").await.is(200).json();
    assert_eq!(again["withdrawn"], Value::Null);
}

pub(crate) async fn unknown_parameters() {
    let harness = ready().await;
    let run = run_id("a", Hook::PreStart);
    let paths = "targets targets/sandbox/a sources connections subscriptions tokens plugins plugins/simple clusters \
                 orphans checks";
    for path in paths.split(' ').chain([format!("runs/{run}").as_str()]) {
        harness.get(&format!("/v1/{path}")).await.is(200);
        harness.get(&format!("/v1/{path}?limit=-1")).await.is_problem(400, "invalid-query");
    }
    let log = format!("/v1/runs/{run}/logs?unit=r/u&attempt");
    for attempt in ["-1", "1.5", "4294967296", "x", ""] {
        harness.get(&format!("{log}={attempt}")).await.is_problem(400, "invalid-query");
    }
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

pub(crate) async fn every_documented_route_exists() {
    let harness = ready().await;
    let run = run_id("a", Hook::PreStart).to_string();
    let document: Value = harness.get("/v1/openapi.json").await.is(200).json();
    assert!(document["openapi"].as_str().unwrap().starts_with("3."), "{}", document["openapi"]);
    let paths = document["paths"].as_object().unwrap();
    let history: Value = harness.get("/v1/targets/sandbox/a/history").await.is(200).json();
    let entry = history["entries"][0]["id"].as_str().unwrap().to_owned();
    harness.write_secrets(&json!({"GITHUB_WEBHOOK": "a secret of the tests"}).to_string());
    let mut put = routes(&run);
    assert!(paths.len() >= 12, "{:?}", paths.keys());
    let name = |route: &ApiRequest| format!("{} {}", route.method, route.path.split('?').next().unwrap());
    let tested: Vec<String> = put.iter().map(name).collect();
    put.retain(|route| route.method == Method::PUT);
    for (path, item) in paths {
        let names = [("plugins", "simple"), ("sources", "s"), ("connections", "c"), ("subscriptions", "n"), ("", "a")];
        let name = names.iter().find(|(collection, _)| path.contains(collection)).unwrap().1;
        let filled = path.replace("{kind}", "sandbox").replace("{name}", name);
        let filled = filled.replace("{version}", "1.0.0").replace("{run}", &run).replace("{id}", &entry);
        assert!(!filled.contains('{'), "{path}");
        let of_unit = path.ends_with("/logs") || path.ends_with("/rendered");
        let query = if of_unit { "?unit=r/hello" } else { "" };
        for (method, operation) in item.as_object().unwrap() {
            let Ok(method) = method.to_uppercase().parse::<Method>() else { continue };
            // Each route is in the test of roles or in the list of open routes.
            let name = format!("{method} {}", filled.replace(&entry, "0"));
            let is_open = OPEN.contains(&name.as_str());
            assert!(tested.contains(&name) != is_open, "{name} is in neither `routes` nor `OPEN`");
            if path.contains("tokens") {
                let token = json!({"name": "a", "scopes": ["read"]});
                let created = harness.post("/v1/tokens", token).await;
                assert!(matches!(created.status, 201 | 409), "{created:?}");
            }
            // A registered cluster is below further paths, too.
            for route in put.iter().filter(|route| filled == route.path || filled == format!("{}/rotate", route.path)) {
                harness.request(Method::PUT, &route.path, route.body.clone()).await.is(200);
            }
            let response = harness.request(method.clone(), &format!("{filled}{query}"), None).await;
            assert!(!matches!(response.status, 404 | 405 | 500..), "{method} {path}: {response:?}");
            let documented = &operation["responses"][response.status.to_string()];
            assert!(documented.is_object(), "{method} {path} does not document {response:?}");
        }
    }
}

pub(crate) async fn logs_of_runs() {
    let harness = ready().await;
    let run = run_id("a", Hook::PreStart).to_string();
    let log = harness.get(&format!("/v1/runs/{run}/logs?unit=r/hello")).await;
    assert_eq!((log.status, log.body.trim_end()), (200, "hello from the unit"));
    for query in ["unit=r/nothing", "unit=hello", "unit=", "unit=r/hello&attempt=7"] {
        harness.get(&format!("/v1/runs/{run}/logs?{query}")).await.is_problem(404, "not-found");
    }
    harness.get("/v1/runs/aaaaaaaaaaaaaaaa-1-pre-start/logs?unit=r/hello").await.is_problem(404, "not-found");
    for query in ["", "?attempt=1", "?unit=r/hello&attempt=x", "?unit=r/hello&attempt=-1"] {
        let response = harness.get(&format!("/v1/runs/{run}/logs{query}")).await;
        let kind = (response.status, response.content_type.as_str());
        assert_eq!(kind, (400, "application/problem+json"), "{response:?}");
    }
}

pub(crate) async fn names_in_paths() {
    let harness = ready().await;
    let paths =
        "plugins/%ff plugins/a/versions/%ff targets/%ff/a targets/sandbox/%c3%28/why runs/%ff runs/%ff/logs?unit=a";
    for path in paths.split(' ') {
        harness.get(&format!("/v1/{path}")).await.is_problem(400, "invalid-path");
    }
    // Names that change when they are decoded, or that have a meaning in a key or a path.
    let long = "x".repeat(5_000);
    for name in ["%23", "a%23b", "..%2f..%2fstate", "a%00b", "%0a", "%F0%9F%98%80", "t%23sandbox%23a", &long] {
        harness.get(&format!("/v1/targets/sandbox/{name}")).await.is_problem(404, "not-found");
        harness.get(&format!("/v1/plugins/{name}")).await.is_problem(404, "not-found");
        harness.get(&format!("/v1/plugins/simple/versions/{name}")).await.is_problem(404, "not-found");
        let response = harness.get(&format!("/v1/runs/{name}")).await;
        assert!(matches!(response.status, 400 | 404), "{response:?}");
    }
    let run = run_id("a", Hook::PreStart).to_string();
    for unit in ["..%2f..%2ftable", "r%2fhello%23", "r/hello%00", "%2fetc%2fpasswd", &long] {
        harness.get(&format!("/v1/runs/{run}/logs?unit={unit}")).await.is_problem(404, "not-found");
    }
    for token in ["x", "%00", "t%23sandbox%23a", &long] {
        let response = harness.get(&format!("/v1/targets?nextToken={token}")).await;
        assert!(response.status < 500, "{response:?}");
    }
}
