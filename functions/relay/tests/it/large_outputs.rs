//! A script whose log exceeds the limit.

use std::path::Path;

use ebb_protocol::limits::LOG_TAIL;

use crate::fixture::*;

/// MiB of the log. `EBB_LOG_MIB` overrides it.
const LOG_MIB: usize = 48;

/// Returns the MiB of all files below a folder.
fn size(folder: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
    let sizes = entries.flatten().map(|entry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => size(&entry.path()),
        Ok(metadata) if metadata.is_file() => metadata.len() >> 20,
        _ => 0,
    });
    sizes.sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_is_too_large() {
    let (fixture, log) = (RelayFixture::new("large", &[]).await, name("log", 1));
    let mib = std::env::var("EBB_LOG_MIB").map_or(LOG_MIB, |text| text.parse().expect("a number"));
    let line = "x".repeat(127);
    let text = format!("yes {line} | head -c {}; seq 1 60000", mib << 20);
    let started = Instant::now();
    fixture.run(&log, ScriptJob::new(&log, &text)).await;
    let result = fixture.success(&log).await;
    let numbers: String = (1..=60_000).map(|number| format!("{number}\n")).collect();
    assert!(result.log.unwrap() == numbers[numbers.len() - LOG_TAIL..], "the log is not the tail of the output");
    // The kubelet deletes the files of a pod with the pod.
    let files = cluster().await.kubeconfig.with_file_name("pods");
    let pods_mib = || {
        let pods = std::fs::read_dir(files.join("pods")).unwrap().flatten();
        let pods = pods.filter(|it| it.file_name().to_string_lossy().starts_with(&format!("{}_", fixture.units)));
        pods.map(|it| size(&it.path())).sum::<u64>()
    };
    let most = pods_mib();
    until("the deletion of the log", async || (pods_mib() == 0).then_some(())).await;
    println!("{mib} MiB of log in {:.1?}, {most} MiB on the node when the script ended", started.elapsed());
    fixture.close().await;
}
