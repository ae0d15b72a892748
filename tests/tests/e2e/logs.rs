//! Logs of units, while they run and afterwards.

use std::fs::File;

use ebb_protocol::limits::LOG_TAIL;

use crate::workdir::{Workdir, shared_folder};

fn numbers(from: u32, to: u32) -> String {
    (from..=to).map(|number| format!("{number}\n")).collect()
}

#[tokio::test]
async fn followed_logs_contain_each_line_once() {
    let (workdir, root) = (Workdir::new(), shared_folder());
    let path = root.path().to_str().unwrap();
    let dev = workdir.dev().await;
    workdir.publish("talk@1.0.0", include_str!("documents/talk.yaml")).await;
    workdir.create("talker", &format!("resources: {{r: {{plugin: talk, params: {{root: {path}}}}}}}\n")).await;

    let mut one = workdir.start(&["logs", "talker", "--unit", "talk", "--follow"]);
    let all = workdir.start(&["logs", "talker", "--follow"]);
    let new = workdir.start(&["logs", "talker", "--follow", "--tail", "0"]);
    one.says("attempt 1").await;
    File::create(root.path().join("failed")).unwrap();
    one.says("20000").await;
    File::create(root.path().join("more")).unwrap();
    let one = one.end().await.done();
    let heading = "==> preStart r/talk attempt 2 <==\n";
    let expected = format!("attempt 1\n{heading}attempt 2\n{}{}end\n", numbers(1, 20_000), numbers(20_001, 40_000));
    assert_eq!((one.stdout == expected, one.stderr.as_str()), (true, ""), "{}", one.stdout);

    // The command without a unit ends with the run. Lines that a unit prints too fast are replaced by a notice.
    let all = all.end().await.done();
    assert!(all.stdout.contains(&numbers(1, 40_000)), "{}", all.stdout);
    let (_, followed) = all.stdout.split_once("==> preStart r/shout attempt 1 <==\n").expect("the log of both units");
    let stored = workdir.ebb(&["logs", "talker", "--unit", "shout"]).await.done();
    assert_eq!(stored.stdout, format!("{}\n", "\u{fffd}".repeat(LOG_TAIL)));
    assert!(followed.ends_with(&stored.stdout));
    // All lines of a unit that starts later are new.
    assert!(new.end().await.done().stdout.ends_with(&stored.stdout));
    dev.stop().await;
}
