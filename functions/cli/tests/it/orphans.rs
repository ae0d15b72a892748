//! The command that lists and deletes orphans.

use serde_json::{Value, json};

use crate::receiver::TestReceiver;
use crate::workdir::Workdir;

#[tokio::test]
async fn owned_orphans_are_deleted_after_a_confirmation() {
    let server = TestReceiver::start().await;
    let [own, other] = [("own", true), ("other", false)].map(|(uid, owned)| {
        let (cluster, kind, reason) = ("eu", "ConfigMap", "its owner is gone");
        json!({
            "cluster": cluster, "kind": kind, "name": "a", "uid": uid, "instance": "k", "ageSeconds": 1, "reason": reason,
            "owned": owned,
        })
    });
    let errors = json!([{"cluster": "gone", "reason": "it does not respond"}]);
    server.always("GET /v1/orphans", json!({"orphans": [own, other], "errors": errors}));
    let delete = "POST /v1/orphans/delete";
    server.always(delete, json!({"deleted": [own], "remaining": []}));
    let workdir = Workdir::new().with_env(&[("EBB_URL", server.url().into()), ("EBB_TOKEN", "t".into())]);
    workdir.ebb(&["orphans"]).await.ends_with(1, "Not checked in gone: it does not respond");
    workdir.ebb(&["orphans", "--delete"]).await.ends_with(2, "help: add --yes to skip the question");
    assert_eq!(server.count(delete), 0);
    let deleted: Value = workdir.ebb(&["orphans", "--delete", "--yes", "-o", "json"]).await.done().json();
    assert_eq!(deleted["deleted"][0]["uid"], "own", "{deleted}");
    assert_eq!(server.call(delete, 1).await.body, json!({"uids": ["own"]}));
}
