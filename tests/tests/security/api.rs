//! The REST API: tokens, roles, unknown routes, invalid bodies and names in paths.

use ebb_api::queries::checks;
use ebb_api::{ApiRole, ApiTokens, ServerState};
use ebb_flow::system::SystemClock;
use ebb_local::embedded;
use ebb_protocol::api::CheckList;
use ebb_relay_client::PollEndpoint;
use ebb_store::{NamedDocument, NamedKind, SdkTable, Store, WriteDocuments as _};
use ebb_tests::emulated_dynamodb;

use crate::harness::*;

const SIMPLE: &str = r##"
runners: {sh: {image: "busybox:1"}}
preStart: {hello: {pod: {runner: sh, script: "#!/bin/sh\necho hello from the unit\n"}}}
"##;

/// Starts a sandbox `a` and waits until it is ready.
async fn ready() -> Harness {
    let harness = Harness::new().await;
    harness.run("a", "simple", SIMPLE, TargetState::Ready).await;
    harness
}

/// Routes without an API token. Events, callbacks and polls have their own signatures and tokens.
const OPEN: [&str; 6] = [
    "GET /v1/openapi.json",
    "GET /healthz",
    "POST /v1/events",
    "POST /v1/callbacks",
    "POST /v1/clusters/a/poll",
    "POST /v1/sources/s",
];

/// Returns a valid request for each route that needs a token.
fn routes(run: &str) -> Vec<(Method, String, Option<Value>)> {
    let document = json!({"document": plugin("other@1.0.0", SIMPLE)});
    let target = json!({"document": "apiVersion: ebb.dev/v1\nkind: Sandbox\nname: p\n"});
    let request = json!({"kind": "sandbox", "name": "p", "document": target["document"]});
    let reason = json!({"reason": "x"});
    let token = json!({"name": "a", "scopes": ["read"]});
    let source =
        json!({"document": "apiVersion: ebb.dev/v1\nkind: Source\nname: s\npreset: github\ndocument: {ttl: 1h}\n"});
    let connection = json!({"document": "apiVersion: ebb.dev/v1\nkind: Connection\nname: c\norigin: https://a.example\nauth: {bearer: {secret: S}}\nplugins: [simple]\n"});
    let subscription = json!({"document": "apiVersion: ebb.dev/v1\nkind: Subscription\nname: n\non: [ready]\nto: {slack: {secret: S}}\n"});
    let rows = [
        ("GET /v1/plugins", None),
        ("POST /v1/plugins", Some(document)),
        ("GET /v1/plugins/simple", None),
        ("GET /v1/plugins/simple/signing-secret", None),
        ("GET /v1/plugins/simple/versions/1.0.0", None),
        ("DELETE /v1/plugins/simple/versions/1.0.0", None),
        ("POST /v1/plans", Some(target)),
        ("PUT /v1/sources/s", Some(source)),
        ("GET /v1/sources", None),
        ("GET /v1/sources/s", None),
        ("DELETE /v1/sources/s", None),
        ("PUT /v1/connections/c", Some(connection)),
        ("GET /v1/connections", None),
        ("GET /v1/connections/c", None),
        ("DELETE /v1/connections/c", None),
        ("PUT /v1/subscriptions/n", Some(subscription)),
        ("GET /v1/subscriptions", None),
        ("GET /v1/subscriptions/n", None),
        ("DELETE /v1/subscriptions/n", None),
        ("GET /v1/targets", None),
        ("GET /v1/targets/sandbox/a", None),
        ("GET /v1/targets/sandbox/a/why", None),
        ("POST /v1/targets", Some(request)),
        ("DELETE /v1/targets/sandbox/a", None),
        ("POST /v1/targets/sandbox/a/retry", None),
        ("POST /v1/targets/sandbox/a/force-complete", Some(json!({"unit": "r/u", "reason": "x"}))),
        ("POST /v1/targets/sandbox/a/force-delete", Some(reason)),
        ("GET /v1/tokens", None),
        ("POST /v1/tokens", Some(token)),
        ("DELETE /v1/tokens/a", None),
        ("GET /v1/clusters", None),
        ("GET /v1/orphans", None),
        ("GET /v1/checks", None),
        ("POST /v1/orphans/delete", Some(json!({"uids": []}))),
        ("GET /v1/runs/RUN", None),
        ("GET /v1/runs/RUN/logs?unit=r/hello", None),
    ];
    rows.map(|(line, body)| {
        let (method, path) = line.split_once(' ').unwrap();
        (method.parse().unwrap(), path.replace("RUN", run), body)
    })
    .into()
}

