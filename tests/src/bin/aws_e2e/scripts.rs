//! The scripts of the example that makes a bucket, for a server that has no cluster to run them in.

use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Context as _, bail};
use serde_json::{Map, Value, json};

use crate::steps::program;

/// Runs `$1` with a folder `/tmp` of its own, and prints the file `$2` that it leaves there. What it prints itself goes to
/// standard error.
const ALONE: &str = r#"mount -t tmpfs tmpfs /tmp && sh -c "$1" >&2 && { [ -z "$2" ] || cat "/tmp/$2"; }"#;

/// Where the scripts are, and the S3 that they speak to.
#[derive(Clone)]
pub(crate) struct ScriptRunner {
    pub(crate) folder: PathBuf,
    pub(crate) s3: String,
}

impl ScriptRunner {
    /// Runs a script with variables. Returns the body of a callback; a failure has the end of the script's log.
    pub(crate) async fn run(&self, name: &str, variables: &Map<String, Value>) -> anyhow::Result<Value> {
        let (output, file) = match name {
            "provision" => ("bucket", "bucket-name"),
            "seed" => ("prefix", "base-prefix"),
            "deprovision" => ("", ""),
            _ => bail!("no script {name}"),
        };
        let script = std::fs::read_to_string(self.folder.join(format!("{name}.sh"))).context("the script")?;
        let mut shell = program("unshare");
        shell.args(["--mount", "sh", "-c", ALONE, "sh", &script, file]).stdin(Stdio::null());
        for (name, value) in variables {
            shell.env(name, value.as_str().context("variables are texts")?);
        }
        shell.env("AWS_ACCESS_KEY_ID", "test").env("AWS_SECRET_ACCESS_KEY", "test");
        let ended = shell.env("AWS_ENDPOINT_URL_S3", &self.s3).kill_on_drop(true).output().await?;
        let (written, log) = (String::from_utf8(ended.stdout)?, String::from_utf8_lossy(&ended.stderr));
        if !ended.status.success() {
            let message = format!("{name} ended with {}: {}", ended.status, log.trim_end());
            let reason = json!({"code": "exit", "message": message});
            return Ok(json!({"status": "failed", "reason": reason}));
        }
        let outputs = if output.is_empty() { json!({}) } else { json!({ output: written }) };
        Ok(json!({"status": "succeeded", "outputs": outputs}))
    }
}
