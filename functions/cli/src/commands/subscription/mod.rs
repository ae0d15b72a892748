//! The subcommands of `ebb subscription`, and what is to do after a subscription was stored.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Subcommand;
use ebb_documents::model::{ReceiverDoc, SubscriptionDoc};
use ebb_documents::notification::{self, NotificationFacts};
use ebb_documents::{Diagnostic, DocumentVars, NoFiles, TargetFacts, compile, load, starters};
use ebb_protocol::SubscriptionDetail;
use ebb_protocol::engine::TargetChange;
use serde_json::{Value, json};

use crate::selector::pair;
use crate::{ApiClient, CliError, DocumentSource, Exit, Result, SetArgs, documents, output};

#[derive(Debug, Subcommand)]
pub(crate) enum SubscriptionCommand {
    /// Print a subscription as a starting point
    New(SubscriptionNewArgs),
    /// Print the request about an invented target, without a server
    Test(SubscriptionTestArgs),
    /// Send the notifications again that were given up, and those that wait now
    Retry(SubscriptionRetryArgs),
}

/// Prints the effect of a subscription that was stored.
pub(super) fn report(subscription: &SubscriptionDoc, stored: &Value) {
    output::status_line(&format!("Applied subscription {}", subscription.name.value));
    if let Some(problem) = stored["problem"].as_str() {
        let receiver = &subscription.to;
        let credential = match receiver {
            ReceiverDoc::Standard(standard) => &standard.secret,
            ReceiverDoc::Slack(slack) => &slack.secret,
            _ => receiver.connection().unwrap_or(&subscription.name),
        };
        let message = format!("it cannot send anything yet: {problem}");
        documents::warn([&Diagnostic::warning("receiver", &subscription.source, credential.at, message)]);
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct SubscriptionNewArgs {
    /// Name of the subscription
    name: String,
    /// Receiver of the notifications: signed CloudEvents, requests with a connection, messages of Slack, commit statuses of
    /// GitHub or GitLab, or deployments or comments of GitHub
    #[arg(long, value_name = "RECEIVER", value_parser = starters::RECEIVERS)]
    to: String,
}

impl SubscriptionNewArgs {
    pub(super) fn run(self) -> Result<Exit> {
        let document = starters::starter(&self.to, &self.name).expect("the option takes the receivers of the starters");
        let loaded = load::subscription("the new subscription", &document, &NoFiles, &DocumentVars::none())?;
        compile::subscription(&loaded)?;
        output::print_data(&document)?;
        output::message("Complete it, then: ebb apply -f FILE")
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct SubscriptionTestArgs {
    /// File with the subscription; `-` reads standard input
    file: PathBuf,
    /// Phase that the target enters
    #[arg(long, value_name = "PHASE", default_value = "failed", value_parser = change)]
    phase: TargetChange,
    /// Label of the target; repeatable
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = pair)]
    labels: Vec<(String, String)>,
    /// Variable of the environment of a ready target; repeatable
    #[arg(long = "env", value_name = "NAME=VALUE", value_parser = pair)]
    env: Vec<(String, String)>,
    /// Public output of a ready target; repeatable. The first one that is a URL counts as one with `show: link`
    #[arg(long = "value", value_name = "RESOURCE.OUTPUT=VALUE", value_parser = pair)]
    outputs: Vec<(String, String)>,
    #[command(flatten)]
    sets: SetArgs,
}

impl SubscriptionTestArgs {
    pub(super) fn run(self) -> Result<Exit> {
        let DocumentSource { name, text, folder } = DocumentSource::read(&self.file)?;
        let document = load::subscription(&name, &text, &folder, &self.sets.vars()?)?;
        let rule = compile::subscription(&document)?;
        let phase = self.phase;
        let target = TargetFacts {
            kind: "sandbox".to_owned(),
            name: "example".to_owned(),
            uid: "example-uid".to_owned(),
            key: "k3j2h4q5w6e7r2t7".to_owned(),
            generation: 1,
            labels: self.labels.into_iter().collect(),
            ..TargetFacts::default()
        };
        if !rule.reports(phase, &target) {
            let excluding = if rule.on.contains(&phase) { "when" } else { "on" };
            return output::message(&format!(
                "The subscription does not report this change: `{excluding}` excludes it"
            ));
        }
        let is_failure = matches!(phase, TargetChange::Failed | TargetChange::Stuck | TargetChange::EventFailed);
        let of_failure = |text: &str| if is_failure { text.to_owned() } else { String::new() };
        let ends = matches!(phase, TargetChange::Stopping | TargetChange::Gone);
        let is_ready = phase == TargetChange::Ready;
        let url = self.outputs.iter().find_map(|(_, value)| notification::web_url(value)).filter(|_| is_ready);
        let mut outputs: BTreeMap<String, BTreeMap<String, Value>> = BTreeMap::new();
        for (name, value) in self.outputs.into_iter().filter(|_| is_ready) {
            let wrong = || CliError::failed(format!("--value {name}: expected RESOURCE.OUTPUT=VALUE"));
            let (resource, output) = name.split_once('.').ok_or_else(wrong)?;
            outputs.entry(resource.to_owned()).or_default().insert(output.to_owned(), value.into());
        }
        let env = self.env.into_iter().filter(|_| is_ready).map(|(name, value)| (name, value.into()));
        let facts = NotificationFacts {
            id: format!("k3j2h4q5w6e7r2t7-{}-2", phase.name()),
            phase,
            time: "2026-01-31T10:00:00.000Z".to_owned(),
            run: "k3j2h4q5w6e7r2t7-1-pre-start".to_owned(),
            unit: of_failure("db/create"),
            reason: of_failure("the script exited with code 1"),
            log: of_failure("the last lines of the log"),
            ended: if ends { "deleted".to_owned() } else { String::new() },
            link: "https://ebb.example/console/targets/sandbox/example".to_owned(),
            owner: "source example".to_owned(),
            url: url.unwrap_or_default(),
            env: env.collect(),
            outputs,
            ..NotificationFacts::default()
        };
        let request = rule.render(&target, &facts).map_err(CliError::failed)?;
        let json = serde_json::to_value(&request).unwrap_or_default();
        output::print_data(&format!("{json:#}\n"))
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct SubscriptionRetryArgs {
    /// Name of the subscription
    name: String,
}

impl SubscriptionRetryArgs {
    pub(super) async fn run(self, client: &ApiClient) -> Result<Exit> {
        let detail: SubscriptionDetail = client.post(&["subscriptions", &self.name, "retry"], &json!({})).await?;
        let SubscriptionDetail { info, retried, .. } = detail;
        let retried = retried.unwrap_or_default();
        output::message(&format!("Notifications: {retried}; {} waiting, {} given up", info.waiting, info.undelivered))
    }
}

fn change(text: &str) -> Result<TargetChange, String> {
    let expected =
        "starting, ready, updating, failed, stopping, stuck, gone, event-succeeded, event-failed or pre-stop-ended";
    serde_json::from_value(text.into()).map_err(|_| format!("`{text}` is not a phase: expected {expected}"))
}
