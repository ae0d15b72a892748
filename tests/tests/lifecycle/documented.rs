//! Documents, events and commands of the book together, as a reader uses them. They are read from their pages.

use std::iter::once;

use aws_lc_rs::hmac;
use ebb_documents::presets::preset;
use ebb_local::pods::secrets;
use ebb_protocol::api::{SourceResponse, SourceResult};
use ebb_protocol::unit::CALLBACK_URL;
use ebb_tests::markdown;
use tokio::process::Command;

use crate::harness::*;

const TABLE: &str = "lifecycle/documented.yaml";
const GITLAB_SECRET: &str = "a secret of GitLab's webhook";
const GITLAB_TOKEN: &str = "gitlab-token-of-the-test";
const ARGOCD_TOKEN: &str = "argocd-token-of-the-test";

/// Functions in place of the programs of PostgreSQL.
const PROGRAMS: &str = "psql() { :; }; createdb() { echo \"createdb $3\"; }; dropdb() { echo \"dropdb $5\"; }";

pub(crate) fn page(page: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/src").join(page)).unwrap()
}

/// Returns the first block of a page that begins with a text, without the indent of a list.
pub(crate) fn block(page: &str, start: &str) -> String {
    let blocks = markdown::blocks(page, &self::page(page)).into_iter().map(|block| block.text);
    let mut found = blocks.filter(|text| text.starts_with(start));
    found.next().unwrap_or_else(|| panic!("{page} has no block that begins with {start}"))
}

pub(crate) fn document(page: &str, kind: &str, name: &str) -> String {
    block(page, &format!("apiVersion: ebb.dev/v1\nkind: {kind}\nname: {name}\n"))
}

/// Returns the signature of a body as GitHub makes it, without the code that verifies it.
pub(crate) fn signature(secret: &str, body: &[u8]) -> String {
    let mac = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes()), body);
    format!("sha256={}", mac.as_ref().iter().map(|byte| format!("{byte:02x}")).collect::<String>())
}

/// Each commit of a merge request gets a status of GitLab. The stack has the first plugin of the page about plugins, and the
/// Secret that its sandboxes name. The receiver takes the place of billing.
pub(crate) async fn a_merge_request_shows_the_results_of_its_target() {
    let harness = Harness::new().await;
    harness.write_secrets(&json!({"GITLAB_WEBHOOK": GITLAB_SECRET, "GITLAB_TOKEN": GITLAB_TOKEN}));
    let dsn = b"postgres://admin@db.example.org/postgres";
    secrets::put(&harness.folder().join("state"), "postgres-admin", "dsn", dsn).unwrap();
    let plugin = document("plugins.md", "Plugin", "tenant-db@2.1.0");
    let plugin = plugin.replace("https://billing.example.org", harness.receiver.url());
    let plugin = plugin.replace("\"@{embed: seed.sh}\"", "\"#!/bin/sh -eu\\ntest -s /tmp/in/dsn\\n\"");
    let programs = |line: &str| {
        let indent = line.split("#!").next().unwrap_or_default();
        (line.trim() == "#!/bin/sh -eu").then(|| format!("{indent}{PROGRAMS}"))
    };
    let lines = plugin.lines().flat_map(|line| once(line.to_owned()).chain(programs(line)));
    let plugin = lines.collect::<Vec<_>>().join("\n");
    harness.post("/v1/plugins", json!({"document": plugin})).await.is(201);
    harness.receiver.always("POST /tenants", json!({"id": "t-1"}));
    let operator = harness.operator();
    operator.put("Source", "previews", &document("source-presets.md", "Source", "previews")).await.is(200);
    let connection = document("subscriptions.md", "Connection", "gitlab");
    let connection = connection.replace("https://gitlab.com", harness.receiver.url());
    operator.put("Connection", "gitlab", &connection).await.is(200);
    let subscription = document("subscriptions.md", "Subscription", "gitlab-statuses");
    operator.put("Subscription", "gitlab-statuses", &subscription).await.is(200);
    let names = [("SECRET_OF_GITLAB", GITLAB_SECRET), ("TOKEN_OF_GITLAB", GITLAB_TOKEN)];
    request_table::play(&harness, TABLE, "a_merge_request_shows_the_results_of_its_target", &names).await;
    // Billing refuses the second tenant.
    let statuses = harness.receiver.calls("POST /api/v4/projects/acme%2Fshop/statuses/fed789");
    let states: Vec<&Value> = statuses.iter().map(|status| &status.body["state"]).collect();
    assert_eq!(states, ["running", "success", "failed"]);
}

