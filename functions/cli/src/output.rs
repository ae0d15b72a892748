//! Output of commands: data to standard output, messages to standard error.
//!
//! Text for people can contain text of others: labels, titles of pull requests, logs, errors of servers. [`print()`],
//! [`status_line`] and [`status_drawn`] replace its control characters, because these could control the terminal. Data for
//! programs is exact.
//!
//! The functions for standard output return [`Exit::Done`], so that a command can end with one of them.

use std::io::{self, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};

use clap::{ArgMatches, ValueEnum};
use comfy_table::Table;
use ebb_documents::diagnostic::DiagnosticStyle;
use ebb_protocol::{DocumentChange as FieldChange, limits};
use serde::Serialize;

use crate::exit::{CliError, Exit, Result};

pub(crate) use ebb_protocol::words::one_line as joined_lines;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    /// JSON with indentation.
    Json,
    Yaml,
}

/// The option `-o` of commands that print data.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub(crate) struct OutputArgs {
    /// Print data for programs instead of text
    #[arg(short = 'o', long = "output", value_name = "json|yaml", hide_possible_values = true)]
    pub(crate) format: Option<OutputFormat>,
}

/// [`print()`] or [`message`].
pub(crate) type PrintLine = fn(&str) -> Result<Exit>;

/// The id of `-o` in clap.
const OUTPUT: &str = "format";

pub(crate) fn selected_format(arguments: &ArgMatches) -> Option<OutputFormat> {
    // A command with formats of its own has `json` as well.
    let own = arguments.try_get_raw(OUTPUT).ok().flatten().and_then(|mut values| values.next()?.to_str());
    let own = own.and_then(|name| OutputFormat::from_str(name, false).ok());
    own.or_else(|| arguments.subcommand().and_then(|(_, arguments)| selected_format(arguments)))
}

impl OutputArgs {
    /// Writes `data` in the selected format, or the text that `text` returns.
    pub(crate) fn write<T: Serialize>(self, data: &T, text: impl FnOnce(&T) -> String) -> Result<Exit> {
        if self.format.is_none() { print(&text(data)) } else { self.write_data(data) }
    }

    /// Writes `data` in the selected format, or the text of `text` to standard error.
    pub(crate) fn write_status<T: Serialize>(self, data: &T, text: impl FnOnce(&T) -> String) -> Result<Exit> {
        if self.format.is_none() { message(&text(data)) } else { self.write_data(data) }
    }

    /// Returns what prints the lines of a result: beside data, they are messages.
    pub(crate) fn lines(self) -> PrintLine {
        if self.format.is_none() { print } else { message }
    }

    /// Writes `data` in the selected format, or nothing without one.
    pub(crate) fn write_data(self, data: &impl Serialize) -> Result<Exit> {
        let Some(format) = self.format else { return Ok(Exit::Done) };
        WRITTEN.store(true, Ordering::Relaxed);
        print_data(&encoded(format, data)?)
    }

    /// Writes one of several `data` in the selected format: a line of JSON, or a document of a YAML stream.
    pub(crate) fn write_change<T: Serialize>(self, data: &T) -> Result<Exit> {
        match self.format {
            Some(OutputFormat::Json) => {
                WRITTEN.store(true, Ordering::Relaxed);
                let line = serde_json::to_string(data);
                print_data(&line.map_err(|e| CliError::broken("cannot write the data as JSON").with_causes(&e))?)
            }
            Some(OutputFormat::Yaml) => print_data("---").and_then(|_| self.write_data(data)),
            None => Ok(Exit::Done),
        }
    }
}

/// True after a command has written data for programs.
static WRITTEN: AtomicBool = AtomicBool::new(false);

/// Prints the error of a command to standard error, and to standard output if `format` is given and the command has
/// written no data. Returns the exit code.
pub(crate) fn report(error: &CliError, format: Option<OutputFormat>) -> Exit {
    if let (Some(format), Some(data), false) = (format, error.data(), WRITTEN.load(Ordering::Relaxed)) {
        // A closed standard output is not an error.
        let _ = encoded(format, &data).and_then(|text| print_data(&text));
    }
    let text = error.text(drawing());
    match error {
        _ if text.is_empty() => {}
        CliError::Documents(_) => status_drawn(&text),
        CliError::Report(_) | CliError::Output(_) => status_line(&text),
    }
    error.exit()
}

