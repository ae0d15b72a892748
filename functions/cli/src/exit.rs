//! Exit codes, and errors with causes and hints.

use std::error::Error;
use std::fmt::Write as _;
use std::io;
use std::process::ExitCode;

use ebb_api::HttpProblem;
use ebb_documents::diagnostic::{DiagnosticStyle, Diagnostics};
use ebb_protocol::api::{DocumentError, ProblemDetails};
use serde::Serialize;

use crate::output::{self, OutputFormat};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    Done,
    /// The run failed, the document is invalid, or the object is missing or refuses the change.
    Failed,
    /// The command line is wrong, or the program cannot run.
    Broken,
    Interrupted,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Done => 0,
            Exit::Failed => 1,
            Exit::Broken => 2,
            Exit::Interrupted => 130,
        })
    }
}

/// The error of a command.
#[derive(Debug)]
pub(crate) enum CliError {
    Report(Box<ErrorReport>),
    Documents(Diagnostics),
    Output(io::Error),
}

/// An error with its causes and hints.
#[derive(Debug)]
pub(crate) struct ErrorReport {
    exit: Exit,
    message: String,
    causes: Vec<String>,
    hints: Vec<String>,
    problem: Option<ProblemDetails>,
}

impl CliError {
    /// Returns an error with exit code 1: the run failed, or the object is missing or refuses the change.
    pub(crate) fn failed(message: impl Into<String>) -> Self {
        Self::report_with(Exit::Failed, message.into())
    }

    /// Returns an error with exit code 2: the command line is wrong, or the program cannot run.
    pub(crate) fn broken(message: impl Into<String>) -> Self {
        Self::report_with(Exit::Broken, message.into())
    }

    fn report_with(exit: Exit, message: String) -> Self {
        Self::Report(Box::new(ErrorReport { exit, message, causes: Vec::new(), hints: Vec::new(), problem: None }))
    }

    /// Adds an error and its sources as causes.
    #[must_use]
    pub(crate) fn with_causes(mut self, error: &(dyn Error + 'static)) -> Self {
        if let Self::Report(report) = &mut self {
            let mut cause = Some(error);
            while let Some(error) = cause {
                let text = error.to_string();
                if report.causes.last() != Some(&text) {
                    report.causes.push(text);
                }
                cause = error.source();
            }
        }
        self
    }

    #[must_use]
    pub(crate) fn with_hint(mut self, next: impl Into<String>) -> Self {
        if let Self::Report(report) = &mut self {
            report.hints.push(next.into());
        }
        self
    }

    /// Adds the server's problem document, for `-o json|yaml`.
    #[must_use]
    pub(crate) fn of(mut self, problem: &ProblemDetails) -> Self {
        if let Self::Report(report) = &mut self {
            report.problem = Some(problem.clone());
        }
        self
    }

    /// Returns the exit code. A closed standard output counts as success.
    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::Report(report) => report.exit,
            Self::Documents(_) => Exit::Failed,
            Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => Exit::Done,
            Self::Output(_) => Exit::Broken,
        }
    }

    /// Returns the text for standard error; it ends with a line break.
    pub(crate) fn text(&self, drawing: DiagnosticStyle) -> String {
        match self {
            Self::Report(report) => report.text(),
            Self::Documents(diagnostics) => diagnostics.drawn(drawing),
            Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => String::new(),
            Self::Output(error) => format!("error: cannot write to standard output: {error}\n"),
        }
    }

    /// Prints the error to standard error and returns the exit code.
    pub(crate) fn report(&self) -> Exit {
        let text = self.text(output::drawing());
        if !text.is_empty() {
            output::status_line(text.trim_end_matches('\n'));
        }
        self.exit()
    }
}

/// The error of a command for `-o json|yaml`.
#[derive(Debug, Serialize)]
struct ErrorBody {
    error: ErrorDetail,
}

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct ErrorDetail {
    message: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    causes: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    next_steps: Vec<String>,
    /// The problem document of the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<ProblemDetails>,
    /// Errors of documents that were found without a server.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    errors: Vec<DocumentError>,
}

impl CliError {
    /// Prints the error to standard error, and as an object to standard output if `format` is given.
    pub(crate) fn report_as(&self, format: Option<OutputFormat>) -> Exit {
        if let (Some(format), Some(error)) = (format, self.detail()) {
            // A closed standard output is not an error.
            let _ = output::write_failure(format, &ErrorBody { error });
        }
        self.report()
    }

    fn detail(&self) -> Option<ErrorDetail> {
        match self {
            Self::Report(report) => Some(ErrorDetail {
                message: report.message.clone(),
                causes: report.causes.clone(),
                next_steps: report.hints.clone(),
                problem: report.problem.clone(),
                errors: Vec::new(),
            }),
            Self::Documents(diagnostics) => {
                let errors: Vec<_> = diagnostics.iter().map(HttpProblem::document_error).collect();
                let message = errors.first().map(|error| error.message.clone()).unwrap_or_default();
                Some(ErrorDetail { message, errors, ..ErrorDetail::default() })
            }
            Self::Output(_) => None,
        }
    }
}

impl ErrorReport {
    fn text(&self) -> String {
        let mut text = format!("error: {}\n", self.message);
        for cause in &self.causes {
            let _ = writeln!(text, "  caused by: {}", cause.replace('\n', "\n             "));
        }
        for next in &self.hints {
            let _ = writeln!(text, "  help: {next}");
        }
        text
    }
}

impl From<Diagnostics> for CliError {
    fn from(diagnostics: Diagnostics) -> Self {
        Self::Documents(diagnostics)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_has_its_causes_and_hints() {
        let cause = io::Error::other("the disk is full");
        let error = CliError::broken("cannot open the state").with_causes(&cause).with_hint("use another --state");
        insta::assert_snapshot!(error.text(DiagnosticStyle::Plain), @r"
        error: cannot open the state
          caused by: the disk is full
          help: use another --state
        ");
        assert_eq!(error.exit(), Exit::Broken);
    }

    #[test]
    fn a_closed_standard_output_is_success() {
        let error = CliError::Output(io::ErrorKind::BrokenPipe.into());
        assert_eq!(error.exit(), Exit::Done);
        assert_eq!(error.text(DiagnosticStyle::Plain), "");
    }
}
