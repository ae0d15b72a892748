//! Generated parts of the book: all commands with their options, all routes of the API.
//!
//! `INSTA_UPDATE=always cargo test -p ebb reference` writes them.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::PathBuf;

use clap::{Arg, Command, CommandFactory as _};

use crate::commands::EbbCli;

/// The page has an option once that this number of commands have.
const SHARED: usize = 2;

/// The statuses that almost each route can respond with. The page names them once.
const COMMON_STATUSES: [&str; 5] = ["400", "401", "403", "500", "503"];

/// Compares the end of a page, from `heading` on, with the generated text, or replaces it.
fn check(page: &str, heading: &str, generated: &str) {
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/src").join(page);
    let text = std::fs::read_to_string(&file).unwrap();
    let (before, _) = text.split_once(heading).expect("the page has the heading");
    let expected = format!("{before}{heading}\n\n{}\n", generated.trim_end());
    if std::env::var("INSTA_UPDATE").is_ok_and(|update| update == "always") {
        std::fs::write(&file, expected).unwrap();
    } else {
        assert!(text == expected, "{page} is out of date: INSTA_UPDATE=always cargo test -p ebb reference");
    }
}

fn entry(argument: &Arg) -> String {
    let values = argument.get_value_names().unwrap_or_default().iter();
    let values = values.map(|name| format!(" <{name}>")).collect::<String>();
    let values = if argument.get_action().takes_values() { values } else { String::new() };
    let name = match (argument.get_long(), argument.get_short()) {
        (Some(long), Some(short)) => format!("-{short}, --{long}{values}"),
        (Some(long), None) => format!("--{long}{values}"),
        _ => values.trim_start().to_owned(),
    };
    let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
    let mut help = help.replace('\n', " ").replace('<', "&lt;");
    if let Some(variable) = argument.get_env() {
        let _ = write!(help, " [`{}`]", variable.to_string_lossy());
    }
    let defaults = argument.get_default_values().iter().map(|value| value.to_string_lossy());
    let defaults = defaults.collect::<Vec<_>>().join(" ");
    if !defaults.is_empty() && argument.get_action().takes_values() {
        let _ = write!(help, " (default: `{defaults}`)");
    }
    format!("- `{name}`: {help}\n")
}

/// Adds the commands without subcommands, each with its path.
pub(crate) fn leaves(path: &str, command: &Command, found: &mut Vec<(String, Command)>) {
    let mut visible = command.get_subcommands().filter(|one| !one.is_hide_set() && one.get_name() != "help").peekable();
    if visible.peek().is_none() {
        found.push((path.to_owned(), command.clone()));
    }
    for one in visible {
        leaves(&format!("{path} {}", one.get_name()), one, found);
    }
}

/// Returns the arguments that the page describes.
fn arguments(command: &Command) -> impl Iterator<Item = &Arg> {
    let undescribed = ["help", "version", "server"];
    command.get_arguments().filter(move |one| !one.is_hide_set() && !undescribed.contains(&one.get_id().as_str()))
}

/// Returns the entries of the options that at least [`SHARED`] commands have with the same meaning.
fn shared_entries(commands: &[(String, Command)]) -> Vec<String> {
    let mut counts: Vec<(String, usize)> = Vec::new();
    for option in commands.iter().flat_map(|(_, command)| arguments(command)).filter(|one| one.get_long().is_some()) {
        let entry = entry(option);
        match counts.iter_mut().find(|(known, _)| *known == entry) {
            Some((_, count)) => *count += 1,
            None => counts.push((entry, 1)),
        }
    }
    counts.into_iter().filter(|(_, count)| *count >= SHARED).map(|(entry, _)| entry).collect()
}

