//! The text of a request that the server rejected: its errors, with the lines of the document, and the next step.

use ebb_documents::model::SourceText;
use ebb_protocol::{DocumentError, ErrorCode, ProblemDetails};

use crate::exit::CliError;

/// The name of the document of a request in the errors of the server.
const DOCUMENT: &str = "document";
/// Maximum characters of a line that is shown with an error.
const MAX_LINE: usize = 200;

/// Returns the detail of a problem and its errors. `source` is the document of the request.
fn problem_text(problem: &ProblemDetails, source: Option<&SourceText>) -> String {
    let mut text = problem.detail.clone();
    for error in &problem.errors {
        text.push_str(&format!("\n  {error}"));
        if let Some(source) = source.filter(|source| source.name == error.file) {
            text.push_str(&marked_line(source, error).unwrap_or_default());
        }
        text.extend(error.help.as_ref().map(|help| format!("\n    help: {help}")));
    }
    text
}

/// Returns the line of an error with a mark below its column. Returns `None` without a position, and for a long line.
fn marked_line(source: &SourceText, error: &DocumentError) -> Option<String> {
    let (number, column) = (error.line?, error.column?);
    let line = source.line(number).filter(|line| line.chars().count() <= MAX_LINE)?;
    let (number, mark) = (number.to_string(), " ".repeat((column as usize).saturating_sub(1).min(MAX_LINE)));
    Some(format!("\n    {number} | {}\n    {} | {mark}^", line.replace('\t', " "), " ".repeat(number.len())))
}

/// Names the file of a document in the errors of the server, which does not know it, and shows their lines.
pub(crate) fn in_document(error: CliError, source: &SourceText) -> CliError {
    let Some(problem) = error.problem().filter(|problem| problem.errors.iter().any(|it| it.file == DOCUMENT)) else {
        return error;
    };
    of_document(problem.clone(), source)
}

/// Returns the error of a document, with the name of its file and the lines of its errors.
pub(crate) fn of_document(mut problem: ProblemDetails, source: &SourceText) -> CliError {
    for error in problem.errors.iter_mut().filter(|error| error.file == DOCUMENT) {
        error.file.clone_from(&source.name);
    }
    CliError::failed(problem_text(&problem, Some(source))).of(&problem)
}

/// Returns the error of a request that the server rejected.
pub(crate) fn refused(problem: &ProblemDetails) -> CliError {
    let text = problem_text(problem, None);
    let report = match (problem.status, problem.next_step()) {
        (status, Some(step)) if matches!(status, 401 | 403) || problem.code == ErrorCode::ResourceLost.name() => {
            CliError::failed(text).with_hint(step)
        }
        // A retry does not repair damaged state. The text names the command that restores it.
        (500.., _) if problem.code == ErrorCode::Damaged.name() => CliError::broken(text),
        (500.., _) => CliError::broken(text).with_hint("run the command again; the server's log has the cause"),
        _ => CliError::failed(text),
    };
    report.of(problem)
}
