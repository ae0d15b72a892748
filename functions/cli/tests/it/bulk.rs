//! Commands on several sandboxes, by their names or by a selector.

use serde_json::Value;

use crate::workdir::{CommandResult, Workdir};

/// Its setup fails while the file `bad-NAME` exists in the folder `at`.
const PLUGIN: &str = r##"
apiVersion: ebb.dev/v1
kind: Plugin
name: quick@1.0.0
params: {at: {type: string}}
runners: {shell: {image: "busybox:1.36"}}
preStart:
  make:
    retry: {attempts: 1}
    pod:
      script: |
        #!/bin/sh
        [ ! -e "$AT/bad-$NAME" ] || exit 7
    inputs: {at: "${params.at}", name: "${target.name}"}
"##;

/// Returns a member of each object in the data of a command.
fn members(result: &CommandResult, member: &str) -> Vec<String> {
    let list: Vec<Value> = result.json();
    list.iter().map(|one| one[member].as_str().unwrap_or_default().to_owned()).collect()
}

#[tokio::test]
async fn several_sandboxes_are_changed_by_one_command() {
    let workdir = Workdir::new();
    let dev = workdir.dev().await;
    workdir.apply("plugin", PLUGIN).await;
    let bad = workdir.write("bad-pr-2", "");
    for (name, team) in [("pr-1", "x"), ("pr-2", "x"), ("pr-3", "y")] {
        let params = format!("{{at: {}}}", workdir.path().display());
        let rest = format!("labels: {{team: {team}}}\nresources: {{r: {{plugin: quick@1.0.0, params: {params}}}}}\n");
        workdir.create(name, &rest).await;
    }
    let waited = workdir.ebb(&["sandbox", "wait", "pr-1", "pr-2", "pr-3", "-o", "json"]).await;
    let waited = waited.ends_with(1, "sandbox/pr-2: is failed: r/make: ");
    assert_eq!(members(&waited, "phase"), ["ready", "failed", "ready"]);
    for (selector, expected) in [
        (["--phase", "failed"], "pr-2"),
        (["--label", "team=x"], "pr-1 pr-2"),
        (["--owner", "role operator"], "pr-1 pr-2 pr-3"),
        (["--plugin", "quick"], "pr-1 pr-2 pr-3"),
        (["--search", "R/MAKE"], "pr-2"),
        (["--search", "nothing"], ""),
    ] {
        let list = workdir.ebb(&[&["sandbox", "list", "-o", "json"][..], &selector].concat()).await.done();
        assert_eq!(members(&list, "name").join(" "), expected, "{selector:?}");
    }

    let delete = ["sandbox", "delete", "--label", "team=x"];
    let shown = workdir.ebb(&[&delete[..], &["--dry-run"]].concat()).await.done();
    assert!(shown.stderr.starts_with("Would delete sandbox/pr-1: ready, role operator\n"), "{shown:#?}");
    workdir.ebb(&delete).await.ends_with(2, "help: add --yes to skip the question");
    let retry = ["retry", "--label", "team=x"];
    let shown = workdir.ebb(&[&retry[..], &["--dry-run"]].concat()).await.done();
    assert!(shown.stderr.starts_with("Would retry sandbox/pr-2: failed, role operator, r/make: "), "{shown:#?}");
    std::fs::remove_file(bad).unwrap();
    workdir.ebb(&[&retry[..], &["--yes"]].concat()).await.ends_with(0, "sandbox/pr-2: Retrying in ");
    let waited = workdir.ebb(&["sandbox", "wait", "--label", "team=x"]).await;
    waited.ends_with(0, "sandbox/pr-2 is ready\n").ends_with(0, "2 of 2 targets are ready\n");

    let deleted = workdir.ebb(&[&delete[..], &["--yes", "-o", "json"]].concat()).await.done();
    assert_eq!(
        (members(&deleted, "name").join(" "), members(&deleted, "phase")),
        ("pr-1 pr-2".to_owned(), vec!["gone".to_owned(); 2])
    );
    let accepted = workdir.ebb(&["sandbox", "delete", "--label", "team=y", "--yes", "--wait=false"]).await.done();
    assert_eq!(accepted.stderr, "sandbox/pr-3 is being deleted\n1 of 1 targets are being deleted\n");
    let named = workdir.ebb(&["sandbox", "delete", "pr-3", "none"]).await.ends_with(1, "sandbox/none does not exist");
    named.ends_with(1, "1 of 2 targets are gone\n");
    let none = workdir.ebb(&["sandbox", "delete", "--owner", "role operator", "--yes"]).await.done();
    assert_eq!(none.stderr, "No target is selected\n");
    dev.stop().await;
}
