//! The action for GitHub and the template for GitLab, and the script of both.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;
use tokio::process::Command;

use crate::program;
use crate::workdir::Workdir;

const SCRIPT: &str = include_str!("../../../../infra/ci/sandbox.sh");
const ACTION: &str = include_str!("../../../../infra/ci/action.yml");
const TEMPLATE: &str = include_str!("../../../../infra/ci/gitlab.yml");
const PAGE: &str = include_str!("../../../../docs/src/ci.md");

/// Returns the rows of the table of inputs: GitHub's name, GitLab's name and the default.
fn documented() -> Vec<[String; 3]> {
    let (_, table) =
        PAGE.split_once("| input at GitHub | variable at GitLab | meaning | default |\n|---|---|---|---|\n").unwrap();
    let (table, _) = table.split_once("\n\n").unwrap();
    let rows = table.lines().map(|row| {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        [cells[1], cells[2], cells[4]].map(|cell| cell.trim_matches('`').to_owned())
    });
    rows.collect()
}

#[test]
fn the_action_has_the_documented_inputs_and_passes_them_as_variables() {
    let action: Value = serde_saphyr::from_str(ACTION).unwrap();
    let inputs = action["inputs"].as_object().unwrap();
    let rows: BTreeMap<String, [String; 2]> = documented()
        .into_iter()
        .filter(|row| row[0] != "–")
        .map(|[name, variable, default]| (name, [variable, default]))
        .collect();
    assert_eq!(inputs.keys().collect::<BTreeSet<_>>(), rows.keys().collect());
    let steps = action["runs"]["steps"].as_array().unwrap();
    for step in steps {
        assert!(!step["run"].as_str().unwrap().contains("${{"), "an input becomes a part of a script");
    }
    let [step] = steps.as_slice() else { panic!("{steps:?}") };
    let passed = step["env"].as_object().unwrap();
    assert_eq!(passed.len(), inputs.len());
    for (name, [variable, default]) in rows {
        let variable = if variable == "–" { "EBB_COMMAND".to_owned() } else { variable };
        assert_eq!(passed[&variable], format!("${{{{ inputs.{name} }}}}"));
        let input = &inputs[&name];
        match default.as_str() {
            "required" => assert!(input["required"] == true || input["default"] == "", "{name}"),
            default => assert_eq!(input["default"], default, "{name}"),
        }
    }
}

#[test]
fn the_template_has_the_documented_variables() {
    let template: Value = serde_saphyr::from_str(TEMPLATE).unwrap();
    let rows: BTreeMap<String, String> = documented()
        .into_iter()
        .filter(|row| row[1] != "–")
        .map(|[_, variable, default]| (variable, default))
        .collect();
    let variables = template[".ebb"]["variables"].as_object().unwrap();
    for (name, value) in variables {
        assert_eq!(Some(value.as_str().unwrap()), rows.get(name).map(String::as_str), "{name}");
    }
    assert_eq!(template[".ebb-start"]["artifacts"]["reports"]["dotenv"], rows["EBB_ENV_FILE"]);
    for (job, command) in [(".ebb-start", "start"), (".ebb-delete", "delete")] {
        assert_eq!(template[job]["extends"], ".ebb");
        assert_eq!(template[job]["script"], serde_json::json!([format!("sh \"$EBB_SCRIPT\" {command}")]));
    }
    // The script reads these variables and no others.
    let words = SCRIPT.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let read: BTreeSet<&str> = words.filter(|word| word.starts_with("EBB_")).collect();
    let expected = rows.keys().map(String::as_str).filter(|name| *name != "EBB_SCRIPT");
    assert_eq!(read, expected.collect());
}

const PLUGIN: &str = r##"
apiVersion: ebb.dev/v1
kind: Plugin
name: values@1.0.0
params: {fail: {type: string, default: "no"}}
runners: {shell: {image: "busybox:1.36"}}
preStart:
  create:
    retry: {attempts: 1}
    pod: {script: "#!/bin/sh\n[ \"$FAIL\" = no ] || exit 7\nprintf 'a=%s' \"$EBB_TARGET_NAME\" >/tmp/text\nprintf secret >/tmp/token\n"}
    inputs: {fail: "${params.fail}"}
    outputs: {text: {file: /tmp/text}, token: {file: /tmp/token, sensitive: true}}
outputs: {text: "${units.create.outputs.text}", token: "${units.create.outputs.token}"}
"##;
const SANDBOX: &str = r#"
apiVersion: ebb.dev/v1
kind: Sandbox
name: "@{name}"
resources: {v: {plugin: values@1.0.0}}
env: {TEXT: "${resources.v.outputs.text}"}
"#;

struct CiJob<'a> {
    workdir: &'a Workdir,
    server: Value,
}