fn command(text: &mut String, path: &str, command: &mut Command, shared: &[String]) {
    let about = command.get_long_about().or(command.get_about()).map(ToString::to_string).unwrap_or_default();
    let usage = command.render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ").trim();
    let _ = write!(text, "### {path}\n\n{}.\n\n`{usage}`\n\n", about.trim_end_matches('.'));
    if let Some(note) = command.get_after_help() {
        let note = note.to_string();
        let _ = match note.strip_prefix("Examples:\n  ") {
            Some(lines) => write!(text, "```sh\n{}\n```\n\n", lines.replace("\n  ", "\n")),
            None => write!(text, "{note}\n\n"),
        };
    }
    let (others, own): (Vec<&Arg>, Vec<&Arg>) = arguments(command).partition(|one| shared.contains(&entry(one)));
    if !own.is_empty() {
        let _ = writeln!(text, "{}", own.into_iter().map(entry).collect::<String>());
    }
    if !others.is_empty() {
        let names = others.into_iter().filter_map(Arg::get_long).map(|long| format!("`--{long}`"));
        let _ = write!(text, "[Shared options](#shared-options): {}.\n\n", names.collect::<Vec<_>>().join(", "));
    }
}

#[test]
fn the_book_has_every_command() {
    let mut cli = EbbCli::described();
    cli.build();
    let mut commands = Vec::new();
    leaves("ebb", &cli, &mut commands);
    let shared = shared_entries(&commands);
    let mut text = format!("### Shared options\n\n{}\n", shared.concat());
    for (path, mut one) in commands {
        command(&mut text, &path, &mut one, &shared);
    }
    check("cli.md", "## Commands", &text);
}

/// The summary at the begin of the page has a line for each command: its subcommands, or its purpose.
#[test]
fn the_summary_of_the_book_has_every_command() {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/src/cli.md")).unwrap();
    let summary = page.split("```").nth(1).unwrap();
    let mut cli = EbbCli::command();
    cli.build();
    for command in cli.get_subcommands().filter(|one| !one.is_hide_set() && one.get_name() != "help") {
        let visible = command.get_subcommands().filter(|one| !one.is_hide_set() && one.get_name() != "help");
        let subcommands: BTreeSet<&str> = visible.map(Command::get_name).collect();
        let words = |line: &str| line.split([' ', ',']).filter(|word| !word.is_empty()).map(str::to_owned).collect();
        let lines: Vec<Vec<String>> = summary.lines().map(words).collect();
        let line = lines.iter().find(|line| line.windows(2).any(|two| two == ["ebb", command.get_name()]));
        let line = line.unwrap_or_else(|| panic!("the summary lacks {}", command.get_name()));
        let listed: BTreeSet<&str> = line.iter().skip(2).map(String::as_str).collect();
        assert!(subcommands.is_empty() || subcommands == listed, "{listed:?}, expected {subcommands:?}");
    }
}

#[test]
fn the_book_has_every_route() {
    let document = serde_json::to_value(ebb_api::openapi()).unwrap();
    let mut text = format!("Common statuses are `{}`.\n\n", COMMON_STATUSES.join("`, `"));
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let _ = write!(text, "### {} {path}\n\n", method.to_uppercase());
            for paragraph in ["summary", "description"].map(|name| &operation[name]) {
                if let Some(paragraph) = paragraph.as_str() {
                    let _ = write!(text, "{paragraph}\n\n");
                }
            }
            let parameters = operation["parameters"].as_array().into_iter().flatten();
            let parameters: Vec<_> =
                parameters.filter(|one| one["in"] != "path").filter_map(|one| one["name"].as_str()).collect();
            if !parameters.is_empty() {
                let _ = write!(text, "Parameters: `{}`. ", parameters.join("`, `"));
            }
            let mut statuses: Vec<_> = operation["responses"].as_object().unwrap().keys().map(String::as_str).collect();
            let has_common = COMMON_STATUSES.iter().all(|status| statuses.contains(status));
            statuses.retain(|status| !has_common || !COMMON_STATUSES.contains(status));
            let and_common = if has_common { ", common" } else { "" };
            let _ = write!(text, "Statuses: `{}`{and_common}.\n\n", statuses.join("`, `"));
        }
    }
    check("api.md", "## Operations", &text);
}
