//! Having a person say yes before something is done that cannot be taken back.

use std::io::{IsTerminal as _, stdin};

use crate::exit::CliError;
use crate::output;

/// Asks for a yes; `otherwise` is what is said without one.
///
/// # Errors
/// Standard input is not a terminal, or the answer is not `yes`.
pub(crate) fn yes(question: &str, otherwise: &str) -> Result<(), CliError> {
    if !stdin().is_terminal() {
        return Err(CliError::broken("cannot ask: standard input is not a terminal").with_hint("give --yes"));
    }
    output::status_line(&format!("{question} Type yes:"));
    let mut line = String::new();
    let read = stdin().read_line(&mut line);
    match read {
        Ok(_) if line.trim() == "yes" => Ok(()),
        _ => Err(CliError::failed(otherwise)),
    }
}
