//! What goes through the stack.

use anyhow::ensure;
use serde_json::Value;
use tokio::process::Command;

use crate::Arguments;
use crate::cloud::{Cloud, proofs};
use crate::receiver::Receiver;
use crate::steps::{run, say, step};

const NAME: &str = "search-pr-9";

/// Deploys, lets the example with webhooks live, with a deployment while it waits for a callback, and deletes the stack.
pub(crate) async fn all(arguments: &Arguments, cloud: &Cloud, receiver: &Receiver) -> anyhow::Result<()> {
    let platform = format!("{}/platform", receiver.url());
    let first = [("PlatformUrl", platform.as_str())];
    cloud.deploy("the stack is deployed", arguments, &first).await?;
    let outputs = cloud.outputs().await?;
    let entry = cloud.entry(&outputs)?;
    for (name, value) in &outputs {
        say(&format!("  {name} = {value}"));
    }
    let named = [("PlatformUrl", platform.as_str()), ("Url", entry.as_str())];
    cloud.deploy("it is deployed again, with the URL under which it is reached", arguments, &named).await?;
    let ebb = |words: &[&str]| {
        let mut ebb = Command::new(&arguments.ebb);
        ebb.env("EBB_URL", &entry).envs(proofs()).args(words);
        ebb
    };
    let example = arguments.examples.join("webhooks");
    let (plugin, sandbox) = (example.join("plugin.yaml"), example.join("sandbox.yaml"));
    let (plugin, sandbox) = (plugin.to_string_lossy(), sandbox.to_string_lossy());
    let place = format!("receiver={}", receiver.url());
    step("a plugin is published", run(&mut ebb(&["plugin", "apply", "-f", &plugin, "--set", &place])))
        .await?;
    let create = ["sandbox", "apply", "-f", &sandbox, "--wait=false"];
    step("a sandbox is asked for", run(&mut ebb(&create))).await?;
    step("a unit waits for its callback", receiver.wait("POST /indexes")).await?;
    let changed = [named[0], named[1], ("LogLevel", "debug")];
    cloud.deploy("the stack is deployed anew while the run is under way", arguments, &changed).await?;
    receiver.call_back();
    step("the platform is told that the sandbox is ready", receiver.told("ready")).await?;
    let target = run(&mut ebb(&["sandbox", "get", NAME, "-o", "json"])).await?;
    let target: Value = serde_json::from_str(&target)?;
    let outputs = &target["resources"]["services"]["outputs"];
    for (name, expected) in [("tenant", "tenant"), ("search", "index:9200"), ("certificate", "certificate")] {
        ensure!(outputs[name]["value"] == expected, "{name} of {outputs}");
    }
    step("it is deleted", run(&mut ebb(&["sandbox", "delete", NAME]))).await?;
    step("the platform is told that it is gone", receiver.told("gone")).await?;
    cloud.delete().await
}
