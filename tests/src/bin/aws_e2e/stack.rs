//! What goes through the stack.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::time::{Instant, sleep};

use crate::StackArgs;
use crate::cloud::CloudEmulator;
use crate::keys::{SignedMessage, TOKEN};
use crate::servers::{OutsideServers, SERVICES, are_of_services};
use crate::steps::{program, run, say, step};

/// What was asked for to be sent again after a second comes from the queue if it comes within this: the schedule has a minute.
const SOON: Duration = Duration::from_secs(30);
/// Within this the schedule has a minute.
const MINUTES: Duration = Duration::from_secs(130);
const POLL_INTERVAL: Duration = Duration::from_millis(300);

/// The stack, and who uses it.
struct DeployedStack<'a> {
    arguments: &'a StackArgs,
    cloud: &'a CloudEmulator,
    servers: &'a OutsideServers,
    http_api: String,
    outputs: BTreeMap<String, String>,
}

/// Deploys, creates and deletes a sandbox with a deployment in between, and checks what each resource did for it.
pub(crate) async fn all(arguments: &StackArgs, cloud: &CloudEmulator, outside: &OutsideServers) -> anyhow::Result<()> {
    let platform = format!("PlatformUrl={}", outside.platform());
    let secrets = format!("SecretArn={}", cloud.secret());
    let first = [secrets.as_str(), "ProtectTable=false", &platform];
    cloud.deploy("the stack is deployed", arguments, &first).await?;
    let outputs = cloud.outputs().await?;
    let http_api = cloud.http_api(&outputs)?;
    for (name, value) in &outputs {
        say(&format!("  {name} = {value}"));
    }
    let stack = DeployedStack { arguments, cloud, servers: outside, http_api: http_api.clone(), outputs };
    let named = [("EBB_SOURCE", http_api.clone()), ("EBB_CALLBACK_URL", format!("{http_api}/v1/callbacks"))];
    let redeploy = "it is deployed again, with the URL under which it is reached";
    stack.redeploy(redeploy, &format!("Url={http_api}"), &named).await?;
    stack.doctor().await?;
    stack.services().await?;
    stack.parts().await?;
    stack.ends().await
}

impl DeployedStack<'_> {
    fn ebb(&self, words: &[&str]) -> Command {
        let mut ebb = program(&self.arguments.ebb);
        ebb.env("EBB_URL", &self.http_api).env("EBB_TOKEN", TOKEN);
        ebb.env("EBB_WEBHOOK_SECRET", SignedMessage::Lifecycle.key()).args(words);
        ebb
    }

    /// Deploys with one parameter, and sees that all functions have what comes of it, that nothing else of them has changed,
    /// and so that the parameters which were not given have kept their values.
    async fn redeploy(&self, name: &str, parameter: &str, changed: &[(&str, String)]) -> anyhow::Result<()> {
        let before = self.cloud.variables().await?;
        self.cloud.deploy(name, self.arguments, &[parameter]).await?;
        let after = self.cloud.variables().await?;
        let mut expected = before.clone();
        for (name, value) in changed {
            for (function, variables) in &mut expected {
                let was = variables.insert((*name).to_owned(), json!(value));
                ensure!(was != Some(json!(value)), "{function} had {name}={value} before");
            }
        }
        ensure!(after == expected, "{parameter}: {before:?} has become {after:?}");
        let names: Vec<&str> = changed.iter().map(|(name, _)| *name).collect();
        say(&format!("  of the functions' variables {} changed, and no other", names.join(" and ")));
        Ok(())
    }

    fn output(&self, name: &str) -> anyhow::Result<&str> {
        self.outputs.get(name).map(String::as_str).with_context(|| format!("the stack has no output {name}"))
    }

    /// Each part works, and a secret that is another one is noticed.
    async fn doctor(&self) -> anyhow::Result<()> {
        // The schedule has a minute.
        let works = async {
            let began = Instant::now();
            loop {
                match run(&mut self.ebb(&["doctor"])).await {
                    Err(_) if began.elapsed() < MINUTES => sleep(POLL_INTERVAL).await,
                    seen => return seen,
                }
            }
        };
        let seen = step("ebb doctor finds that all parts work", works).await?;
        for line in seen.lines() {
            say(&format!("  {line}"));
        }
        let mut other = self.ebb(&["doctor"]);
        let other = other.env("EBB_WEBHOOK_SECRET", SignedMessage::Outcome.key()).output().await?;
        let seen = String::from_utf8_lossy(&other.stdout).into_owned();
        let wrong: Vec<&str> = seen.lines().filter(|line| line.contains(" FAILED ")).collect();
        ensure!(!other.status.success() && wrong.len() == 1 && wrong[0].starts_with("signature"), "{seen}");
        say("ebb doctor finds that a signature is not believed");
        Ok(())
    }

    /// Units that are webhooks, with a deployment while one waits for its callback.
    async fn services(&self) -> anyhow::Result<()> {
        let example = self.arguments.examples.join("webhooks");
        let (plugin, sandbox) = (example.join("plugin.yaml"), example.join("sandbox.yaml"));
        let receiver = format!("receiver={}", self.servers.url());
        let publish = ["plugin", "apply", "-f", &plugin.to_string_lossy(), "--set", &receiver];
        step("a plugin is published", run(&mut self.ebb(&publish))).await?;
        let create = ["sandbox", "apply", "-f", &sandbox.to_string_lossy(), "--wait=false"];
        step("a sandbox is asked for", run(&mut self.ebb(&create))).await?;
        step("a unit waits for its callback", self.servers.wait("POST /indexes")).await?;
        let redeploy = "the stack is deployed again while the run is under way";
        let level = |level: &str| {
            format!(
                "warn,ebb_lambda={level},ebb_flow={level},ebb_api={level},ebb_relay_client={level},ebb_store={level},ebb_egress={level},ebb_protocol={level}"
            )
        };
        self.redeploy(redeploy, "LogLevel=debug", &[("RUST_LOG", level("debug"))]).await?;
        self.servers.call_back();
        step("the platform is notified that the sandbox is ready", self.servers.wait_for_outcome("ready")).await?;
        let target = run(&mut self.ebb(&["sandbox", "get", SERVICES, "-o", "json"])).await?;
        let target: Value = serde_json::from_str(&target)?;
        are_of_services(&target["resources"]["services"]["outputs"])
    }

    /// Table, bucket and queue have played their parts.
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
        let times = self.servers.times("POST /certificates");
        let [first, .., last] = times.as_slice() else { anyhow::bail!("nothing was sent again") };
        let took = last.duration_since(*first);
        ensure!(times.len() == 3 && took < SOON, "{} requests within {took:?}", times.len());
        say(&format!("  messages of the queue had a request sent twice more within {:.1} s", took.as_secs_f64()));
        Ok(())
    }

    async fn ends(&self) -> anyhow::Result<()> {
        step("the sandbox is deleted", run(&mut self.ebb(&["sandbox", "delete", SERVICES]))).await?;
        step("the platform is notified that it is gone", self.servers.wait_for_outcome("gone")).await
    }
}
