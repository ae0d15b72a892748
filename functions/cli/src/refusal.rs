//! The text of a request that the server rejected: its errors, with the lines of the document, and the next step.

use ebb_documents::model::SourceText;
use ebb_protocol::api::{DocumentError, ProblemDetails};

use crate::exit::CliError;

/// The name of the document of a request in the errors of the server.
const DOCUMENT: &str = "document";
/// Maximum characters of a line that is shown with an error.
const MAX_LINE: usize = 200;

/// Returns the next step after a 401 or 403. The text of the problem names the missing scope.
fn access_hint(code: &str, has_token: bool) -> &'static str {
    match (code, has_token) {
        ("invalid-signature", _) => {
            "compare the secret with that of the server: EBB_WEBHOOK_SECRET for `ebb event`, `secrets.json` for `ebb source send`"
        }
        (_, false) => "set EBB_TOKEN",
        ("forbidden", true) => {
            "a caller with the scope `operate` can give you a token with that scope: ebb token create NAME --scope SCOPE"
        }
        (_, true) => {
            "set EBB_TOKEN to a valid token; a caller with the scope `operate` can create one: ebb token create NAME --scope SCOPE"
        }
    }
}

/// Returns the detail of a problem and its errors. `source` is the document of the request.
fn problem_text(problem: &ProblemDetails, source: Option<&SourceText>) -> String {
    let mut text = problem.detail.clone();
    for error in &problem.errors {
        let place = match (error.line, error.column) {
            (Some(line), Some(column)) => format!("{}:{line}:{column}", error.file),
            _ => error.file.clone(),
        };
        text.push_str(&format!("\n  {place}: [{}] {}", error.code, error.message));
        if let Some(source) = source.filter(|source| source.name == error.file) {
            text.push_str(&marked_line(source, error).unwrap_or_default());
        }
        if let Some(help) = &error.help {
            text.push_str(&format!("\n    help: {help}"));
        }
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
pub(crate) fn refused(problem: &ProblemDetails, has_token: bool) -> CliError {
    let text = problem_text(problem, None);
    let report = match problem.status {
        401 | 403 => CliError::failed(text).with_hint(access_hint(&problem.code, has_token)),
        // A retry does not repair damaged state. The text names the command that restores it.
        500.. if problem.code == "damaged" => CliError::broken(text),
        500.. => CliError::broken(text).with_hint("run the command again; the server's log has the cause"),
        _ => CliError::failed(text),
    };
    report.of(problem)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::Exit;

    #[test]
    fn a_refused_request_is_no_internal_error() {
        let refused = |status, code: &str, has_token| {
            let detail = "the request needs the scope operate; token ann has: read".to_owned();
            let problem = ProblemDetails { status, code: code.to_owned(), detail, errors: Vec::new() };
            let error = refused(&problem, has_token);
            assert_eq!(error.exit(), if status < 500 { Exit::Failed } else { Exit::Broken }, "{status}");
            error.text(crate::output::drawing())
        };
        let forbidden = refused(403, "forbidden", true);
        assert!(forbidden.contains("needs the scope operate") && forbidden.contains("ebb token create"), "{forbidden}");
        assert!(!forbidden.contains("EBB_TOKEN"), "{forbidden}");
        assert!(refused(401, "missing-token", false).contains("help: set EBB_TOKEN\n"));
        assert!(refused(401, "token-expired", true).contains("to a valid token"));
        assert!(refused(401, "invalid-signature", true).contains("EBB_WEBHOOK_SECRET for `ebb event`"));
        refused(500, "internal", true);
    }
}
