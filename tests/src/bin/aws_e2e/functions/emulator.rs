//! Runs one function under the runtime interface emulator of AWS Lambda.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use ebb_tests::platform::http;
use ebb_tests::program::free_addresses;
use ebb_tests::wait::until;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

/// A bootstrap that waits for events. It is killed when this is dropped.
pub(crate) struct EmulatedFunction {
    name: &'static str,
    _emulator: Child,
    url: String,
    log: PathBuf,
    http: reqwest::Client,
}

impl EmulatedFunction {
    /// Starts the emulator `rie` with a bootstrap. The first event starts the bootstrap, which gets `variables` only.
    pub(crate) async fn start(
        name: &'static str,
        rie: &Path,
        bootstrap: &Path,
        variables: &BTreeMap<String, String>,
        log: PathBuf,
    ) -> anyhow::Result<Self> {
        ensure!(bootstrap.exists(), "{} was not built", bootstrap.display());
        let [runtime, events] = free_addresses();
        let file = File::create(&log).with_context(|| log.display().to_string())?;
        let mut emulator = Command::new(rie);
        emulator
            .args(["--runtime-api-address", &runtime.to_string()])
            .args(["--runtime-interface-emulator-address", &events.to_string()])
            .arg(bootstrap)
            .env_clear()
            .envs(variables)
            .env("AWS_LAMBDA_FUNCTION_NAME", name)
            .stdout(file.try_clone()?)
            .stderr(file)
            .kill_on_drop(true);
        let emulator = emulator.spawn().with_context(|| rie.display().to_string())?;
        let listens = async || TcpStream::connect(events).await.ok();
        until(&format!("the emulator of {name}, see {}", log.display()), listens).await;
        let url = format!("http://{events}/2015-03-31/functions/function/invocations");
        Ok(Self { name, _emulator: emulator, url, log, http: http() })
    }

    /// Sends an event to the function and returns its response.
    ///
    /// # Errors
    /// If the function fails. A response with an HTTP error status is not a failure.
    pub(crate) async fn invoke(&self, event: &Value) -> anyhow::Result<Value> {
        let response = self.http.post(&self.url).body(event.to_string()).send().await?.bytes().await?;
        let text = String::from_utf8_lossy(&response);
        let response: Value = serde_json::from_slice(&response)
            .with_context(|| format!("{}: {text} ({})", self.name, self.log.display()))?;
        ensure!(response.get("errorType").is_none(), "{} fails: {text} ({})", self.name, self.log.display());
        Ok(response)
    }

    /// Returns the milliseconds from the start of the program to its first request for an event.
    pub(crate) fn init(&self) -> anyhow::Result<f64> {
        let log = fs::read_to_string(&self.log)?;
        let report = log.rsplit_once("INIT REPORT(durationMs: ").and_then(|(_, rest)| rest.split(')').next());
        Ok(report.with_context(|| format!("no INIT REPORT in {}", self.log.display()))?.parse()?)
    }
}
