//! Deploys the stack and uses each of its resources.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use ebb_tests::api_client::ApiClient;
use ebb_tests::platform::http;
use ebb_tests::preset_lives;
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::time::{Instant, sleep};

use crate::StackArgs;
use crate::cloud::CloudEmulator;
use crate::keys::{SignedMessage, TOKEN};
use crate::servers::{INDEX, OutsideServers, PLATFORM, SERVICES};
use crate::steps::{run, say, step};

/// Maximum time of two repetitions with a delay of one second each. Only the queue repeats them so early.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(30);
/// Longer than two intervals of the schedule.
const SCHEDULE_TIMEOUT: Duration = Duration::from_secs(130);
const POLL_INTERVAL: Duration = Duration::from_millis(300);

const REPOSITORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

struct DeployedStack<'a> {
    arguments: &'a StackArgs,
    cloud: &'a CloudEmulator,
    servers: &'a OutsideServers,
    http_api: String,
    outputs: BTreeMap<String, String>,
}

/// Deploys the stack, creates and deletes a sandbox with a deployment in between, and checks each resource of the
/// stack.
pub(crate) async fn all(arguments: &StackArgs, cloud: &CloudEmulator, outside: &OutsideServers) -> anyhow::Result<()> {
    let platform = format!("PlatformUrl={}{PLATFORM}", outside.receiver.url());
    let secrets = format!("SecretArn={}", cloud.secret);
    // The emulator has no function URLs of stacks, and runs programs of this machine.
    let architecture = if cfg!(target_arch = "aarch64") { "Architecture=arm64" } else { "Architecture=x86_64" };
    let first = [secrets.as_str(), "ProtectTable=false", "CallbackEndpoint=HttpApi", architecture, &platform];
    cloud.deploy("deploy the stack", arguments, &first).await?;
    let outputs = cloud.outputs().await?;
    let http_api = cloud.http_api(&outputs)?;
    for (name, value) in &outputs {
        say(&format!("  {name} = {value}"));
    }
    let stack = DeployedStack { arguments, cloud, servers: outside, http_api: http_api.clone(), outputs };
    let named = [("EBB_SOURCE", http_api.clone()), ("EBB_CALLBACK_URL", format!("{http_api}/v1/callbacks"))];
    let redeploy = "deploy the stack again, with its URL";
    stack.redeploy(redeploy, &format!("Url={http_api}"), &named).await?;
    stack.doctor().await?;
    stack.senders().await?;
    stack.services().await?;
    stack.parts().await?;
    stack.ends().await
}

