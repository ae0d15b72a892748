//! Having a person say yes before something is done that cannot be taken back.

use std::io::{IsTerminal as _, stdin};

use crate::exit::Trouble;
use crate::output;

/// Asks for a yes; `otherwise` is what is said without one.
///
/// # Errors
/// Standard input is not a terminal, or the answer is not `yes`.
pub(crate) fn yes(question: &str, otherwise: &str) -> Result<(), Trouble> {
    if !stdin().is_terminal() {
        return Err(Trouble::broken("cannot ask: standard input is not a terminal").next("give --yes"));
    }
    output::tell(&format!("{question} Type yes:"));
    let mut line = String::new();
    let read = stdin().read_line(&mut line);
    match read {
        Ok(_) if line.trim() == "yes" => Ok(()),
        _ => Err(Trouble::failed(otherwise)),
    }
}
