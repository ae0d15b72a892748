//! The action for GitHub and the template for GitLab, and the script of both.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;
use tokio::process::Command;

use crate::program;
use crate::workdir::{DevProcess, Workdir};

const SCRIPT: &str = include_str!("../../../../infra/ci/sandbox.sh");
const ACTION: &str = include_str!("../../../../infra/ci/action.yml");
const TEMPLATE: &str = include_str!("../../../../infra/ci/gitlab.yml");
const PAGE: &str = include_str!("../../../../docs/src/ci.md");
const TOKENS: &str = include_str!("../../../../docs/src/tokens.md");

/// Returns the scopes of the token of a job by the page about tokens.
fn documented_scopes() -> Vec<&'static str> {
    let command = TOKENS
        .lines()
        .find(|line| line.starts_with("ebb token create ci "))
        .expect("the page creates a token of a job");
    let words: Vec<&str> = command.split(' ').collect();
    words.windows(2).filter(|pair| pair[0] == "--scope").map(|pair| pair[1]).collect()
}

/// Returns the YAML block of the page that begins with a text.
fn block(start: &str) -> Value {
    let mut blocks = PAGE.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next());
    serde_saphyr::from_str(blocks.find(|block| block.starts_with(start)).expect(start)).unwrap()
}

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

#[test]
fn the_documented_jobs_have_the_inputs_of_the_action_and_of_the_template() {
    let action: Value = serde_saphyr::from_str(ACTION).unwrap();
    let inputs = action["inputs"].as_object().unwrap();
    let workflow = block("jobs:\n");
    let steps = workflow["jobs"]["test"]["steps"].as_array().unwrap().iter();
    let steps: Vec<&Value> = steps.filter(|step| step["uses"] == "./infra/ci").collect();
    assert_eq!(steps.len(), 2);
    for step in steps {
        let with = step["with"].as_object().unwrap();
        assert!(with.keys().all(|name| inputs.contains_key(name)), "{with:?}");
        let mut required = inputs.iter().filter(|(_, input)| input["required"] == true);
        assert!(required.all(|(name, _)| with.contains_key(name)), "{with:?}");
        let starts = with.get("command").is_none_or(|command| command == "start");
        assert_eq!(with.contains_key("document"), starts, "{with:?}");
    }
    let template: Value = serde_saphyr::from_str(TEMPLATE).unwrap();
    let pipeline = block("include: ");
    for job in ["start", "delete"] {
        assert!(template[pipeline[job]["extends"].as_str().unwrap()].is_object(), "{job}");
    }
    for name in pipeline["variables"].as_object().unwrap().keys() {
        assert!(documented().iter().any(|row| row[1] == *name), "{name}");
    }
}

const PLUGIN: &str = include_str!("documents/job-values.yaml");
const SANDBOX: &str = include_str!("documents/job-sandbox.yaml");

/// A job with the URL of the server and a token, and no other secret.
struct CiJob<'a> {
    workdir: &'a Workdir,
    url: String,
    token: String,
}

impl<'a> CiJob<'a> {
    /// Creates a token with this name and these scopes for a job.
    async fn with_token(workdir: &'a Workdir, dev: &DevProcess, name: &str, scopes: &[&str]) -> Self {
        let mut command = vec!["token", "create", name];
        command.extend(scopes.iter().flat_map(|scope| ["--scope", *scope]));
        let token = workdir.ebb(&command).await.done().stdout.trim().to_owned();
        Self { workdir, url: dev.url.clone(), token }
    }

    /// Runs the script with these inputs. Checks that it ends with a code and a message.
    async fn ends(&self, code: i32, message: &str, command: &str, inputs: &[(&str, &str)]) {
        let (ended, messages) = self.run(command, inputs).await;
        assert!(ended == code && messages.contains(message), "{command}: {ended}, not {code} {message:?}: {messages}");
    }

    /// Runs the script with these inputs. Returns its exit code and its messages.
    async fn run(&self, command: &str, inputs: &[(&str, &str)]) -> (i32, String) {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../infra/ci/sandbox.sh");
        self.shell(&[script, command], inputs).await
    }

    /// Runs a shell with these variables. Returns its exit code and its messages.
    async fn shell(&self, arguments: &[&str], variables: &[(&str, &str)]) -> (i32, String) {
        let path = std::env::join_paths([program::ebb().parent().unwrap(), Path::new("/usr/bin"), Path::new("/bin")]);
        let mut sh = Command::new("sh");
        sh.args(arguments).current_dir(self.workdir.path()).env_clear().env("PATH", path.unwrap());
        sh.env("EBB_URL", &self.url).env("EBB_TOKEN", &self.token);
        let out = sh.envs(variables.iter().copied()).output().await.unwrap();
        // A log of a job must not show values.
        assert_eq!(String::from_utf8_lossy(&out.stdout), "");
        (out.status.code().unwrap(), String::from_utf8(out.stderr).unwrap())
    }
}

