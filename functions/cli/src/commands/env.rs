//! `ebb env`: prints the environment of a ready target for shells and CI systems, also if its postStart has failed.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use clap::ValueEnum;
use ebb_protocol::{OutputValue, TargetDetail, TargetPhase};

use crate::{ApiClient, CliError, Exit, Result, TargetArgs, TargetRef, fresh_uid, labels, named, output};

/// A form of variables. Each one keeps every value exactly, or the command fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum EnvFormat {
    /// Lines `NAME=VALUE` for dotenv parsers.
    Dotenv,
    /// One object of texts.
    Json,
    /// Lines `export NAME='VALUE'` for POSIX shells.
    Shell,
    /// Entries for the file `$GITHUB_ENV`.
    Github,
    /// Lines `NAME=VALUE` for a dotenv report of GitLab.
    Gitlab,
}

#[derive(Debug, clap::Args)]
pub(crate) struct EnvArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// Print the outputs of this resource, or one of them, instead of `env`: `seed.base-prefix` becomes
    /// `SEED_BASE_PREFIX`
    #[arg(long, value_name = "RESOURCE[/OUTPUT]")]
    resource: Option<String>,
    /// Print the variables of this workload of a Signadot sandbox instead of `env`: `KIND/NAMESPACE/NAME`, or the last
    /// part alone
    #[arg(long, value_name = "WORKLOAD", conflicts_with = "resource")]
    workload: Option<String>,
    /// Leave out sensitive values; without this, one is an error
    #[arg(long)]
    skip_sensitive: bool,
    /// Print the sensitive values that the server stores; needs the scope `targets:reveal`. `-o github` masks them
    #[arg(long)]
    reveal: bool,
    /// Form of the variables: dotenv, json, shell, github or gitlab
    #[arg(short = 'o', long = "output", value_name = "FORMAT", default_value = "dotenv", hide_possible_values = true)]
    format: EnvFormat,
}

impl EnvArgs {
    pub(crate) async fn run(self, client: &ApiClient) -> Result<Exit> {
        let target = self.target.target()?;
        let (workload, resource) = (self.workload.as_deref(), self.resource.as_deref());
        let seen = ready(&target, client.with_values(&target, resource, self.reveal).await?)?;
        let mut values = values(&target, seen, workload, resource)?;
        let has_none = values.is_empty();
        let mut leave_out = |why: &str, is_left_out: fn(&OutputValue) -> bool| {
            values.retain(|name, value| {
                if is_left_out(value) {
                    output::status_line(&format!("{name} is left out: its value is {why}"));
                }
                !is_left_out(value)
            });
        };
        // An optional output without a value.
        leave_out("null", |value| matches!(value, OutputValue::Value(serde_json::Value::Null)));
        if self.skip_sensitive {
            leave_out("sensitive", |value| matches!(value, OutputValue::Secret(_) | OutputValue::Sensitive(_)));
        }
        if values.is_empty() {
            let lacks = if has_none { missing(workload, resource) } else { "no other values".to_owned() };
            output::status_line(&format!("{target} has {lacks}"));
        }
        let texts = texts(&values)?;
        let data = text(self.format, &texts)?;
        if self.reveal && self.format == EnvFormat::Github {
            let hidden =
                self::values(&target, client.with_values(&target, resource, false).await?, workload, resource)?;
            let sensitive = texts.iter().filter(|(name, _)| hidden.get(**name) != values.get(**name));
            let masks: String = sensitive.map(|(_, text)| masks(text)).collect();
            // The runner reads commands from both streams of a step, and standard output becomes `$GITHUB_ENV`.
            if !masks.is_empty() {
                output::status_data(&masks);
            }
        }
        output::print_data(&data)
    }
}

/// Checks that a format can hold the variables that are known before the start.
pub(super) fn check(format: EnvFormat, mut known: BTreeMap<String, OutputValue>, skip_sensitive: bool) -> Result<()> {
    known.retain(|_, value| !skip_sensitive || matches!(value, OutputValue::Value(_)));
    text(format, &texts(&known)?).map(drop)
}

/// Returns what a target without variables lacks.
fn missing(workload: Option<&str>, resource: Option<&str>) -> String {
    match (workload, resource) {
        (Some(workload), _) => format!("no variables of the workload {workload}"),
        (None, Some(resource)) => format!("no outputs of {resource}"),
        (None, None) => "no values of `env`".to_owned(),
    }
}

