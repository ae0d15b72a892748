//! The commands that wait for a sandbox and print its environment.

use ebb_protocol::api::TargetPhase;
use serde_json::{Value, json};

use crate::workdir::{CommandResult, Workdir};

/// Its output `text` has what shells and files of variables could misread. Its output `token` is sensitive. The script
/// waits until the file `go` exists in the folder `at`.
const PLUGIN: &str = include_str!("documents/values.yaml");

fn sandbox(name: &str, at: &std::path::Path, more: &str) -> String {
    format!(
        "apiVersion: ebb.dev/v1\nkind: Sandbox\nname: {name}\nresources: {{v: {{plugin: values@1.0.0, params: {{at: {}{more}}}}}}}\n\
         env: {{TEXT: \"${{resources.v.outputs.text}}\", TOKEN: \"${{resources.v.outputs.token}}\"}}\n",
        at.display()
    )
}

#[tokio::test]
async fn a_job_waits_and_reads_the_environment() {
    let (workdir, dev) = Workdir::running().await;
    workdir.apply("plugin", PLUGIN).await;

    // The sandbox does not exist yet, as when a webhook creates it.
    let waits = workdir.start(&["wait", "pr-1", "-o", "json"]);
    let none = workdir.ebb(&["wait", "pr-1", "--timeout", "100ms"]).await;
    none.ends_with(124, "sandbox/pr-1 does not exist after 0.1s");
    workdir.ebb(&["wait", "pr-1", "--for", "gone"]).await.done();

    let file = workdir.write("sandbox.yaml", &sandbox("pr-1", workdir.path(), ""));
    workdir.ebb(&["apply", "-f", &file, "--wait=false"]).await.done();
    let watches = workdir.start(&["get", "sandbox", "pr-1", "--watch", "-o", "json"]);
    let early: Value = workdir.ebb(&["env", "pr-1", "-o", "json"]).await.ends_with(1, "").json();
    assert_eq!(early["error"]["nextSteps"], json!(["ebb wait pr-1"]));
    let late = workdir.ebb(&["wait", "pr-1", "--timeout", "500ms"]).await;
    late.ends_with(124, "sandbox/pr-1 is starting after ");
    workdir.write("go", "");
    assert_eq!(waits.end().await.done().json::<Value>()["phase"], "ready");
    let views = watches.end().await.done().stdout;
    let views: Vec<Value> = views.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(views.last().unwrap()["phase"], "ready");

    let refused = workdir.ebb(&["env", "pr-1"]).await.ends_with(1, "  TOKEN: secret ");
    assert_eq!(refused.stdout, "");
    let text = "it's $HOME\n`id` \"x\"\n";
    for arguments in [&["--skip-sensitive"][..], &["--resource", "v/text"]] {
        let printed = workdir.ebb(&[&["env", "pr-1", "-o", "json"][..], arguments].concat()).await.done();
        assert_eq!(printed.json::<Value>(), json!({"TEXT": text}));
    }
    workdir.ebb(&["env", "pr-1", "--resource", "nosuch"]).await.ends_with(1, "");

    let failing = workdir.write("failing.yaml", &sandbox("pr-2", workdir.path(), ", fail: true"));
    workdir.ebb(&["apply", "-f", &failing, "--wait=false"]).await.done();
    workdir.ebb(&["wait", "pr-2"]).await.ends_with(1, "v/create");
    let failed = workdir.ebb(&["get", "sandbox", "pr-2", "--watch"]).await.ends_with(1, "sandbox/pr-2  failed");
    assert!(failed.stdout.contains("Phase:       failed since "), "{failed:#?}");

    workdir.ebb(&["delete", "sandbox", "pr-1", "--wait=false"]).await.done();
    workdir.ebb(&["wait", "pr-1", "--for", "gone"]).await.done();
    workdir.ebb(&["wait", "pr-1", "--timeout", "100ms"]).await.ends_with(124, "");
    dev.stop().await;
}

