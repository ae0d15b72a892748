//! The history of a name over its instances and generations, and the way back to an earlier document.

use ebb_protocol::history::{HistoryChange, HistoryEntry};
use serde_json::json;

use crate::workdir::Workdir;

const PLUGIN: &str = r##"
apiVersion: ebb.dev/v1
kind: Plugin
name: sized@1.0.0
params: {size: {type: integer}}
runners: {shell: {image: "busybox:1.36"}}
preStart:
  make: {pod: {script: "#!/bin/sh\n"}, inputs: {size: "${params.size}"}}
postStop:
  drop: {undoes: make, pod: {script: "#!/bin/sh\n"}}
"##;

async fn history(workdir: &Workdir) -> Vec<HistoryEntry> {
    workdir.ebb(&["history", "pr-1", "-o", "json"]).await.done().json()
}

/// Returns the fields of an entry that later changes leave as they are.
fn facts(entry: &HistoryEntry) -> (&str, &str, &str, u64, Option<&str>) {
    (&entry.id, &entry.time, &entry.uid, entry.generation, entry.document.as_deref())
}

#[tokio::test]
async fn an_earlier_document_is_applied_again() {
    let workdir = Workdir::new();
    let dev = workdir.dev().await;
    workdir.apply("plugin", PLUGIN).await;
    let apply = async |size: u32| {
        let resource = format!("resources: {{r: {{plugin: sized@1.0.0, params: {{size: {size}}}}}}}\n");
        let file = workdir.write_sandbox("pr-1", &format!("# Size {size}.\n{resource}"));
        workdir.ebb(&["apply", "-f", &file]).await.done();
    };
    apply(1).await;
    apply(2).await;
    workdir.ebb(&["delete", "sandbox", "pr-1"]).await.done();
    apply(3).await;
    apply(4).await;

    let before = history(&workdir).await;
    let rows: Vec<_> = before.iter().rev().map(|entry| (entry.change.words(), entry.generation)).collect();
    assert_eq!(rows, [("created", 1), ("updated", 2), ("deleted", 2), ("created", 1), ("updated", 2)]);
    assert!(before.iter().all(|entry| entry.by.as_deref() == Some("role operator")), "{before:?}");
    assert!(before.windows(2).all(|two| two[0].time >= two[1].time), "{before:?}");
    let (present, former) = (&before[0].uid, &before[4].uid);
    assert_ne!(present, former);
    let shown = workdir.ebb(&["history", "pr-1"]).await.done().stdout;
    assert_eq!(
        (shown.matches(present.as_str()).count() >= 2, shown.contains(former.as_str())),
        (true, true),
        "{shown}"
    );

    let newest = workdir.ebb(&["history", "pr-1", "--limit", "2"]).await;
    assert_eq!(newest.ends_with(0, "more entries: ebb history pr-1 --limit 4\n").stdout.lines().count(), 3);
    assert!(!workdir.ebb(&["history", "pr-1", "--limit", "5"]).await.stderr.contains("more entries"));
    let unknown = workdir.ebb(&["history", "pr-1", "--document", "x"]).await;
    unknown.ends_with(1, "has no entry \"x\"\n  help: ebb history pr-1");
    let first = workdir.ebb(&["history", "pr-1", "--document", &before[4].id]).await.done().stdout;
    assert!(first.contains("# Size 1.\n"), "{first}");
    let file = workdir.write("first.yaml", &first);
    workdir.ebb(&["apply", "-f", &file]).await.done();
    let seen = workdir.get("pr-1").await;
    assert_eq!((&seen.info.uid, seen.info.generation), (present, 3));
    assert_eq!(seen.resources["r"].params["size"], json!(1));
    let after = history(&workdir).await;
    assert_eq!((after[0].change, after[0].generation), (HistoryChange::Updated, 3));
    assert_eq!(after[0].document, before[4].document);
    // Nothing of the past has changed.
    assert!(after[1..].iter().map(facts).eq(before.iter().map(facts)), "{before:?} {after:?}");
    dev.stop().await;
}
