//! Ten failures, each by commands from the question why it failed to the repaired sandbox.

use ebb_protocol::api::TargetPhase;
use serde::Deserialize;
use serde_json::json;

use crate::receiver::TestReceiver;
use crate::workdir::{CommandResult, DevProcess, Workdir};

const NOTES: &str = include_str!("../../../../tests/repairs/notes.yaml");
const REMOTE: &str = include_str!("../../../../tests/repairs/remote.yaml");

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
enum FailedChange {
    Creation,
    Update,
    Deletion,
}

/// A failure: the name of its sandbox, its plugin, its change, and a part of its reason. The plugin of `locked` has the newest
/// version, because a newer one would be the first suggestion.
type CountedTask = (&'static str, &'static str, FailedChange, &'static str);

/// A server, and the causes of failures outside of it.
struct RepairBench {
    workdir: Workdir,
    dev: DevProcess,
    service: TestReceiver,
}

impl RepairBench {
    async fn start() -> Self {
        let workdir = Workdir::new();
        let (dev, service) = (workdir.dev().await, TestReceiver::start().await);
        let notes = NOTES.replace("FOLDER", workdir.path().to_str().unwrap());
        for (name, timeout, fails) in [
            ("notes@1.0.0", "1m", "exit 1"),
            ("notes@1.1.0", "1m", "rm /tmp/made"),
            ("notes@1.2.0", "1m", "kill -9 $$"),
            ("notes@1.3.0", "3s", "sleep 30"),
        ] {
            let plugin = notes.replace("PLUGIN", name).replace("TIMEOUT", timeout).replace("FAILS", fails);
            workdir.apply("plugin", &plugin).await;
        }
        workdir.apply("plugin", &REMOTE.replace("URL", service.url())).await;
        Self { workdir, dev, service }
    }

    async fn request(&self, (name, plugin, ..): CountedTask, size: u32) {
        let params = match plugin {
            "remote@1.0.0" => json!({"topic": name}),
            _ => json!({"topic": name, "size": size}),
        };
        self.workdir.create(name, &format!("resources: {{note: {{plugin: {plugin}, params: {params}}}}}\n")).await;
    }

    /// Makes a sandbox that has failed or is stuck.
    async fn fail(&self, task: CountedTask) {
        let (name, _, change, _) = task;
        self.repair(name);
        if change != FailedChange::Creation {
            self.request(task, 1).await;
            self.workdir.reaches(name, TargetPhase::Ready).await;
        }
        match name {
            "http-500" => self.service.always("POST /http-500/eu", 500),
            "http-422" => self.service.always("POST /http-422/eu", 422),
            "http-text" => self.service.always("POST /http-text/eu", json!({})),
            "http-409" => self.service.always("DELETE /http-409/eu", 409),
            _ => {
                let mode = if change == FailedChange::Deletion { "kept" } else { "broken" };
                self.workdir.write(&format!("{name}.{mode}"), "");
            }
        }
        if change == FailedChange::Deletion {
            self.workdir.ebb(&["delete", "sandbox", name, "--wait=false"]).await.done();
            self.workdir.reaches(name, TargetPhase::Stuck).await;
        } else {
            self.request(task, 2).await;
            self.workdir.reaches(name, TargetPhase::Failed).await;
        }
    }

    /// Removes the cause of a failure, which is outside of the server.
    fn repair(&self, name: &str) {
        for mode in ["broken", "kept"] {
            let _ = std::fs::remove_file(self.workdir.path().join(format!("{name}.{mode}")));
        }
        self.service.always(&format!("POST /{name}/eu"), json!({"id": name}));
        self.service.always(&format!("DELETE /{name}/eu"), json!({}));
    }

    /// Deletes a repaired sandbox, unless its deletion was repaired.
    async fn end(&self, (name, _, change, _): CountedTask) {
        if change != FailedChange::Deletion {
            self.workdir.ebb(&["delete", "sandbox", name]).await.done();
        }
    }
}

fn repaired((.., change, _): CountedTask) -> &'static str {
    if change == FailedChange::Deletion { "gone" } else { "ready" }
}

/// Returns the command that an output suggests, up to the end of its line.
fn suggested(result: &CommandResult, command: &str) -> Vec<String> {
    let text = format!("{}\n{}", result.stdout, result.stderr);
    let line = text.lines().find_map(|line| Some(&line[line.find(&format!("ebb {command} "))?..]));
    let line = line.unwrap_or_else(|| panic!("the output suggests no `ebb {command}`:\n{text}"));
    line.split_whitespace().skip(1).map(str::to_owned).collect()
}

/// Four commands: each one after the first is a line of the output of the one before.
#[tokio::test(flavor = "multi_thread")]
async fn each_command_up_to_a_repair_is_suggested_by_the_one_before() {
    let bench = RepairBench::start().await;
    for task in serde_json::from_str::<[CountedTask; 10]>(include_str!("repairs.json")).unwrap() {
        let (name, _, _, why) = task;
        bench.fail(task).await;
        let mut result = bench.workdir.ebb(&["get", "sandboxes"]).await.done();
        let phase = format!("Phase:       {} since", repaired(task));
        for (command, expected, shown) in [
            ("why", vec!["why", name], why),
            ("retry", vec!["retry", name], "Retrying "),
            ("get", vec!["get", "sandbox", name, "--watch"], phase.as_str()),
        ] {
            assert_eq!(suggested(&result, command), expected, "{name}");
            if command == "retry" {
                bench.repair(name);
            }
            result = bench.workdir.ebb(&expected).await.done();
            assert!(format!("{}{}", result.stdout, result.stderr).contains(shown), "{name}: {result:#?}");
        }
        bench.end(task).await;
    }
    bench.dev.stop().await;
}
