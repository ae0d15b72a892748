//! Confirmation of commands that cannot be undone.

use std::io::{IsTerminal as _, stdin};

use crate::exit::CliError;
use crate::output;

/// Prints `question` and returns when the user types `yes`.
///
/// # Errors
/// Standard input is not a terminal, or the user types something else; the error text is then `otherwise`.
pub(crate) fn yes(question: &str, otherwise: &str) -> Result<(), CliError> {
    if !stdin().is_terminal() {
        return Err(CliError::broken("cannot ask for confirmation: standard input is not a terminal")
            .with_hint("add --yes to skip the question"));
    }
    output::status_line(&format!("{question} Type yes:"));
    let mut line = String::new();
    match stdin().read_line(&mut line) {
        Ok(_) if line.trim() == "yes" => Ok(()),
        _ => Err(CliError::failed(otherwise)),
    }
}