async fn request(
    harness: &Harness,
    base: &str,
    token: Option<&str>,
    (method, path, body): &(Method, String, Option<Value>),
) -> ApiReply {
    ApiReply::to(&harness.http, &format!("{base}{path}"), token, method.clone(), body.clone()).await
}

pub(crate) async fn tokens() {
    let harness = ready().await;
    let run = run_id("a", Hook::PreStart).to_string();
    let own = harness.stack().token().to_owned();
    let base = harness.stack().url().to_owned();
    for route in routes(&run) {
        request(&harness, &base, None, &route).await.is_problem(401, "missing-token");
        for (token, code) in [
            (format!("Basic {own}"), "missing-token"),
            (own.clone(), "missing-token"),
            (String::new(), "missing-token"),
            ("Bearer x".to_owned(), "invalid-token"),
            (format!("Bearer {own}x"), "invalid-token"),
            (format!("Bearer {}", own.to_lowercase()), "invalid-token"),
        ] {
            request(&harness, &base, Some(&token), &route).await.is_problem(401, code);
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

pub(crate) async fn roles() {
    let harness = ready().await;
    let run = run_id("a", Hook::PreStart).to_string();
    let access =
        ApiTokens::new([("user", ApiRole::User), ("author", ApiRole::Author), ("operator", ApiRole::Operator)]);
    let server = ServerState {
        env: Arc::clone(harness.stack().env()),
        store: Arc::clone(harness.stack().store()) as _,
        tokens: Arc::new(access),
        poll_endpoint: Arc::new(PollEndpoint::new(
            Arc::default(),
            harness.stack().store().clone(),
            Arc::new(SystemClock),
        )),
    };
    let serve = async |router| {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        base
    };
    let base = serve(ebb_api::all(server.clone())).await;
    for route in routes(&run) {
        let (method, path, _) = &route;
        let operates =
            ["clusters", "orphans", "checks", "tokens"].iter().any(|it| path.starts_with(&format!("/v1/{it}")));
        // A user of sandboxes must not be able to sign requests as Ebb.
        let secret = path.ends_with("/signing-secret");
        let sources =
            ["sources", "connections", "subscriptions"].iter().any(|it| path.starts_with(&format!("/v1/{it}")));
        let reads = (*method == Method::GET || path == "/v1/plans") && !operates && !secret && !sources;
        let writes = path.starts_with("/v1/plugins") || path == "/v1/plans" || (sources && *method == Method::GET);
        for (token, may) in [("user", reads), ("author", writes)] {
            let response = request(&harness, &base, Some(&format!("Bearer {token}")), &route).await;
            if may {
                assert!(response.status < 300 || response.status == 409, "{token} {route:?}: {response:?}");
            } else {
                response.is_problem(403, "forbidden");
            }
        }
        let response = request(&harness, &base, Some("bearer operator"), &route).await;
        assert!(!matches!(response.status, 401 | 403), "{route:?}: {response:?}");
    }
    // The router of `api` does not have the routes of the other functions.
    let base = serve(ebb_api::api(server)).await;
    let event = (Method::POST, "/v1/events".to_owned(), Some(json!({})));
    request(&harness, &base, Some("Bearer operator"), &event).await.is_problem(404, "not-found");
}

pub(crate) async fn unknown_routes_and_methods() {
    let harness = ready().await;
    for path in ["/", "/v1", "/v2/plugins", "/v1/plugins/", "/v1/plugin", "/v1/targets/sandbox", "/v1/runs"] {
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
        ("GET /v1/runs/aaaaaaaaaaaaaaaa-1-pre-start", 404, "not-found"),
        ("GET /v1/runs/not-a-run", 400, "invalid-run-id"),
        ("DELETE /v1/plugins/nothing/versions/1.0.0", 404, "not-found"),
        ("POST /v1/targets/sandbox/none/retry", 404, "not-found"),
        ("POST /v1/targets/sandbox/a/retry", 409, "nothing-failed"),
    ] {
        let (method, path) = line.split_once(' ').unwrap();
        harness.request(method.parse().unwrap(), path, None).await.is_problem(status, code);
    }
}

pub(crate) async fn invalid_bodies() {
    let harness = Harness::new().await;
    for path in ["/v1/plugins", "/v1/plans"] {
        for body in [json!([]), json!({}), json!({"document": 1}), json!({"document": "", "force": true})] {
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
    let two = format!("{}---\n{}", plugin("a@1.0.0", SIMPLE), plugin("b@1.0.0", SIMPLE));
    let response = harness.post("/v1/plugins", json!({ "document": two })).await;
    assert_eq!(response.is_problem(422, "invalid-document").errors[0].code, "several-documents");
    let wrong = plugin("a@1.0.0", &SIMPLE.replace("runner: sh", "runner: bash"));
    let response = harness.post("/v1/plugins", json!({ "document": wrong })).await;
    let problem = response.is_problem(422, "invalid-document");
    assert_eq!((problem.errors[0].line, problem.errors[0].column > Some(0)), (Some(6), true), "{problem:?}");
    assert_eq!(harness.get("/v1/plugins").await.json::<Value>()["plugins"], json!([]));
}

pub(crate) async fn versions_are_immutable() {
    let harness = ready().await;
    let same = json!({"document": plugin("simple@1.0.0", SIMPLE)});
    harness.post("/v1/plugins", same.clone()).await.is(200);
    let other = json!({"document": plugin("simple@1.0.0", &SIMPLE.replace("hello", "hallo"))});
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
    for path in [
        "targets",
        "targets/sandbox/a",
        "sources",
        "connections",
        "subscriptions",
        "tokens",
        "plugins",
        "plugins/simple",
        "clusters",
        "orphans",
        "checks",
        &format!("runs/{run}"),
    ] {
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
    let document = "apiVersion: ebb.dev/v1\nkind: Connection\nname: b\norigin: https://b.example.com\n\
                    auth: {bearer: {secret: B}}\nplugins: [p]\n";
    harness.request(Method::PUT, "/v1/connections/b", Some(json!({"document": document}))).await.is(200);
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
    harness.write_secrets(&json!({"GITHUB_WEBHOOK": "a secret of the tests"}).to_string());
    let put: Vec<_> = routes(&run).into_iter().filter(|(method, ..)| *method == Method::PUT).collect();
    assert!(paths.len() >= 12, "{:?}", paths.keys());
    let tested: Vec<String> =
        routes(&run).iter().map(|(method, path, _)| format!("{method} {}", path.split('?').next().unwrap())).collect();
    for (path, item) in paths {
        let filled = path
            .replace("{kind}", "sandbox")
            .replace(
                "{name}",
                if path.contains("plugins") {
                    "simple"
                } else if path.contains("sources") {
                    "s"
                } else if path.contains("connections") {
                    "c"
                } else if path.contains("subscriptions") {
                    "n"
                } else {
                    "a"
                },
            )
            .replace("{version}", "1.0.0")
            .replace("{run}", &run);
        assert!(!filled.contains('{'), "{path}");
        let query = if path.ends_with("/logs") { "?unit=r/hello" } else { "" };
        for (method, operation) in item.as_object().unwrap() {
            let Ok(method) = method.to_uppercase().parse::<Method>() else { continue };
            // Each route is in the test of roles or in the list of open routes.
            let name = format!("{method} {filled}");
            assert!(
                tested.contains(&name) != OPEN.contains(&name.as_str()),
                "{name} is in neither `routes` nor `OPEN`"
            );
            if path.contains("tokens") {
                let token = json!({"name": "a", "scopes": ["read"]});
                let created = harness.post("/v1/tokens", token).await;
                assert!(matches!(created.status, 201 | 409), "{created:?}");
            }
            for (_, put, document) in put.iter().filter(|(_, put, _)| *put == filled) {
                harness.request(Method::PUT, put, document.clone()).await.is(200);
            }
            let response = harness.request(method.clone(), &format!("{filled}{query}"), None).await;
            assert!(!matches!(response.status, 404 | 405 | 500..), "{method} {path}: {response:?}");
            let documented = operation["responses"].as_object().unwrap();
            assert!(
                documented.contains_key(&response.status.to_string()),
                "{method} {path} does not document {response:?}"
            );
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
        assert_eq!(
            (response.status, response.content_type.as_str()),
            (400, "application/problem+json"),
            "{response:?}"
        );
    }
}

pub(crate) async fn names_in_paths() {
    let harness = ready().await;
    for path in [
        "/v1/plugins/%ff",
        "/v1/plugins/a/versions/%ff",
        "/v1/targets/%ff/a",
        "/v1/targets/sandbox/%c3%28/why",
        "/v1/runs/%ff",
        "/v1/runs/%ff/logs?unit=a",
    ] {
        harness.get(path).await.is_problem(400, "invalid-path");
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
