//! Commands on several sandboxes, by their names or by a selector.

use serde_json::Value;

use crate::workdir::{CommandResult, Workdir};

/// The plugin `quick`. Its setup fails while the file `bad-NAME` exists in the folder `at`.
const PLUGIN: &str = include_str!("documents/quick.yaml");

/// Returns a member of each object in the data of a command.
fn members(result: &CommandResult, member: &str) -> Vec<String> {
    let list: Vec<Value> = result.json();
    list.iter().map(|one| one[member].as_str().unwrap_or_default().to_owned()).collect()
}

#[tokio::test]
async fn several_sandboxes_are_changed_by_one_command() {
    let (workdir, dev) = Workdir::running().await;
    workdir.publish("quick@1.0.0", PLUGIN).await;
    let bad = workdir.write("bad-pr-2", "");
    for (name, team) in [("pr-1", "x"), ("pr-2", "x"), ("pr-3", "y")] {
        let params = format!("{{at: {}}}", workdir.path().display());
        let rest = format!("labels: {{team: {team}}}\nresources: {{r: {{plugin: quick@1.0.0, params: {params}}}}}\n");
        workdir.create(name, &rest).await;
    }
    let waited = workdir.ebb(&["wait", "pr-1", "pr-2", "pr-3", "-o", "json"]).await;
    let waited = waited.ends_with(1, "sandbox/pr-2 is failed: r/make: ");
    let waited = waited.ends_with(1, "2 of 3 targets are ready\nnext step: ebb why pr-2\n");
    assert_eq!(members(&waited, "phase"), ["ready", "failed", "ready"]);
    for (selector, expected) in [
        (["--phase", "failed"], "pr-2"),
        (["--label", "team=x"], "pr-1 pr-2"),
        (["--owner", "role operator"], "pr-1 pr-2 pr-3"),
        (["--plugin", "quick"], "pr-1 pr-2 pr-3"),
        (["--search", "R/MAKE"], "pr-2"),
        (["--search", "nothing"], ""),
    ] {
        let list = workdir.ebb(&[&["get", "sandboxes", "-o", "json"][..], &selector].concat()).await.done();
        assert_eq!(members(&list, "name").join(" "), expected, "{selector:?}");
    }

    let delete = ["delete", "sandbox", "--label", "team=x"];
    let shown = workdir.ebb(&[&delete[..], &["--dry-run"]].concat()).await.done();
    assert!(shown.stderr.starts_with("Would delete sandbox/pr-1: ready, role operator\n"), "{shown:#?}");
    workdir.ebb(&delete).await.ends_with(2, "help: add --yes to skip the question");
    assert!(shown.stderr.ends_with("\n2 of 2 targets would change\n"), "{shown:#?}");
    let retry = ["retry", "--label", "team=x"];
    let shown = workdir.ebb(&[&retry[..], &["--dry-run"]].concat()).await.done();
    assert!(shown.stderr.starts_with("Would retry sandbox/pr-2: failed, role operator, r/make: "), "{shown:#?}");
    std::fs::remove_file(bad).unwrap();
    workdir.ebb(&[&retry[..], &["--yes"]].concat()).await.ends_with(0, "sandbox/pr-2: Retrying in ");
    let waited = workdir.ebb(&["wait", "--label", "team=x"]).await;
    waited.ends_with(0, "sandbox/pr-2 is ready\n").ends_with(0, "2 of 2 targets are ready\n");

    let refused = workdir.ebb(&["retry", "pr-1", "none", "none", "-o", "json"]).await;
    let refused = refused.ends_with(1, "\nsandbox/none does not exist\n0 of 2 targets are retried\n");
    assert_eq!(members(&refused, "name"), ["pr-1", "none"]);
    assert_eq!(members(&refused, "code"), ["nothing-failed", "not-found"]);
    let unknown = workdir.ebb(&["delete", "sandbox", "pr-1", "none", "--token", "unknown", "-o", "json"]).await;
    let unknown = unknown.ends_with(1, "error: the token is unknown\n");
    assert_eq!(unknown.json::<Value>()["error"]["problem"]["code"], "invalid-token");

    let deleted = workdir.ebb(&[&delete[..], &["--yes", "-o", "json"]].concat()).await.done();
    assert_eq!(
        (members(&deleted, "name").join(" "), members(&deleted, "phase")),
        ("pr-1 pr-2".to_owned(), vec!["gone".to_owned(); 2])
    );
    let accepted = workdir.ebb(&["delete", "sandbox", "--label", "team=y", "--yes", "--wait=false"]).await.done();
    assert_eq!(accepted.stderr, "sandbox/pr-3 is being deleted\n1 of 1 targets are being deleted\n");
    let named = workdir.ebb(&["delete", "sandbox", "pr-3", "none"]).await.ends_with(1, "sandbox/none does not exist");
    named.ends_with(1, "1 of 2 targets are gone\n");
    let none = workdir.ebb(&["delete", "sandbox", "--owner", "role operator", "--yes"]).await.done();
    assert_eq!(none.stderr, "No target is selected\n");
    dev.stop().await;
}

