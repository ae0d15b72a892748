//! `kind: Subscription`.

use std::sync::Arc;

use ebb_engine::TargetChange;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{ApiVersion, At, SourceText, SubscriptionKind, TemplateTree, WebhookMethod};

/// A subscription: a receiver of the phase changes of targets.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename = "Subscription", rename_all = "camelCase", deny_unknown_fields)]
pub struct SubscriptionDoc {
    pub api_version: ApiVersion,
    pub kind: SubscriptionKind,
    /// The name of the subscription.
    pub name: At<String>,
    /// Free text.
    pub description: Option<String>,
    /// The phases that are reported when a target enters them, and the ends of runs: `event-succeeded`, `event-failed` and
    /// `pre-stop-ended`.
    pub on: Vec<At<TargetChange>>,
    /// A condition over `target`: `${…}`. Without it, all targets are reported.
    pub when: Option<At<String>>,
    /// The receiver.
    pub to: ReceiverDoc,
    #[serde(skip)]
    pub source: Arc<SourceText>,
    /// The document as YAML with all `@{…}` expanded.
    #[serde(skip)]
    pub expanded: String,
}

/// The key `to`. It has exactly one receiver.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename = "Receiver", rename_all = "camelCase")]
#[schemars(extend("type" = "object"))]
pub enum ReceiverDoc {
    /// A CloudEvent, signed by Standard Webhooks.
    Standard(StandardDoc),
    /// A request with a connection.
    Webhook(PostDoc),
    /// A message by an incoming webhook of Slack. The value of the secret is its URL.
    Slack(super::SecretDoc),
    /// A commit status of GitHub.
    Github(CommitStatusDoc),
    /// A commit status of GitLab.
    Gitlab(PipelineStatusDoc),
    /// A deployment of GitHub, one for each target and commit.
    Deployment(DeploymentDoc),
    /// A comment on a pull request or issue of GitHub, one for each target.
    Comment(CommentDoc),
}

impl ReceiverDoc {
    /// Returns the key of the receiver.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Standard(_) => "standard",
            Self::Webhook(_) => "webhook",
            Self::Slack(_) => "slack",
            Self::Github(_) => "github",
            Self::Gitlab(_) => "gitlab",
            Self::Deployment(_) => "deployment",
            Self::Comment(_) => "comment",
        }
    }

    /// Returns true if the receiver shows the state of a target, so that a later notification replaces an earlier one.
    pub fn shows_state(&self) -> bool {
        !matches!(self, Self::Standard(_) | Self::Webhook(_) | Self::Slack(_))
    }

    /// Returns the texts with expressions, without those of `webhook`.
    pub(crate) fn texts(&self) -> Vec<&At<String>> {
        let (required, optional) = match self {
            Self::Standard(_) | Self::Slack(_) | Self::Webhook(_) => return Vec::new(),
            Self::Github(github) => ([&github.repository, &github.sha], &github.context),
            Self::Gitlab(gitlab) => ([&gitlab.project, &gitlab.sha], &gitlab.context),
            Self::Deployment(deployment) => ([&deployment.repository, &deployment.sha], &deployment.environment),
            Self::Comment(comment) => ([&comment.repository, &comment.number], &comment.body),
        };
        required.into_iter().chain(optional).collect()
    }

    /// Returns the name of the connection.
    pub fn connection(&self) -> Option<&At<String>> {
        match self {
            Self::Standard(_) | Self::Slack(_) => None,
            Self::Webhook(PostDoc { connection, .. })
            | Self::Github(CommitStatusDoc { connection, .. })
            | Self::Gitlab(PipelineStatusDoc { connection, .. })
            | Self::Deployment(DeploymentDoc { connection, .. })
            | Self::Comment(CommentDoc { connection, .. }) => Some(connection),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename = "StandardReceiver", deny_unknown_fields)]
pub struct StandardDoc {
    /// The URL: `https://…`. It is literal.
    pub url: At<String>,
    /// The name of the signing secret: letters, digits and `_`, no digit first, at most 63.
    pub secret: At<String>,
}

#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename = "WebhookReceiver", deny_unknown_fields)]
pub struct PostDoc {
    /// The connection, which lists the subscription.
    pub connection: At<String>,
    #[serde(default)]
    pub method: WebhookMethod,
    /// The path and query at the connection. Parts may have `${…}`.
    pub path: At<String>,
    /// The body, in which texts may have `${…}`. The default is the notification.
    #[serde(default)]
    pub body: Option<At<TemplateTree>>,
}

#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename = "CommitStatus", deny_unknown_fields)]
pub struct CommitStatusDoc {
    /// The connection to the API of GitHub, which lists the subscription.
    pub connection: At<String>,
    /// `OWNER/NAME`, with `${…}`.
    pub repository: At<String>,
    /// The commit, with `${…}`.
    pub sha: At<String>,
    /// The name of the status, with `${…}`. The default is `ebb/SOURCE/TARGET`, or `ebb/SUBSCRIPTION/TARGET` for the
    /// target of another owner.
    pub context: Option<At<String>>,
}

#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename = "PipelineStatus", deny_unknown_fields)]
pub struct PipelineStatusDoc {
    /// The connection to the API of GitLab, which lists the subscription.
    pub connection: At<String>,
    /// The ID or the path of the project, with `${…}`.
    pub project: At<String>,
    /// The commit, with `${…}`.
    pub sha: At<String>,
    /// The name of the status, as for `github`.
    pub context: Option<At<String>>,
}

#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename = "Deployment", deny_unknown_fields)]
pub struct DeploymentDoc {
    /// The connection to the API of GitHub, which lists the subscription.
    pub connection: At<String>,
    /// `OWNER/NAME`, with `${…}`.
    pub repository: At<String>,
    /// The commit, with `${…}`.
    pub sha: At<String>,
    /// The name of the environment, with `${…}`. The default is the name of the target.
    pub environment: Option<At<String>>,
}

#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename = "Comment", deny_unknown_fields)]
pub struct CommentDoc {
    /// The connection to the API of GitHub, which lists the subscription.
    pub connection: At<String>,
    /// `OWNER/NAME`, with `${…}`.
    pub repository: At<String>,
    /// The number of the pull request or issue, with `${…}`.
    pub number: At<String>,
    /// The text of the comment, with `${…}`. The default names the target, its phase and the cause of a failure.
    pub body: Option<At<String>>,
}