#[tokio::test]
async fn a_failure_of_post_start_leaves_the_environment() {
    let (workdir, dev) = Workdir::running().await;
    workdir.publish("tells@1.0.0", include_str!("documents/tells.yaml")).await;
    for name in ["pr-1", "pr-2"] {
        workdir.create(name, "resources: {r: {plugin: tells@1.0.0}}\nenv: {N: \"${resources.r.outputs.n}\"}\n").await;
        workdir.reaches(name, TargetPhase::Failed).await;
    }
    let warning = "warning: postStart of sandbox/pr-1 has failed: r/tell: the script ended with 3";
    workdir.ebb(&["wait", "pr-1"]).await.ends_with(0, warning);
    workdir.ebb(&["wait", "pr-1", "pr-2"]).await.ends_with(0, warning);
    assert_eq!(workdir.ebb(&["env", "pr-1"]).await.ends_with(0, warning).stdout, "N=1\n");
    let shown = workdir.ebb(&["get", "sandbox", "pr-1"]).await.done().stdout;
    assert!(shown.contains("Phase:       failed (usable) since "), "{shown}");
    dev.stop().await;
}

#[tokio::test]
async fn a_ttl_that_has_ended_is_reported() {
    let (workdir, dev) = Workdir::running().await;
    workdir.apply("plugin", PLUGIN).await;
    workdir.write("go", "");
    let document = sandbox("pr-1", workdir.path(), "");
    workdir.apply("sandbox", &document).await;
    let apply = async |ttl: &str, more: &[&str]| {
        let file = workdir.write("changed.yaml", &format!("{document}ttl: {ttl}\n"));
        workdir.ebb(&[&["apply", "-f", &file][..], more].concat()).await.done().stderr
    };
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    let warning = "warning: the `ttl` of sandbox/pr-1 counts from its creation and ended at ";
    for (ttl, is_over) in [("1h", false), ("1s", true)] {
        let shown = apply(ttl, &["--dry-run"]).await;
        assert_eq!(shown.contains(warning), is_over, "{shown}");
    }
    let applied = apply("1s", &["--wait=false"]).await;
    assert!(applied.contains(warning), "{applied}");
    dev.stop().await;
}

/// The plugin `stuck`. Its undo always fails.
const STUCK: &str = include_str!("documents/stuck.yaml");

#[tokio::test]
async fn a_forced_deletion_withdraws_the_instance_that_waits() {
    let (workdir, dev) = Workdir::running().await;
    workdir.publish("stuck@1.0.0", STUCK).await;
    let file = workdir.write_sandbox("pr-1", "resources: {r: {plugin: stuck@1.0.0}}\n");
    workdir.ebb(&["apply", "-f", &file]).await.done();
    workdir.ebb(&["delete", "sandbox", "pr-1"]).await.ends_with(1, "");
    let waits = workdir.ebb(&["apply", "-f", &file, "--wait=false"]).await;
    waits.ends_with(0, "Waiting sandbox/pr-1");
    let forced = workdir.ebb(&["delete", "sandbox", "pr-1", "--force", "--reason", "a test"]).await;
    forced.ends_with(0, " waited for the name, and does not begin any more");
    let gone = workdir.get("pr-1").await;
    assert_eq!((gone.info.phase, gone.waiting_uid), (TargetPhase::Gone, None));
    dev.stop().await;
}

/// The plugin `held`. Its undo waits until the file `gone` exists in the folder `at`.
const HELD: &str = include_str!("documents/held.yaml");

