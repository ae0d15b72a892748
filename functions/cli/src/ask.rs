//! Having a person say yes before something is done that cannot be taken back.

use std::io::{IsTerminal as _, stdin};

use crate::exit::Trouble;
use crate::output;

/// Whether somebody is there.
///
/// # Errors
/// Nobody is: standard input is no terminal.
pub(crate) fn anybody() -> Result<(), Trouble> {
    match stdin().is_terminal() {
        true => Ok(()),
        false => Err(Trouble::broken("nobody is there to be asked").next("give --yes")),
    }
}

/// Asks for a yes; `otherwise` is what is said without one.
///
/// # Errors
/// Nobody is there, or says something else.
pub(crate) fn yes(question: &str, otherwise: &str) -> Result<(), Trouble> {
    anybody()?;
    output::tell(&format!("{question} Type yes:"));
    let mut line = String::new();
    let read = stdin().read_line(&mut line);
    match read {
        Ok(_) if line.trim() == "yes" => Ok(()),
        _ => Err(Trouble::failed(otherwise)),
    }
}
