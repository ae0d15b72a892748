//! One script in the foreground.

use std::time::Duration;

use ebb_local::pods::{OneOffScript, run_once};
use ebb_protocol::callback::CallbackStatus;

use crate::fixture::*;

fn once(request: ebb_protocol::relay::EnsureTask<ebb_protocol::relay::ScriptTask>) -> OneOffScript {
    OneOffScript { script: request.body, timeout: PATIENCE, extra_env: Vec::new(), program: None }
}

pub(crate) async fn streams_and_returns() {
    let state = tempfile::tempdir().unwrap();
    let script = with_outputs(sh("echo a; echo b >&2; printf c >/out/x"), &[("x", "/out/x")]);
    let mut printed = Vec::new();
    let result = run_once(state.path(), once(script), |bytes| printed.extend_from_slice(bytes)).await.unwrap();
    assert_eq!(output(&result, "x"), "c");
    assert_eq!(printed, b"a\nb\n");
    let result = run_once(state.path(), once(sh("exit 3")), |_| {}).await.unwrap();
    assert_eq!(result.status, CallbackStatus::Failed);
    assert_eq!(std::fs::read_dir(state.path().join("once")).unwrap().count(), 0);
}

pub(crate) async fn dropped_is_killed() {
    let state = tempfile::tempdir().unwrap();
    let (first, printed) = std::sync::mpsc::channel();
    let run = run_once(state.path(), once(sh("echo $$; sleep 1000")), move |bytes| {
        let _ = first.send(String::from_utf8_lossy(bytes).into_owned());
    });
    let mut run = Box::pin(run);
    let pid = tokio::select! {
        result = &mut run => panic!("{result:?}"),
        pid = eventually("a pid", async || printed.try_recv().ok()) => pid,
    };
    assert!(lives(&pid));
    drop(run);
    eventually("the script dies", async || (!lives(&pid)).then_some(())).await;
    // The next run removes the folder, once the supervisor has ended.
    eventually("the folder goes", async || {
        run_once(state.path(), once(sh("true")), |_| {}).await.unwrap();
        tokio::time::sleep(Duration::from_millis(10)).await;
        (std::fs::read_dir(state.path().join("once")).unwrap().count() == 0).then_some(())
    })
    .await;
}
