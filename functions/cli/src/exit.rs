//! Exit codes, and errors with causes and hints.

use std::error::Error;
use std::io;
use std::process::ExitCode;

use ebb_api::HttpProblem;
use ebb_documents::diagnostic::{DiagnosticStyle, Diagnostics, Severity};
use ebb_protocol::api::{DocumentError, ProblemDetails};
use serde::Serialize;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Exit {
    Done = 0,
    /// The run failed, the document is invalid, or the object is missing or refuses the change.
    #[default]
    Failed = 1,
    /// The command line is wrong, or the program cannot run.
    Broken = 2,
    /// The time limit of a wait ended, with the code of the program `timeout`. The server continues.
    TimedOut = 124,
    Interrupted = 130,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

pub(crate) type Result<T, E = CliError> = std::result::Result<T, E>;

#[derive(Debug)]
pub(crate) enum CliError {
    Report(Box<ErrorReport>),
    Documents(Diagnostics),
    Output(io::Error),
}

/// An error with its causes and hints, as `-o json|yaml` prints it.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ErrorReport {
    #[serde(skip)]
    exit: Exit,
    /// True if the server did not respond.
    #[serde(skip)]
    is_unreachable: bool,
    /// True if the server refused the request for the moment.
    #[serde(skip)]
    is_busy: bool,
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
    /// Returns an error with exit code 1: the run failed, or the object is missing or refuses the change.
    pub(crate) fn failed(message: impl Into<String>) -> Self {
        Self::Report(Box::new(ErrorReport { message: message.into(), ..ErrorReport::default() }))
    }

    /// Returns an error with exit code 2: the command line is wrong, or the program cannot run.
    pub(crate) fn broken(message: impl Into<String>) -> Self {
        Self::failed(message).with(|report| report.exit = Exit::Broken)
    }

    /// Returns an error with exit code 124: the time limit of a wait ended.
    pub(crate) fn timed_out(message: impl Into<String>) -> Self {
        Self::failed(message).with(|report| report.exit = Exit::TimedOut)
    }

    /// Returns the error of a server that does not respond.
    pub(crate) fn unreachable(message: impl Into<String>) -> Self {
        Self::broken(message).with(|report| report.is_unreachable = true)
    }

    /// Marks the error of a server that refused a request for the moment.
    #[must_use]
    pub(crate) fn busy(self) -> Self {
        self.with(|report| report.is_busy = true)
    }

    fn with(mut self, change: impl FnOnce(&mut ErrorReport)) -> Self {
        if let Self::Report(report) = &mut self {
            change(report);
        }
        self
    }

    /// Adds an error and its sources as causes.
    #[must_use]
    pub(crate) fn with_causes(self, error: &(dyn Error + 'static)) -> Self {
        self.with(|report| {
            for error in std::iter::successors(Some(error), |&error| error.source()) {
                let text = error.to_string();
                if report.causes.last() != Some(&text) {
                    report.causes.push(text);
                }
            }
        })
    }

    #[must_use]
    pub(crate) fn with_hint(self, next: impl Into<String>) -> Self {
        self.with(|report| report.next_steps.push(next.into()))
    }

    /// Adds the server's problem document, for `-o json|yaml`.
    #[must_use]
    pub(crate) fn of(self, problem: &ProblemDetails) -> Self {
        self.with(|report| report.problem = Some(problem.clone()))
    }

    /// Returns the server's problem document, if the server rejected a request.
    pub(crate) fn problem(&self) -> Option<&ProblemDetails> {
        self.report()?.problem.as_ref()
    }

    pub(crate) fn has_status(&self, status: u16) -> bool {
        self.problem().is_some_and(|problem| problem.status == status)
    }

    pub(crate) fn has_code(&self, code: &str) -> bool {
        self.problem().is_some_and(|problem| problem.code == code)
    }

    pub(crate) fn is_unreachable(&self) -> bool {
        self.report().is_some_and(|report| report.is_unreachable)
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.report().is_some_and(|report| report.is_busy)
    }

    fn report(&self) -> Option<&ErrorReport> {
        if let Self::Report(report) = self { Some(report) } else { None }
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

    /// Returns the text for standard error. It ends with a line break.
    pub(crate) fn text(&self, drawing: DiagnosticStyle) -> String {
        match self {
            Self::Report(report) => {
                let mut text = format!("error: {}\n", report.message);
                let causes = report.causes.iter().map(|cause| cause.replace('\n', "\n             "));
                text.extend(causes.map(|cause| format!("  caused by: {cause}\n")));
                text.extend(report.next_steps.iter().map(|next| format!("  help: {next}\n")));
                text
            }
            Self::Documents(diagnostics) => diagnostics.drawn(drawing),
            Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => String::new(),
            Self::Output(error) => format!("error: cannot write to standard output: {error}\n"),
        }
    }

    /// Returns the message in one line, without causes and hints.
    pub(crate) fn message(&self) -> String {
        match (self, self.problem()) {
            (_, Some(problem)) => problem.detail.clone(),
            (Self::Report(report), None) => report.message.clone(),
            (Self::Documents(_) | Self::Output(_), None) => self.text(DiagnosticStyle::Plain),
        }
    }

    /// Returns the message with its hints in one line.
    pub(crate) fn message_with_steps(&self) -> String {
        let steps = self.report().into_iter().flat_map(|report| report.next_steps.iter().cloned());
        std::iter::once(self.message()).chain(steps).collect::<Vec<_>>().join("; ")
    }

    /// Returns the data of `-o json|yaml`, or `None` for an error of the output itself.
    pub(crate) fn data(&self) -> Option<serde_json::Value> {
        let report = match self {
            Self::Report(report) => serde_json::to_value(report),
            Self::Documents(diagnostics) => {
                let errors = diagnostics.iter().filter(|diagnostic| diagnostic.severity == Severity::Error);
                let errors: Vec<_> = errors.map(HttpProblem::document_error).collect();
                let message = errors.first().map(|error| error.message.clone()).unwrap_or_default();
                serde_json::to_value(ErrorReport { message, errors, ..ErrorReport::default() })
            }
            Self::Output(_) => return None,
        };
        Some(serde_json::json!({"error": report.ok()?}))
    }
}

impl From<Diagnostics> for CliError {
    fn from(diagnostics: Diagnostics) -> Self {
        Self::Documents(diagnostics)
    }
}