#[tokio::test]
async fn a_job_starts_and_deletes_a_sandbox() {
    let (workdir, dev) = Workdir::running().await;
    workdir.publish("values@1.0.0", PLUGIN).await;
    let job = CiJob::with_token(&workdir, &dev, "ci", &documented_scopes()).await;
    let document = workdir.write("sandbox.yaml", SANDBOX);
    let github = workdir.write("github-env", "EARLIER=1\n");

    let inputs = [("EBB_DOCUMENT", document.as_str()), ("EBB_NAME", "run-1")];
    job.ends(0, "", "start", &[&inputs[..], &[("GITHUB_ENV", &github)]].concat()).await;
    let written = std::fs::read_to_string(&github).unwrap();
    let lines: Vec<&str> = written.lines().collect();
    assert_eq!((lines[0], lines[2], lines.len()), ("EARLIER=1", "a=run-1", 4), "{written}");
    // A second start of a job that runs again keeps the sandbox.
    job.ends(0, "", "start", &inputs).await;
    assert_eq!(std::fs::read_to_string(workdir.path().join("ebb.env")).unwrap(), "TEXT=a=run-1\n");
    for _ in 0..2 {
        job.ends(0, "", "delete", &[("EBB_NAME", "run-1")]).await;
    }

    let sensitive = SANDBOX.replace("outputs.text", "outputs.token");
    let sensitive = [("EBB_DOCUMENT", &*workdir.write("sensitive.yaml", &sensitive)), ("EBB_NAME", "run-2")];
    job.ends(1, "", "start", &sensitive).await;
    job.ends(0, "", "start", &[&sensitive[..], &[("EBB_SKIP_SENSITIVE", "true")]].concat()).await;

    let failing = workdir.write("failing.yaml", &SANDBOX.replace("1.0.0}", "1.0.0, params: {fail: \"yes\"}}"));
    job.ends(1, "v/create", "start", &[("EBB_DOCUMENT", &failing), ("EBB_NAME", "run-3")]).await;

    let other = workdir.write("other.yaml", &SANDBOX.replace("@{name}", "other"));
    let message = "the document names another target than sandbox/run-4";
    job.ends(2, message, "start", &[("EBB_DOCUMENT", &other), ("EBB_NAME", "run-4")]).await;
    dev.stop().await;
}

/// A job needs each scope of the documented token. A job that only waits needs the scope `read`.
#[tokio::test]
async fn a_job_needs_each_documented_scope() {
    let (workdir, dev) = Workdir::running().await;
    workdir.publish("values@1.0.0", PLUGIN).await;
    let document = workdir.write("sandbox.yaml", SANDBOX);
    let scopes = documented_scopes();
    assert!(scopes.len() > 1, "{scopes:?}");
    for (number, missing) in scopes.iter().enumerate() {
        let others: Vec<&str> = scopes.iter().copied().filter(|scope| scope != missing).collect();
        let job = CiJob::with_token(&workdir, &dev, &format!("without-{number}"), &others).await;
        let inputs = [("EBB_DOCUMENT", document.as_str()), ("EBB_NAME", "run-1")];
        job.ends(1, &format!("the scope {missing}"), "start", &inputs).await;
    }
    let job = CiJob::with_token(&workdir, &dev, "ci", &scopes).await;
    job.ends(0, "", "start", &[("EBB_DOCUMENT", &document), ("EBB_NAME", "run-2")]).await;
    let waiting = CiJob::with_token(&workdir, &dev, "waiting", &["read"]).await;
    let step = block("- run: |\n")[0]["run"].as_str().unwrap().to_owned();
    let github = workdir.write("github-env", "");
    let (code, messages) = waiting.shell(&["-euc", &step], &[("SANDBOX", "run-2"), ("GITHUB_ENV", &github)]).await;
    assert_eq!(code, 0, "{messages}");
    assert!(std::fs::read_to_string(&github).unwrap().contains("a=run-2"));
    dev.stop().await;
}

#[tokio::test]
async fn an_input_is_never_executed() {
    let (workdir, dev) = Workdir::running().await;
    let job = CiJob::with_token(&workdir, &dev, "ci", &documented_scopes()).await;
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
        job.ends(2, "", hostile, &[("EBB_NAME", "run-1")]).await;
    }
    assert!(!workdir.path().join("pwned").exists());
    for missing in ["EBB_URL", "EBB_TOKEN", "EBB_NAME", "EBB_DOCUMENT"] {
        let inputs = [("EBB_NAME", "run-1"), ("EBB_DOCUMENT", &document), (missing, "")];
        job.ends(2, missing, "start", &inputs).await;
    }
    dev.stop().await;
}