#[tokio::test]
async fn an_instance_that_waits_does_not_show_values_of_the_present_one() {
    let (workdir, dev) = Workdir::running().await;
    workdir.publish("held@1.0.0", HELD).await;
    let resource = format!("{{plugin: held@1.0.0, params: {{at: {}, text: first}}}}", workdir.path().display());
    let env = "env: {TEXT: \"${resources.h.outputs.text}\"}\n";
    let file = workdir.write_sandbox("pr-1", &format!("resources: {{h: {resource}}}\n{env}"));
    let created = workdir.ebb(&["apply", "-f", &file]).await.done();
    assert_eq!(created.stdout, "h.text = first\n");
    workdir.ebb(&["delete", "sandbox", "pr-1", "--wait=false"]).await.done();
    // A wait that ends early has data, too.
    let late = workdir.ebb(&["delete", "sandbox", "pr-1", "--wait-timeout", "100ms", "-o", "json"]).await;
    assert_eq!(late.ends_with(124, "sandbox/pr-1 is stopping after ").json::<Value>()["phase"], "stopping");
    let apply = ["apply", "-f", &file, "--wait=false"];
    let waits = workdir.ebb(&apply).await.ends_with(0, "sandbox/pr-1 waits until its predecessor ");
    assert_eq!(waits.stdout, "");
    let shown: Value = workdir.ebb(&[&apply[..], &["-o", "json"]].concat()).await.done().json();
    assert!(shown[0]["waitingUid"].is_string(), "{shown}");
    assert_eq!((&shown[0]["resources"]["h"]["outputs"], &shown[0]["env"]), (&Value::Null, &Value::Null));
    workdir.write("gone", "");
    let begun = workdir.ebb(&[&apply[..3], &["-o", "json"]].concat()).await.done().json::<Value>();
    assert_eq!(begun[0]["env"]["TEXT"], json!({"value": "first"}));
    dev.stop().await;
}

#[tokio::test]
async fn one_command_repairs_every_stuck_sandbox() {
    let (workdir, dev) = Workdir::running().await;
    workdir.publish("stuck@1.0.0", STUCK).await;
    let names = ["pr-1", "pr-2"];
    for name in names {
        let file = workdir.write_sandbox(name, "resources: {r: {plugin: stuck@1.0.0}}\n");
        workdir.ebb(&["apply", "-f", &file]).await.done();
        workdir.ebb(&["delete", "sandbox", name]).await.ends_with(1, "");
    }
    workdir.publish("stuck@1.0.1", &STUCK.replace("/bin/false", "/bin/true")).await;
    let repair = ["retry", "--phase", "stuck", "--plugin", "stuck@1.0.1", "--yes"];
    let shown = workdir.ebb(&[&repair[..], &["--dry-run"]].concat()).await.done();
    assert_eq!(shown.stderr.matches("r/drop: stuck@1.0.0 → stuck@1.0.1").count(), 2, "{shown:#?}");
    for name in names {
        assert_eq!(workdir.get(name).await.info.phase, TargetPhase::Stuck);
    }
    workdir.ebb(&repair).await.done();
    for name in names {
        workdir.reaches(name, TargetPhase::Gone).await;
    }
    dev.stop().await;
}

const SOURCE: &str = include_str!("documents/source.yaml");

const CONNECTION: &str = include_str!("documents/connection.yaml");
const SUBSCRIPTION: &str = include_str!("documents/subscription.yaml");

#[tokio::test]
async fn a_missing_secret_is_shown_in_the_document() {
    let (workdir, dev) = Workdir::running().await;
    let head = "apiVersion: ebb.dev/v1\nkind: Subscription\nname: failures\non: [failed]\n";
    for (to, place) in [
        ("{slack: {secret: NOSUCH}}", "to-apply.yaml:5:22]"),
        ("{standard: {url: \"https://example.com\", secret: NOSUCH}}", "to-apply.yaml:5:53]"),
    ] {
        let applied = workdir.apply("subscription", &format!("{head}to: {to}\n")).await;
        let shown = applied.ends_with(0, "the deployment has no secret NOSUCH");
        shown.ends_with(0, place);
    }
    workdir.apply("connection", CONNECTION).await.ends_with(0, "to-apply.yaml:5:25]");
    let shown = workdir.apply("subscription", SUBSCRIPTION).await.ends_with(0, "TICKETS_TOKEN");
    shown.ends_with(0, "to-apply.yaml:5:28]");
    dev.stop().await;
}

