//! `ebb deploy`: SAM does it; what it is told and what comes of it is said here.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::{fs, io};

use serde::Deserialize;
use serde_json::Value;
use tokio::process::Command;

use crate::ask;
use crate::exit::{Exit, Trouble};
use crate::output::{self, Output};

/// Where `cargo xtask build functions` installs SAM, in a clone of the repository.
const OWN_SAM: &str = "target/aws/sam/bin/sam";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The template as `cargo xtask build functions` has built it
    #[arg(long, value_name = "FILE", default_value = "target/aws/build/template.yaml")]
    template: PathBuf,
    /// The stack, which is made if there is none
    #[arg(long, value_name = "NAME", default_value = "ebb", value_parser = stack)]
    stack: String,
    /// The ARN of the secret in Secrets Manager; without it the one that the stack has
    #[arg(long, value_name = "ARN")]
    secrets: Option<String>,
    /// Another parameter of the template; those that are not given stay as they are
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = parameter)]
    parameters: Vec<(String, String)>,
    /// Do not ask before the change set is executed
    #[arg(long)]
    yes: bool,
    /// The program `sam`; without it the one of `cargo xtask build functions`, else that of PATH
    #[arg(long, value_name = "FILE")]
    sam: Option<PathBuf>,
    #[command(flatten)]
    output: Output,
}

/// An output of the stack, as `sam list stack-outputs` has it.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct StackOutput {
    output_key: String,
    output_value: String,
}

impl Args {
    pub(crate) async fn run(self) -> Result<Exit, Trouble> {
        if !self.template.is_file() {
            return Err(Trouble::broken(format!(
                "nothing is built: {} is not there",
                self.template.display()
            ))
            .next("cargo xtask build functions"));
        }
        self.known()?;
        let sam = self.sam();
        if !self.yes {
            ask::anybody()?;
            // Asked here: who says no to sam itself hears that all went well.
            self.deploy(&sam, "--no-execute-changeset").await?;
            let otherwise = "nothing is changed: the change set is there, and not executed";
            ask::yes(&format!("Execute the changes to the stack {}?", self.stack), otherwise)?;
        }
        self.deploy(&sam, "--no-confirm-changeset").await?;
        let outputs = self.outputs(&sam).await?;
        self.output.write(&outputs, |outputs| {
            output::table(
                &["OUTPUT", "VALUE"],
                outputs.iter().map(|(name, value)| [name.clone(), value.clone()]),
            )
        })?;
        if let Some(url) = outputs.get("Url") {
            output::tell(&format!(
                "Next, with EBB_TOKEN an operator's and EBB_WEBHOOK_SECRET one of EBB_WEBHOOK_KEYS of the secret:\n\n  \
                 export EBB_URL={url}\n  ebb doctor\n"
            ));
        }
        Ok(Exit::Done)
    }

    /// Has sam make a change set, and what `then` says of it.
    async fn deploy(&self, sam: &Path, then: &str) -> Result<(), Trouble> {
        let mut deploy = Command::new(sam);
        deploy.args(self.words()).arg(then);
        // Data alone goes to standard output.
        let shown = io::stderr().as_fd().try_clone_to_owned();
        let shown = shown.map_err(|error| Trouble::broken("standard error is closed").because(&error))?;
        let ended = deploy.stdout(Stdio::from(shown)).status().await.map_err(|error| missing(sam, &error))?;
        match ended.success() {
            true => Ok(()),
            false => Err(Trouble::failed("sam has not deployed the stack; it says why above")),
        }
    }

    /// Whether the template knows the parameters that are given; sam passes over those that it does not know.
    fn known(&self) -> Result<(), Trouble> {
        let file = self.template.display();
        let broken =
            |error: &dyn std::fmt::Display| Trouble::broken(format!("{file} cannot be read: {error}"));
        let text = fs::read_to_string(&self.template).map_err(|error| broken(&error))?;
        let template: Value = serde_saphyr::from_str(&text).map_err(|error| broken(&error))?;
        let known = template["Parameters"].as_object();
        let known: Vec<&str> = known.into_iter().flat_map(|all| all.keys().map(String::as_str)).collect();
        match self.parameters.iter().find(|(name, _)| !known.contains(&name.as_str())) {
            None => Ok(()),
            Some((name, _)) => Err(Trouble::broken(format!("the template has no parameter {name}"))
                .next(format!("--set one of {}", known.join(", ")))),
        }
    }

    fn sam(&self) -> PathBuf {
        let own = Path::new(OWN_SAM);
        let found = if own.is_file() { own } else { Path::new("sam") };
        self.sam.clone().unwrap_or_else(|| found.to_owned())
    }