impl CiJob<'_> {
    /// Runs the script with these inputs. Returns its exit code and its messages.
    async fn run(&self, command: &str, inputs: &[(&str, &str)]) -> (i32, String) {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../infra/ci/sandbox.sh");
        let path = std::env::join_paths([program::ebb().parent().unwrap(), Path::new("/usr/bin"), Path::new("/bin")]);
        let mut sh = Command::new("sh");
        sh.args([script, command]).current_dir(self.workdir.path()).env_clear().env("PATH", path.unwrap());
        for (variable, field) in [("EBB_URL", "url"), ("EBB_TOKEN", "token"), ("EBB_WEBHOOK_SECRET", "webhookSecret")] {
            sh.env(variable, self.server[field].as_str().unwrap());
        }
        let out = sh.envs(inputs.iter().copied()).output().await.unwrap();
        // A log of a job must not show values.
        assert_eq!(String::from_utf8_lossy(&out.stdout), "");
        (out.status.code().unwrap(), String::from_utf8(out.stderr).unwrap())
    }
}

#[tokio::test]
async fn a_job_starts_and_deletes_a_sandbox() {
    let workdir = Workdir::new();
    let dev = workdir.dev().await;
    workdir.apply("plugin", PLUGIN).await;
    let server = serde_json::from_slice(&std::fs::read(workdir.state().join("server.json")).unwrap()).unwrap();
    let job = CiJob { workdir: &workdir, server };
    let document = workdir.write("sandbox.yaml", SANDBOX);
    let github = workdir.write("github-env", "EARLIER=1\n");

    let inputs = [("EBB_DOCUMENT", document.as_str()), ("EBB_NAME", "run-1")];
    let (code, messages) = job.run("start", &[&inputs[..], &[("GITHUB_ENV", &github)]].concat()).await;
    assert_eq!(code, 0, "{messages}");
    let written = std::fs::read_to_string(&github).unwrap();
    let lines: Vec<&str> = written.lines().collect();
    assert_eq!((lines[0], lines[2], lines.len()), ("EARLIER=1", "a=run-1", 4), "{written}");
    // A second start of a job that runs again keeps the sandbox.
    let (code, messages) = job.run("start", &inputs).await;
    assert_eq!(code, 0, "{messages}");
    assert_eq!(std::fs::read_to_string(workdir.path().join("ebb.env")).unwrap(), "TEXT=a=run-1\n");
    for _ in 0..2 {
        let (code, messages) = job.run("delete", &[("EBB_NAME", "run-1")]).await;
        assert_eq!(code, 0, "{messages}");
    }

    let sensitive = SANDBOX.replace("outputs.text", "outputs.token");
    let sensitive = [("EBB_DOCUMENT", &*workdir.write("sensitive.yaml", &sensitive)), ("EBB_NAME", "run-2")];
    let (code, messages) = job.run("start", &sensitive).await;
    assert_eq!(code, 1, "{messages}");
    let (code, messages) = job.run("start", &[&sensitive[..], &[("EBB_SKIP_SENSITIVE", "true")]].concat()).await;
    assert_eq!(code, 0, "{messages}");

    let failing = workdir.write("failing.yaml", &SANDBOX.replace("1.0.0}", "1.0.0, params: {fail: \"yes\"}}"));
    let (code, messages) = job.run("start", &[("EBB_DOCUMENT", &failing), ("EBB_NAME", "run-3")]).await;
    assert_eq!(code, 1, "{messages}");
    assert!(messages.contains("v/create"), "{messages}");

    let other = workdir.write("other.yaml", &SANDBOX.replace("@{name}", "other"));
    let (code, messages) = job.run("start", &[("EBB_DOCUMENT", &other), ("EBB_NAME", "run-4")]).await;
    assert_eq!(code, 2, "{messages}");
    assert!(messages.contains("the document names another target than sandbox/run-4"), "{messages}");
    dev.stop().await;
}

#[tokio::test]
async fn an_input_is_never_executed() {
    let workdir = Workdir::new();
    let dev = workdir.dev().await;
    let server = serde_json::from_slice(&std::fs::read(workdir.state().join("server.json")).unwrap()).unwrap();
    let job = CiJob { workdir: &workdir, server };
    let document = workdir.write("sandbox.yaml", SANDBOX);
    for hostile in
        ["$(touch pwned)", "`touch pwned`", "x\"; touch pwned; \"", "'; touch pwned; '", "--help", "a\ntouch pwned"]
    {
        for input in ["EBB_NAME", "EBB_KIND", "EBB_TIMEOUT", "EBB_DOCUMENT", "EBB_SKIP_SENSITIVE"] {
            let inputs = [("EBB_NAME", "run-1"), ("EBB_DOCUMENT", &document), (input, hostile)];
            let (code, messages) = job.run("start", &inputs).await;
            assert!(code == 1 || code == 2, "{input} {hostile}: {code} {messages}");
            if input != "EBB_DOCUMENT" && input != "EBB_SKIP_SENSITIVE" {
                job.run("delete", &inputs).await;
            }
        }
        let (code, messages) = job.run(hostile, &[("EBB_NAME", "run-1")]).await;
        assert_eq!(code, 2, "{messages}");
    }
    assert!(!workdir.path().join("pwned").exists());
    for missing in ["EBB_URL", "EBB_TOKEN", "EBB_NAME", "EBB_DOCUMENT"] {
        let inputs = [("EBB_NAME", "run-1"), ("EBB_DOCUMENT", &document), (missing, "")];
        let (code, messages) = job.run("start", &inputs).await;
        assert_eq!(code, 2, "{messages}");
        assert!(messages.contains(missing), "{messages}");
    }
    dev.stop().await;
}
