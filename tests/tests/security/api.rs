//! The REST API: tokens, scopes, unknown routes, invalid bodies and names in paths.

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::{BehaviorVersion, Config, Credentials, Region};
use axum::Router;
use axum::http::StatusCode;
use ebb_api::queries::checks;
use ebb_local::embedded;
use ebb_protocol::api::CheckList;
use ebb_store::{SdkTable, Store};

use crate::harness::*;

/// A unit that prints a line.
pub(super) const SCRIPT: &str = include_str!("documents/hello.yaml");

/// Starts a sandbox `a` and waits until it is ready.
async fn ready() -> Harness {
    let harness = Harness::new().await;
    harness.run("a", "simple", SCRIPT, TargetPhase::Ready).await;
    harness
}

/// A request of the table, and the scopes that permit it, beside `operate`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ApiRequest {
    send: String,
    scopes: String,
    pub(super) body: Option<Value>,
}

/// Returns a valid request for each route that needs a token.
pub(super) fn routes(run: &str) -> Vec<ApiRequest> {
    let mut routes: Vec<ApiRequest> = request_table::table("security/api.yaml", "routes", &[("RUN", run)]);
    for route in &mut routes {
        route.body = route.body.take().map(request_table::completed);
    }
    routes
}

impl ApiRequest {
    pub(super) fn method(&self) -> Method {
        self.send.split_once(' ').unwrap().0.parse().unwrap()
    }

    pub(super) fn path(&self) -> &str {
        self.send.split_once(' ').unwrap().1
    }

    async fn send(&self, caller: &ApiClient) -> ApiReply {
        caller.request(self.method(), self.path(), self.body.clone()).await
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
    let endpoint = serve(Router::new().fallback(|| async { (StatusCode::BAD_REQUEST, MISSING_TABLE) })).await;
    let config = Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("us-east-1"))
        .credentials_provider(Credentials::new("test", "test", None, None, "test"))
        .endpoint_url(endpoint);
    let table = Arc::new(SdkTable::new(Client::from_conf(config.build()), "nowhere"));
    let failed = checks::all(harness.stack().env(), &Store::new(table, Arc::new(bucket))).await;
    let names = ["table", "list-index", "due-index", "sweep", "bucket", "queue", "secrets"];
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
    let line = |route: &ApiRequest| route.send.split('?').next().unwrap().to_owned();
    let tested: Vec<String> = routes(&run).iter().map(line).collect();
    let open: Vec<String> = request_table::table("security/api.yaml", "open", &[]);
    for name in documented.keys() {
        assert!(tested.contains(name) != open.contains(name), "{name} is in neither `routes` nor `open`");
    }
    let roles = [("user", ApiRole::User), ("author", ApiRole::Author), ("operator", ApiRole::Operator)];
    let server = harness.functions(Arc::clone(harness.stack().env()), ApiTokens::new(roles));
    let all = ApiClient::new(&harness.http, &serve(ebb_api::all(server.clone())).await, "operator");
    let mut callers: Vec<(&str, String)> = [("read", "user"), ("plugins:write", "author"), ("operate", "operator")]
        .map(|(scope, role)| (scope, role.to_owned()))
        .into();
    for scope in ["read", "targets:write", "plugins:write", "sources:write", "operate"] {
        callers.push((scope, harness.token(&scope.replace(':', "-"), &[scope]).await));
    }
    let unauthorized: Vec<(Option<String>, String)> = request_table::table("security/api.yaml", "unauthorized", &[]);
    for route in routes(&run) {
        for (authorization, code) in &unauthorized {
            let caller = ApiClient { authorization: authorization.clone(), ..all.clone() };
            route.send(&caller).await.is_problem(401, code);
        }
        for (scope, token) in &callers {
            let authorization = Some(format!("bearer {token}"));
            let response = route.send(&ApiClient { authorization, ..all.clone() }).await;
            let place = format!("{scope} {}", route.send);
            let mut permitted = route.scopes.split(' ').chain(["operate"]);
            if !permitted.any(|permitted| permitted == *scope) {
                let problem = response.is_problem(403, "forbidden");
                let first = route.scopes.split(' ').next().unwrap();
                let needed = [format!("needs the scope {first}"), format!("has: {scope}")];
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
    let api = ApiClient { url: serve(ebb_api::api(server)).await, ..all };
    api.post("/v1/events", json!({})).await.is_problem(404, "not-found");
}