    /// What `sam` is told.
    fn words(&self) -> Vec<String> {
        let mut words: Vec<String> = vec!["deploy".into(), "--stack-name".into(), self.stack.clone()];
        words.extend(["--template-file".to_owned(), self.template.to_string_lossy().into_owned()]);
        // Every role is the stack's own, under a name that AWS chooses.
        let always = ["--resolve-s3", "--capabilities", "CAPABILITY_IAM", "--no-fail-on-empty-changeset"];
        words.extend(always.map(str::to_owned));
        let secrets = self.secrets.iter().map(|arn| ("Secrets", arn));
        let others = self.parameters.iter().map(|(name, value)| (name.as_str(), value));
        let parameters: Vec<String> =
            // In quotes a value may be empty, or have spaces.
            secrets
                .chain(others)
                .map(|(name, value)| format!("{name}=\"{}\"", value.replace('"', "\\\"")))
                .collect();
        if !parameters.is_empty() {
            words.push("--parameter-overrides".to_owned());
            words.extend(parameters);
        }
        words
    }

    async fn outputs(&self, sam: &Path) -> Result<BTreeMap<String, String>, Trouble> {
        let mut list = Command::new(sam);
        list.args(["list", "stack-outputs", "--stack-name", &self.stack, "--output", "json"]);
        let listed = list.output().await.map_err(|error| missing(sam, &error))?;
        let outputs: Vec<StackOutput> = serde_json::from_slice(&listed.stdout).map_err(|_| {
            let why = String::from_utf8_lossy(&listed.stderr).trim().to_owned();
            Trouble::failed(format!(
                "the stack {} is deployed, and sam cannot list its outputs: {why}",
                self.stack
            ))
        })?;
        Ok(outputs.into_iter().map(|output| (output.output_key, output.output_value)).collect())
    }
}

fn missing(sam: &Path, error: &io::Error) -> Trouble {
    let trouble = Trouble::broken(format!("{} cannot be started", sam.display())).because(error);
    if sam.file_name() == Some(OsStr::new("sam")) {
        trouble.next("cargo xtask build functions installs it")
    } else {
        trouble
    }
}

/// The name of a stack, as CloudFormation takes it.
fn stack(text: &str) -> Result<String, String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    let begins = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic());
    if !begins || text.len() > 128 || !text.bytes().all(plain) {
        return Err("it is at most 128 letters, digits and -, the first a letter".to_owned());
    }
    Ok(text.to_owned())
}

fn parameter(text: &str) -> Result<(String, String), String> {
    let wrong = || "write NAME=VALUE; NAME is a parameter of the template".to_owned();
    let (name, value) = text.split_once('=').ok_or_else(wrong)?;
    let plain = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if !plain {
        return Err(wrong());
    }
    // SAM takes the next character for itself.
    if value.contains(['\\', '\n']) {
        return Err("a value has neither backslashes nor line feeds".to_owned());
    }
    Ok((name.to_owned(), value.to_owned()))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn words(line: &[&str]) -> String {
        Line::try_parse_from([""].iter().chain(line))
            .map_or_else(|e| e.to_string(), |line| line.args.words().join(" "))
    }

    #[test]
    fn sam_is_told_what_was_given() {
        let bare = "deploy --stack-name ebb --template-file target/aws/build/template.yaml --resolve-s3 --capabilities \
                    CAPABILITY_IAM --no-fail-on-empty-changeset";
        assert_eq!(words(&[]), bare);
        let given =
            words(&["--secrets=arn:x", "--set=LogDays=7", "--set=PlatformUrl=", "--set=Url=a \"b\" c=d"]);
        let told = r#"--parameter-overrides Secrets="arn:x" LogDays="7" PlatformUrl="" Url="a \"b\" c=d""#;
        assert_eq!(given, format!("{bare} {told}"));
    }

    #[test]
    fn a_parameter_that_the_template_does_not_know_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let template = folder.path().join("template.yaml");
        fs::write(&template, "Parameters: {Url: {Type: String}, LogDays: {Type: Number}}\n").unwrap();
        let known = |set: &str| {
            let template = template.to_str().unwrap();
            Line::try_parse_from(["", "--template", template, "--set", set]).unwrap().args.known()
        };
        known("LogDays=7").unwrap();
        let refused = format!("{:?}", known("PlatformURL=https://a").unwrap_err());
        assert!(
            refused.contains("no parameter PlatformURL") && refused.contains("Url, LogDays"),
            "{refused}"
        );
    }

    #[test]
    fn what_would_be_something_else_is_refused() {
        for line in ["--set=LogDays", "--set==1", "--set=A=\\", "--set=--x=1", "--stack=1a", "--stack=a b"] {
            assert!(words(&[line]).starts_with("error: invalid value"), "{line}: {}", words(&[line]));
        }
    }
}