impl DeployedStack<'_> {
    fn ebb(&self, words: &[&str]) -> Command {
        let mut ebb = Command::new(&self.arguments.ebb);
        ebb.env("EBB_URL", &self.http_api).env("EBB_TOKEN", TOKEN);
        ebb.env("EBB_WEBHOOK_SECRET", SignedMessage::Lifecycle.key()).args(words);
        ebb
    }

    /// Deploys with one parameter, and checks that only the variables in `changed` have changed. The other parameters
    /// keep their values.
    async fn redeploy(&self, name: &str, parameter: &str, changed: &[(&str, String)]) -> anyhow::Result<()> {
        let before = self.cloud.variables().await?;
        self.cloud.deploy(name, self.arguments, &[parameter]).await?;
        let after = self.cloud.variables().await?;
        let mut expected = before.clone();
        for (name, value) in changed {
            for (function, variables) in &mut expected {
                let previous = variables.insert((*name).to_owned(), json!(value));
                ensure!(previous != Some(json!(value)), "{function} had {name}={value} before");
            }
        }
        ensure!(after == expected, "{parameter}: before {before:?}, after {after:?}");
        let names: Vec<&str> = changed.iter().map(|(name, _)| *name).collect();
        say(&format!("  changed variables of the functions: {}", names.join(", ")));
        Ok(())
    }

    fn output(&self, name: &str) -> anyhow::Result<&str> {
        self.outputs.get(name).map(String::as_str).with_context(|| format!("the stack has no output {name}"))
    }

    /// `ebb doctor` succeeds, and fails with a wrong secret.
    async fn doctor(&self) -> anyhow::Result<()> {
        // The check of the schedule fails until its first sweep.
        let doctor = async {
            let began = Instant::now();
            loop {
                match run(&mut self.ebb(&["doctor"])).await {
                    Err(_) if began.elapsed() < SCHEDULE_TIMEOUT => sleep(POLL_INTERVAL).await,
                    result => return result,
                }
            }
        };
        let printed = step("ebb doctor succeeds", doctor).await?;
        for line in printed.lines() {
            say(&format!("  {line}"));
        }
        let mut other = self.ebb(&["doctor"]);
        let other = other.env("EBB_WEBHOOK_SECRET", SignedMessage::Outcome.key()).output().await?;
        let printed = String::from_utf8_lossy(&other.stdout).into_owned();
        let wrong: Vec<&str> = printed.lines().filter(|line| line.contains(" FAILED ")).collect();
        ensure!(!other.status.success() && wrong.len() == 1 && wrong[0].starts_with("signature"), "{printed}");
        say("ebb doctor reports the wrong signature");
        Ok(())
    }

    /// Sends signed events of presets, from the creation of a target to its end. An update replaces the resource.
    async fn senders(&self) -> anyhow::Result<()> {
        let server = ApiClient::new(&http(), &self.http_api, TOKEN);
        server.publish(&self.servers.notes_plugin()).await;
        for life in preset_lives::samples() {
            let source = life.source(&format!("{{r: {{plugin: notes@1, params: {{note: \"${{{}}}\"}}}}}}", life.note));
            let live = async {
                life.live(&server, &source).await;
                Ok(())
            };
            step(&format!("events of {}", life.preset), live).await?;
            let requests = life.requests(&self.servers.receiver);
            say(&format!("  {}", requests.join(", ")));
            self.servers.signed()?;
            let lines: Vec<_> = requests.iter().filter_map(|request| request.rsplit_once(' ')).collect();
            let expected = if life.is_changed() { 4 } else { 2 };
            let pairs = lines.chunks(2).all(
                |pair| matches!(pair, [("POST /notes/make", made), ("POST /notes/drop", dropped)] if made == dropped),
            );
            ensure!(lines.len() == expected && pairs, "{}: {requests:?}", life.preset);
        }
        Ok(())
    }

    /// Runs webhook units, with a deployment while one waits for its callback.
    async fn services(&self) -> anyhow::Result<()> {
        let example = self.arguments.examples.join("webhooks");
        let (plugin, sandbox) = (example.join("plugin.yaml"), example.join("sandbox.yaml"));
        let receiver = format!("receiver={}", self.servers.receiver.url());
        let publish = ["apply", "-f", &plugin.to_string_lossy(), "--set", &receiver];
        step("publish a plugin", run(&mut self.ebb(&publish))).await?;
        let create = ["apply", "-f", &sandbox.to_string_lossy(), "--wait=false"];
        step("create a sandbox", run(&mut self.ebb(&create))).await?;
        step("a unit waits for its callback", self.servers.wait("POST /indexes")).await?;
        let redeploy = "deploy the stack during the run";
        let level = |level: &str| {
            format!(
                "warn,ebb_lambda={level},ebb_flow={level},ebb_api={level},ebb_relay_client={level},ebb_store={level},ebb_egress={level},ebb_protocol={level}"
            )
        };
        self.redeploy(redeploy, "LogLevel=debug", &[("RUST_LOG", level("debug"))]).await?;
        self.servers.may_call_back.send_replace(true);
        step("the platform is notified that the sandbox is ready", self.servers.wait_for_outcome("ready")).await?;
        let target = run(&mut self.ebb(&["get", "sandbox", SERVICES, "-o", "json"])).await?;
        let target: Value = serde_json::from_str(&target)?;
        let outputs = &target["resources"]["services"]["outputs"];
        for (name, expected) in [("tenant", "tenant"), ("search", INDEX), ("certificate", "certificate")] {
            ensure!(outputs[name]["value"] == expected, "{name} of {outputs}");
        }
        Ok(())
    }

    /// Checks that the table, the bucket and the queue were used.
    async fn parts(&self) -> anyhow::Result<()> {
        let items = self.cloud.items(self.output("Table")?).await?;
        say(&format!("  the table has items: {items:?}"));
        for kind in ["t", "r", "p", "v"] {
            ensure!(items.contains_key(kind), "no item {kind}#… in the table");
        }
        let objects = self.cloud.objects(self.output("Bucket")?).await?;
        say(&format!("  the bucket has objects: {objects:?}"));
        // These plans are small enough for the table.
        ensure!(objects.contains_key("checks"), "the object of `ebb doctor` is not in the bucket");
        let calls = self.servers.receiver.calls("POST /certificates");
        let [first, .., last] = calls.as_slice() else { anyhow::bail!("no request was repeated") };
        let took = last.at.duration_since(first.at);
        ensure!(calls.len() == 3 && took < QUEUE_TIMEOUT, "{} requests within {took:?}", calls.len());
        say(&format!("  messages of the queue repeated a request twice within {:.1} s", took.as_secs_f64()));
        Ok(())
    }

    async fn ends(&self) -> anyhow::Result<()> {
        let mut console = Command::new("node");
        console.arg(&self.arguments.console).args(["--repository", REPOSITORY, "--url", &self.http_api]);
        console.args(["--delete", SERVICES]).env("EBB_TOKEN", TOKEN);
        let printed = step("show the console in Chromium, and delete the sandbox there", run(&mut console)).await?;
        for line in printed.lines() {
            say(&format!("  {line}"));
        }
        step("the platform is notified that it is gone", self.servers.wait_for_outcome("gone")).await
    }
}