/// Returns `data` as JSON or YAML that ends with a line break.
fn encoded<T: Serialize>(format: OutputFormat, data: &T) -> Result<String> {
    let broken = |error: &(dyn std::error::Error + 'static)| {
        CliError::broken("cannot write the data in this format").with_causes(error)
    };
    match format {
        OutputFormat::Json => serde_json::to_string_pretty(data).map(|json| json + "\n").map_err(|e| broken(&e)),
        OutputFormat::Yaml => serde_saphyr::to_string(data).map_err(|e| broken(&e)),
    }
}

pub(crate) fn json(data: &impl Serialize) -> serde_json::Value {
    serde_json::to_value(data).unwrap_or_default()
}

/// Writes text for people to standard output and adds the missing line break.
pub(crate) fn print(text: &str) -> Result<Exit> {
    print_data(&limits::printable(text))
}

/// Writes data for programs to standard output and adds the missing line break.
pub(crate) fn print_data(text: &str) -> Result<Exit> {
    let mut out = io::stdout().lock();
    let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    let written = out.write_all(text.as_bytes()).and_then(|()| out.write_all(end.as_bytes()));
    written.and_then(|()| out.flush()).map(|()| Exit::Done).map_err(CliError::Output)
}

/// Prints a text to standard error, with one line break at its end. A closed standard error is ignored.
pub(crate) fn status_line(text: &str) {
    status_data(&limits::printable(text));
}

/// Prints a text like [`status_line`], as the last one of a command.
pub(crate) fn message(text: &str) -> Result<Exit> {
    status_line(text);
    Ok(Exit::Done)
}

/// Prints a text with colours of this program, otherwise like [`status_line`].
pub(crate) fn status_drawn(text: &str) {
    status_data(&coloured(text));
}

/// Replaces control characters except those of colours (SGR).
fn coloured(text: &str) -> String {
    let mut parts = text.split('\u{1b}');
    let mut clean = parts.next().map(limits::printable).unwrap_or_default();
    for part in parts {
        let parameters =
            part.strip_prefix('[').map(|part| part.trim_start_matches(|c: char| c.is_ascii_digit() || c == ';'));
        let is_colour = parameters.is_some_and(|rest| rest.starts_with('m'));
        clean.push(if is_colour { '\u{1b}' } else { '\u{fffd}' });
        clean.push_str(&limits::printable(part));
    }
    clean
}

/// Prints data for programs, such as commands to the runner of a job, to standard error.
pub(crate) fn status_data(text: &str) {
    let mut err = io::stderr().lock();
    let written = err.write_all(text.trim_end_matches('\n').as_bytes()).and_then(|()| err.write_all(b"\n"));
    let _ = written.and_then(|()| err.flush());
}

pub(crate) fn drawing() -> DiagnosticStyle {
    if console::colors_enabled_stderr() { DiagnosticStyle::Coloured } else { DiagnosticStyle::Plain }
}

/// Returns a table of columns without borders. Each cell is one line.
pub(crate) fn table<R: IntoIterator<Item = String>>(header: &[&str], rows: impl IntoIterator<Item = R>) -> String {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING).force_no_tty();
    table.set_header(header.to_vec());
    for row in rows {
        table.add_row(row.into_iter().map(|cell| printable(&cell)).collect::<Vec<_>>());
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    let lines: Vec<String> = table.lines().map(|line| line.trim_end().to_owned()).collect();
    lines.join("\n") + "\n"
}

/// Returns the name of a published plugin without `0.0.0`, the version of a document that names none.
pub(crate) fn plugin_name(full: &str) -> &str {
    full.strip_suffix("@0.0.0").unwrap_or(full)
}

/// Returns the change of a field as one line: `PATH: OLD → NEW`.
pub(crate) fn change_line(FieldChange { path, old, new }: &FieldChange) -> String {
    let [old, new] = [old, new].map(|value| printable(value.as_deref().unwrap_or("-")));
    format!("{path}: {old} → {new}")
}

/// Returns a text from another source as one line without control characters, so that it cannot forge other lines.
pub(crate) fn printable(text: &str) -> String {
    limits::printable(text.trim_end()).replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_colours_are_kept() {
        let text = "\u{1b}[38;5;245mgrey\u{1b}[0m \u{1b}[2J\u{1b}]0;title\u{7}";
        assert_eq!(coloured(text), "\u{1b}[38;5;245mgrey\u{1b}[0m \u{fffd}[2J\u{fffd}]0;title\u{fffd}");
    }
}
