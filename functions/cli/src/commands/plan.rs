//! `ebb plan`: prints the plan of a sandbox.

use std::fmt::Write as _;
use std::path::PathBuf;

use ebb_protocol::api::PlanPreview;
use serde_json::Value;

use crate::documents::{self, SetArgs};
use crate::exit::{CliError, Exit};
use crate::offline;
use crate::output::OutputArgs;
use crate::pretend;
use crate::server::ServerArgs;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  ebb plan sandbox.yaml\n  ebb plan sandbox.yaml --plugin plugin.yaml")]
pub(crate) struct PlanArgs {
    /// File with the sandbox; `-` reads standard input
    file: PathBuf,
    /// File with plugins; repeatable. With it, the server is not used
    #[arg(long = "plugin", value_name = "FILE", num_args = 1..)]
    plugins: Vec<PathBuf>,
    /// Ask the InfraKit plugins of this machine what they would do; nothing is made
    #[arg(long)]
    pretend: bool,
    #[command(flatten)]
    sets: SetArgs,
    #[command(flatten)]
    output: OutputArgs,
}

impl PlanArgs {
    pub(crate) async fn run(self, server: &ServerArgs) -> Result<Exit, CliError> {
        let vars = self.sets.vars()?;
        let document = documents::TargetDocument::read(&self.file, &vars)?;
        let target = document.target("sandbox");
        let sandbox = document.0;
        // Collections need no plugins of the server.
        let needs_plugins = sandbox.resources.iter().any(|resource| resource.collection.is_none());
        let mut preview = if self.plugins.is_empty() && needs_plugins {
            super::connect_for_plugins(server)?.preview(&sandbox.expanded).await?
        } else {
            let plugins = documents::all_plugins(&self.plugins, &vars)?;
            let planned = offline::plan(&sandbox, &plugins)?;
            documents::warn(&planned.warnings);
            offline::preview(&target.kind, &target.name, offline::as_published(&sandbox, &plugins)?)?
        };
        if self.pretend {
            pretend::ask(&mut preview).await?;
        }
        self.output.write(&preview, |preview| text(&target.name, preview))?;
        Ok(Exit::Done)
    }
}

/// Returns the plan as text that ends with a line break.
fn text(name: &str, preview: &PlanPreview) -> String {
    let mut text = format!("{name}  {}\n", preview.digest);
    for hook in &preview.hooks {
        let _ = writeln!(text, "\n{}", hook.hook);
        for (position, unit) in hook.units.iter().enumerate() {
            let place = unit.cluster.as_ref().map(|cluster| format!(" in {cluster}")).unwrap_or_default();
            let _ = writeln!(text, "  {}. {}  {}{place}", position + 1, unit.key, unit.kind);
            let mut seen = Vec::new();
            for edge in &unit.after {
                if seen.contains(&&edge.key) {
                    continue;
                }
                seen.push(&edge.key);
                let reasons: Vec<&str> = unit
                    .after
                    .iter()
                    .filter(|other| other.key == edge.key)
                    .map(|other| other.reason.as_str())
                    .collect();
                let _ = writeln!(text, "       after {} ({})", edge.key, reasons.join(", "));
            }
            write_rendered(&mut text, &unit.rendered);
        }
    }
    if preview.hooks.is_empty() {
        text.push_str("\nno units\n");
    }
    text
}

fn write_rendered(text: &mut String, rendered: &Value) {
    let Value::Object(parts) = rendered else { return };
    for (part, value) in parts {
        match (part.as_str(), value) {
            (_, Value::Null) => {}
            ("headers", Value::Object(headers)) if headers.is_empty() => {}
            ("inputs", Value::Array(inputs)) => {
                for input in inputs {
                    let name = input["name"].as_str().unwrap_or_default();
                    let _ = writeln!(text, "       {name} = {}{}", scalar(&input["value"]), places(input));
                }
            }
            ("manifest" | "body" | "headers" | "until" | "properties" | "tags" | "attachments", value) => {
                let yaml = serde_saphyr::to_string(value).unwrap_or_else(|_| value.to_string());
                let _ = writeln!(text, "       {part}:");
                for line in yaml.lines() {
                    let _ = writeln!(text, "         {line}");
                }
            }
            (part, value) => {
                let _ = writeln!(text, "       {part} {}", scalar(value));
            }
        }
    }
}

/// Returns the variable and the path of a pod's input.
fn places(input: &Value) -> String {
    let named = |name: &str| input[name].as_str().map(|value| format!("{name} {value}"));
    let places: Vec<String> = [named("env"), named("path")].into_iter().flatten().collect();
    if places.is_empty() { String::new() } else { format!("  ({})", places.join(", ")) }
}

fn scalar(value: &Value) -> String {
    match value {
        Value::Null => "(absent)".to_owned(),
        Value::String(text) if !text.is_empty() && !text.contains('\n') => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_edges_and_inputs_are_shown() {
        let preview: PlanPreview = serde_json::from_value(serde_json::json!({
            "digest": "sha256:0123",
            "hooks": [{"hook": "preStart", "units": [
                {"unit": "db/provision", "kind": "pod", "after": [], "rendered": {"inputs": [
                    {"name": "region", "value": "eu-west-1", "env": "AWS_REGION", "path": null},
                    {"name": "tags", "value": null, "env": "TAGS", "path": "/in/tags"},
                    {"name": "sql", "value": "a\nb", "env": null, "path": "/in/sql"},
                ]}},
                {"unit": "billing/register", "kind": "webhook",
                 "after": [{"unit": "db/provision", "reason": "reads name"}, {"unit": "db/provision", "reason": "reads dsn"}],
                 "rendered": {"method": "POST", "url": "https://billing.example.org/tenants", "headers": {},
                              "body": {"db": "<db/provision.name>"}, "absent": null,
                              "until": {"asks": "https://billing.example.org/tenants/${response.body.id}",
                                        "every": "2s", "maxEvery": "1m", "ready": "poll.body.ok"}}},
            ]}],
        }))
        .unwrap();
        insta::assert_snapshot!(text("pr-1", &preview));
    }
}
