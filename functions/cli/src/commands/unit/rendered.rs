//! `ebb unit rendered`: shows what a unit was rendered to.

use std::collections::{BTreeMap, BTreeSet};

use ebb_protocol::api::{TargetDetail, UnitRendering};
use serde::Serialize;

use crate::commands::logs::{is_named, no_unit};
use crate::{ApiClient, CliError, Exit, OutputArgs, Result, TargetArgs, printable};

#[derive(Debug, clap::Args)]
pub(crate) struct RenderedArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// Unit: UNIT or RESOURCE/UNIT
    #[arg(value_name = "UNIT")]
    unit: String,
    /// Hook of the unit's run, such as preStart; by default the last one with the unit
    #[arg(long, value_name = "HOOK")]
    hook: Option<String>,
    /// Number of the attempt, from 1; by default the last attempt
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    attempt: Option<u32>,
    #[command(flatten)]
    output: OutputArgs,
}

impl RenderedArgs {
    pub(crate) async fn run(self, client: &ApiClient) -> Result<Exit> {
        let target = self.target.target()?;
        let seen = client.existing(&target).await?;
        let (run, key) = self.chosen(&seen)?;
        self.output.write(&client.rendered(run, key, self.attempt).await?, text)
    }

    /// Returns the id of the last run with the unit, and the key of the unit.
    fn chosen<'a>(&self, seen: &'a TargetDetail) -> Result<(&'a str, &'a str)> {
        let runs = seen.runs.iter().rev().filter(|run| self.hook.as_ref().is_none_or(|hook| *hook == run.hook));
        let units = runs.flat_map(|run| run.units.iter().map(move |unit| (run.id.as_str(), unit.key.as_str())));
        let found: Vec<(&str, &str)> = units.filter(|(_, key)| is_named(&self.unit, key)).collect();
        let Some(&first) = found.first() else {
            let [hook, unit] = [self.hook.as_slice(), std::slice::from_ref(&self.unit)];
            return Err(no_unit(&self.target.target()?, seen, [("hook", hook), ("resource", &[]), ("unit", unit)]));
        };
        let keys: BTreeSet<&str> = found.iter().map(|(_, key)| *key).collect();
        if keys.len() > 1 {
            let error = CliError::failed(format!("several units have the name `{}`", self.unit));
            return Err(error.with_hint(format!("name one of them: {}", Vec::from_iter(keys).join(", "))));
        }
        Ok(first)
    }
}

/// Returns the rendered form as YAML. Manifests are documents that `kubectl` can read.
fn text(rendering: &UnitRendering) -> String {
    let UnitRendering { unit, kind, attempt, run, .. } = rendering;
    let mut text = format!("# {unit} ({kind}), attempt {attempt} of run {run}\n");
    let undoes = (!rendering.undoes.is_empty()).then(|| rendering.undoes.join(", "));
    let facts = [
        ("cluster", &rendering.cluster),
        ("namespace", &rendering.namespace),
        ("image", &rendering.image),
        ("undoes", &undoes),
        ("skipped", &rendering.skipped),
    ];
    let facts = facts.into_iter().filter_map(|(name, value)| Some((name, printable(value.as_ref()?))));
    text.extend(facts.map(|(name, value)| format!("# {name}: {value}\n")));
    let data = [
        rendering.inputs.as_ref().map(yaml),
        rendering.script.as_ref().map(|script| yaml(&BTreeMap::from([("script", script)]))),
        rendering.request.as_ref().map(yaml),
        rendering.instance.as_ref().map(yaml),
    ];
    let manifests = rendering.manifests.iter().flatten().map(yaml);
    let documents: Vec<String> = data.into_iter().flatten().chain(manifests).collect();
    text + &documents.join("---\n")
}

fn yaml<T: Serialize>(data: &T) -> String {
    let mut yaml = serde_saphyr::to_string(data).unwrap_or_default();
    if !yaml.ends_with('\n') {
        yaml.push('\n');
    }
    yaml
}