/// Returns a usable target with its values, or an error.
fn ready(target: &TargetRef, seen: TargetDetail) -> Result<TargetDetail> {
    let name = named(target);
    let phase = seen.info.phase;
    if let Some(warning) = labels::failed_after_ready(&seen.info) {
        output::status_line(&warning);
    } else if phase != TargetPhase::Ready {
        let next = if phase == TargetPhase::Starting { "wait" } else { "why" };
        let phase = labels::stands(phase);
        return Err(CliError::failed(format!("{target} {phase}; only a ready target has an environment"))
            .with_hint(format!("ebb {next} {name}")));
    }
    for unit in seen.runs.iter().flat_map(|run| &run.units).filter(|unit| unit.tolerated) {
        let why = unit.reason.as_ref().map(|reason| output::printable(&reason.message)).unwrap_or_default();
        output::status_line(&format!("warning: {} has failed: {why}; what reads it is left out", unit.key));
    }
    if let Some(problem) = seen.outputs_error {
        return Err(CliError::failed(format!("the server cannot return the values of {target}: {problem}")));
    }
    Ok(seen)
}

/// Returns the variables of a workload. Variables of single containers count, too.
fn workload_variables(target: &TargetRef, seen: TargetDetail, workload: &str) -> Result<BTreeMap<String, OutputValue>> {
    let is_meant = |name: &str| name == workload || name.rsplit('/').next() == Some(workload);
    let names: Vec<&str> = seen.workloads.keys().map(String::as_str).collect();
    let [meant] = names.iter().copied().filter(|name| is_meant(name)).collect::<Vec<_>>()[..] else {
        let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        return Err(CliError::failed(format!(
            "expected one workload of {target} that reads outputs, got {workload:?}"
        ))
        .with_hint(format!("known workloads: {known}")));
    };
    let mut variables = BTreeMap::new();
    for value in &seen.workloads[meant] {
        let Some(name) = &value.env else { continue };
        let other = variables.insert(name.clone(), value.value.clone());
        if other.is_some_and(|other| other != value.value) {
            return Err(CliError::failed(format!("{name} differs between containers of {meant}"))
                .with_hint(format!("ebb get {} {} -o json", target.kind, target.name)));
        }
    }
    Ok(variables)
}

/// Returns the values of a ready target by variable: its `env`, the variables of a workload, or the outputs of a resource.
fn values(
    target: &TargetRef,
    mut seen: TargetDetail,
    workload: Option<&str>,
    resource: Option<&str>,
) -> Result<BTreeMap<String, OutputValue>> {
    if let Some(workload) = workload {
        return workload_variables(target, seen, workload);
    }
    let Some(resource) = resource else { return Ok(seen.env) };
    // `RESOURCE/OUTPUT` selects one output.
    let resource = resource.split_once('/').map_or(resource, |(resource, _)| resource);
    let mut values = BTreeMap::new();
    for (output, value) in seen.resources.remove(resource).into_iter().flat_map(|detail| detail.outputs) {
        let variable = output.to_ascii_uppercase().replace(|c: char| !c.is_ascii_alphanumeric(), "_");
        if values.insert(variable.clone(), value).is_some() {
            return Err(CliError::failed(format!("two outputs of {resource} become the variable {variable}"))
                .with_hint("give them names of their own in `env` of the document"));
        }
    }
    Ok(values)
}

/// Returns the text of each variable. JSON that is not a text is written in one line.
fn texts(values: &BTreeMap<String, OutputValue>) -> Result<BTreeMap<&str, String>> {
    let mut texts = BTreeMap::new();
    let (mut sensitive, mut hidden) = (Vec::new(), Vec::new());
    for (name, value) in values {
        match value {
            OutputValue::Value(serde_json::Value::String(text)) => drop(texts.insert(name.as_str(), text.clone())),
            OutputValue::Value(json) => drop(texts.insert(name, json.to_string())),
            OutputValue::Base64(_) => {
                return Err(CliError::failed(format!("{name} is not text, and a variable holds text only")));
            }
            OutputValue::Secret(_) => sensitive.push(format!("{name}: {}", crate::why::value_line(value))),
            OutputValue::Sensitive(_) => hidden.push(name.as_str()),
        }
    }
    if sensitive.is_empty() && hidden.is_empty() {
        return Ok(texts);
    }
    if sensitive.is_empty() {
        return Err(CliError::failed(format!("sensitive values are hidden: {}", hidden.join(", ")))
            .with_hint("add --reveal, which needs the scope `targets:reveal`, or --skip-sensitive"));
    }
    let message = "the server does not know sensitive values: each one stays in its cluster";
    Err(CliError::failed(format!("{message}\n  {}", sensitive.join("\n  ")))
        .with_hint("read the Secret in the cluster, or add --skip-sensitive"))
}