#[tokio::test]
async fn a_stopped_server_is_reported_once() {
    let workdir = Workdir::new().with_env(&[("EBB_URL", "http://127.0.0.1:1".into())]);
    for command in [&["delete", "sandbox", "pr-1", "pr-2"][..], &["retry", "pr-1", "pr-2"]] {
        let result = workdir.ebb(command).await.ends_with(2, "no server responds");
        assert_eq!(result.stderr.matches("no server responds").count(), 1, "{result:#?}");
    }
}

#[tokio::test]
async fn selected_sandboxes_get_another_version_of_a_plugin() {
    let (workdir, dev) = Workdir::running().await;
    workdir.publish("quick@1.0.0", PLUGIN).await;
    for (name, team, plugin) in [("pr-1", "x", "quick@1.0.0"), ("pr-2", "x", "quick"), ("pr-3", "y", "quick@1.0.0")] {
        let resource = format!("{{plugin: {plugin}, params: {{at: {}}}}}", workdir.path().display());
        workdir.create(name, &format!("# by hand\nlabels: {{team: {team}}}\nresources: {{r: {resource}}}\n")).await;
    }
    workdir.ebb(&["wait", "pr-1", "pr-2", "pr-3"]).await.done();
    workdir.publish("quick@1.1.0", &PLUGIN.replace("exit 7", "exit 8")).await;

    let upgrade = ["plugin", "upgrade", "quick@1.1.0", "--label", "team=x"];
    let shown = workdir.ebb(&[&upgrade[..], &["--dry-run"]].concat()).await.done();
    for name in ["pr-1", "pr-2"] {
        let effect = format!(
            "Would update sandbox/{name} by a run\n  resources.r.plugin: quick@1.0.0 → quick@1.1.0\n  resource r: replaced\n"
        );
        assert!(shown.stderr.contains(&effect), "{shown:#?}");
    }
    workdir.ebb(&upgrade).await.ends_with(2, "help: add --yes to skip the question");
    assert_eq!(workdir.get("pr-1").await.info.generation, 1);

    let upgraded = workdir.ebb(&[&upgrade[..], &["--yes", "-o", "json"]].concat()).await.done();
    assert_eq!(
        (members(&upgraded, "name").join(" "), members(&upgraded, "phase").join(" ")),
        ("pr-1 pr-2".to_owned(), "ready ready".to_owned())
    );
    let outcomes: Vec<Value> = upgraded.json();
    assert!(outcomes.iter().all(|outcome| outcome["update"]["result"] == "updating"), "{outcomes:?}");
    for (name, plugin) in [("pr-1", "quick@1.1.0"), ("pr-2", "quick@1.1.0"), ("pr-3", "quick@1.0.0")] {
        assert_eq!(workdir.get(name).await.resources["r"].plugin, plugin, "{name}");
    }
    let history = workdir.ebb(&["history", "pr-2", "-o", "json"]).await.done();
    let document = workdir.ebb(&["history", "pr-2", "--document", &members(&history, "id")[0]]).await.done();
    assert!(document.stdout.contains("# by hand\n"), "{document:#?}");
    assert!(document.stdout.contains("{plugin: quick@1.1.0, "), "{document:#?}");

    let none = workdir.ebb(&[&upgrade[..], &["--yes"]].concat()).await.done();
    assert_eq!(none.stderr, "No selected target has another version than quick@1.1.0\n");
    let named = workdir.ebb(&["plugin", "upgrade", "quick", "pr-1", "pr-3", "none"]).await;
    let named =
        named.ends_with(1, "sandbox/none does not exist").ends_with(1, "sandbox/pr-1 has quick@1.1.0 already\n");
    named.ends_with(1, "Updating sandbox/pr-3 (generation 2)\n").ends_with(1, "sandbox/pr-3 is ready\n");
    workdir.ebb(&["plugin", "upgrade", "quick@3.0.0", "pr-1"]).await.ends_with(1, "quick@3.0.0 is not published");
    dev.stop().await;
}
