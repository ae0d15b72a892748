//! The question before a change of many objects.

use std::io::{IsTerminal as _, stdin};

use crate::{CliError, Result, output};

/// Prints what living targets lose by a change that the server refused for this reason, and asks unless `yes`. `change` is
/// such as `Delete connection api`.
pub(crate) fn accept_loss(refused: &CliError, yes: bool, change: &str) -> Result<()> {
    output::status_line(&refused.message().replace("a request with `force`", "`--yes`"));
    if yes { Ok(()) } else { confirm(&format!("{change}?"), "--yes", "nothing was changed") }
}

/// Prints `question` and returns when the user types `yes`. `option` of the command skips the question.
///
/// # Errors
/// Returns an error if standard input is not a terminal, or if the user types another text. The error text of the
/// latter is `otherwise`.
pub(crate) fn confirm(question: &str, option: &str, otherwise: &str) -> Result<()> {
    if !stdin().is_terminal() {
        return Err(CliError::broken("cannot ask for confirmation: standard input is not a terminal")
            .with_hint(format!("add {option} to skip the question")));
    }
    output::status_line(&format!("{question} Type yes:"));
    let mut line = String::new();
    let is_read = stdin().read_line(&mut line).is_ok();
    if is_read && line.trim() == "yes" { Ok(()) } else { Err(CliError::failed(otherwise)) }
}