/// Returns all variables in a format, or an error if the format cannot hold one of them.
fn text(format: EnvFormat, texts: &BTreeMap<&str, String>) -> Result<String> {
    if format == EnvFormat::Json {
        let json = serde_json::to_string_pretty(texts);
        return json.map(|json| json + "\n").map_err(|error| CliError::broken("cannot write JSON").with_causes(&error));
    }
    let mut lines = String::new();
    for (&name, text) in texts {
        check_variable(format, name, text)?;
        variable(&mut lines, format, name, text)
            .map_err(|reason| unwritten(name, reason, "use -o shell or -o json"))?;
    }
    Ok(lines)
}

fn unwritten(name: &str, reason: &str, next: &str) -> CliError {
    CliError::failed(format!("cannot write {name} in this format: {reason}")).with_hint(next)
}

/// Names, and beginnings of names, by which a CI job and its runner find programs, files and the sandbox to delete.
const OF_JOB: [&str; 8] = ["EBB_", "ebb_started_", "PATH", "NODE_OPTIONS", "GITHUB_", "RUNNER_", "CI_", "GITLAB_"];

/// Checks a variable. A value that is not known yet is empty.
pub(super) fn check_variable(format: EnvFormat, name: &str, text: &str) -> Result<()> {
    let is_of_job = OF_JOB.iter().any(|own| name == *own || (own.ends_with('_') && name.starts_with(own)));
    let (reason, next) = match format {
        EnvFormat::Json => return Ok(()),
        _ if !is_variable(name) => ("its name must have letters, digits and `_`, no digit first", "use -o json"),
        EnvFormat::Github | EnvFormat::Gitlab if is_of_job => {
            ("the name is one of the job or its runner", "rename it in `env` of the document")
        }
        _ if text.contains('\0') => ("its value has a NUL character", "use -o json"),
        _ => return Ok(()),
    };
    Err(unwritten(name, reason, next))
}

/// Returns the commands that make GitHub's runner mask a value in logs. A mask covers one line. That of a very short one
/// would hide letters and digits in the whole log.
fn masks(text: &str) -> String {
    let lines = text.split(['\n', '\r']).filter(|line| line.trim().chars().count() >= 4);
    lines.map(|line| format!("::add-mask::{}\n", line.replace('%', "%25"))).collect()
}

