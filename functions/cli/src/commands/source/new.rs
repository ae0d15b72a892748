//! `ebb source new`: prints a source that uses a preset.

use ebb_documents::load::{self, DocumentVars, NoFiles};
use ebb_documents::model::VerifyDoc;
use ebb_documents::presets::{PRESETS, SourcePreset, preset};

use crate::{CliError, Exit, Result, output};

#[derive(Debug, clap::Args)]
pub(crate) struct SourceNewArgs {
    /// Name of the source; by default that of the preset
    name: Option<String>,
    /// Preset for the sender
    #[arg(long, value_name = "NAME", required_unless_present = "list")]
    preset: Option<String>,
    /// List the presets
    #[arg(long)]
    list: bool,
}

impl SourceNewArgs {
    pub(crate) fn run(self) -> Result<Exit> {
        if self.list {
            let rows = PRESETS.iter().map(|preset| [preset.name.to_owned(), preset.summary().to_owned()]);
            return output::print(&output::table(&["PRESET", "SUMMARY"], rows));
        }
        let wanted = self.preset.unwrap_or_default();
        let Some(preset) = preset(&wanted) else {
            return Err(CliError::broken(format!("unknown preset `{wanted}`")).with_hint("ebb source new --list"));
        };
        let name = self.name.as_deref().unwrap_or(preset.name);
        let document = preset.starter(name);
        load::event_source("the new source", &document, &NoFiles, &DocumentVars::none())?;
        output::print_data(&document)?;
        output::message(&setup(name, preset))
    }
}

/// Returns the steps on the sender's side.
fn setup(name: &str, preset: &SourcePreset) -> String {
    let verify = preset.document().verify;
    let in_url = verify.as_ref().is_some_and(|verify| matches!(verify, VerifyDoc::Url(_)));
    let secret = verify.map(|verify| verify.secret().value.clone()).unwrap_or_default();
    let value = if in_url { "?secret=VALUE" } else { "" };
    let mut steps = vec![
        format!(
            "Save the document, and test it with `ebb source test {name}.yaml --payload FILE --header NAME=VALUE`."
        ),
        format!("Store the secret of the sender as {secret}."),
        format!("The path of the URL is /v1/sources/{name}{value}"),
    ];
    if in_url {
        steps.push("VALUE is the secret.".to_owned());
    }
    let before = steps.len();
    steps.extend(preset.steps().map(str::to_owned));
    if steps.len() == before {
        steps.push("Add a webhook with the URL and the secret to the sender. Its body is JSON.".to_owned());
    }
    let steps = (1..).zip(steps).map(|(number, step): (u32, _)| format!("  {number}. {step}\n"));
    format!("\nSetup:\n{}", steps.collect::<String>())
}