/// Each trigger of the ConfigMap of the page sends its template, in which Argo CD sets the values of an application.
pub(crate) async fn templates_of_argo_cd_send_events() {
    let harness = Harness::new().await;
    harness.write_secrets(&json!({"ARGOCD_TOKEN": ARGOCD_TOKEN}));
    harness.operator().put("Source", "argocd", &preset("argocd").unwrap().starter("argocd")).await.is(200);
    let yaml = |text: &str| serde_saphyr::from_str::<Value>(text).unwrap();
    let config = yaml(&block("source-presets.md", "apiVersion: v1\nkind: ConfigMap\n"));
    let entry = |key: String| yaml(config["data"][&key].as_str().unwrap_or_else(|| panic!("no {key}")));
    let service = entry("service.webhook.ebb".to_owned());
    assert_eq!(service["headers"][0]["name"], "Authorization");
    let token = service["headers"][0]["value"].as_str().unwrap().replace("$ebb-token", ARGOCD_TOKEN);
    let values: BTreeMap<String, String> = request_table::table(TABLE, "values_of_an_application", &[]);
    for (trigger, result, state) in [
        ("ebb-created", SourceResult::Starting, TargetPhase::Ready),
        ("ebb-synced", SourceResult::Unchanged, TargetPhase::Ready),
        ("ebb-deleted", SourceResult::Stopping, TargetPhase::Gone),
    ] {
        let sent = entry(format!("trigger.{trigger}"))[0]["send"][0].as_str().unwrap().to_owned();
        let request = entry(format!("template.{sent}"))["webhook"]["ebb"].clone();
        assert_eq!(request["method"], "POST");
        let mut body = request["body"].as_str().unwrap().to_owned();
        for (name, value) in &values {
            body = body.replace(&format!("{{{{.app.{name}}}}}"), value);
        }
        let request = harness.http.post(harness.url("/v1/sources/argocd")).header("authorization", &token);
        let request = request.header("content-type", "application/json").body(body);
        let response: SourceResponse = ApiReply::to(request).await.json();
        assert_eq!(response.result, result, "{trigger}: {response:?}");
        harness.phase("argocd-shop-pr-7", state).await;
    }
}

/// Runs a block of a page in a shell. Returns its output.
async fn shell(block: &str, variables: &[(&str, &str)]) -> String {
    let mut shell = Command::new("sh");
    shell.args(["-eu", "-c", block]).envs(variables.iter().copied()).env("no_proxy", "*").kill_on_drop(true);
    let ended = shell.output().await.unwrap();
    assert!(ended.status.success(), "{block}: {ended:?}");
    String::from_utf8(ended.stdout).unwrap()
}

/// The commands of the pages about the API and about webhook units.
pub(crate) async fn requests_by_curl() {
    let harness = Harness::new().await;
    let (url, token) = (harness.url(""), harness.stack().token().to_owned());
    let server = [("EBB_URL", url.as_str()), ("EBB_TOKEN", token.as_str())];
    let ask = async |start: &str| {
        let reply = shell(&block("api.md", start), &server).await;
        serde_json::from_str::<Value>(&reply).unwrap()
    };
    let authorized = "curl --header \"Authorization: Bearer $EBB_TOKEN\"";
    assert_eq!(ask(&format!("{authorized} --header \"Idempotency-Key")).await["result"], "starting");
    harness.phase("pr-42", TargetPhase::Ready).await;
    assert_eq!(ask(&format!("{authorized} \"$EBB_URL")).await["targets"][0]["name"], "pr-42");
    assert_eq!(ask(&format!("{authorized} --json '{{\n  \"select")).await["outcomes"], json!([]));
    assert_eq!(ask("curl --get").await["targets"], json!([]));

    harness.receiver.always("POST /make", 202);
    harness.begin("a", "index", include_str!("documents/endpoint.yaml")).await;
    let call = harness.receiver.call("POST /make", 1).await;
    let variables = [("EBB_CALLBACK_TOKEN", call.token()), ("EBB_CALLBACK_URL", call.header(CALLBACK_URL))];
    shell(&block("units/webhook.md", "curl "), &variables).await;
    let target = harness.phase("a", TargetPhase::Ready).await;
    assert_eq!(outputs(&target)["endpoint"]["value"], "index-7.search.example.org:9200");
}
