//! `ebb plugin validate`: checks documents without a server.

use std::path::PathBuf;

use ebb_documents::compile;
use ebb_documents::diagnostic::{Diagnostic, Diagnostics};
use ebb_documents::load::{self, Document, DocumentVars};
use serde::Serialize;

use crate::documents::{self, DocumentSource, SetArgs};
use crate::exit::{CliError, Exit};
use crate::output;

#[derive(Debug, clap::Args)]
pub(crate) struct PluginValidateArgs {
    /// Files with plugins, sandboxes, route groups, sources, connections or subscriptions; `-` reads standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    #[command(flatten)]
    sets: SetArgs,
    /// Print one JSON object per file and line
    #[arg(short = 'o', long = "output", value_name = "json", value_enum, hide_possible_values = true)]
    output: Option<JsonFormat>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum JsonFormat {
    /// One JSON object per line
    Json,
}

/// The result of one file, for `-o json`.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct FileValidation {
    file: String,
    valid: bool,
    errors: Vec<ValidationError>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct ValidationError {
    code: String,
    message: String,
    line: Option<u32>,
    column: Option<u32>,
}

impl From<&Diagnostic> for ValidationError {
    fn from(diagnostic: &Diagnostic) -> Self {
        Self {
            code: diagnostic.code.to_owned(),
            message: diagnostic.message.clone(),
            line: diagnostic.at.map(|at| at.line),
            column: diagnostic.at.map(|at| at.column),
        }
    }
}

impl PluginValidateArgs {
    pub(crate) fn run(self) -> Result<Exit, CliError> {
        let vars = self.sets.vars()?;
        let mut exit = Exit::Done;
        for file in &self.files {
            let checked = match DocumentSource::read(file) {
                Ok(source) => check(&source, &vars),
                Err(error) if self.output.is_some() => {
                    let (code, message) = ("unreadable".to_owned(), error.line());
                    let error = ValidationError { code, message, line: None, column: None };
                    print(&FileValidation { file: file.display().to_string(), valid: false, errors: vec![error] })?;
                    exit = Exit::Failed;
                    continue;
                }
                Err(error) => return Err(error),
            };
            let found = match checked {
                Ok(warnings) => {
                    documents::warn(&warnings);
                    Diagnostics::new()
                }
                Err(found) => found,
            };
            if found.has_errors() {
                exit = Exit::Failed;
            }
            let name = if file.as_os_str() == "-" { "<stdin>".to_owned() } else { file.display().to_string() };
            if self.output.is_some() {
                let errors = found.iter().filter(|d| d.severity == ebb_documents::diagnostic::Severity::Error);
                let errors = errors.map(ValidationError::from).collect();
                print(&FileValidation { file: name, valid: !found.has_errors(), errors })?;
            } else if found.has_errors() {
                documents::warn(&found);
            } else {
                output::print(&format!("{name}: valid\n"))?;
            }
        }
        Ok(exit)
    }
}

/// Runs all checks that need no other document. Returns the warnings.
fn check(source: &DocumentSource, vars: &DocumentVars) -> Result<Diagnostics, Diagnostics> {
    let loaded = load::documents(&source.name, &source.text, &source.folder, vars)?;
    let mut found = loaded.warnings;
    for document in &loaded.documents {
        match document {
            Document::Plugin(plugin) => match compile::check_plugin(plugin) {
                Ok(warnings) => found.extend(warnings),
                Err(errors) => found.extend(errors),
            },
            Document::RouteGroup(group) => {
                if let Err(errors) = compile::check_route_group(group) {
                    found.extend(errors);
                }
            }
            Document::Source(source) => match compile::event_source(source) {
                Ok((_, warnings)) => found.extend(warnings),
                Err(errors) => found.extend(errors),
            },
            Document::Subscription(subscription) => {
                if let Err(errors) = compile::subscription(subscription) {
                    found.extend(errors);
                }
            }
            Document::Sandbox(_) | Document::Connection(_) => {}
        }
    }
    found.or(()).map(|((), warnings)| warnings)
}

fn print(validation: &FileValidation) -> Result<(), CliError> {
    let line = serde_json::to_string(validation).expect("strings and numbers serialize");
    output::print_data(&(line + "\n"))
}