#[tokio::test]
async fn a_dry_run_changes_nothing() {
    let (workdir, dev) = Workdir::running().await;
    let plugin = workdir.write("plugin.yaml", PLUGIN);
    let changed = workdir.write("changed.yaml", &PLUGIN.replace("exit 7", "exit 8"));
    let source = workdir.write("source.yaml", SOURCE);
    let other = workdir.write("other.yaml", &SOURCE.replace("t-$", "u-$"));
    let change = async |arguments: &[&str]| {
        let changes: Value = workdir.ebb(&[arguments, &["-o", "json"]].concat()).await.done().json();
        let [change] = changes.as_array().unwrap().as_slice() else { panic!("{changes}") };
        (change["name"].as_str().unwrap().to_owned(), change["change"].clone(), change["dryRun"].clone())
    };
    let connection = workdir.write("connection.yaml", CONNECTION);
    let subscription = workdir.write("subscription.yaml", SUBSCRIPTION);
    let documents = [
        ("plugin", "values@1.0.0", &plugin),
        ("source", "previews", &source),
        ("connection", "tickets", &connection),
        ("subscription", "failures", &subscription),
    ];
    for (kind, name, file) in documents {
        let name = || name.to_owned();
        // A dry run that creates the document would change the result of the next one.
        for _ in 0..2 {
            assert_eq!(change(&["apply", "-f", file, "--dry-run"]).await, (name(), json!("create"), json!(true)));
        }
        workdir.ebb(&["apply", "-f", file]).await.done();
        assert_eq!(change(&["apply", "-f", file, "--dry-run"]).await, (name(), json!("none"), json!(true)));
        let bare = name().replace("@1.0.0", "");
        for _ in 0..2 {
            assert_eq!(change(&["delete", kind, &bare, "--dry-run"]).await, (name(), json!("delete"), json!(true)));
        }
    }
    for _ in 0..2 {
        let replaced = change(&["apply", "-f", &other, "--dry-run"]).await;
        assert_eq!(replaced, ("previews".to_owned(), json!("replace"), json!(true)));
        workdir.ebb(&["apply", "-f", &changed, "--dry-run"]).await.ends_with(1, "");
    }
    for (kind, name, _) in documents {
        assert_eq!(change(&["delete", kind, name]).await, (name.to_owned(), json!("delete"), json!(false)));
    }
    // A withdrawn version stays readable.
    let withdrawn = change(&["delete", "plugin", "values@1.0.0", "--dry-run"]).await;
    assert_eq!(withdrawn, ("values@1.0.0".to_owned(), json!("none"), json!(true)));
    workdir.ebb(&["delete", "source", "previews", "--dry-run"]).await.ends_with(1, "");
    dev.stop().await;
}

#[tokio::test]
async fn one_call_stores_documents_before_those_that_name_them() {
    let (workdir, dev) = Workdir::running().await;
    workdir.write("go", "");
    let folder = workdir.path().join("documents");
    std::fs::create_dir(&folder).unwrap();
    let target = sandbox("pr-1", workdir.path(), "");
    let others = format!("{SUBSCRIPTION}---\n{CONNECTION}");
    for (name, text) in [("a.yaml", target.as_str()), ("b.yml", PLUGIN), ("c.yaml", &others), ("d.json", "{}")] {
        std::fs::write(folder.join(name), text).unwrap();
    }
    let apply = async |more: &[&str]| workdir.ebb(&[&["apply", "-f", folder.to_str().unwrap()], more].concat()).await;
    let names = |result: &CommandResult| -> Vec<String> {
        let all: Vec<Value> = result.json();
        all.iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect()
    };
    // The server does not know the plugin of the sandbox yet.
    let planned = apply(&["--dry-run", "-o", "json"]).await.ends_with(0, "Would create connection tickets\n");
    let planned = planned.ends_with(0, "Would create sandbox/pr-1\n");
    assert_eq!(names(&planned), ["tickets", "values@1.0.0", "failures", "pr-1"]);
    assert_eq!(workdir.ebb(&["get", "plugins", "-o", "name"]).await.done().stdout, "");
    assert_eq!(names(&apply(&["-o", "json"]).await.done()), ["tickets", "values", "failures", "pr-1"]);
    apply(&[]).await.ends_with(0, "Unchanged plugin values@1.0.0\n").ends_with(0, "Unchanged sandbox/pr-1 ");
    let listed = workdir.ebb(&["get", "sandboxes", "--sort", "first-cause", "-o", "name"]).await.done();
    assert_eq!(listed.stdout, "pr-1\n");
    let wide = workdir.ebb(&["get", "rp", "-o", "wide"]).await.done().stdout;
    assert!(wide.contains("DIGEST\n") && wide.contains("  ebb      sha256:"), "{wide}");
    workdir.ebb(&["get", "plugins", "--sort", "owner"]).await.ends_with(2, "help: columns: name, version, created, ");
    workdir
        .ebb(&["delete", "-f", folder.to_str().unwrap()])
        .await
        .ends_with(1, "contains a plugin; expected a sandbox");
    dev.stop().await;
}

