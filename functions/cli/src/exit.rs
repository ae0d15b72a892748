//! How the program ends: exit codes, and errors that say what to do next.

use std::error::Error;
use std::fmt::Write as _;
use std::io;
use std::process::ExitCode;

use ebb_api::HttpProblem;
use ebb_documents::diagnostic::{DiagnosticStyle, Diagnostics};
use ebb_protocol::api::{DocumentError, ProblemDetails};
use serde::Serialize;

use crate::output::{self, OutputFormat};

/// The exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// What was asked for is done.
    Done,
    /// The run failed, the document is invalid, the thing is not there or refuses.
    Failed,
    /// The program was used wrongly, or cannot do its work.
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

/// Why a command ended early.
#[derive(Debug)]
pub(crate) enum CliError {
    Report(Box<ErrorReport>),
    Documents(Diagnostics),
    Output(io::Error),
}

/// An error, its causes and what helps.
#[derive(Debug)]
pub(crate) struct ErrorReport {
    exit: Exit,
    message: String,
    causes: Vec<String>,
    hints: Vec<String>,
    problem: Option<ProblemDetails>,
}

impl CliError {
    /// The run failed, or what was asked for cannot be had. Exit code 1.
    pub(crate) fn failed(message: impl Into<String>) -> Self {
        Self::report_with(Exit::Failed, message.into())
    }

    /// The program was used wrongly, or cannot do its work. Exit code 2.
    pub(crate) fn broken(message: impl Into<String>) -> Self {
        Self::report_with(Exit::Broken, message.into())
    }

    fn report_with(exit: Exit, message: String) -> Self {
        Self::Report(Box::new(ErrorReport { exit, message, causes: Vec::new(), hints: Vec::new(), problem: None }))
    }

    /// Adds an error and what caused it, in turn.
    #[must_use]
    pub(crate) fn with_causes(mut self, error: &(dyn Error + 'static)) -> Self {
        if let Self::Report(told) = &mut self {
            let mut cause = Some(error);
            while let Some(error) = cause {
                let text = error.to_string();
                if told.causes.last() != Some(&text) {
                    told.causes.push(text);
                }
                cause = error.source();
            }
        }
        self
    }

    /// Adds a hint.
    #[must_use]
    pub(crate) fn with_hint(mut self, next: impl Into<String>) -> Self {
        if let Self::Report(told) = &mut self {
            told.hints.push(next.into());
        }
        self
    }

    /// Adds the answer of the server, for programs.
    #[must_use]
    pub(crate) fn of(mut self, problem: &ProblemDetails) -> Self {
        if let Self::Report(told) = &mut self {
            told.problem = Some(problem.clone());
        }
        self
    }

    /// The code to exit with. A reader that went away is none of our troubles.
    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::Report(told) => told.exit,
            Self::Documents(_) => Exit::Failed,
            Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => Exit::Done,
            Self::Output(_) => Exit::Broken,
        }
    }

    /// What goes to standard error, with a line end.
    pub(crate) fn text(&self, drawing: DiagnosticStyle) -> String {
        match self {
            Self::Report(told) => told.text(),
            Self::Documents(diagnostics) => diagnostics.drawn(drawing),
            Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => String::new(),
            Self::Output(error) => format!("error: standard output cannot be written: {error}\n"),
        }
    }

    /// Says it on standard error and gives the exit code.
    pub(crate) fn report(&self) -> Exit {
        let text = self.text(output::drawing());
        if !text.is_empty() {
            output::status_line(text.trim_end_matches('\n'));
        }
        self.exit()
    }
}

/// A failure for programs: one object, as commands write their data.
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
    /// The server's problem: its stable code, the errors of a document and the changes of an update.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<ProblemDetails>,
    /// Errors of documents that were found without a server.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    errors: Vec<DocumentError>,
}

impl CliError {
    /// Says it on standard error, and on standard output too if programs are to read it.
    pub(crate) fn report_as(&self, format: Option<OutputFormat>) -> Exit {
        if let (Some(format), Some(error)) = (format, self.detail()) {
            // A reader that went away is none of our troubles.
            let _ = output::write_failure(format, &ErrorBody { error });
        }
        self.report()
    }

    fn detail(&self) -> Option<ErrorDetail> {
        match self {
            Self::Report(told) => Some(ErrorDetail {
                message: told.message.clone(),
                causes: told.causes.clone(),
                next_steps: told.hints.clone(),
                problem: told.problem.clone(),
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
        let cause = io::Error::other("the disk is gone");
        let trouble =
            CliError::broken("the state cannot be opened").with_causes(&cause).with_hint("give another --state");
        insta::assert_snapshot!(trouble.text(DiagnosticStyle::Plain), @r"
        error: the state cannot be opened
          caused by: the disk is gone
          help: give another --state
        ");
        assert_eq!(trouble.exit(), Exit::Broken);
    }

    #[test]
    fn a_reader_that_went_away_is_success() {
        let trouble = CliError::Output(io::ErrorKind::BrokenPipe.into());
        assert_eq!(trouble.exit(), Exit::Done);
        assert_eq!(trouble.text(DiagnosticStyle::Plain), "");
    }
}