fn is_variable(name: &str) -> bool {
    let mut characters = name.chars();
    characters.next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
        && characters.all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Appends a variable to `lines`. Fails with the reason if the format cannot hold its value.
fn variable(lines: &mut String, format: EnvFormat, name: &str, text: &str) -> Result<(), &'static str> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_.:/@%+,=-".contains(c);
    let written = match format {
        EnvFormat::Shell => writeln!(lines, "export {name}='{}'", text.replace('\'', r"'\''")),
        EnvFormat::Github => {
            // A value could contain a known delimiter and then set other variables.
            let delimiter = format!("ebb_{}", fresh_uid());
            writeln!(lines, "{name}<<{delimiter}\n{text}\n{delimiter}")
        }
        EnvFormat::Gitlab if text.chars().any(|c| c.is_whitespace() || c.is_control()) => {
            return Err("its value has a space or line break, which GitLab does not accept");
        }
        EnvFormat::Gitlab => writeln!(lines, "{name}={text}"),
        EnvFormat::Dotenv | EnvFormat::Json if text.chars().all(is_plain) => writeln!(lines, "{name}={text}"),
        // Parsers disagree about these: python-dotenv reads `\\` in quotes as one backslash and expands `${…}` in them,
        // dotenv of Node.js replaces CR LF.
        EnvFormat::Dotenv | EnvFormat::Json if text.contains('\r') || text.contains("${") => {
            return Err("dotenv parsers disagree about `${` and carriage returns");
        }
        EnvFormat::Dotenv | EnvFormat::Json if !text.contains('\'') => {
            if text.contains(r"\\") || text.ends_with('\\') {
                return Err("dotenv parsers disagree about two backslashes, and a backslash at the end");
            }
            writeln!(lines, "{name}='{text}'")
        }
        EnvFormat::Dotenv | EnvFormat::Json if text.contains(['"', '\\', '$', '`']) => {
            return Err("dotenv parsers disagree about `'` beside `\"`, `\\`, `$` or a backtick");
        }
        EnvFormat::Dotenv | EnvFormat::Json => writeln!(lines, "{name}=\"{text}\""),
    };
    written.expect("a String accepts every text");
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::progress::fixtures::rows;

    /// Returns variables whose values shells and parsers could misread.
    fn hostile() -> BTreeMap<String, String> {
        values(serde_json::from_str::<Vec<String>>(include_str!("hostile_values.json")).unwrap())
    }

    fn values<T: ToString>(values: impl IntoIterator<Item = T>) -> BTreeMap<String, String> {
        values.into_iter().enumerate().map(|(number, text)| (format!("V_{number}"), text.to_string())).collect()
    }

    fn written(format: EnvFormat, values: &BTreeMap<String, String>) -> Result<String> {
        text(format, &values.iter().map(|(name, text)| (name.as_str(), text.clone())).collect())
    }

    /// Returns the variables that a shell has after it has read `script`.
    fn sourced(script: &str, names: &BTreeMap<String, String>) -> BTreeMap<String, String> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("env"), script).unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "set -a; . ./env; exec env -0"]).current_dir(folder.path());
        let out = command.output().unwrap();
        assert!(out.status.success() && out.stderr.is_empty(), "{out:?}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "a value was executed");
        let text = String::from_utf8(out.stdout).unwrap();
        let all = text.split('\0').filter_map(|line| line.split_once('='));
        let known = all.filter(|(name, _)| names.contains_key(*name));
        known.map(|(name, text)| (name.to_owned(), text.to_owned())).collect()
    }

    /// Reads a file as GitHub's runner reads `$GITHUB_ENV`.
    fn read_by_github(file: &str) -> BTreeMap<String, String> {
        let mut values = BTreeMap::new();
        let mut lines = file.strip_suffix('\n').unwrap().split('\n');
        while let Some(line) = lines.next() {
            let (name, delimiter) = line.split_once("<<").unwrap();
            let text: Vec<&str> = lines.by_ref().take_while(|line| *line != delimiter).collect();
            values.insert(name.to_owned(), text.join("\n"));
        }
        values
    }

    #[test]
    fn a_shell_reads_the_same_values() {
        let mut all = hostile();
        all.insert("CR".to_owned(), "a\r\nb ${X} \\\\ \\".to_owned());
        assert_eq!(sourced(&written(EnvFormat::Shell, &all).unwrap(), &all), all);
    }

    #[test]
    fn github_reads_the_same_values_and_no_delimiter_repeats() {
        let all = hostile();
        let file = written(EnvFormat::Github, &all).unwrap();
        assert_eq!(read_by_github(&file), all);
        let delimiters: std::collections::BTreeSet<&str> =
            file.lines().filter_map(|line| line.split_once("<<ebb_")).map(|(_, random)| random).collect();
        assert_eq!(delimiters.len(), all.len());
        assert!(delimiters.iter().all(|random| random.len() == 32), "{delimiters:?}");
    }

    /// dotenv of npm, `node --env-file`, python-dotenv, godotenv and Docker Compose read these forms alike.
    #[test]
    fn dotenv_has_forms_that_parsers_read_alike() {
        let all = hostile();
        let file = written(EnvFormat::Dotenv, &all).unwrap();
        assert_eq!(sourced(&file, &all), all);
        for (text, form) in rows::<(String, String)>("dotenv_has_forms_that_parsers_read_alike") {
            assert_eq!(written(EnvFormat::Dotenv, &values([text])).unwrap(), form);
        }
        for text in ["a\rb", "${HOME}", "two \\\\", "end \\", "it's \"x\"", "it's $5"] {
            written(EnvFormat::Dotenv, &values([text])).unwrap_err();
        }
    }

    #[test]
    fn a_format_rejects_what_it_cannot_hold() {
        let rejects = |format, name: &str, text: &str| {
            written(format, &BTreeMap::from([(name.to_owned(), text.to_owned())])).is_err()
        };
        let lines = [EnvFormat::Dotenv, EnvFormat::Shell, EnvFormat::Github, EnvFormat::Gitlab];
        for format in lines {
            for name in ["", "A B", "A=B", "1A", "A\nB", "A<<B", "a-b"] {
                assert!(rejects(format, name, "x"), "{format:?} {name:?}");
            }
            assert!(rejects(format, "A", "a\0b"), "{format:?}");
            let of_job = ["EBB_A", "ebb_started_1", "PATH", "GITHUB_ENV"].map(|name| rejects(format, name, "x"));
            assert_eq!(of_job, [matches!(format, EnvFormat::Github | EnvFormat::Gitlab); 4], "{format:?}");
            assert!(!rejects(format, "PATHS", "a"), "{format:?}");
        }
        assert!(rejects(EnvFormat::Gitlab, "A", "two words") && rejects(EnvFormat::Gitlab, "A", "a\nB=b"));
        assert!(!rejects(EnvFormat::Json, "A B", "a\0b"));
    }
}