#[tokio::test]
async fn a_dry_run_of_a_sandbox_shows_its_effect() {
    let (workdir, dev) = Workdir::running().await;
    workdir.apply("plugin", PLUGIN).await;
    workdir.write("go", "");
    let document = sandbox("pr-1", workdir.path(), "");
    let file = workdir.write("sandbox.yaml", &document);
    let changed =
        sandbox("pr-1", workdir.path(), ", fail: true").replace("name: pr-1\n", "name: pr-1\nlabels: {team: x}\n");
    let changed = changed.replace("}}}\n", "}}, w: {plugin: values@1.0.0, params: {at: /}}}\n");
    let changed = workdir.write("changed.yaml", &changed);
    let apply = async |file: &str| workdir.ebb(&["apply", "-f", file, "--dry-run"]).await;
    // A dry run that creates the sandbox would change the result of the next one.
    for _ in 0..2 {
        apply(&file).await.ends_with(0, "Would create sandbox/pr-1");
    }
    workdir.ebb(&["apply", "-f", &file]).await.done();
    assert_eq!(apply(&file).await.ends_with(0, "Would not change sandbox/pr-1").stdout, "");
    for _ in 0..2 {
        let shown = apply(&changed).await.ends_with(0, "Would update sandbox/pr-1 by a run");
        let expected = [
            "labels.team: - → x",
            "resources.v.params.fail: false → true",
            "resources.w: - → values@1.0.0",
            "resource v: replaced",
            "resource w: added",
        ];
        assert_eq!(shown.stdout.lines().collect::<Vec<_>>(), expected);
    }
    let receipt = workdir.ebb(&["apply", "-f", &changed, "--dry-run", "-o", "json"]).await.done();
    let receipt = &receipt.json::<Value>()[0];
    assert_eq!(receipt["result"], "updating");
    assert_eq!(receipt["resources"], json!({"v": "replaced", "w": "added"}));
    assert!(receipt["plan"]["hooks"].is_array(), "{receipt}");
    let wrong = workdir.write("wrong.yaml", &document.replace("values@1.0.0", "values@9.0.0"));
    // The server names no file. The command names it, and shows the line.
    let refused = apply(&wrong).await.ends_with(1, "wrong.yaml:4:");
    refused.ends_with(1, "\n    4 | resources: {v: {plugin: values@9.0.0, ");

    let delete = async |name: &str| workdir.ebb(&["delete", "sandbox", name, "--dry-run"]).await;
    delete("pr-1").await.ends_with(0, "Would delete sandbox/pr-1");
    assert!(!delete("pr-2").await.ends_with(1, "").stderr.contains("Would delete"));
    let ready = workdir.get("pr-1").await.info;
    assert_eq!((ready.phase, ready.generation), (TargetPhase::Ready, 1));
    workdir.ebb(&["delete", "sandbox", "pr-1"]).await.done();
    delete("pr-1").await.ends_with(0, "Would not change sandbox/pr-1");
    dev.stop().await;
}
