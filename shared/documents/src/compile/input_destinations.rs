//! Checks of the environment variables and paths of inputs.

use std::collections::HashMap;

use super::collector::DiagnosticCollector;
use crate::load::names::{NameSyntax, is_name, name_help};
use crate::model::{At, InputDoc, LineColumn};

/// Prefixes of variables that Ebb sets.
const RESERVED_ENV: [&str; 2] = ["EBB_", "SIGNADOT_"];
/// Directories in which inputs and outputs are not allowed.
const RESERVED_PATHS: [&str; 4] = ["/proc", "/sys", "/dev", "/ebb"];
/// The names of destinations in messages.
const VARIABLE: &str = "environment variable";
const PATH: &str = "path";

/// Returns the variable and the path of an input. One that sets neither gets a variable.
pub(super) fn of_input(input: &InputDoc) -> (Option<String>, Option<String>) {
    let env = input.env.as_ref().map(|env| env.value.clone());
    let path = input.path.as_ref().map(|path| path.value.clone());
    let own = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    match (env, path) {
        (None, None) => (Some(input.name.value.chars().map(own).collect()), None),
        both => both,
    }
}

/// Rejects invalid or duplicate variables and paths of a pod's inputs.
pub(super) fn check_inputs(report: &mut DiagnosticCollector, inputs: &[InputDoc]) {
    let mut seen: HashMap<(&str, String), &InputDoc> = HashMap::new();
    for input in inputs {
        let (env, path) = of_input(input);
        let at = |written: &Option<At<String>>| written.as_ref().map_or(input.name.at, |written| written.at);
        if let Some(env) = &env {
            check_env(report, env, at(&input.env));
        }
        if let Some(path) = &input.path {
            check_path(report, path);
        }
        for (what, name, at) in [(VARIABLE, env, at(&input.env)), (PATH, path, at(&input.path))] {
            let Some(name) = name else { continue };
            if let Some(first) = seen.get(&(what, name.clone())) {
                let message = format!("{what} `{name}` is taken by input `{}`", first.name.value);
                let help = "give one of them another name with `env` or `path`";
                report.push(report.error("duplicate", at, message).related(first.name.at, "the first one").help(help));
            } else {
                seen.insert((what, name), input);
            }
        }
    }
    let paths = || seen.iter().filter(|((what, _), _)| *what == PATH).map(|((_, path), input)| (path, input));
    for (path, input) in paths() {
        let above =
            paths().find(|(other, _)| path.strip_prefix(other.as_str()).is_some_and(|rest| rest.starts_with('/')));
        if let (Some((above, _)), Some(written)) = (above, &input.path) {
            let message = format!("path `{path}` is below `{above}`, which is a file");
            report.push(report.error("path", written.at, message).help("a path can be a file or a directory"));
        }
    }
}

fn check_env(report: &mut DiagnosticCollector, name: &str, at: LineColumn) {
    if !is_name(name, NameSyntax::Environment) {
        let message = format!("`{name}` cannot be an environment variable");
        report.push(report.error("env", at, message).help(name_help(name, NameSyntax::Environment, 255)));
    } else if let Some(prefix) = RESERVED_ENV.iter().find(|prefix| name.starts_with(**prefix)) {
        let message = format!("environment variable `{name}` is reserved");
        report.push(report.error("env", at, message).help(format!("names that begin with `{prefix}` are set by Ebb")));
    }
}

/// Rejects a path that is relative, contains `..`, is a directory, or is reserved.
pub(super) fn check_path(report: &mut DiagnosticCollector, path: &At<String>) {
    let text = &path.value;
    let (message, help) = if !text.starts_with('/') {
        (format!("path `{text}` is not absolute"), format!("did you mean `/{}`?", text.trim_start_matches("./")))
    } else if text.split('/').any(|part| part == "..") {
        (format!("path `{text}` has `..` in it"), "write the path that it means".to_owned())
    } else if text.ends_with('/') {
        (format!("path `{text}` is a directory"), "name the file".to_owned())
    } else if text.contains('\0') || text.len() > 4000 {
        ("this cannot be a path".to_owned(), "name a file".to_owned())
    } else {
        let clean: String =
            text.split('/').filter(|part| !part.is_empty() && *part != ".").map(|part| format!("/{part}")).collect();
        let reserved = RESERVED_PATHS.iter().find(|dir| clean == **dir || clean.starts_with(&format!("{dir}/")));
        let Some(reserved) = reserved else { return };
        let file = clean.rsplit('/').next().unwrap_or("file");
        (format!("path `{text}` is reserved"), format!("use a path outside of `{reserved}`, such as `/out/{file}`"))
    };
    report.push(report.error("path", path.at, message).help(help));
}
