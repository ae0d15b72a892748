//! The way back to an earlier document of a name, that of a former instance.

use ebb_protocol::history::{HistoryChange, HistoryEntry};
use serde_json::json;

use crate::workdir::Workdir;

const PLUGIN: &str = include_str!("documents/sized.yaml");

async fn history(workdir: &Workdir) -> Vec<HistoryEntry> {
    workdir.ebb(&["history", "pr-1", "-o", "json"]).await.done().json()
}

#[tokio::test]
async fn an_earlier_document_is_applied_again() {
    let (workdir, dev) = Workdir::running().await;
    workdir.publish("sized@1.0.0", PLUGIN).await;
    let apply = async |size: u32| {
        let resource = format!("resources: {{r: {{plugin: sized@1.0.0, params: {{size: {size}}}}}}}\n");
        let file = workdir.write_sandbox("pr-1", &format!("# Size {size}.\n{resource}"));
        workdir.ebb(&["apply", "-f", &file]).await.done();
    };
    apply(1).await;
    workdir.ebb(&["delete", "sandbox", "pr-1"]).await.done();
    apply(2).await;

    let before = history(&workdir).await;
    let (present, first) = (&before[0], &before[2]);
    let shown = workdir.ebb(&["history", "pr-1"]).await.done().stdout;
    assert!(shown.contains(&present.uid) && shown.contains(&first.uid) && present.uid != first.uid, "{shown}");

    let newest = workdir.ebb(&["history", "pr-1", "--limit", "2"]).await;
    assert_eq!(newest.ends_with(0, "more entries: ebb history pr-1 --limit 4\n").stdout.lines().count(), 3);
    assert!(!workdir.ebb(&["history", "pr-1", "--limit", "3"]).await.stderr.contains("more entries"));
    let unknown = workdir.ebb(&["history", "pr-1", "--document", "x"]).await;
    unknown.ends_with(1, "has no entry \"x\"\n  help: ebb history pr-1");
    let document = workdir.ebb(&["history", "pr-1", "--document", &first.id]).await.done().stdout;
    assert!(document.contains("# Size 1.\n"), "{document}");
    let file = workdir.write("first.yaml", &document);
    workdir.ebb(&["apply", "-f", &file]).await.done();
    let seen = workdir.get("pr-1").await;
    assert_eq!((&seen.info.uid, seen.info.generation), (&present.uid, 2));
    assert_eq!(seen.resources["r"].params["size"], json!(1));
    let after = history(&workdir).await;
    assert_eq!((after[0].change, after[0].generation), (HistoryChange::Updated, 2));
    assert_eq!(after[0].document, first.document);
    dev.stop().await;
}
