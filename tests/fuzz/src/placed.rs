//! Checks of diagnostics: each has a position in its document.

use ebb_documents::diagnostic::{Diagnostic, DiagnosticStyle, Diagnostics};
use ebb_documents::model::LineColumn;

/// Codes of errors that concern a document as a whole.
const OF_THE_WHOLE: [&str; 4] = ["empty", "too-large", "several-documents", "limit"];

/// Checks that errors can be shown.
pub(crate) fn errors(errors: &Diagnostics) {
    assert!(errors.has_errors(), "refused without an error");
    errors.iter().for_each(one);
}

/// Returns the result for a document, or `None` if the document is rejected, after a check of the errors.
pub(crate) fn accepted<T>(result: Result<T, Diagnostics>) -> Option<T> {
    result.inspect_err(errors).ok()
}

/// Checks that a diagnostic has a position in its document and a valid fix, and can be drawn.
pub(crate) fn one(diagnostic: &Diagnostic) {
    match diagnostic.at {
        Some(at) => inside(diagnostic, at),
        None => assert!(OF_THE_WHOLE.contains(&diagnostic.code), "no place: {}", diagnostic.plain()),
    }
    for (at, _) in &diagnostic.related {
        inside(diagnostic, *at);
    }
    assert!(!diagnostic.message.trim().is_empty(), "`{}` says nothing", diagnostic.code);
    for drawing in [DiagnosticStyle::Plain, DiagnosticStyle::Coloured] {
        assert!(diagnostic.drawn(drawing).contains(diagnostic.code));
    }
}

fn inside(diagnostic: &Diagnostic, LineColumn { line, column }: LineColumn) {
    // The column after the end marks something that is missing.
    let text = diagnostic.source.text.replace("\r\n", "\n").replace('\r', "\n");
    let lines = text.split('\n').count();
    let characters = text.split('\n').nth(line.saturating_sub(1) as usize).map_or(0, |l| l.chars().count());
    let right = line >= 1 && column >= 1 && line as usize <= lines && column as usize <= characters + 1;
    assert!(right, "{line}:{column} is outside of {lines} lines ({characters}): {}", diagnostic.plain());
}
